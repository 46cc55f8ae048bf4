"""Workers as callers see them, and what a worker is to know of its own assignments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from aiosd.core import clock, context, run_states
from aiosd.core.links import HANDOFF, named
from aiosd.model import jsontext
from aiosd.model.status import Status
from aiosd.model.worker import AssignmentStatus
from aiosd.store import tasks, workers

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonObject, JsonValue
    from aiosd.model.task import Task
    from aiosd.model.worker import Assignment, Worker, WorkerKey
    from aiosd.store.tasks import Executor

MAX_CONTEXT = 256 * 1024
"""Bytes of context that come with a request; more is left to the artifacts' own operations."""


def wanted(db: Executor, key: WorkerKey) -> dict[str, JsonObject]:
    """What a worker has now, by task, each with its request."""
    found: dict[str, JsonObject] = {}
    for assignment in workers.open_of_worker(db, key):
        task = tasks.get(db, assignment.task_id)
        if task is not None:
            found[task.id] = _wanted(db, assignment, task)
    return found


def in_short(shown: JsonObject, *, always: bool = False) -> JsonObject:
    """Without the request, which a worker has that has accepted it. `always`: without in any case."""
    if shown["state"] == "offered" and not always:
        return shown
    return {name: value for name, value in shown.items() if name != "request"}


def _wanted(db: Executor, assignment: Assignment, task: Task) -> JsonObject:
    """One assignment. `state`: `offered`, to be accepted or rejected; `running`; `paused`, to be left alone for now;
    `waiting`, a person is asked. `input`: an answer, until it is in a heartbeat's `received`."""
    new = assignment.status is AssignmentStatus.ASSIGNED
    if new:
        state = "offered"
    elif task.held or task.status is Status.PAUSED:
        state = "paused"
    else:
        state = "running" if task.status is Status.WORKING else "waiting"
    shown: dict[str, JsonValue] = {
        "assignment_id": assignment.id, "task_id": task.id, "attempt": assignment.attempt, "state": state
    }  # fmt: skip
    answer = run_states.undelivered(task)
    if answer is not None:
        shown["input"] = {"delivery": answer.identifier, **answer.fields}
    shown["request"] = request(db, task)
    return shown


def request(db: Executor, task: Task) -> JsonObject:
    """Seed 003's execution request, and ours beyond it."""
    shown: dict[str, JsonValue] = {
        "task_id": task.id, "session_id": task.session_id, "workspace": task.workspace or {},
        "execution_mode": task.execution_mode, "goal": task.goal or task.title, "constraints": list(task.constraints),
        "title": task.title, "priority": task.priority.wire, "arguments": task.arguments, "metadata": task.metadata,
    }  # fmt: skip
    more: dict[str, JsonValue] = {"kind": task.kind, "risk_level": task.risk_level, "timeout_ms": task.timeout_ms}
    shown |= {name: value for name, value in more.items() if value is not None}
    if task.shared_context or task.handoff:
        shown["shared_context_refs"] = list(named(task.shared_context))
        shown["handoff_expected"] = task.handoff
    handed_over = any(one.endswith(HANDOFF) for one in task.shared_context)
    if task.shared_context or handed_over:
        shown["context"] = _context(db, task)
    return shown


def _context(db: Executor, task: Task) -> JsonObject:
    """What a program finds in `$AIOS_CONTEXT`; files are had by `artifact.get` and its open."""
    index = context.context_of(db, task).index
    found: JsonObject = {name: _without_paths(index.get(name)) for name in ("shared", "handed_over")}
    if len(jsontext.dump(found).encode()) > MAX_CONTEXT:
        return {"left_out": f"more than {MAX_CONTEXT} bytes"}
    return found


def _without_paths(value: JsonValue) -> JsonValue:
    if isinstance(value, Mapping):
        return {name: _without_paths(one) for name, one in value.items() if name != "path"}
    return [_without_paths(one) for one in value] if isinstance(value, list) else value


def row(worker: Worker) -> dict[str, JsonValue]:
    """A worker in a list: seed 003's registration and heartbeat."""
    shown: dict[str, JsonValue] = {
        "worker_id": worker.id, "uid": worker.uid, "hostname": worker.hostname, "os": worker.os,
        "shell": worker.shell, "capabilities": list(worker.capabilities),
        "status": "gone" if worker.ended_at is not None else worker.status.value,
        "current_task_id": worker.current_task_id, "load": worker.load, "capacity": worker.capacity,
        "serves": worker.serves.value, "liveness": worker.liveness.value,
        "registered_at": clock.rfc3339(worker.registered_at), "heartbeat_at": clock.rfc3339(worker.heartbeat_at),
    }  # fmt: skip
    if worker.ended_at is not None:
        shown["ended_at"] = clock.rfc3339(worker.ended_at)
        shown["reason"] = worker.reason
    return shown


def assignment_row(assignment: Assignment) -> dict[str, JsonValue]:
    """Seed 003's `worker_assignment`."""
    shown: dict[str, JsonValue] = {
        "id": assignment.id, "assignment_id": assignment.id, "task_id": assignment.task_id,
        "worker_id": assignment.worker_id, "status": assignment.status.value, "attempt": assignment.attempt,
        "created_at": clock.rfc3339(assignment.created_at),
    }  # fmt: skip
    for name, moment in (("accepted_at", assignment.accepted_at), ("ended_at", assignment.ended_at)):
        if moment is not None:
            shown[name] = clock.rfc3339(moment)
    if assignment.reason is not None:
        shown["reason"] = assignment.reason
    return shown
