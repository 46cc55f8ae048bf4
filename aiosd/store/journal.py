"""What happened: a task's state history, the event log and the webhook outbox (the audit trail: `audit.py`).

They are written beside every change, in its transaction; `append_event` also hands the event to the transaction's
listeners, who get it after the commit.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from aiosd.model import jsontext
from aiosd.model.event import Event, Kind, Source, StateChange
from aiosd.model.later import dataclass
from aiosd.model.status import FINAL
from aiosd.store import pages
from aiosd.store.tasks import Value

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonObject
    from aiosd.store.database import Transaction
    from aiosd.store.tasks import Executor


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """One entry of `state_history`."""

    state: str
    phase: str
    time: int
    reason: str | None
    metadata: JsonObject | None


def append_history(
    db: Executor,
    task_sequence: int,
    *,
    state: str,
    phase: str,
    time: int,
    reason: str | None,
    metadata: JsonObject | None,
) -> None:
    """Record that a task entered a state."""
    db.execute(
        "INSERT INTO history (task_seq, state, phase, time, reason, metadata) VALUES (?, ?, ?, ?, ?, ?)",
        (task_sequence, state, phase, time, reason, None if metadata is None else jsontext.dump(metadata)),
    )


def history(db: Executor, task_sequence: int) -> list[HistoryRow]:
    """Every state a task was in, in order."""
    rows = db.execute(
        "SELECT state, phase, time, reason, metadata FROM history WHERE task_seq = ? ORDER BY id", (task_sequence,)
    )
    return [
        HistoryRow(
            state, phase, time, reason, None if metadata is None else jsontext.parse_object(metadata, limit=1 << 24)
        )
        for state, phase, time, reason, metadata in rows
    ]


def append_event(transaction: Transaction, event: Event) -> Event:
    """Give the event its place in the log, queue it for webhooks that want it, and announce it after the commit."""
    stored = jsontext.dump(event.payload)
    change = event.change
    cursor = transaction.execute(
        "INSERT INTO events (task_id, session_id, uid, source, type, kind, time, payload, old_status, new_status,"
        " phase, worker_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            event.task_id, event.session_id, event.uid, event.source, event.type, event.kind, event.time, stored,
            change.old if change else None, change.new if change else None, change.phase if change else None,
            event.worker_id,
        ),
    )  # fmt: skip
    if cursor.lastrowid is None:
        raise sqlite3.DatabaseError("the new event has no row id")
    placed = event.placed(cursor.lastrowid)
    # Most tasks have no webhook, and that costs one look at an index.
    if transaction.execute("SELECT 1 FROM webhooks WHERE task_id = ? LIMIT 1", (event.task_id,)).fetchone():
        _queue(transaction, placed)
    transaction.emit(placed)
    return placed


MAX_WAITING = 10_000
"""Events that wait for one webhook; what comes while as many do is counted as dropped, and shown."""

_WANTS = (
    " FROM webhooks WHERE task_id = ? AND state <> 'ended'"
    " AND (events = '[]' OR EXISTS (SELECT 1 FROM json_each(webhooks.events) WHERE value IN (?, ?)))"
)


def _queue(transaction: Transaction, event: Event) -> None:
    """An outbox row for each webhook that wants the event; parked ones too, since they may be resumed."""
    if event.task_id is None or event.kind is Kind.TIMELINE:
        return
    final = event.change.new if event.change is not None and event.change.new in FINAL else None
    wants = (event.task_id, event.kind.choice, final)
    transaction.execute(
        f"UPDATE webhooks SET dropped = dropped + 1 WHERE id IN (SELECT id{_WANTS} AND waiting >= {MAX_WAITING})",  # noqa: S608
        wants,
    )
    transaction.execute(
        "INSERT INTO outbox (id, event_seq, hook_id, due_at)"
        f" SELECT 'delivery-' || lower(hex(randomblob(13))), ?, id, ?{_WANTS} AND waiting < {MAX_WAITING}",
        (event.sequence, event.time, *wants),
    )


_EVENT_COLUMNS = (
    "seq, task_id, session_id, uid, source, type, kind, time, payload, old_status, new_status, phase, worker_id"
)


def events_after(
    db: Executor,
    sequence: int,
    *,
    task_id: str | None = None,
    uid: int | None = None,
    session_id: str | None = None,
    worker_id: str | None = None,
    limit: int = 1000,
) -> tuple[list[Event], bool]:
    """A page of the events with a larger number, in order; of one task, user, session or worker when given. At most
    `limit`, and whether there are more."""
    where, values = "seq > ?", list[Value]((sequence,))
    for column, wanted in (("task_id", task_id), ("session_id", session_id), ("worker_id", worker_id)):
        if wanted is not None:
            where += f" AND {column} = ?"
            values.append(wanted)
    if uid is not None:  # of all of a user's events those of one task are not looked for (`+`: not by that index)
        where += " AND uid = ?" if len(values) == 1 else " AND +uid = ?"
        values.append(uid)
    rows = db.execute(
        f"SELECT {_EVENT_COLUMNS} FROM events WHERE {where} ORDER BY seq LIMIT ?",  # noqa: S608
        [*values, limit + 1],
    )
    return _page(rows, limit)


def events_before(db: Executor, sequence: int, session_id: str, limit: int) -> tuple[list[Event], bool]:
    """A page of a session's events with a smaller number, newest first. At most `limit`, and whether there are more."""
    rows = db.execute(
        f"SELECT {_EVENT_COLUMNS} FROM events WHERE session_id = ? AND seq < ? ORDER BY seq DESC LIMIT ?",  # noqa: S608
        (session_id, sequence, limit + 1),
    )
    return _page(rows, limit)


def _page(rows: sqlite3.Cursor, limit: int) -> tuple[list[Event], bool]:
    found, more = pages.page(rows, limit, pages.size_of)
    return [_event(row) for row in found], more


def event(db: Executor, sequence: int) -> Event | None:
    """The event of that number."""
    row = db.execute(f"SELECT {_EVENT_COLUMNS} FROM events WHERE seq = ?", (sequence,)).fetchone()  # noqa: S608
    return None if row is None else _event(tuple(row))


def _event(row: tuple[str | int | None, ...]) -> Event:
    seq, task_id, session_id, uid, source, kind_type, kind, time, payload, old, new, phase, worker_id = row
    change = None if new is None else StateChange(None if old is None else str(old), str(new), str(phase))
    return Event(
        int(seq or 0),
        None if task_id is None else str(task_id),
        None if session_id is None else str(session_id),
        int(uid or 0),
        Source(str(source)),
        str(kind_type),
        Kind(str(kind)),
        int(time or 0),
        jsontext.parse_object(str(payload), limit=1 << 24),
        change,
        None if worker_id is None else str(worker_id),
    )


def last_sequence(db: Executor) -> int:
    """The number of the newest event, 0 when there is none."""
    row = db.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()
    return int(row[0])
