"""The versions of the database, in order. Each is a module `level_<level>_<sublevel>` with its SQL.

As snapd does: a step that an older program can live with (a new table, a new column with a default, an index) raises
the sublevel; one it cannot live with raises the level. An OS image rolls back with the new database in place, so the
old program must know which it has: on a newer sublevel it works on, on a newer level it opens read-only.
A released step is never edited; what changes goes into the next one.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from aiosd.model.later import dataclass
from aiosd.store.migrations import level_1_0, level_1_1, level_1_2, level_1_3

if TYPE_CHECKING:
    from collections.abc import Iterator

EXISTS = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """A version of the database: `level` breaks, `sublevel` adds."""

    level: int
    sublevel: int

    def __str__(self) -> str:
        """`1.0`."""
        return f"{self.level}.{self.sublevel}"


@dataclass(frozen=True, slots=True)
class Migration:
    """One step: the version it leads to and the SQL that does it."""

    version: Version
    script: str


MIGRATIONS: tuple[Migration, ...] = tuple(
    Migration(Version(module.LEVEL, module.SUBLEVEL), module.SCRIPT)
    for module in (level_1_0, level_1_1, level_1_2, level_1_3)
)


class UnknownDatabase(Exception):
    """There are tables but no version: not a database of aiosd."""


def statements(script: str) -> Iterator[str]:
    """The statements of a script, one by one, so that they can share a transaction (`executescript` would commit)."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement.strip()
            statement = ""
    if statement.strip():
        raise ValueError("the script ends inside a statement")


def version_of(connection: sqlite3.Connection) -> Version | None:
    """The version of an open database, None when it is empty. Raises UnknownDatabase, sqlite3.Error."""
    if connection.execute(EXISTS).fetchone()[0] == 0:
        return None
    try:
        row = connection.execute(
            "SELECT (SELECT value FROM meta WHERE key = 'level'), (SELECT value FROM meta WHERE key = 'sublevel')"
        ).fetchone()
        return Version(int(row[0]), int(row[1]))
    except (TypeError, ValueError):
        raise UnknownDatabase from None
    except sqlite3.OperationalError as error:
        if "no such" in str(error):
            raise UnknownDatabase from error
        raise


def migrate(connection: sqlite3.Connection, found: Version | None, migrations: tuple[Migration, ...]) -> Version:
    """Take the database from `found` to the newest version, each step whole or not at all. Raises sqlite3.Error."""
    current = found
    for migration in migrations:
        if current is None or migration.version > current:
            _step(connection, migration)
            current = migration.version
    if current is None:
        raise ValueError("no migrations")
    return current


def _step(connection: sqlite3.Connection, migration: Migration) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in statements(migration.script):
            connection.execute(statement)
        for key, value in (("level", migration.version.level), ("sublevel", migration.version.sublevel)):
            connection.execute("INSERT OR REPLACE INTO meta(key, value) VALUES (?, ?)", (key, value))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
