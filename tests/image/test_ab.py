"""A machine is updated to the next version and goes back to the old one, and keeps its tasks both times.

All takes part that does on hardware: firmware, systemd-boot with its counting, dm-verity, systemd-sysupdate; emulated,
it takes minutes. Version 1 has the package of an earlier state of the project, version 2 one whose database is a step
ahead of this checkout's: the earlier program works on the database that a later one has changed.
"""

from __future__ import annotations

import os
import re
import subprocess
from typing import TYPE_CHECKING

from tests import prerequisites
from tests.image.versions import NEXT, next_database
from tests.rig import host

if TYPE_CHECKING:
    from pathlib import Path

PAGE = host.CHECKOUT / "docs/image.md"
PLACE = re.compile(r"(<!-- transcript: of image/update-and-rollback -->\n).*?(<!-- end of transcript -->)", re.DOTALL)


def test_update_and_rollback(earlier_package: Path, next_package: Path, tmp_path: Path) -> None:
    if os.uname().machine != "x86_64":
        prerequisites.missing("the image is for x86_64")
    command = [str(host.CHECKOUT / "image/update-and-rollback"), *map(str, (tmp_path, earlier_package, next_package))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    told = done.stdout
    print(told)
    assert done.returncode == 0, told + done.stderr
    assert "FAIL" not in told
    assert told.count("PASS all of it") == 3
    databases = [line.split("version ")[1] for line in told.splitlines() if line.startswith("database: ")]
    assert databases[1:] == [next_database()] * 2, "the next version changed the database, and the old one works on it"
    assert f"image aios 2, aiosd {NEXT}" in told
    assert "PASS the task made under version 2 is known" in told
    if os.environ.get("AIOSD_WRITE_DOCS") == "1":
        indented = "".join(f"    {line}".rstrip() + "\n" for line in told.strip().splitlines())
        PAGE.write_text(PLACE.sub(lambda found: f"{found[1]}{indented}{found[2]}", PAGE.read_text()))
