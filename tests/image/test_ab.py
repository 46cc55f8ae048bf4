"""A machine is updated to the next version and goes back to the old one, and keeps its tasks both times.

All takes part that does on hardware: firmware, systemd-boot with its counting, dm-verity, systemd-sysupdate; emulated,
it takes minutes. Version 1 has the package of an earlier state of the project, version 2 one whose database is a step
ahead of this checkout's: the earlier program works on the database that a later one has changed.

One story (`image/update-and-rollback`), in chapters that each need the one before. With AIOSD_WRITE_DOCS=1 it goes
into docs/image.md.
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests import prerequisites
from tests.image.versions import NEXT, next_database
from tests.rig import host

if TYPE_CHECKING:
    from pathlib import Path

NEWEST = tuple(map(int, next_database().split(".")))
PAGE = host.CHECKOUT / "docs/image.md"
PLACE = re.compile(r"(<!-- transcript: of image/update-and-rollback -->\n).*?(<!-- end of transcript -->)", re.DOTALL)


@dataclass(frozen=True)
class Machine:
    """Where it is, what it was made from, and what was told so far."""

    work: Path
    old: Path
    new: Path
    told: list[str]

    def go(self, *chapters: str) -> str:
        """Those chapters; what was told. Fails unless every answer was PASS."""
        command = [
            str(host.CHECKOUT / "image/update-and-rollback"),
            *map(str, (self.work, self.old, self.new)),
            *chapters,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        print(done.stdout)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "FAIL" not in done.stdout
        self.told.append(done.stdout)
        return done.stdout


@pytest.fixture(scope="module")
def machine(earlier_package: Path, next_package: Path, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """One that has never been switched on."""
    if os.uname().machine != "x86_64":
        prerequisites.missing("the image is for x86_64")
    made = Machine(tmp_path_factory.mktemp("machine"), earlier_package, next_package, [])
    made.go("build")
    return made


@pytest.fixture(scope="module")
def delivered(machine: Machine) -> str:
    return machine.go("delivered")


@pytest.fixture(scope="module")
def updated(machine: Machine, delivered: str) -> str:
    return machine.go("updated")


@pytest.fixture(scope="module")
def returned(machine: Machine, updated: str) -> str:
    return machine.go("returned")


def database(told: str) -> tuple[int, int]:
    """Level and sublevel of the one that the daemon has."""
    [(level, sublevel)] = re.findall(r"^database: version (\d+)\.(\d+)$", told, re.MULTILINE)
    return int(level), int(sublevel)


def test_the_first_version_proves_itself_and_installs_the_second(delivered: str) -> None:
    assert "PASS this boot made the version good" in delivered
    assert "aios_2+3-0.efi" in delivered


def test_the_second_has_the_tasks_of_the_first_in_a_newer_database(delivered: str, updated: str) -> None:
    assert f"image aios 2, aiosd {NEXT}" in updated
    assert database(delivered) < database(updated) == NEWEST
    assert "PASS the task made under version 1 is known" in updated


def test_the_boot_loader_goes_back_and_the_first_has_the_tasks_of_both(machine: Machine, returned: str) -> None:
    assert "aios_2+0-3.efi" in returned
    assert database(returned) == NEWEST
    assert "PASS the task made under version 2 is known" in returned
    if os.environ.get("AIOSD_WRITE_DOCS") == "1":
        told = "".join(machine.told).strip().splitlines()
        indented = "".join(f"    {line}".rstrip() + "\n" for line in told)
        PAGE.write_text(PLACE.sub(lambda found: f"{found[1]}{indented}{found[2]}", PAGE.read_text()))
