"""What the tests of package and image share: the packages, each built once."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.image.versions import build_earlier, build_next, build_once
from tests.rig import host

if TYPE_CHECKING:
    from pathlib import Path


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
    """The package of this checkout, judged by lintian; not built again for the same files."""
    return build_once(source, tmp_path_factory.mktemp("package"))


@pytest.fixture(scope="session")
def earlier_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package of an earlier state of the project."""
    return build_earlier(tmp_path_factory.mktemp("earlier"))


@pytest.fixture(scope="session")
def next_package(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of this checkout as the version after this one, with a newer database."""
    return build_next(package, tmp_path_factory.mktemp("next"))
