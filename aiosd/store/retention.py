"""What is old enough to go: finished tasks with all that hangs on them, old events, content that nobody refers to.

Every function does one small step, so that nobody waits for a great deletion. A task's history, runs and dependencies
go with its row (foreign keys), its artifacts give their blobs back (triggers).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from aiosd.store.tasks import Executor

TABLES_BY_TASK = ("artifacts", "events", "approvals", "assignments")
"""Tables that name a task by its id, so that no foreign key removes their rows; and grants, which have no index by it.
"""

_NEEDED = (
    "EXISTS (SELECT 1 FROM dependencies JOIN tasks AS waiting ON waiting.seq = dependencies.task_seq"
    " WHERE dependencies.on_seq = tasks.seq AND waiting.ended_at IS NULL)"
)
"""An unfinished task depends on it: without it nobody would know that it did not complete."""


def ended_before(db: Executor, moment: int, limit: int, without: Collection[str] = ()) -> list[str]:
    """Tasks that ended before `moment` and can go, but for those ids, oldest end first."""
    return _ended(db, " AND ended_at < ?", (moment,), limit, without)


def beyond(db: Executor, keep: int, limit: int, without: Collection[str] = ()) -> list[str]:
    """Finished tasks beyond the newest `keep` that can go, but for those ids, oldest end first."""
    finals = "status IN ('completed', 'failed', 'canceled')"
    total = int(db.execute(f"SELECT coalesce(sum(count), 0) FROM task_counts WHERE {finals}").fetchone()[0])  # noqa: S608
    surplus = min(limit, total - keep)
    return [] if surplus <= 0 else _ended(db, "", (), surplus, without)


def _ended(db: Executor, where: str, values: Sequence[int], limit: int, without: Collection[str]) -> list[str]:
    rows = db.execute(
        f"SELECT tasks.id FROM tasks WHERE ended_at IS NOT NULL{where} AND NOT {_NEEDED}"  # noqa: S608  this module's own text
        " AND tasks.id NOT IN (SELECT value FROM json_each(?)) ORDER BY ended_at LIMIT ?",
        (*values, json.dumps([*without]), limit),
    )
    return [str(row[0]) for row in rows]


def not_needed(db: Executor, task_ids: Sequence[str]) -> list[str]:
    """Those of these tasks that have ended and can go."""
    rows = db.execute(
        "SELECT tasks.id FROM json_each(?) CROSS JOIN tasks ON tasks.id = json_each.value"  # noqa: S608  this module's own text
        f" WHERE ended_at IS NOT NULL AND NOT {_NEEDED}",
        (json.dumps([*task_ids]),),
    )
    return [str(row[0]) for row in rows]


def runs_of(db: Executor, task_ids: Sequence[str]) -> list[tuple[str, str]]:
    """Runs of these tasks, each after its task: their directories have to go first."""
    marks = ", ".join("?" * len(task_ids))
    rows = db.execute(
        f"SELECT tasks.id, runs.id FROM runs JOIN tasks ON tasks.seq = runs.task_seq WHERE tasks.id IN ({marks})",  # noqa: S608
        list(task_ids),
    )
    return [(str(row[0]), str(row[1])) for row in rows]


def remove_tasks(db: Executor, task_ids: Sequence[str]) -> None:
    """Delete tasks and all that hangs on them."""
    db.execute("DELETE FROM grants WHERE task_id IN (SELECT value FROM json_each(?))", (json.dumps([*task_ids]),))
    for task_id in task_ids:
        for table in TABLES_BY_TASK:
            db.execute(f"DELETE FROM {table} WHERE task_id = ?", (task_id,))  # noqa: S608  this module's own names
        db.execute("DELETE FROM tasks WHERE id = ?", (task_id,))


def archived_before(db: Executor, moment: int, limit: int) -> list[str]:
    """Sessions that were archived before `moment` and have no task any more."""
    rows = db.execute(
        "SELECT id FROM sessions WHERE status = 'archived' AND archived_at < ? AND NOT EXISTS"
        " (SELECT 1 FROM tasks WHERE tasks.session_id = sessions.id) ORDER BY seq LIMIT ?",
        (moment, limit),
    )
    return [str(row[0]) for row in rows]


def remove_session(db: Executor, session_id: str) -> None:
    """Delete a session with its threads, messages and plan; its events go by their own age."""
    db.execute("DELETE FROM sessions WHERE id = ?", (session_id,))


def remove_events(db: Executor, before: int, limit: int) -> int:
    """Delete events without a task that are older than `before`, at most `limit`; how many there were."""
    cursor = db.execute(
        "DELETE FROM events WHERE seq IN (SELECT seq FROM events WHERE time < ? AND NOT EXISTS"
        " (SELECT 1 FROM tasks WHERE tasks.id = events.task_id) ORDER BY time LIMIT ?)",
        (before, limit),
    )
    return cursor.rowcount


def unreferenced_blobs(db: Executor, before: int, limit: int) -> list[str]:
    """Content that no artifact refers to, older than `before`."""
    rows = db.execute(
        "SELECT sha256 FROM blobs WHERE refs = 0 AND created_at < ? ORDER BY created_at LIMIT ?", (before, limit)
    )
    return [str(row[0]) for row in rows]
