"""Taking what can be read out of a broken database, table by table, into a new one.

A table is read from both ends until damage stops it, so one bad page costs the rows around it and not the table. Rows
whose parent was lost are dropped; the totals that triggers keep are made anew.
"""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from aiosd.model.later import dataclass
from aiosd.store.connection import connect_reader
from aiosd.store.errors import StoreError, StoreFailure, failure_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from aiosd.store.writer import SqlValue

DERIVED = frozenset({"meta", "task_counts", "artifact_usage", "talk_usage"})
"""Not copied: the new database's own version, and totals that the triggers make while rows are inserted."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Salvage:
    """Rows copied from each table, and the tables that were read incompletely or not at all."""

    rows: Mapping[str, int]
    damaged: tuple[str, ...]


def salvage(broken: Path, target: sqlite3.Connection) -> Salvage:
    """Copy from the file `broken`, which is only read, into `target`, which is new. Raises StoreError."""
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
    insert = f"INSERT INTO {table}({names}) VALUES ({', '.join('?' * len(columns))})"  # noqa: S608 - see above
    select = f"SELECT rowid, {names} FROM {table} NOT INDEXED WHERE rowid > ? AND rowid < ?"  # noqa: S608 - see above
    up = _Direction(source, f"{select} ORDER BY rowid LIMIT ?", _FIRST, _LAST)
    copied, refused = _insert(target, insert, up.rows())
    if up.damaged:
        down = _Direction(source, f"{select} ORDER BY rowid DESC LIMIT ?", up.low, _LAST, descending=True)
        more, more_refused = _insert(target, insert, down.rows())
        copied, refused = copied + more, refused + more_refused
    return copied, not up.damaged and refused == 0


_FIRST, _LAST = -(2**63), 2**63 - 1
_ROWS_AT_A_TIME = 256


class _Direction:
    """Reading a table from one end until its other end or damage."""

    def __init__(
        self, source: sqlite3.Connection, select: str, low: int, high: int, *, descending: bool = False
    ) -> None:
        self.source = source
        self.select = select
        self.low = low
        self.high = high
        self.descending = descending
        self.damaged = False

    def rows(self) -> Iterator[tuple[SqlValue, ...]]:
        """The rows, without their rowid. Near damage one at a time, so that the last good one is not missed."""
        limit = _ROWS_AT_A_TIME
        while True:
            try:
                rows = self.source.execute(self.select, (self.low, self.high, limit)).fetchall()
            except sqlite3.DatabaseError:
                if limit == 1:
                    self.damaged = True
                    return
                limit = 1
                continue
            if not rows:
                return
            if self.descending:
                self.high = rows[-1][0]
            else:
                self.low = rows[-1][0]
            for row in rows:
                yield tuple(row)[1:]


def _insert(target: sqlite3.Connection, sql: str, rows: Iterator[tuple[SqlValue, ...]]) -> tuple[int, int]:
    """How many rows were inserted, and how many the new schema refused."""
    copied = refused = 0
    for row in rows:
        try:
            target.execute(sql, row)
            copied += 1
        except sqlite3.IntegrityError:
            refused += 1
        except sqlite3.Error as error:
            # The new file's trouble, a full disk for instance, is no damage of the old one.
            raise StoreError(failure_of(error) or StoreFailure.IO) from error
    return copied, refused


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
