"""Walking a directory tree in one fixed order, without following symbolic links and without giving up at an error.

The order is the byte order of the relative paths, which is what `find -type f | LC_ALL=C sort` gives: the listing of
the same tree is the same text on every machine.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from aiosd.capabilities.program import WorkFailed

Failure = Callable[[bytes, OSError], None]


@dataclass(frozen=True, slots=True)
class File:
    """A regular file: where it is, its path below the root of the walk, its size in bytes when it was seen."""

    path: bytes
    relative: bytes
    size: int


def walk(root: bytes, pattern: str | None, failed: Failure, *, one_file_system: bool) -> Iterator[File]:
    """The regular files at or below `root` whose name matches `pattern` (fnmatch; None: all).

    What cannot be looked at is told to `failed` and left out. Raises WorkFailed when `root` itself is none of ours.
    """
    info = os.lstat(root)
    if stat.S_ISLNK(info.st_mode):
        raise WorkFailed(f"{os.fsdecode(root)!r} is a symbolic link")
    if stat.S_ISREG(info.st_mode):
        yield File(root, root.rpartition(b"/")[2], info.st_size)
    elif stat.S_ISDIR(info.st_mode):
        yield from _directory(root, pattern, failed, info.st_dev if one_file_system else None)
    else:
        raise WorkFailed(f"{os.fsdecode(root)!r} is neither a file nor a directory")


def _directory(root: bytes, pattern: str | None, failed: Failure, device: int | None) -> Iterator[File]:
    """Depth first with a stack of our own: a tree may be deeper than Python's recursion limit."""
    stack = [_entries(root, b"", failed)]
    while stack:
        entry = next(stack[-1], None)
        if entry is None:
            stack.pop()
            continue
        path, relative = entry
        try:
            info = os.lstat(path)
        except OSError as error:
            failed(relative, error)
            continue
        if stat.S_ISDIR(info.st_mode):
            if device is None or info.st_dev == device:
                stack.append(_entries(path, relative + b"/", failed))
        elif stat.S_ISREG(info.st_mode) and _matches(relative, pattern):
            yield File(path, relative, info.st_size)


def _entries(directory: bytes, prefix: bytes, failed: Failure) -> Iterator[tuple[bytes, bytes]]:
    try:
        with os.scandir(directory) as found:
            # With the slash, a directory sorts where its contents do.
            names = sorted((entry.name + b"/" * entry.is_dir(follow_symlinks=False), entry.name) for entry in found)
    except OSError as error:
        failed(prefix.rstrip(b"/") or b".", error)
        return
    for _, name in names:
        yield directory.rstrip(b"/") + b"/" + name, prefix + name


def _matches(relative: bytes, pattern: str | None) -> bool:
    return pattern is None or fnmatchcase(os.fsdecode(relative.rpartition(b"/")[2]), pattern)
