"""Opening the database file: one process at a time, right mode, right version, and sound.

In order: take the lock, make the file (0600) when there is none, after an unclean stop check it, bring it to the newest
version (with a copy before a breaking step), and hand out the connections. Blocking: `Database.open` uses a thread.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from contextlib import ExitStack, closing
from dataclasses import field, replace
from typing import TYPE_CHECKING

from aiosd.model.later import dataclass
from aiosd.store.connection import connect_reader, connect_writer
from aiosd.store.errors import StoreError, StoreFailure, failure_of, translated
from aiosd.store.files import SUSPECT, beside, copy_database, make_private, stamp, sync_directory, take_lock
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
    lock = take_lock(path)
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
    unclean = beside(path, "-wal").exists()
    suspect = beside(path, SUSPECT).exists()
    created = make_private(path)
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
            if unclean or suspect:
                _check(writer, whole=suspect)
                beside(path, SUSPECT).unlink(missing_ok=True)
            backup = None
            if found is not None and newest.level > found.level:
                backup = beside(path, f".level-{found.level}-{stamp(now)}")
                copy_database(writer, backup)
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


def _check(connection: sqlite3.Connection, *, whole: bool) -> None:
    """Raises _Broken. `whole`: indexes are compared with their tables, too, which takes longer."""
    problem: str = connection.execute(f"PRAGMA {'integrity' if whole else 'quick'}_check(1)").fetchone()[0]
    if problem != "ok":
        raise _Broken(problem)


def _replace(path: Path, now: Callable[[], int], migrations: tuple[Migration, ...], reason: str) -> OpenReport:
    """Put a new database with what can be salvaged in the place of a broken one, which stays beside it."""
    fresh = beside(path, ".new")
    for suffix in ("", "-wal", "-shm"):
        beside(fresh, suffix).unlink(missing_ok=True)
    make_private(fresh)
    with closing(connect_writer(fresh)) as target:
        version = migrate(target, None, migrations)
        result = salvage(path, target)
    aside = beside(path, f".broken-{stamp(now)}")
    # The log first: a crash in between leaves the broken file in place, to be met again.
    for suffix in ("-wal", "-shm", ""):
        if beside(path, suffix).exists():
            beside(path, suffix).rename(beside(aside, suffix))
    fresh.rename(path)
    beside(path, SUSPECT).unlink(missing_ok=True)
    sync_directory(path.parent)
    _log.error("The broken database is kept as %s; salvaged %s, damaged: %s", aside, result.rows, result.damaged)
    return OpenReport(
        version, unclean=True, broken=aside, broken_reason=reason, salvaged=result.rows, damaged=result.damaged
    )
