"""The database's files: beside each other, private, one process at a time, on disk when we say so."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from aiosd.store.errors import StoreError, StoreFailure

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def copy_database(source: sqlite3.Connection, target: Path) -> None:
    """A copy of the whole database as it is at one moment, on disk when this returns. Raises sqlite3.Error, OSError.

    https://sqlite.org/backup.html: writers go on meanwhile. The copy is one file, without a log beside it.
    """
    make_private(target)
    with closing(sqlite3.connect(target)) as connection:
        source.backup(connection)
    sync_directory(target.parent)


def make_private(path: Path) -> bool:
    """Make sure that the file is there and nobody else's to read; whether it was made."""
    fresh = beside(path, ".new")
    if fresh.exists() and not path.exists():
        # A crash between the two renames of replacing a broken one: the new database is complete.
        fresh.rename(path)
    created = not path.exists()
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)
    if created:
        sync_directory(path.parent)
    return created


def take_lock(path: Path) -> int:
    """Keep other processes from opening the database; the descriptor that holds the lock. Raises StoreError."""
    try:
        lock = os.open(beside(path, ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise StoreError(StoreFailure.IO, f"{path}: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise StoreError(StoreFailure.BUSY, f"another process has {path} open") from None
    except BaseException:
        os.close(lock)
        raise
    return lock


SUSPECT = ".suspect"
"""Beside a database that turned out to be damaged while it was open: the next start looks at all of it."""


def beside(path: Path, suffix: str) -> Path:
    """The file of the same name with this after it."""
    return path.with_name(path.name + suffix)


def stamp(now: Callable[[], int]) -> str:
    """The moment as it stands in a file's name. `now`: microseconds since the epoch."""
    return datetime.fromtimestamp(now() / 1_000_000, UTC).strftime("%Y%m%dT%H%M%S.%fZ")


def sync_directory(directory: Path) -> None:
    """Make names in it durable. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
