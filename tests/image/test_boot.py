"""The OS image is built with the package, boots as it is, does the main job with limits enforced, and keeps state.

What is checked in it is `image/check/run`: no failed unit, no warning, an unprivileged user by busctl, and MemoryMax,
TasksMax, CPUQuota and the freezer on tasks. Here under user-mode-linux;
`image/boot --qemu` does the same with Debian's kernel.
"""

from __future__ import annotations

import os
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


def payload(directory: Path, *, ending: str = "") -> Path:
    """The check of the image and the package's own test, which it runs as well; `ending`: what else is run."""
    directory.mkdir()
    for file in (IMAGE / "check/run", host.CHECKOUT / "packaging/debian/tests/busctl"):
        shutil.copy(file, directory)
    if ending:
        (directory / "run").rename(directory / "check")
        (directory / "run").write_text(f"sh ./check\necho ended with $?\n{ending}\n")
    return directory


def boot(image: Path, given: Path, result: Path) -> tuple[int, str]:
    """One boot of that disk from power on to power off: the exit status of what was run in it, and what that said."""
    command = [str(IMAGE / "boot"), "--keep", str(image), str(given), str(result)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_boots_works_and_is_the_same_machine_the_next_time(image: Path, tmp_path: Path) -> None:
    """In the first boot something fails after the check, so that the pass of the second means something."""
    failing = payload(tmp_path / "failing", ending="touch /usr/x 2>&1; exit 3")
    status, first = boot(image, failing, tmp_path / "first")
    assert "\nPASS all of it\nended with 0\n" in first, first
    assert (status, "/usr/x': Read-only file system" in first) == (3, True), first
    assert "known" not in first
    status, second = boot(image, payload(tmp_path / "good"), tmp_path / "second")
    assert (status, "\nPASS all of it\n" in second) == (0, True), second
    assert "PASS the task of the boot before is still known" in second
