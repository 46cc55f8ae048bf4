"""Taking what can be read out of a broken database, table by table, into a new one.

A table is read from both ends until damage stops it, so one bad page costs the rows around it and not the table. Rows
whose parent was lost are dropped; the totals that triggers keep are made anew.
"""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiosd.store.connection import connect_reader

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

DERIVED = frozenset({"meta", "task_counts", "artifact_usage"})
"""Not copied: the new database's own version, and totals that the triggers make while rows are inserted."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Salvage:
    """Rows copied from each table, and the tables that were read incompletely or not at all."""

    rows: Mapping[str, int]
    damaged: tuple[str, ...]


def salvage(broken: Path, target: sqlite3.Connection) -> Salvage:
    """Copy from the file `broken`, which is only read, into `target`, which is new. Raises sqlite3.Error of that."""
    tables = _tables(target)
    rows: dict[str, int] = {}
    damaged: list[str] = []
    target.execute("PRAGMA foreign_keys = OFF")
    target.execute("BEGIN IMMEDIATE")
    try:
        with closing(connect_reader(broken)) as source:
            for table in tables:
                rows[table], whole = _copy_table(source, target, table)
                if not whole:
                    damaged.append(table)
            _copy_sequences(source, target)
    except sqlite3.DatabaseError as error:
        if not target.in_transaction:
            raise
        # Not even the list of tables can be read: a new start, with what was copied until now.
        _log.error("Nothing more can be read from %s: %s", broken, error)
        damaged = [table for table in tables if table not in rows or table in damaged]
    _drop_orphans(target)
    target.execute("UPDATE blobs SET refs = (SELECT count(*) FROM artifact_blobs a WHERE a.sha256 = blobs.sha256)")
    target.execute("COMMIT")
    target.execute("PRAGMA foreign_keys = ON")
    return Salvage(rows, tuple(damaged))


def _tables(connection: sqlite3.Connection) -> list[str]:
    names = connection.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY rowid"
    )
    return [row[0] for row in names if row[0] not in DERIVED]


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    return [row[0] for row in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))]


def _copy_table(source: sqlite3.Connection, target: sqlite3.Connection, table: str) -> tuple[int, bool]:
    """Rows copied, and whether that was all of them."""
    there = set(_columns(source, table))
    columns = [column for column in _columns(target, table) if column in there]
    if not columns:
        return 0, False
    # Names come from our own schema, never from the broken file.
    names = ", ".join(columns)
    places = ", ".join("?" * len(columns))
    insert = f"INSERT INTO {table}({names}) VALUES ({places})"  # noqa: S608 - see above
    forward = f"SELECT rowid, {names} FROM {table} NOT INDEXED ORDER BY rowid"  # noqa: S608 - see above
    backward = f"SELECT rowid, {names} FROM {table} NOT INDEXED WHERE rowid > ? ORDER BY rowid DESC"  # noqa: S608 - see above
    copied, last, whole, refused = _copy_rows(source.execute(forward), target, insert)
    if not whole:
        more, _, _, refused_more = _copy_rows(source.execute(backward, (last,)), target, insert)
        copied += more
        refused += refused_more
    return copied, whole and refused == 0


def _copy_rows(rows: sqlite3.Cursor, target: sqlite3.Connection, insert: str) -> tuple[int, int, bool, int]:
    """(rows copied, last rowid read, whether the end was reached, rows that the new schema refused)."""
    copied = refused = 0
    last = -(2**63)
    while True:
        try:
            row = rows.fetchone()
        except (sqlite3.DatabaseError, UnicodeDecodeError):
            return copied, last, False, refused
        if row is None:
            return copied, last, True, refused
        last = row[0]
        try:
            target.execute(insert, tuple(row)[1:])
            copied += 1
        except sqlite3.IntegrityError:
            refused += 1


def _copy_sequences(source: sqlite3.Connection, target: sqlite3.Connection) -> None:
    """Numbers that were given out are not given out again, even when their rows were pruned or lost."""
    for name, number in source.execute("SELECT name, seq FROM sqlite_sequence").fetchall():
        if not isinstance(number, int):
            continue
        known = target.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (name,)).fetchone()
        if known is None:
            target.execute("INSERT INTO sqlite_sequence(name, seq) VALUES (?, ?)", (name, number))
        elif number > known[0]:
            target.execute("UPDATE sqlite_sequence SET seq = ? WHERE name = ?", (number, name))


def _drop_orphans(connection: sqlite3.Connection) -> None:
    """Delete rows whose parent was lost, until nothing refers to what is not there."""
    while orphans := connection.execute("PRAGMA foreign_key_check").fetchall():
        for orphan in orphans:
            connection.execute(f"DELETE FROM {orphan[0]} WHERE rowid = ?", (orphan[1],))  # noqa: S608 - our own names
