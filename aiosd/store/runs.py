"""Runs: one row for each attempt at a task."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from aiosd.model import jsontext
from aiosd.model.task import Run, RunState
from aiosd.store.statements import update_one

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aiosd.store.tasks import Executor, Value

_COLUMNS = (
    "id", "attempt", "state", "boot_id", "uid", "started_at", "unit", "control_group", "pid", "ended_at",
    "events_offset", "limits", "exit", "reason",
)  # fmt: skip
_SELECT = (
    f"SELECT tasks.id, {', '.join('runs.' + name for name in _COLUMNS)}"  # noqa: S608  the names are this module's own
    " FROM runs JOIN tasks ON tasks.seq = runs.task_seq"
)
_JSON = frozenset({"limits", "exit"})


def _from_row(row: tuple[str, ...]) -> Run:
    values: dict[str, object] = dict(zip(("task_id", *_COLUMNS), row, strict=True))
    for name in _JSON:
        text = values[name]
        values[name] = None if text is None else json.loads(str(text))
    values["state"] = RunState(str(values["state"]))
    return Run(**values)  # type: ignore[arg-type]  # the table's column types are STRICT and the dataclass's own


def insert(db: Executor, run: Run) -> None:
    """Store a new run."""
    db.execute(
        "INSERT INTO runs (id, task_seq, attempt, state, boot_id, uid, started_at)"
        " VALUES (?, (SELECT seq FROM tasks WHERE id = ?), ?, ?, ?, ?, ?)",
        (run.id, run.task_id, run.attempt, run.state, run.boot_id, run.uid, run.started_at),
    )


def update(db: Executor, run_id: str, changes: Mapping[str, object]) -> None:
    """Set columns of one run. Raises KeyError for a name that is no column."""
    values: list[Value] = []
    for name, value in changes.items():
        if name in _JSON and value is not None:
            values.append(jsontext.dump(value))  # type: ignore[arg-type]  # these columns hold JSON objects
        else:
            values.append(value)  # type: ignore[arg-type]
    db.execute(update_one("runs", _COLUMNS, tuple(changes)), [*values, run_id])


def get(db: Executor, run_id: str) -> Run | None:
    """The run of that id."""
    row = db.execute(f"{_SELECT} WHERE runs.id = ?", (run_id,)).fetchone()
    return None if row is None else _from_row(row)


def states(db: Executor, run_ids: Sequence[str]) -> dict[str, RunState]:
    """The states of those of `run_ids` that there are."""
    rows = db.execute(
        "SELECT id, state FROM runs WHERE id IN (SELECT value FROM json_each(?))", (json.dumps(list(run_ids)),)
    )
    return {str(row[0]): RunState(row[1]) for row in rows}


def of_task(db: Executor, task_id: str) -> list[Run]:
    """All attempts at a task, in order."""
    rows = db.execute(f"{_SELECT} WHERE tasks.id = ? ORDER BY runs.attempt, runs.started_at", (task_id,))
    return [_from_row(row) for row in rows]


def has_live(db: Executor, task_sequence: int) -> bool:
    """Whether a run of the task has not ended."""
    row = db.execute("SELECT 1 FROM runs WHERE task_seq = ? AND state <> 'ended' LIMIT 1", (task_sequence,)).fetchone()
    return row is not None


def live(db: Executor) -> list[Run]:
    """Runs that have not ended."""
    return [_from_row(row) for row in db.execute(f"{_SELECT} WHERE runs.state <> 'ended' ORDER BY runs.started_at")]


def told_log_sizes(db: Executor, run: Run) -> dict[str, int]:
    """How much of each stream of this run its `task.log` events have told of, in bytes.

    Those are after the `task.started` of its attempt, which is the task's last one.
    """
    rows = db.execute(
        "SELECT json_extract(payload, '$.stream'),"
        " max(json_extract(payload, '$.offset') + json_extract(payload, '$.size'))"
        " FROM events WHERE task_id = ?1 AND kind = 'task.log' AND seq > coalesce((SELECT max(seq) FROM events"
        "  WHERE task_id = ?1 AND type = 'task.started'), 0)"
        " AND json_extract(payload, '$.stream') IS NOT NULL GROUP BY 1",
        (run.task_id,),
    )
    return {str(stream): int(size) for stream, size in rows}
