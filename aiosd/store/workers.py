"""Workers and assignments in the store: insert, change, find, list. Functions take a transaction or a reader."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING

from aiosd.model import jsontext
from aiosd.model.worker import Assignment, AssignmentStatus, Liveness, Serves, Worker, WorkerStatus
from aiosd.store.statements import update_one
from aiosd.store.tasks import Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from aiosd.model.worker import WorkerKey
    from aiosd.store.tasks import Executor

MAX_ROWS = 100
KEPT_ENDED = 100
"""Rows of a user's workers that have ended which are kept to be shown."""

_NAMES = tuple("seq" if field.name == "sequence" else field.name for field in fields(Worker))
_SELECT = f"SELECT {', '.join(_NAMES)} FROM workers"  # noqa: S608  the names are the dataclass's own
_SET = tuple(name for name in _NAMES if name not in ("seq", "id", "uid"))
_ASSIGNMENT_NAMES = tuple(field.name for field in fields(Assignment))
_ASSIGNMENT = f"SELECT {', '.join(_ASSIGNMENT_NAMES)} FROM assignments"  # noqa: S608


def _from_row(row: Sequence[Value]) -> Worker:
    values: dict[str, object] = dict(zip((field.name for field in fields(Worker)), row, strict=True))
    values["capabilities"] = tuple(json.loads(str(values["capabilities"])))
    values["metadata"] = json.loads(str(values["metadata"]))
    # A status that a newer program knows is none that takes work from this one.
    known = str(values["status"]) in set(WorkerStatus)
    values["status"] = WorkerStatus(str(values["status"])) if known else WorkerStatus.BUSY
    values["liveness"] = Liveness(str(values["liveness"]))
    values["serves"] = Serves(str(values["serves"]))
    return Worker(**values)  # type: ignore[arg-type]  # the columns' types are those of the STRICT table


def _value(worker: Worker, name: str) -> Value:
    value: object = getattr(worker, name)
    if name == "capabilities":
        return jsontext.dump(list(worker.capabilities))
    if name == "metadata":
        return jsontext.dump(worker.metadata)
    return value  # type: ignore[return-value]  # the others are of the columns' types


def save(db: Executor, worker: Worker) -> None:
    """Store a registration: a new row, or the worker's own again."""
    names = ("id", "uid", *_SET)
    sets = ", ".join(f"{name} = excluded.{name}" for name in _SET)
    db.execute(
        f"INSERT INTO workers ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"  # noqa: S608
        f" ON CONFLICT (uid, id) DO UPDATE SET {sets}",
        [_value(worker, name) for name in names],
    )


def get(db: Executor, key: WorkerKey) -> Worker | None:
    """The worker of that user and id, living or not."""
    row = db.execute(f"{_SELECT} WHERE uid = ? AND id = ?", key).fetchone()
    return None if row is None else _from_row(row)


def living(db: Executor) -> list[Worker]:
    """Those that have not ended, in the order of their registration."""
    return [_from_row(row) for row in db.execute(f"{_SELECT} WHERE ended_at IS NULL ORDER BY seq")]


def page(
    db: Executor, uid: int | None, *, ended: bool, after: int = 0, limit: int = MAX_ROWS
) -> tuple[list[Worker], bool]:
    """Workers of a user (None: of all) in the order of their rows, and whether there are more."""
    where, values = "seq > ?", list[Value]((after,))
    if uid is not None:
        where += " AND uid = ?"
        values.append(uid)
    if not ended:
        where += " AND ended_at IS NULL"
    rows = db.execute(f"{_SELECT} WHERE {where} ORDER BY seq LIMIT ?", [*values, limit + 1]).fetchall()
    return [_from_row(row) for row in rows[:limit]], len(rows) > limit


def end(db: Executor, key: WorkerKey, reason: str, now: int) -> None:
    """It is gone; of its user's earlier ones only the newest are remembered."""
    db.execute(
        "UPDATE workers SET ended_at = ?, reason = ?, current_task_id = NULL WHERE uid = ? AND id = ?",
        (now, reason, *key),
    )
    db.execute(
        "DELETE FROM workers WHERE uid = ? AND ended_at IS NOT NULL AND seq NOT IN (SELECT seq FROM workers"
        " WHERE uid = ? AND ended_at IS NOT NULL ORDER BY ended_at DESC, seq DESC LIMIT ?)",
        (key[0], key[0], KEPT_ENDED),
    )


