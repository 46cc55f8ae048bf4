"""Plans, which tasks they have, and the diffs that were proposed and applied. For transactions and readers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiosd.model import jsontext
from aiosd.model.later import dataclass
from aiosd.store import pages

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence

    from aiosd.model.jsontext import JsonObject
    from aiosd.store.tasks import Executor

MAX_DIFFS = 100


@dataclass(frozen=True, slots=True)
class Plan:
    """One row of `plans`. Times: microseconds since the epoch."""

    id: str
    session_id: str
    uid: int
    version: int
    objective: str
    created_at: int
    updated_at: int
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class StoredDiff:
    """One row of `plan_diffs`. `base_version`: of the plan that it was made for."""

    id: str
    uid: int
    base_version: int
    body: JsonObject
    created_at: int
    applied_at: int | None = None


def insert(db: Executor, plan: Plan) -> int:
    """Store a new plan; returns its sequence number."""
    cursor = db.execute(
        "INSERT INTO plans (id, session_id, uid, version, objective, created_at, updated_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (plan.id, plan.session_id, plan.uid, plan.version, plan.objective, plan.created_at, plan.updated_at),
    )
    return cursor.lastrowid or 0


def of_session(db: Executor, session_id: str) -> Plan | None:
    """A session's plan."""
    row = db.execute(
        "SELECT id, session_id, uid, version, objective, created_at, updated_at, seq FROM plans WHERE session_id = ?",
        (session_id,),
    ).fetchone()
    return None if row is None else Plan(*row)


def advance(db: Executor, plan: Plan, version: int, objective: str, now: int) -> None:
    """The plan has a new version."""
    db.execute(
        "UPDATE plans SET version = ?, objective = ?, updated_at = ? WHERE seq = ?",
        (version, objective, now, plan.sequence),
    )


def add_tasks(db: Executor, plan_sequence: int, task_sequences: Iterable[int], version: int) -> None:
    """Tasks that came with this version of the plan."""
    for sequence in task_sequences:
        db.execute("INSERT INTO plan_tasks (plan_seq, task_seq, version) VALUES (?, ?, ?)",
                   (plan_sequence, sequence, version))  # fmt: skip


def task_ids(db: Executor, plan_sequence: int, limit: int, after: int = 0) -> list[tuple[str, int]]:
    """The plan's tasks after the one of that sequence number, with the version that each came with, oldest first."""
    rows = db.execute(
        "SELECT tasks.id, plan_tasks.version FROM plan_tasks JOIN tasks ON tasks.seq = plan_tasks.task_seq"
        " WHERE plan_tasks.plan_seq = ? AND plan_tasks.task_seq > ? ORDER BY plan_tasks.task_seq LIMIT ?",
        (plan_sequence, after, limit),
    )
    return [(str(identifier), int(version)) for identifier, version in rows]


def open_task_ids(db: Executor, plan: Plan, limit: int, also: Sequence[str] = ()) -> list[tuple[str, int]]:
    """The same of those that have not ended, and of these others. Any number of ended ones costs nothing."""
    marks = ", ".join("?" * len(also))
    rows = db.execute(
        "SELECT tasks.id, plan_tasks.version FROM (SELECT seq FROM tasks WHERE session_id = ? AND ended_at IS NULL"  # noqa: S608
        f" UNION SELECT seq FROM tasks WHERE id IN ({marks})) AS chosen"
        " CROSS JOIN plan_tasks ON plan_tasks.plan_seq = ? AND plan_tasks.task_seq = chosen.seq"
        " CROSS JOIN tasks ON tasks.seq = chosen.seq ORDER BY chosen.seq LIMIT ?",
        (plan.session_id, *also, plan.sequence, limit),
    )
    return [(str(identifier), int(version)) for identifier, version in rows]


def insert_diff(db: Executor, plan_sequence: int, diff: StoredDiff) -> None:
    """Store a diff."""
    db.execute(
        "INSERT INTO plan_diffs (id, plan_seq, uid, base_version, body, created_at, applied_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (diff.id, plan_sequence, diff.uid, diff.base_version, jsontext.dump(diff.body), diff.created_at,
         diff.applied_at),
    )  # fmt: skip


def mark_applied(db: Executor, diff_id: str, now: int) -> None:
    """The diff has been applied."""
    db.execute("UPDATE plan_diffs SET applied_at = ? WHERE id = ?", (now, diff_id))


_DIFF = "SELECT id, uid, base_version, body, created_at, applied_at FROM plan_diffs"


def diff_of(db: Executor, plan_sequence: int, diff_id: str) -> StoredDiff | None:
    """One diff of the plan."""
    row = db.execute(f"{_DIFF} WHERE id = ? AND plan_seq = ?", (diff_id, plan_sequence)).fetchone()
    return None if row is None else _diff(row)


def diffs(db: Executor, plan_sequence: int, limit: int = MAX_DIFFS) -> list[StoredDiff]:
    """The newest diffs of the plan, newest first: as many as fit on a page."""
    rows = db.execute(f"{_DIFF} WHERE plan_seq = ? ORDER BY seq DESC LIMIT ?", (plan_sequence, limit))
    return [_diff(row) for row in pages.page(rows, limit, pages.size_of)[0]]


def _diff(row: sqlite3.Row) -> StoredDiff:
    identifier, uid, base, body, created, applied = row
    return StoredDiff(identifier, uid, base, jsontext.parse_object(body, limit=1 << 24), created, applied)
