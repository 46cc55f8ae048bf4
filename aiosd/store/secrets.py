"""Sealed answers to `auth_required`, from the moment they were given until the task's program has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiosd.model.later import dataclass

if TYPE_CHECKING:
    from aiosd.store.tasks import Executor


@dataclass(frozen=True, slots=True)
class SealedAnswer:
    """One row. `interaction`: JSON, of the question that it answers; `uid`: the task's owner."""

    sequence: int
    task_id: str
    run_id: str
    uid: int
    interaction: str
    sealed: bytes


_SELECT = "SELECT seq, task_id, run_id, uid, interaction, sealed FROM secrets"


def keep(db: Executor, answer: SealedAnswer, now: int) -> None:
    """Store an answer; what was kept for another run of the task is of no use any more."""
    db.execute("DELETE FROM secrets WHERE task_id = ? AND run_id <> ?", (answer.task_id, answer.run_id))
    db.execute(
        "INSERT INTO secrets (task_id, run_id, uid, interaction, sealed, created_at) VALUES (?, ?, ?, ?, ?, ?)",
        (answer.task_id, answer.run_id, answer.uid, answer.interaction, answer.sealed, now),
    )


def of_run(db: Executor, run_id: str) -> list[SealedAnswer]:
    """What waits to be handed to a run's program, in the order in which it was given."""
    return [SealedAnswer(*row) for row in db.execute(f"{_SELECT} WHERE run_id = ? ORDER BY seq", (run_id,))]


def all_(db: Executor) -> list[SealedAnswer]:
    """What waits for any run."""
    return [SealedAnswer(*row) for row in db.execute(f"{_SELECT} ORDER BY seq")]


def delivered(db: Executor, answer: SealedAnswer) -> None:
    """The program has it: it is not kept."""
    db.execute("DELETE FROM secrets WHERE seq = ?", (answer.sequence,))


def forget(db: Executor, task_id: str) -> None:
    """Remove everything that a task was given."""
    db.execute("DELETE FROM secrets WHERE task_id = ?", (task_id,))
