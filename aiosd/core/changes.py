"""The one place where a task's state changes: row, history, event, outbox and audit in the caller's transaction.

Every function takes the transaction and the task as it was just read in it, and returns the task as it is afterwards.
Nothing here decides *whether*; that is `model.machine` (legal at all) and the callers (wanted now).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiosd.core import clock, timeline
from aiosd.model import machine
from aiosd.model.event import Event, Kind, Source, StateChange
from aiosd.model.redact import redacted
from aiosd.model.status import Actor, Phase, Priority, Reason, Status
from aiosd.store import journal, tasks
from aiosd.store.audit import append_audit

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonObject, JsonValue
    from aiosd.model.task import Task
    from aiosd.store.database import Transaction

BOSS_TYPES: dict[Status, str] = {
    Status.PENDING: "task.created",
    Status.WORKING: "task.started",
    Status.PAUSED: "task.paused",
    Status.INPUT_REQUIRED: "task.blocked",
    Status.AUTH_REQUIRED: "task.blocked",
    Status.COMPLETED: "task.completed",
    Status.FAILED: "task.failed",
    Status.CANCELED: "task.cancelled",
}
"""Seed 003's name of the event that a new status is."""


def emit(
    transaction: Transaction,
    task: Task,
    kind: Kind,
    boss_type: str,
    payload: JsonObject,
    *,
    source: Source,
    change: StateChange | None = None,
) -> Event:
    """Append one event about this task; the task's metadata is merged under the payload (seed 002) when it is shown.

    It is one of the worker's, too, that has the task.
    """
    event = Event(
        0, task.id, task.session_id, task.uid, source, boss_type, kind, clock.now(), payload, change, task.worker_id
    )
    return journal.append_event(transaction, event)


def audit(transaction: Transaction, task: Task, kind: str, actor: str, details: JsonObject) -> None:
    """Append one audit row about this task."""
    append_audit(transaction, time=clock.now(), uid=task.uid, actor=actor, kind=kind, task_id=task.id, details=details)


def record_new(
    transaction: Transaction, task: Task, *, source: Source, actor: str, schema: JsonObject | None
) -> Task:  # fmt: skip
    """Store a task that is new: row, first history entry, `task.created`, audit.

    `schema`: of the arguments; what it calls a secret is not shown in the audit.
    """
    sequence = tasks.insert(transaction, task)
    stored = task.having({"sequence": sequence})
    journal.append_history(
        transaction, sequence, state=task.status, phase=task.phase, time=task.created_at, reason=None, metadata=None
    )
    payload: dict[str, JsonValue] = {
        "status": task.status, "phase": task.phase, "timestamp": clock.rfc3339(task.created_at), "title": task.title
    }  # fmt: skip
    if task.kind is not None:
        payload["kind"] = task.kind
    emit(
        transaction, stored, Kind.STATUS, BOSS_TYPES[Status.PENDING], payload, source=source,
        change=StateChange(None, task.status, task.phase),
    )  # fmt: skip
    details: dict[str, JsonValue] = {
        "capability_id": task.capability_id, "arguments": redacted(task.arguments, schema), "level": task.level.wire,
        "creator": task.creator,
    }  # fmt: skip
    audit(transaction, stored, "task.created", actor, details)
    return stored


def enter(
    transaction: Transaction,
    task: Task,
    status: Status,
    *,
    phase: Phase | None = None,
    actor: Actor = Actor.SYSTEM,
    by: str = "system",
    source: Source = Source.SYSTEM,
    reason: Reason | str | None = None,
    history_metadata: JsonObject | None = None,
    payload: JsonObject | None = None,
    also: JsonObject | None = None,
) -> Task:
    """Move the task to `status`. Raises IllegalTransition, and then nothing is written.

    `by`: who, for the audit. `payload`: more for the event. `also`: more columns to set.
    """
    new_status, new_phase = machine.transition(task.status, status, phase, actor=actor)
    moment = clock.now()
    changes: dict[str, JsonValue] = {
        "status": new_status, "phase": new_phase, "updated_at": moment,
        "reason": None if reason is None else str(reason),
    }  # fmt: skip
    if new_status.is_final:
        changes.update(ended_at=moment, retry_at=None, question=None, auth_request=None)
    changes.update(also or {})
    after = _changed(transaction, task, changes)
    journal.append_history(
        transaction, task.sequence, state=new_status, phase=new_phase, time=moment,
        reason=None if reason is None else str(reason), metadata=history_metadata,
    )  # fmt: skip
    _announce(transaction, task, new_status, new_phase, moment, reason, payload or {}, source)
    timeline.changed(transaction, task, after)
    details: dict[str, JsonValue] = {
        "old": task.status, "new": new_status, "reason": None if reason is None else str(reason)
    }  # fmt: skip
    audit(transaction, task, "task.status", by, details)
    return after


def _changed(transaction: Transaction, task: Task, columns: JsonObject) -> Task:
    """Set columns of a task; the task as it then is."""
    tasks.update(transaction, task.id, columns)
    values = dict(columns)
    if "priority" in values:
        values["priority"] = Priority(values["priority"])  # type: ignore[arg-type]  # its column is a number
    return task.having(values)


def _announce(
    transaction: Transaction,
    task: Task,
    status: Status,
    phase: Phase,
    moment: int,
    reason: Reason | str | None,
    payload: JsonObject,
    source: Source,
) -> None:
    shown: dict[str, JsonValue] = {"status": status, "phase": phase, "timestamp": clock.rfc3339(moment)}
    if reason is not None:
        shown["reason"] = str(reason)
    boss_type = BOSS_TYPES[status]
    waited = (Status.PAUSED, Status.INPUT_REQUIRED, Status.AUTH_REQUIRED)
    if status is Status.WORKING and task.status in waited and task.started_at is not None:
        boss_type = "task.resumed"
    change = StateChange(task.status, status, phase)
    emit(transaction, task, Kind.STATUS, boss_type, {**shown, **payload}, source=source, change=change)


def set_phase(
    transaction: Transaction,
    task: Task,
    phase: Phase,
    *,
    boss_type: str | None = None,
    also: JsonObject | None = None,
    payload: JsonObject | None = None,
) -> Task:
    """Change the detail inside the status; told as a status event with the same status."""
    if phase not in machine.PHASES[task.status]:
        raise ValueError(f"{phase} is not a phase of {task.status}")
    moment = clock.now()
    after = _changed(transaction, task, {"phase": phase, "updated_at": moment, **(also or {})})
    if boss_type is not None:
        shown: JsonObject = {"status": task.status, "phase": phase, "timestamp": clock.rfc3339(moment)}
        change = StateChange(task.status, task.status, phase)
        emit(
            transaction, task, Kind.STATUS, boss_type, {**shown, **(payload or {})}, source=Source.SYSTEM, change=change
        )
    timeline.changed(transaction, task, after)
    return after