def store_heartbeats(db: Executor, beats: Iterable[tuple[WorkerKey, WorkerStatus, str | None, float, int]]) -> None:
    """What workers said last: status, current task, load, and when."""
    for (uid, worker_id), status, task_id, load, moment in beats:
        db.execute(
            "UPDATE workers SET status = ?, current_task_id = ?, load = ?, heartbeat_at = ? WHERE uid = ? AND id = ?"
            " AND ended_at IS NULL",
            (status, task_id, load, moment, uid, worker_id),
        )


def set_capabilities(db: Executor, key: WorkerKey, capabilities: Sequence[str]) -> None:
    """It can do other things than before."""
    db.execute(
        "UPDATE workers SET capabilities = ? WHERE uid = ? AND id = ?", (jsontext.dump(list(capabilities)), *key)
    )


def _assignment(row: Sequence[Value]) -> Assignment:
    values: dict[str, object] = dict(zip(_ASSIGNMENT_NAMES, row, strict=True))
    values["status"] = AssignmentStatus(str(values["status"]))
    return Assignment(**values)  # type: ignore[arg-type]  # the columns' types are those of the STRICT table


def insert_assignment(db: Executor, assignment: Assignment) -> None:
    """Store a new one."""
    marks = ", ".join("?" * len(_ASSIGNMENT_NAMES))
    db.execute(
        f"INSERT INTO assignments ({', '.join(_ASSIGNMENT_NAMES)}) VALUES ({marks})",  # noqa: S608
        [getattr(assignment, name) for name in _ASSIGNMENT_NAMES],
    )


def assignment(db: Executor, assignment_id: str) -> Assignment | None:
    """The assignment of that id."""
    row = db.execute(f"{_ASSIGNMENT} WHERE id = ?", (assignment_id,)).fetchone()
    return None if row is None else _assignment(row)


def open_of_task(db: Executor, task_id: str) -> Assignment | None:
    """The one that is open; a task has one at most."""
    row = db.execute(f"{_ASSIGNMENT} WHERE task_id = ? AND ended_at IS NULL", (task_id,)).fetchone()
    return None if row is None else _assignment(row)


def open_of_worker(db: Executor, key: WorkerKey) -> list[Assignment]:
    """A worker's own, oldest first."""
    rows = db.execute(f"{_ASSIGNMENT} WHERE worker_uid = ? AND worker_id = ? AND ended_at IS NULL ORDER BY seq", key)
    return [_assignment(row) for row in rows]


def open_assignments(db: Executor) -> list[Assignment]:
    """All that are open, oldest first: at most what all workers can hold."""
    return [
        _assignment(row)
        for row in db.execute(f"{_ASSIGNMENT} INDEXED BY assignments_open WHERE ended_at IS NULL ORDER BY +seq")
    ]


def of_task(db: Executor, task_id: str) -> list[Assignment]:
    """All of a task, in order."""
    return [_assignment(row) for row in db.execute(f"{_ASSIGNMENT} WHERE task_id = ? ORDER BY attempt", (task_id,))]


def update_assignment(db: Executor, assignment_id: str, columns: Mapping[str, str | int | None]) -> None:
    """Set columns of one. Raises KeyError for a name that is no column."""
    statement = update_one("assignments", _ASSIGNMENT_NAMES, tuple(columns))
    db.execute(statement, [*columns.values(), assignment_id])


def settle(db: Executor, task_id: str, status: AssignmentStatus, reason: str | None, now: int) -> None:
    """The task's assignment, if one is open, has ended like this: not before its worker registered, even when the clock
    was set back since, or else what the worker says no to would be offered to it again and again."""
    db.execute(
        "UPDATE assignments SET status = ?, reason = ?, ended_at = max(?, coalesce((SELECT registered_at FROM workers"
        " WHERE uid = worker_uid AND workers.id = worker_id), 0)) WHERE task_id = ? AND ended_at IS NULL",
        (status, reason, now, task_id),
    )
