"""What the tests of package and image share: the package, built once."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests import prerequisites
from tests.rig import host

if TYPE_CHECKING:
    from pathlib import Path

#: exit status of packaging/tools where the tools cannot be had
EX_UNAVAILABLE = 69


def build(source: Path, directory: Path, *options: str) -> Path:
    """The package of a source tree; where it is."""
    command = [str(source / "packaging/build"), *options, str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == EX_UNAVAILABLE:
        prerequisites.missing(done.stderr)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", "lintian has nothing to say"
    [package] = directory.glob("*.deb")
    return package


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What git knows or would know of this checkout, as it is now: a working tree may change while the tests run."""
    directory = tmp_path_factory.mktemp("source")
    ask = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(ask, cwd=host.CHECKOUT, capture_output=True, text=True, check=True)
    for name in filter(None, names.stdout.split("\0")):
        if (file := host.CHECKOUT / name).is_file():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, directory / name, follow_symlinks=False)
    return directory


@pytest.fixture(scope="session")
def package(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of this checkout, judged by lintian."""
    return build(source, tmp_path_factory.mktemp("package"))
