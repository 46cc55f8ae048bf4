"""What the scheduler looks at: the few columns that decide who may start, of unfinished tasks only."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Generator

    from aiosd.store.tasks import Executor


class Waiting(NamedTuple):
    """A task without a run: pending, between two attempts, or authorised after it was stored. A tuple, since a full
    queue is made of them at each pass.
    """

    sequence: int
    id: str
    priority: int
    capability_id: str
    not_before: int | None
    retry_at: int | None
    uid: int


def anybody_waits(db: Executor) -> bool:
    """Whether `waiting` could have anything to tell; one look at an index."""
    row = db.execute(
        "SELECT EXISTS (SELECT 1 FROM tasks INDEXED BY tasks_open"
        " WHERE ended_at IS NULL AND held = 0 AND phase <> 'planning' AND capability_id <> ''"
        " AND (status = 'pending' OR (status = 'working' AND phase = 'retry_wait')"
        " OR (status = 'auth_required' AND auth_request IS NULL)))"
    ).fetchone()
    return bool(row[0])


def waiting(db: Executor) -> list[Waiting]:
    """Tasks that could start, best first."""
    return list(each_waiting(db))


def each_waiting(db: Executor) -> Generator[Waiting, None, None]:
    """The same, read as far as they are wanted; nothing may be written until the iterator is closed.

    The index is in their order. Left to itself, SQLite reads and sorts all of them before it tells the first.
    """
    rows = db.execute(
        "SELECT seq, id, priority, capability_id, not_before, retry_at, uid FROM tasks INDEXED BY tasks_open"
        " WHERE ended_at IS NULL AND held = 0 AND phase <> 'planning' AND capability_id <> ''"
        " AND (status = 'pending' OR (status = 'working' AND phase = 'retry_wait')"
        " OR (status = 'auth_required' AND auth_request IS NULL))"
        " AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.task_seq = tasks.seq AND runs.state <> 'ended')"
        " ORDER BY priority DESC, seq"
    )
    yield from map(Waiting._make, rows)


def holding(db: Executor) -> list[tuple[str, str]]:
    """Tasks that hold a slot, each with its capability: those that have a live run."""
    rows = db.execute(
        "SELECT tasks.id, tasks.capability_id FROM runs JOIN tasks ON tasks.seq = runs.task_seq"
        " WHERE runs.state <> 'ended'"
    )
    return [(str(row[0]), str(row[1])) for row in rows]


def unauthorized_of(db: Executor, uid: int) -> int:
    """How many tasks of this user wait for an authentication or an approval."""
    row = db.execute(
        "SELECT coalesce(sum(count), 0) FROM task_counts WHERE uid = ? AND status = 'auth_required'", (uid,)
    ).fetchone()
    return int(row[0])
