"""What a session's timeline says beside the events of its tasks: sessions' own events, and the completion signal.

Seed 002's contract: `all_tasks_processed` comes each time no task of the session is pending or working any more; paused
ones and those that wait for a person do not hold it back. It is judged at the end of the transaction that could have
made it so, on what that transaction comes to as a whole, and written in it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from aiosd.core import clock
from aiosd.model.event import Event, Kind, Source
from aiosd.model.status import Phase, Status
from aiosd.store import journal, sessions

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonObject
    from aiosd.model.session import Session
    from aiosd.model.task import Task
    from aiosd.store.database import Transaction

ACTIVE = frozenset({Status.PENDING, Status.WORKING})
"""What holds the completion signal back (seed 002: submitted and working), unless it is held itself."""

ALL_TASKS_PROCESSED = "all_tasks_processed"


def tell(
    transaction: Transaction, session: Session, boss_type: str, payload: JsonObject, *, source: Source = Source.USER
) -> Event:
    """Append an event of the session itself."""
    event = Event(0, None, session.id, session.uid, source, boss_type, Kind.TIMELINE, clock.now(), payload)
    return journal.append_event(transaction, event)


def is_active(task: Task) -> bool:
    """Whether it keeps its session busy; one that is held without a program is paused in all but its status."""
    return task.status in ACTIVE and not (
        task.held and (task.status is Status.PENDING or task.phase is Phase.RETRY_WAIT)
    )


def changed(transaction: Transaction, before: Task, after: Task) -> None:
    """A task has changed: perhaps it was the last that kept the session busy."""
    session_id = after.session_id
    if session_id is not None and is_active(before) and not is_active(after):
        transaction.at_end(f"{ALL_TASKS_PROCESSED} {session_id}", partial(tell_when_idle, session_id=session_id))


def tell_when_idle(transaction: Transaction, session_id: str) -> None:
    """The completion signal, if the session is idle now and wants it."""
    if sessions.has_active_tasks(transaction, session_id):
        return
    session = sessions.get(transaction, session_id)
    if session is None or session.suppress_completion:
        return
    payload: JsonObject = {"message": "no task of this session is pending or working any more", "last_chunk": True}
    tell(transaction, session, ALL_TASKS_PROCESSED, payload, source=Source.SYSTEM)
