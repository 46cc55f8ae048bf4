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
    target.execute("UPDATE webhooks SET waiting = (SELECT count(*) FROM outbox WHERE hook_id = webhooks.id)")
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


def _key(connection: sqlite3.Connection, table: str) -> tuple[tuple[str, ...], tuple[SqlValue, ...]]:
    """The columns that a table is kept in the order of, and what is before every row's."""
    if not connection.execute("SELECT wr FROM pragma_table_list(?)", (table,)).fetchone()[0]:
        return ("rowid",), (_FIRST,)
    rows = connection.execute("SELECT name, type FROM pragma_table_info(?) WHERE pk > 0 ORDER BY pk", (table,))
    columns = [(str(row[0]), str(row[1])) for row in rows]
    return tuple(name for name, _ in columns), tuple("" if kind == "TEXT" else _FIRST for _, kind in columns)


def _copy_table(source: sqlite3.Connection, target: sqlite3.Connection, table: str) -> tuple[int, bool]:
    """Rows copied, and whether that was all of them."""
    there = set(_columns(source, table))
    columns = [column for column in _columns(target, table) if column in there]
    if not columns:
        return 0, False
    # Names come from our own schema, never from the broken file.
    names = ", ".join(columns)
    insert = f"INSERT INTO {table}({names}) VALUES ({', '.join('?' * len(columns))})"  # noqa: S608 - see above
    key, first = _key(target, table)
    up = _Direction(source, table, names, key, first, tuple(_LAST for _ in key))
    copied, refused = _insert(target, insert, up.rows())
    if up.damaged:
        down = _Direction(source, table, names, key, up.low, up.high, descending=True)
        more, more_refused = _insert(target, insert, down.rows())
        copied, refused = copied + more, refused + more_refused
    return copied, not up.damaged and refused == 0


_FIRST: SqlValue = -(2**63)
_LAST: SqlValue = b"\xff"
"""After every number and text (https://sqlite.org/datatype3.html, "Comparison Expressions")."""
_ROWS_AT_A_TIME = 256


class _Direction:
    """Reading a table in the order of its key from one end until its other end or damage."""

    def __init__(
        self, source: sqlite3.Connection, table: str, names: str, key: tuple[str, ...], low: tuple[SqlValue, ...],
        high: tuple[SqlValue, ...], *, descending: bool = False,
    ) -> None:  # fmt: skip
        self.source = source
        self.low = low
        self.high = high
        self.descending = descending
        self.damaged = False
        self._width = len(key)
        way = " DESC" if descending else ""
        keys, marks = ", ".join(key), ", ".join("?" * len(key))
        self._select = (
            f"SELECT {keys}, {names} FROM {table} NOT INDEXED"  # noqa: S608 - our own schema's names
            f" WHERE ({keys}) > ({marks}) AND ({keys}) < ({marks})"
            f" ORDER BY {', '.join(name + way for name in key)} LIMIT ?"
        )

    def rows(self) -> Iterator[tuple[SqlValue, ...]]:
        """The rows, without their key. Near damage one at a time, so that the last good one is not missed."""
        limit = _ROWS_AT_A_TIME
        while True:
            try:
                rows = self.source.execute(self._select, (*self.low, *self.high, limit)).fetchall()
            except sqlite3.DatabaseError:
                if limit == 1:
                    self.damaged = True
                    return
                limit = 1
                continue
            if not rows:
                return
            reached = tuple(rows[-1])[: self._width]
            if self.descending:
                self.high = reached
            else:
                self.low = reached
            for row in rows:
                yield tuple(row)[self._width :]


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
        for table, rowid, _, number in orphans:
            if rowid is not None:
                connection.execute(f"DELETE FROM {table} WHERE rowid = ?", (rowid,))  # noqa: S608 - our own names
                continue
            found = connection.execute("SELECT * FROM pragma_foreign_key_list(?) WHERE id = ?", (table, number))
            parent, column, named = found.fetchone()[2:5]  # a table without rowid: all of them at once
            connection.execute(f"DELETE FROM {table} WHERE {column} NOT IN (SELECT {named} FROM {parent})")  # noqa: S608
