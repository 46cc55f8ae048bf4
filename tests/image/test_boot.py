"""The OS image is built with the package, boots as it is, does the main job with limits enforced, and keeps state.

What is checked in it is `image/check/run`: no failed unit, no warning, an unprivileged user by busctl, and MemoryMax,
TasksMax, CPUQuota and the freezer on tasks. Here under user-mode-linux;
`image/boot --qemu` does the same with Debian's kernel.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests import prerequisites
from tests.rig import host

if TYPE_CHECKING:
    from pathlib import Path

IMAGE = host.CHECKOUT / "image"


@pytest.fixture(scope="module")
def image(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The flavour `direct`, with the package of this checkout."""
    if os.uname().machine != "x86_64":
        prerequisites.missing("user-mode-linux needs an x86_64 host")
    directory = tmp_path_factory.mktemp("image")
    command = [str(IMAGE / "build"), str(directory), "direct", "1", str(package)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return directory / "aios_1.raw"


@pytest.fixture(scope="module")
def payload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The check of the image and the package's own test, which it runs as well."""
    directory = tmp_path_factory.mktemp("payload")
    for file in (IMAGE / "check/run", host.CHECKOUT / "packaging/debian/tests/busctl"):
        shutil.copy(file, directory)
    return directory


def boot(image: Path, payload: Path, result: Path) -> str:
    """One boot of that disk from power on to power off; what the check said. Fails unless it said that all is well."""
    command = [str(IMAGE / "boot"), "--keep", str(image), str(payload), str(result)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\nPASS all of it\n" in done.stdout
    return done.stdout


def test_boots_works_and_is_the_same_machine_the_next_time(image: Path, payload: Path, tmp_path: Path) -> None:
    first = boot(image, payload, tmp_path / "first")
    assert "known" not in first
    second = boot(image, payload, tmp_path / "second")
    assert "PASS the task of the boot before is still known" in second


def test_a_check_that_fails_is_told(image: Path, tmp_path: Path) -> None:
    """So that the passes above mean something: exit status and output of the guest are what comes back."""
    (tmp_path / "payload").mkdir()
    (tmp_path / "payload/run").write_text("touch /usr/x 2>&1; echo; systemctl is-active aiosd.service; exit 3\n")
    command = [str(IMAGE / "boot"), str(image), str(tmp_path / "payload"), str(tmp_path / "result")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stdout + done.stderr
    assert re.search(r"Read-only file system\n\nactive\n", done.stdout)
