"""Tasks: insert, change, find, list. Every function takes something that executes SQL: a transaction or a reader."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol, TypeAlias

from aiosd.model import jsontext
from aiosd.model.later import dataclass
from aiosd.model.status import Level, Phase, Priority, Status
from aiosd.model.task import FIELDS, Task
from aiosd.store.statements import update_one

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiosd.model.jsontext import JsonObject

Value: TypeAlias = str | int | float | bytes | None


class Executor(Protocol):
    """What runs a statement: `Transaction` and `sqlite3.Connection` both do."""

    def execute(self, sql: str, parameters: Sequence[Value] | Mapping[str, Value] = ..., /) -> sqlite3.Cursor:
        """Run one statement."""
        ...


_PLAIN = (
    "id", "uid", "capability_id", "title", "created_at", "updated_at", "timeout_ms", "retry_max", "retry_delay_ms",
    "not_before", "idempotency_key", "parent_id", "session_id", "execution_mode", "risk_level", "attempt",
    "retry_count", "retry_at", "retry_of", "reason", "cancel_reason", "started_at", "ended_at", "deadline",
    "estimated_ms", "kind", "goal", "worker_id",
)  # fmt: skip
_JSON = (
    "creator", "arguments", "metadata", "limits", "progress", "summary", "result", "error", "question", "auth_request",
    "workspace",
)  # fmt: skip
_LISTS = ("constraints", "shared_context", "requires")
_FLAGS = ("handoff", "held")
_WORDS = ("level", "status", "phase", "priority")
_COLUMNS = (*_PLAIN, *_JSON, *_LISTS, *_FLAGS, *_WORDS)
_IN_ORDER = ", ".join("seq" if name == "sequence" else name for name in FIELDS)
_SELECT = f"SELECT {_IN_ORDER} FROM tasks"  # noqa: S608  the names are this module's own
_INSERT = f"INSERT INTO tasks ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"  # noqa: S608
_TO_BE_STORED = attrgetter(*_COLUMNS)


def _object(text: Value) -> JsonObject | None:
    # Our own text, checked when it came in: the plain decoder is many times as fast as the careful one.
    return None if text is None else {} if text == "{}" else json.loads(str(text))


def _list(text: Value) -> tuple[str, ...]:
    return () if text is None else tuple(json.loads(str(text)))


_READING: tuple[tuple[int, Callable[..., object]], ...] = tuple(
    (FIELDS.index(name), read)
    for names, read in (
        (_JSON, _object),
        (_LISTS, _list),
        (_FLAGS, bool),
        (("level",), Level),
        (("priority",), Priority),
        (("status",), Status),
        (("phase",), Phase),
    )
    for name in names
)
"""What becomes of columns that do not hold the field's value as it is, by the field's place."""
MAX_ROWS = 100
_PATTERN = frozenset("*?[")
"""What makes a glob of a word (https://sqlite.org/lang_expr.html#glob)."""


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """Which tasks a list shows. `uid` None: everybody's."""

    uid: int | None = None
    statuses: tuple[Status, ...] = ()
    capability_glob: str | None = None
    created_from: int | None = None
    created_to: int | None = None
    parent_id: str | None = None
    session_id: str | None = None
    tag: str | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list. `next_sequence` continues it by cursor; None at the end."""

    tasks: tuple[Task, ...]
    total: int
    has_more: bool
    next_sequence: int | None


def _from_row(row: sqlite3.Row | tuple[Value, ...]) -> Task:
    values: list[object] = list(row)
    for place, read in _READING:
        values[place] = read(row[place])
    return Task.of(values)


def _to_value(value: object) -> Value:
    if value is None or isinstance(value, (str, int, float, bytes)):
        return value
    if isinstance(value, Mapping):
        return jsontext.dump(value)
    if isinstance(value, tuple):
        return jsontext.dump(list(value)) if value else None
    raise TypeError(f"no column holds a {type(value).__name__}")


def insert(db: Executor, task: Task) -> int:
    """Store a new task; returns its sequence number."""
    cursor = db.execute(_INSERT, [_to_value(value) for value in _TO_BE_STORED(task)])
    if cursor.lastrowid is None:
        raise sqlite3.DatabaseError("the new task has no row id")
    return cursor.lastrowid


def update(db: Executor, task_id: str, changes: Mapping[str, object]) -> None:
    """Set columns of one task. Raises KeyError for a name that is no column."""
    values = [*(_to_value(value) for value in changes.values()), task_id]
    db.execute(update_one("tasks", _COLUMNS, tuple(changes)), values)


def get(db: Executor, task_id: str) -> Task | None:
    """The task of that id."""
    row = db.execute(f"{_SELECT} WHERE id = ?", (task_id,)).fetchone()
    return None if row is None else _from_row(row)


def by_idempotency_key(db: Executor, uid: int, key: str) -> Task | None:
    """The task that this user made with this key."""
    row = db.execute(f"{_SELECT} WHERE uid = ? AND idempotency_key = ?", (uid, key)).fetchone()
    return None if row is None else _from_row(row)


def waiting_of(db: Executor, uid: int) -> int:
    """How many tasks of this user are pending and have a capability to run."""
    row = db.execute(
        "SELECT coalesce(sum(count), 0) FROM task_counts WHERE uid = ? AND status = ? AND capability_id <> ''",
        (uid, Status.PENDING),
    ).fetchone()
    return int(row[0])


def planned_of(db: Executor, uid: int) -> int:
    """How many tasks of this user are pending and wait for a worker: they have no capability."""
    row = db.execute(
        "SELECT coalesce(sum(count), 0) FROM task_counts WHERE uid = ? AND status = ? AND capability_id = ''",
        (uid, Status.PENDING),
    ).fetchone()
    return int(row[0])


def queued(db: Executor) -> int:
    """How many tasks are pending and have a capability to run, everybody's."""
    row = db.execute(
        "SELECT coalesce(sum(count), 0) FROM task_counts WHERE status = ? AND capability_id <> ''", (Status.PENDING,)
    ).fetchone()
    return int(row[0])


def in_status(db: Executor, statuses: Sequence[Status]) -> list[Task]:
    """All tasks in these states, oldest first. For the unfinished ones only: they are few."""
    marks = ", ".join("?" * len(statuses))
    rows = db.execute(f"{_SELECT} WHERE status IN ({marks}) ORDER BY seq", list(statuses))
    return [_from_row(row) for row in rows]


def asking(db: Executor) -> list[Task]:
    """The tasks that wait for a person's answer or word, without those that are blocked: of these there may be many,
    and nothing limits how long they wait."""
    rows = db.execute(f"{_SELECT} WHERE status IN ('input_required', 'auth_required') AND phase <> 'blocked'")
    return [_from_row(row) for row in rows]


def to_be_canceled(db: Executor) -> list[Task]:
    """The unfinished tasks of which a cancel was asked, oldest first."""
    return [_from_row(row) for row in db.execute(
        f"{_SELECT} WHERE cancel_reason IS NOT NULL AND ended_at IS NULL ORDER BY +seq"
    )]  # fmt: skip


def open_ids(db: Executor, uid: int | None) -> list[str]:
    """The ids of all tasks of a user (None: of everybody) that have not ended, oldest first."""
    where, values = ("", ()) if uid is None else (" AND uid = ?", (uid,))
    rows = db.execute(
        f"SELECT id FROM tasks INDEXED BY tasks_open_by_uid WHERE ended_at IS NULL{where} ORDER BY +seq",  # noqa: S608
        values,
    )
    return [str(row[0]) for row in rows]


def count_in_status(db: Executor, status: Status) -> int:
    """How many tasks are in this state, everybody's."""
    row = db.execute("SELECT coalesce(sum(count), 0) FROM task_counts WHERE status = ?", (status,)).fetchone()
    return int(row[0])


def has_open(db: Executor, session_id: str) -> bool:
    """Whether a task of the session has not ended."""
    row = db.execute("SELECT 1 FROM tasks WHERE session_id = ? AND ended_at IS NULL LIMIT 1", (session_id,)).fetchone()
    return row is not None


def open_of_session(db: Executor, session_id: str) -> list[Task]:
    """The tasks of a session that have not ended, oldest first."""
    rows = db.execute(f"{_SELECT} WHERE session_id = ? AND ended_at IS NULL ORDER BY seq", (session_id,))
    return [_from_row(row) for row in rows]


def open_ids_of_session(db: Executor, session_id: str) -> list[str]:
    """Their ids."""
    rows = db.execute("SELECT id FROM tasks WHERE session_id = ? AND ended_at IS NULL ORDER BY seq", (session_id,))
    return [str(row[0]) for row in rows]


def foremost_of_session(db: Executor, session_id: str, limit: int) -> list[Task]:
    """The unfinished tasks of a session that are neither held nor paused, those at work first, at most `limit`."""
    rows = db.execute(
        f"{_SELECT} WHERE session_id = ? AND ended_at IS NULL AND held = 0 AND status <> 'paused'"
        " ORDER BY status = 'pending', seq LIMIT ?",
        (session_id, limit),
    )
    return [_from_row(row) for row in rows]


def held(db: Executor) -> list[Task]:
    """The unfinished tasks with a program of ours that are held, oldest first."""
    rows = db.execute(f"{_SELECT} WHERE held = 1 AND ended_at IS NULL AND +capability_id <> '' ORDER BY seq")
    return [_from_row(row) for row in rows]


def by_sequence(db: Executor, sequence: int) -> Task | None:
    """The task of that number."""
    row = db.execute(f"{_SELECT} WHERE seq = ?", (sequence,)).fetchone()
    return None if row is None else _from_row(row)


def next_child(db: Executor, task_id: str, after: int) -> Task | None:
    """The oldest direct child of a task, finished or not, that is newer than the number `after`."""
    row = db.execute(f"{_SELECT} WHERE parent_id = ? AND seq > ? ORDER BY seq LIMIT 1", (task_id, after)).fetchone()
    return None if row is None else _from_row(row)


def next_root(db: Executor, session_id: str, after: int) -> Task | None:
    """The oldest task of a session that has no parent and is newer than the number `after`."""
    row = db.execute(
        f"{_SELECT} WHERE session_id = ? AND parent_id IS NULL AND seq > ? ORDER BY seq LIMIT 1", (session_id, after)
    ).fetchone()
    return None if row is None else _from_row(row)


def _where(chosen: TaskFilter) -> tuple[str, list[Value]]:
    terms: list[str] = []
    values: list[Value] = []

    def add(term: str, *given: Value) -> None:
        terms.append(term)
        values.extend(given)

    # Of a session, or under a parent, there are few: with the `+` their index is the one that is used.
    few = "+" if chosen.parent_id is not None or chosen.session_id is not None else ""
    if chosen.uid is not None:
        add(f"{few}uid = ?", chosen.uid)
    if chosen.statuses:
        add(f"{few}status IN ({', '.join('?' * len(chosen.statuses))})", *chosen.statuses)
    if chosen.capability_glob is not None:
        exact = _PATTERN.isdisjoint(chosen.capability_glob)
        add(f"{few}capability_id {'=' if exact else 'GLOB'} ?", chosen.capability_glob)
    if chosen.created_from is not None:
        add("created_at >= ?", chosen.created_from)
    if chosen.created_to is not None:
        add("created_at <= ?", chosen.created_to)
    if chosen.parent_id is not None:
        add("parent_id = ?", chosen.parent_id)
    if chosen.session_id is not None:
        add("session_id = ?", chosen.session_id)
    if chosen.tag is not None:
        add("EXISTS (SELECT 1 FROM json_each(tasks.metadata, '$.tags') WHERE value = ?)", chosen.tag)
    return (" WHERE " + " AND ".join(terms) if terms else ""), values


def _total(db: Executor, chosen: TaskFilter, where: str, values: Sequence[Value]) -> int:
    """Count; from the counts table when it knows enough, which costs the same at any number of tasks."""
    known = TaskFilter(uid=chosen.uid, statuses=chosen.statuses, capability_glob=chosen.capability_glob)
    source = "sum(count), 0) FROM task_counts" if chosen == known else "count(*), 0) FROM tasks"
    row = db.execute(f"SELECT coalesce({source}{where}", values).fetchone()
    return int(row[0])


_ORDER = {"created_at": "seq", "updated_at": "updated_at", "priority": "priority"}


def _rows(
    db: Executor, chosen: TaskFilter, before: int | None, sort: str, way: str, window: int
) -> list[tuple[Value, ...]]:
    """The first `window` rows. Each status is walked by its own index and the walks are merged: `status IN (…)` would
    walk all of a user's tasks.
    """
    order = f"{_ORDER[sort]} {way}" + ("" if sort == "created_at" else f", seq {way}")
    parts, values = [], list[Value]()
    each: list[tuple[Status, ...]] = [(status,) for status in chosen.statuses] or [()]
    for statuses in each:
        where, given = _where(replace(chosen, statuses=statuses))
        if before is not None:
            where += (" AND " if where else " WHERE ") + ("seq < ?" if way == "DESC" else "seq > ?")
            given.append(before)
        parts.append(f"SELECT * FROM ({_SELECT}{where} ORDER BY {order} LIMIT ?)")  # noqa: S608
        values += [*given, window]
    merged = " UNION ALL ".join(parts)
    return db.execute(f"{merged} ORDER BY {order} LIMIT ?", [*values, window]).fetchall()


def page(
    db: Executor,
    chosen: TaskFilter,
    *,
    limit: int = 50,
    offset: int = 0,
    before: int | None = None,
    sort: str = "created_at",
    descending: bool = True,
) -> Page:
    """One page of at most 100 rows. `before`: a sequence number to continue after (cursor), in creation order only."""
    limit = min(limit, MAX_ROWS)
    if before is not None:
        sort, offset = "created_at", 0
    where, values = _where(chosen)
    total = _total(db, chosen, where, values)
    rows = _rows(db, chosen, before, sort, "DESC" if descending else "ASC", offset + limit + 1)[offset:]
    found = tuple(_from_row(row) for row in rows[:limit])
    more = len(rows) > limit
    return Page(found, total, more, found[-1].sequence if more and sort == "created_at" else None)
