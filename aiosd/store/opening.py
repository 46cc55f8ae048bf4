"""Opening the database file: one process at a time, right mode, right version, and sound.

In order: take the lock, make the file (0600) when there is none, after an unclean stop check it, bring it to the newest
version (with a copy before a breaking step), and hand out the connections. Blocking: `Database.open` uses a thread.
"""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from aiosd.store.connection import connect_reader, connect_writer
from aiosd.store.errors import StoreError, StoreFailure, failure_of, translated
from aiosd.store.migrations import MIGRATIONS, Migration, UnknownDatabase, Version, migrate, version_of
from aiosd.store.salvage import salvage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OpenReport:
    """What opening met, for the log, the status and the person who looks after the machine."""

    version: Version
    created: bool = False
    unclean: bool = False
    migrated_from: Version | None = None
    backup: Path | None = None
    read_only_reason: str | None = None
    broken: Path | None = None
    broken_reason: str = ""
    salvaged: Mapping[str, int] = field(default_factory=dict)
    damaged: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Opened:
    """An open database: connections that their threads take over, and the lock."""

    writer: sqlite3.Connection | None
    readers: tuple[sqlite3.Connection, ...]
    report: OpenReport
    lock: int

    def release(self) -> None:
        """Let another process open the database. The connections are closed by then."""
        os.close(self.lock)


class _Broken(Exception):
    """The file cannot be used; the text says why."""


def open_store(
    path: Path, *, now: Callable[[], int], readers: int, migrations: tuple[Migration, ...] = MIGRATIONS
) -> Opened:
    """Open the database at `path`. `now`: microseconds since the epoch. Raises StoreError."""
    lock = _take_lock(path)
    try:
        return _open_locked(path, now, readers, migrations, lock)
    except (sqlite3.Error, OSError) as error:
        os.close(lock)
        told = translated(error)
        raise told if isinstance(told, StoreError) else StoreError(StoreFailure.IO, str(error)) from error
    except BaseException:
        os.close(lock)
        raise


def _open_locked(
    path: Path, now: Callable[[], int], readers: int, migrations: tuple[Migration, ...], lock: int
) -> Opened:
    try:
        writer, report = _open_sound(path, now, migrations)
    except _Broken as broken:
        _log.error("The database %s is broken (%s): moving it aside", path, broken)
        replaced = _replace(path, now, migrations, str(broken))
        writer, report = _open_sound(path, now, migrations)
        report = replace(replaced, version=report.version)
    with ExitStack() as stack:
        if writer is not None:
            stack.callback(writer.close)
        connections = []
        for _ in range(readers):
            connections.append(connect_reader(path))
            stack.callback(connections[-1].close)
        stack.pop_all()
    return Opened(writer, tuple(connections), report, lock)


def _open_sound(
    path: Path, now: Callable[[], int], migrations: tuple[Migration, ...]
) -> tuple[sqlite3.Connection | None, OpenReport]:
    """The writing connection, None when this program must not write. Raises _Broken, sqlite3.Error."""
    # SQLite removes the log when the last connection closes; one that is there was left by a crash.
    unclean = _beside(path, "-wal").exists()
    created = _make(path)
    try:
        with ExitStack() as stack:
            writer = connect_writer(path)
            stack.callback(writer.close)
            found = version_of(writer)
            newest = migrations[-1].version
            report = OpenReport(found or newest, created=created, unclean=unclean)
            if found is not None and found.level > newest.level:
                reason = f"the database has version {found}, this program knows {newest}"
                return None, replace(report, read_only_reason=reason)
            if unclean:
                _check(writer)
            backup = None
            if found is not None and newest.level > found.level:
                backup = _copy(writer, path, f"level-{found.level}-{_stamp(now)}")
            version = migrate(writer, found, migrations)
            migrated_from = found if found is not None and version > found else None
            stack.pop_all()
            return writer, replace(report, version=version, migrated_from=migrated_from, backup=backup)
    except UnknownDatabase:
        raise _Broken("it is not a database of aiosd") from None
    except sqlite3.Error as error:
        if failure_of(error) is StoreFailure.CORRUPT:
            raise _Broken(str(error)) from error
        raise


def _check(connection: sqlite3.Connection) -> None:
    problem: str = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if problem != "ok":
        raise _Broken(problem)


def _replace(path: Path, now: Callable[[], int], migrations: tuple[Migration, ...], reason: str) -> OpenReport:
    """Put a new database with what can be salvaged in the place of a broken one, which stays beside it."""
    fresh = _beside(path, ".new")
    for suffix in ("", "-wal", "-shm"):
        _beside(fresh, suffix).unlink(missing_ok=True)
    _make(fresh)
    with closing(connect_writer(fresh)) as target:
        version = migrate(target, None, migrations)
        result = salvage(path, target)
    aside = _beside(path, f".broken-{_stamp(now)}")
    # The log first: a crash in between leaves the broken file in place, to be met again.
    for suffix in ("-wal", "-shm", ""):
        if _beside(path, suffix).exists():
            _beside(path, suffix).rename(_beside(aside, suffix))
    fresh.rename(path)
    _sync_directory(path.parent)
    _log.error("The broken database is kept as %s; salvaged %s, damaged: %s", aside, result.rows, result.damaged)
    return OpenReport(
        version, unclean=True, broken=aside, broken_reason=reason, salvaged=result.rows, damaged=result.damaged
    )


def _copy(source: sqlite3.Connection, path: Path, name: str) -> Path:
    """A copy of the whole database beside it, for going back to the older program."""
    target = _beside(path, f".{name}")
    _make(target)
    with closing(sqlite3.connect(target)) as connection:
        source.backup(connection)
    _sync_directory(path.parent)
    return target


def _make(path: Path) -> bool:
    """Make sure that the file is there and nobody else's to read; whether it was made."""
    fresh = _beside(path, ".new")
    if fresh.exists() and not path.exists():
        # A crash between the two renames of `_replace`: the new database is complete.
        fresh.rename(path)
    created = not path.exists()
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)
    if created:
        _sync_directory(path.parent)
    return created


def _take_lock(path: Path) -> int:
    try:
        lock = os.open(_beside(path, ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
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


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _stamp(now: Callable[[], int]) -> str:
    return datetime.fromtimestamp(now() / 1_000_000, UTC).strftime("%Y%m%dT%H%M%S.%fZ")


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
