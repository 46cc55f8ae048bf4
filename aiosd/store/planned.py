"""Tasks that wait for a worker: those of plans that name no capability. For the assigner; unfinished tasks only."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from aiosd.model.later import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aiosd.store.tasks import Executor


@dataclass(frozen=True, slots=True)
class Planned:
    """A task that a worker could take when its time has come. Microseconds since the epoch."""

    id: str
    uid: int
    requires: tuple[str, ...]
    retry_at: int | None = None
    not_before: int | None = None


_PLANNED = "tasks INDEXED BY tasks_planned"
"""Which holds unfinished ones only. Left to itself, SQLite goes through all that were ever planned."""
_TAKEN = " AND NOT EXISTS (SELECT 1 FROM assignments WHERE assignments.task_id = tasks.id AND ended_at IS NULL)"
_WAITS = (
    "tasks.ended_at IS NULL AND tasks.held = 0 AND tasks.capability_id = '' AND tasks.cancel_reason IS NULL"
    " AND (tasks.status = 'pending' OR (tasks.status = 'working' AND tasks.phase = 'retry_wait'))"
)


def ready(db: Executor) -> Iterator[Planned]:
    """What depends on nothing that has not completed, best first: higher priority, then older. Read as far as there is
    somebody to take one."""
    return _planned(
        db,
        " AND NOT EXISTS (SELECT 1 FROM dependencies JOIN tasks AS other ON other.seq = dependencies.on_seq"  # noqa: S608  own
        "  WHERE dependencies.task_seq = tasks.seq AND other.status <> 'completed')"
        f"{_TAKEN} ORDER BY priority DESC, seq",
    )


def timed(db: Executor) -> list[Planned]:
    """What waits for a moment, or did."""
    return [*_planned(db, " AND (retry_at IS NOT NULL OR not_before IS NOT NULL)")]


def _planned(db: Executor, which: str) -> Iterator[Planned]:
    chosen = f"SELECT id, uid, requires, retry_at, not_before FROM {_PLANNED} WHERE {_WAITS}{which}"  # noqa: S608  own
    for identifier, uid, requires, retry_at, not_before in db.execute(chosen):
        wanted = () if requires is None else tuple(json.loads(requires))
        yield Planned(str(identifier), int(uid), wanted, retry_at, not_before)


def refusals(db: Executor, task_id: str) -> list[tuple[int, str, int]]:
    """Which workers rejected it: user, id, and when."""
    rows = db.execute(
        "SELECT worker_uid, worker_id, max(ended_at) FROM assignments WHERE task_id = ? AND status = 'rejected'"
        " GROUP BY worker_uid, worker_id",
        (task_id,),
    )
    return [(int(uid), str(worker), int(ended)) for uid, worker, ended in rows]


def hopeless(db: Executor, ended: Sequence[str] | None) -> list[tuple[str, str]]:
    """Tasks that wait for a worker and depend on what did not complete, each with that. `ended`: only those that depend
    on one of these; None: all."""
    # In this order (CROSS JOIN), from the few to the few: the ended ones, or the pending ones.
    if ended is None:
        joined = "tasks CROSS JOIN dependencies ON task_seq = tasks.seq CROSS JOIN tasks AS other ON other.seq = on_seq"
    else:
        joined = (
            "json_each(?) CROSS JOIN tasks AS other ON other.id = json_each.value"
            " CROSS JOIN dependencies ON on_seq = other.seq CROSS JOIN tasks ON tasks.seq = task_seq"
        )
    rows = db.execute(
        f"SELECT tasks.id, other.id FROM {joined}"  # noqa: S608  this module's own text
        " WHERE other.status IN ('failed', 'canceled') AND +tasks.capability_id = '' AND tasks.status = 'pending'",
        () if ended is None else (json.dumps(list(ended)),),
    )
    return [(str(task), str(other)) for task, other in rows]


def deadlines(db: Executor) -> list[tuple[str, int]]:
    """Time limits of unfinished tasks of workers."""
    rows = db.execute(
        "SELECT id, deadline FROM tasks INDEXED BY tasks_deadline"
        " WHERE deadline IS NOT NULL AND ended_at IS NULL AND capability_id = ''"
    )
    return [(str(row[0]), int(row[1])) for row in rows]
