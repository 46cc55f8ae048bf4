"""Sealed answers to `auth_required`, from the moment they were given until the task's program has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiosd.store.tasks import Executor


@dataclass(frozen=True, slots=True)
class SealedAnswer:
    """One row. `interaction`: the number of the question that it answers; `uid`: the task's owner."""

    task_id: str
    uid: int
    interaction: int
    sealed: bytes


def keep(db: Executor, answer: SealedAnswer, now: int) -> None:
    """Store an answer; one to the same question is replaced."""
    db.execute(
        "INSERT INTO secrets (task_id, uid, interaction, sealed, created_at) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (task_id, interaction) DO UPDATE SET sealed = excluded.sealed, created_at = excluded.created_at",
        (answer.task_id, answer.uid, answer.interaction, answer.sealed, now),
    )


def of_task(db: Executor, task_id: str) -> list[SealedAnswer]:
    """What waits to be delivered to a task's program."""
    rows = db.execute(
        "SELECT task_id, uid, interaction, sealed FROM secrets WHERE task_id = ? ORDER BY seq", (task_id,)
    )
    return [SealedAnswer(*row) for row in rows]


def forget(db: Executor, task_id: str, interaction: int | None = None) -> None:
    """Remove one answer of a task, or all."""
    if interaction is None:
        db.execute("DELETE FROM secrets WHERE task_id = ?", (task_id,))
    else:
        db.execute("DELETE FROM secrets WHERE task_id = ? AND interaction = ?", (task_id, interaction))
