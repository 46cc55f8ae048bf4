"""The rig's cache: when each thing in it was last used, and what goes when a new one is made.

Things are named by a hash of what shapes them, so an edit leaves the old one behind: half a gigabyte for a root file
system and its disk image. When a new one has been made, those of its kind that nobody has used for a day are thrown
away; not what a box that is up was booted from. A thing's time of modification is that of its last use.
"""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tests.rig import host

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Seconds without use after which a thing is not needed any more.
UNUSED = 86400.0
#: In the state directory of a box: paths of what it was booted from, one a line.
HOLDS = "holds"


def use(thing: Path) -> Path:
    """Note that it is used now; returns it."""
    with suppress(PermissionError):  # another user's cache, which is theirs to keep
        os.utime(thing)
    return thing


def hold(state: Path, *things: Path) -> None:
    """Keep them for as long as the box with that state directory is there."""
    (state / HOLDS).write_text("".join(f"{thing}\n" for thing in things))


def _held() -> Iterator[Path]:
    for pattern in (f"*/{HOLDS}", f".machines/*/{HOLDS}"):
        for noted in host.state_directory().glob(pattern):
            with suppress(FileNotFoundError):  # that box has just gone
                yield from map(Path, noted.read_text().splitlines())


def forget(pattern: str) -> list[Path]:
    """Throw away what matches the pattern and is neither held nor was used within a day; what that was."""
    held = set(_held())
    gone = []
    for thing in host.cache_directory().glob(pattern):
        with suppress(FileNotFoundError):
            if time.time() - thing.stat().st_mtime < UNUSED or any(one.is_relative_to(thing) for one in held):
                continue
            if thing.is_dir():
                shutil.rmtree(thing, ignore_errors=True)
            else:
                thing.unlink()
            gone.append(thing)
    return gone
