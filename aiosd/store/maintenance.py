"""What the person who looks after the machine does with the database: check, back up, put back, export.

All of it blocks and works on files: `aiosctl state` calls it as root, whether the daemon runs or not. Only `restore`
needs the daemon to be stopped, and takes its lock to be sure of it.
"""

from __future__ import annotations

import base64
import os
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from aiosd.model.later import dataclass
from aiosd.store.connection import connect_reader
from aiosd.store.errors import StoreError, StoreFailure, translated
from aiosd.store.files import beside, copy_database, make_private, stamp, sync_directory, take_lock
from aiosd.store.migrations import MIGRATIONS, UnknownDatabase, Version, version_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from aiosd.model.jsontext import JsonObject, JsonValue
    from aiosd.store.writer import SqlValue

SEALED = frozenset({"secrets", "webhooks"})
"""Tables that hold what is sealed with the machine's key; an export leaves out their bytes."""

MAX_PROBLEMS = 100


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What a check found. `version` None: not a database of ours. Sound when there are no `problems`."""

    version: Version | None
    newest: Version
    problems: tuple[str, ...]
    tables: dict[str, int]

    @property
    def writable(self) -> bool:
        """Whether this program may write it: a newer level is for reading only."""
        return self.version is not None and self.version.level <= self.newest.level


def check(path: Path) -> CheckReport:
    """Look at every page, every reference and the version. Raises StoreError when the file cannot be read at all."""
    newest = MIGRATIONS[-1].version
    try:
        with closing(_reader(path)) as db:
            version = version_of(db)
            problems = [
                text for row in db.execute(f"PRAGMA integrity_check({MAX_PROBLEMS})") if (text := str(row[0])) != "ok"
            ]
            for table, rowid, parent, _ in db.execute("PRAGMA foreign_key_check").fetchmany(MAX_PROBLEMS):
                problems.append(f"row {rowid} of {table} refers to a row of {parent} that is not there")
            counts = {table: _count(db, table) for table in _tables(db)}
    except UnknownDatabase:
        return CheckReport(None, newest, ("it is not a database of aiosd",), {})
    except sqlite3.DatabaseError as error:
        told = translated(error)
        if isinstance(told, StoreError) and told.failure is StoreFailure.CORRUPT:
            return CheckReport(None, newest, (str(error),), {})
        raise told from error
    return CheckReport(version, newest, tuple(problems), counts)


def backup(path: Path, target: Path) -> None:
    """Copy the database as it is at one moment to a new file, on disk when this returns. Raises StoreError.

    The daemon may go on writing. The copy has its own name only when it is complete.
    """
    if target.exists():
        raise StoreError(StoreFailure.IO, f"{target} exists already")
    partial = beside(target, ".partial")
    try:
        partial.unlink(missing_ok=True)
        with closing(_reader(path)) as db:
            copy_database(db, partial)
        _sync(partial)
        partial.rename(target)
        sync_directory(target.parent)
    except (sqlite3.Error, OSError) as error:
        partial.unlink(missing_ok=True)
        raise _told(error) from error


def restore(path: Path, source: Path, *, now: Callable[[], int]) -> Path | None:
    """Put a backup in the database's place; the one that was there stays beside it, and its path is returned.

    Raises StoreError: BUSY while the daemon runs, CORRUPT when the backup is not sound or of a newer level.
    """
    found = check(source)
    if found.problems or found.version is None:
        raise StoreError(StoreFailure.CORRUPT, f"{source} is not sound: {found.problems[0]}")
    if not found.writable:
        raise StoreError(
            StoreFailure.CORRUPT, f"{source} has version {found.version}, this program knows {found.newest}"
        )
    lock = take_lock(path)
    try:
        fresh = beside(path, ".new")
        for suffix in ("", "-wal", "-shm"):
            beside(fresh, suffix).unlink(missing_ok=True)
        with closing(_reader(source)) as db:
            copy_database(db, fresh)
        _sync(fresh)
        for ours in (fresh, beside(path, ".lock")):
            _give(ours, path.parent)
        aside = beside(path, f".replaced-{stamp(now)}")
        had = path.exists()
        # The log first: a death in between leaves the old database, which is then the one that counts.
        for suffix in ("-wal", "-shm", ""):
            if beside(path, suffix).exists():
                beside(path, suffix).rename(beside(aside, suffix))
        fresh.rename(path)
        sync_directory(path.parent)
    except (sqlite3.Error, OSError) as error:
        raise _told(error) from error
    finally:
        os.close(lock)
    return aside if had else None


def export(path: Path) -> Iterator[JsonObject]:
    """Every row of every table, `{"table", "row"}`, after a first object that says what it is. Raises StoreError.

    Sealed answers and tokens are left out: they are of no use without the machine's key.
    """
    try:
        with closing(_reader(path)) as db:
            db.execute("BEGIN")  # one moment, whatever is written meanwhile
            version = version_of(db)
            yield {"format": "aiosd-state", "version": str(version)}
            for table in _tables(db):
                for row in db.execute(f"SELECT * FROM {table}"):  # noqa: S608  names of the schema
                    yield {"table": table, "row": _shown(table, row)}
    except (sqlite3.Error, UnknownDatabase) as error:
        raise _told(error) from error


def _shown(table: str, row: sqlite3.Row) -> JsonObject:
    names: list[str] = row.keys()
    shown: dict[str, JsonValue] = {}
    for name, value in zip(names, row, strict=True):
        if not (isinstance(value, bytes) and table in SEALED):
            shown[name] = _json(value)
    return shown


def _json(value: SqlValue) -> JsonValue:
    return {"base64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value


def _reader(path: Path) -> sqlite3.Connection:
    """Also of a copy that is kept where nothing can be written; SQLite gives a log it makes to the file's owner."""
    if not path.is_file():
        raise StoreError(StoreFailure.IO, f"there is no {path}")
    return connect_reader(path)


def _tables(db: sqlite3.Connection) -> list[str]:
    rows = db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name")
    return [str(row[0]) for row in rows]


def _count(db: sqlite3.Connection, table: str) -> int:
    return int(db.execute(f"SELECT count(*) FROM {table}").fetchone()[0])  # noqa: S608  names of the schema


def _told(error: Exception) -> StoreError:
    told = translated(error)
    return told if isinstance(told, StoreError) else StoreError(StoreFailure.IO, str(error))


def _give(path: Path, directory: Path) -> None:
    """Root works for the daemon: what it makes belongs to whom the directory belongs to."""
    owner = directory.stat()
    if os.geteuid() == 0 and path.exists():
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)


def _sync(path: Path) -> None:
    make_private(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
