"""Which task waits for which."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiosd.store.tasks import Executor


def add(db: Executor, task_sequence: int, on: Sequence[str]) -> None:
    """Let a task wait for others (which exist)."""
    for other in on:
        db.execute(
            "INSERT OR IGNORE INTO dependencies (task_seq, on_seq) SELECT ?, seq FROM tasks WHERE id = ?",
            (task_sequence, other),
        )


def of(db: Executor, task_sequence: int) -> list[tuple[str, str]]:
    """What a task waits for: (id, status)."""
    rows = db.execute(
        "SELECT tasks.id, tasks.status FROM dependencies JOIN tasks ON tasks.seq = dependencies.on_seq"
        " WHERE dependencies.task_seq = ? ORDER BY tasks.seq",
        (task_sequence,),
    )
    return [(str(row[0]), str(row[1])) for row in rows]


def of_pending(db: Executor) -> dict[int, list[tuple[str, str]]]:
    """The same for every task that has not started and waits for something, by the task's sequence number."""
    rows = db.execute(
        "SELECT dependencies.task_seq, other.id, other.status FROM dependencies"
        " JOIN tasks AS waiting ON waiting.seq = dependencies.task_seq"
        " AND waiting.status IN ('pending', 'auth_required')"
        " JOIN tasks AS other ON other.seq = dependencies.on_seq ORDER BY other.seq"
    )
    found: dict[int, list[tuple[str, str]]] = {}
    for sequence, other, status in rows:
        found.setdefault(int(sequence), []).append((str(other), str(status)))
    return found
