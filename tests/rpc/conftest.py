"""A place for sockets that other users can reach too."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory of its own, with a name that is short enough for a socket's (unix(7): 108 bytes)."""
    folder = Path(tempfile.mkdtemp(prefix="aiosd-rpc-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
