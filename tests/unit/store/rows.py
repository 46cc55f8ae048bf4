"""Rows for the tests of the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

    from aiosd.store.database import Transaction

NOW = 1_767_607_200_000_000
"""2026-01-05T10:00:00Z, the moment of seed 000's first example."""


class Executor(Protocol):
    """A transaction or a connection."""

    def execute(self, sql: str, parameters: tuple[str | int | None, ...] = ..., /) -> sqlite3.Cursor:
        """Run one statement."""


def insert_task(
    db: Executor, name: str, *, uid: int = 1000, status: str = "pending", capability: str = "system.info.read"
) -> None:
    ended = NOW if status in ("completed", "failed", "canceled") else None
    db.execute(
        "INSERT INTO tasks(id, uid, capability_id, level, status, phase, created_at, updated_at, ended_at)"
        " VALUES (?, ?, ?, 1, ?, ?, ?, ?, ?)",
        (name, uid, capability, status, status, NOW, NOW, ended),
    )


def adding(name: str, *, emit: bool = True) -> Callable[[Transaction], str]:
    def add(transaction: Transaction) -> str:
        insert_task(transaction, name)
        if emit:
            transaction.emit(name)
        return name

    return add


def names(connection: sqlite3.Connection) -> list[str]:
    return [row["id"] for row in connection.execute("SELECT id FROM tasks ORDER BY seq")]


def fill(connection: sqlite3.Connection, script: str, size: int) -> None:
    """Run a script that has a table `n` with the numbers up to `size`."""
    connection.execute("CREATE TEMP TABLE n(i INTEGER PRIMARY KEY)")
    connection.execute(
        "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < ?) INSERT INTO n SELECT i FROM c",
        (size,),
    )
    connection.executescript(f"PRAGMA synchronous = OFF; BEGIN; {script} COMMIT;")


def instructions(connection: sqlite3.Connection, look: Callable[[sqlite3.Connection], object]) -> int:
    """How many instructions of SQLite's machine it takes."""
    steps = 0

    def tick() -> int:
        nonlocal steps
        steps += 1
        return 0

    connection.set_progress_handler(tick, 1)
    try:
        look(connection)
    finally:
        connection.set_progress_handler(None, 0)
    return steps
