"""An assignment's life in the store: offered, accepted or rejected, reported about, ended or taken back.

Each step is one transaction with everything that follows from it for the task. A step of a worker begins with
`of_worker`, which is the fence: an assignment that has ended takes no word any more, whoever says it. All functions run
in the writer thread. What ends a task (`run_states.end`) also ends its assignment there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aiosd.core import changes, clock, run_states
from aiosd.core.outcome import Verdict, failure
from aiosd.errors import AiosError, ErrorKind
from aiosd.model.audit import AuditKind
from aiosd.model.event import Event, Kind, Source
from aiosd.model.ids import Prefix, new_id
from aiosd.model.manifest import OnFailure
from aiosd.model.status import Phase, Reason, Status
from aiosd.model.worker import Assignment, AssignmentStatus
from aiosd.store import journal, tasks, workers

if TYPE_CHECKING:
    from aiosd.core.time_limits import TimeLimits
    from aiosd.model.jsontext import JsonObject, JsonValue
    from aiosd.model.task import Task
    from aiosd.model.worker import Worker, WorkerKey
    from aiosd.store.database import Transaction

MAX_LOSSES = run_states.MAX_LOSSES
"""How often a task is given to another worker after one was lost with it; then a person is asked."""


def assignment_not_found() -> AiosError:
    """The one answer for an assignment that is not there and for one of another worker."""
    return AiosError(
        ErrorKind.ASSIGNMENT_NOT_FOUND, "there is no such assignment, or it is another worker's", field="assignment_id"
    )


def of_worker(transaction: Transaction, key: WorkerKey, assignment_id: str) -> tuple[Assignment, Task]:
    """A worker's open assignment and its task. Raises ASSIGNMENT_NOT_FOUND; INVALID_STATE (`fenced`) for one that has
    been taken back or has ended: what its worker says now is late, and counts for nothing."""
    found = workers.assignment(transaction, assignment_id)
    if found is None or found.worker != key:
        raise assignment_not_found()
    task = tasks.get(transaction, found.task_id)
    if not found.is_open or task is None:
        data: JsonObject = {"assignment_id": found.id, "status": found.status.value, "ended_because": found.reason}
        raise AiosError(
            ErrorKind.INVALID_STATE, f"the assignment has ended ({found.status}); late reports are refused",
            field="assignment_id", reason="fenced", data=data,
        )  # fmt: skip
    return found, task


def accepted(transaction: Transaction, key: WorkerKey, assignment_id: str) -> tuple[Assignment, Task]:
    """The same, of one that its worker has accepted."""
    found, task = of_worker(transaction, key, assignment_id)
    if found.status is not AssignmentStatus.ACCEPTED:
        raise AiosError(
            ErrorKind.INVALID_STATE, "accept the assignment first", field="assignment_id", reason="not-accepted"
        )
    return found, task


def offer(transaction: Transaction, task_id: str, worker: Worker) -> Assignment | None:
    """Give a task to a worker. None when it is not to be had (any more)."""
    task = tasks.get(transaction, task_id)
    if task is None or not _waits(task) or workers.open_of_task(transaction, task_id) is not None:
        return None
    moment = clock.now()
    assignment = Assignment(
        id=new_id(Prefix.ASSIGNMENT), task_id=task.id, worker_id=worker.id, worker_uid=worker.uid,
        attempt=task.attempt + 1, created_at=moment,
    )  # fmt: skip
    workers.insert_assignment(transaction, assignment)
    phase = Phase.ASSIGNED if task.status is Status.PENDING else Phase.RETRY_WAIT
    shown: JsonObject = {
        "assignment_id": assignment.id, "worker_id": worker.id, "worker_uid": worker.uid, "attempt": assignment.attempt
    }  # fmt: skip
    also: JsonObject = {"attempt": assignment.attempt, "retry_at": None, "worker_id": worker.id}
    given = replace(task, worker_id=worker.id)
    changes.set_phase(transaction, given, phase, boss_type="task.assigned", also=also, payload=shown)
    return assignment


def _waits(task: Task) -> bool:
    """Whether it is one that a worker can get."""
    if task.capability_id or task.held or task.cancel_reason is not None:
        return False
    return task.status is Status.PENDING or task.phase is Phase.RETRY_WAIT


def accept(transaction: Transaction, key: WorkerKey, assignment_id: str) -> tuple[Assignment, Task]:
    """The worker begins. Repeated: the same answer."""
    assignment, task = of_worker(transaction, key, assignment_id)
    if assignment.status is AssignmentStatus.ACCEPTED:
        return assignment, task
    moment = clock.now()
    workers.update_assignment(transaction, assignment.id, {"status": "accepted", "accepted_at": moment})
    shown: JsonObject = {"assignment_id": assignment.id, "worker_id": assignment.worker_id}
    details: JsonObject = {**shown, "worker_uid": assignment.worker_uid, "attempt": assignment.attempt}
    changes.emit(transaction, task, Kind.TIMELINE, "worker.assignment.accepted", shown, source=Source.WORKER)
    changes.audit(transaction, task, AuditKind.TASK_LAUNCH, f"uid:{key[0]}", details)
    also: dict[str, JsonValue] = {}
    if task.started_at is None:
        also["started_at"] = moment
    also |= run_states.time_limit(task, moment)
    payload: JsonObject = {"attempt": assignment.attempt, **shown}
    if task.status is Status.PENDING:
        after = changes.enter(
            transaction, task, Status.WORKING, source=Source.WORKER, by="worker", payload=payload, also=also
        )
    else:
        after = changes.set_phase(
            transaction, task, Phase.RUNNING, boss_type="task.started", also=also, payload=payload
        )
    return replace(assignment, status=AssignmentStatus.ACCEPTED, accepted_at=moment), after


def reject(transaction: Transaction, key: WorkerKey, assignment_id: str, reason: str) -> Task:
    """The worker does not want it: another one is asked. Only before it was accepted."""
    assignment, task = of_worker(transaction, key, assignment_id)
    if assignment.status is not AssignmentStatus.ASSIGNED:
        raise AiosError(
            ErrorKind.INVALID_STATE, "it was accepted; report its failure instead", field="assignment_id",
            reason="accepted",
        )  # fmt: skip
    shown: JsonObject = {"assignment_id": assignment.id, "worker_id": assignment.worker_id, "reason": reason}
    changes.emit(transaction, task, Kind.TIMELINE, "worker.assignment.rejected", shown, source=Source.WORKER)
    return _back(transaction, assignment, task, AssignmentStatus.REJECTED, reason)


def _settle(transaction: Transaction, assignment: Assignment, status: AssignmentStatus, reason: str) -> None:
    """It has ended like this: from now on it is behind the fence."""
    workers.settle(transaction, assignment.task_id, status, reason, clock.now())


def not_taken(transaction: Transaction, assignment: Assignment) -> None:
    """A worker that is there did not say whether it takes it: another one is asked, as if it had said no."""
    found = workers.assignment(transaction, assignment.id)
    task = tasks.get(transaction, assignment.task_id)
    if found is None or task is None or found.status is not AssignmentStatus.ASSIGNED:
        return
    reason = "not accepted in time"
    shown: JsonObject = {"assignment_id": found.id, "worker_id": found.worker_id, "reason": reason}
    changes.emit(transaction, task, Kind.TIMELINE, "worker.assignment.rejected", shown, source=Source.SYSTEM)
    _back(transaction, found, task, AssignmentStatus.REJECTED, reason)


def _back(transaction: Transaction, assignment: Assignment, task: Task, status: AssignmentStatus, reason: str) -> Task:
    """What nobody has begun waits for a worker again."""
    moment = clock.now()
    _settle(transaction, assignment, status, reason)
    pending = task.status is Status.PENDING
    also: JsonObject = {"worker_id": None, "retry_at": None if pending else moment}
    shown: JsonObject = {"assignment_id": assignment.id, "reason": reason, "retry_count": task.retry_count}
    return changes.set_phase(
        transaction, task, Phase.PLANNING if pending else task.phase, boss_type="task.retry", also=also, payload=shown
    )


def withdraw(transaction: Transaction, task: Task, reason: str) -> Task:
    """Take an offer back that its worker has not accepted; the task as it then is. Others are left alone."""
    assignment = workers.open_of_task(transaction, task.id)
    if assignment is None or assignment.status is not AssignmentStatus.ASSIGNED:
        return task
    return _back(transaction, assignment, task, AssignmentStatus.CANCELED, reason)


def lose(transaction: Transaction, assignment: Assignment, reason: Reason, detail: str) -> Task | None:
    """The worker is gone, or silent: its task is given to another one, or after MAX_LOSSES a person is asked.

    None when the assignment has ended before.
    """
    found = workers.assignment(transaction, assignment.id)
    task = tasks.get(transaction, assignment.task_id)
    if found is None or not found.is_open or task is None:
        return None
    shown: JsonObject = {
        "assignment_id": found.id, "worker_id": found.worker_id, "reason": reason.value, "message": detail
    }  # fmt: skip
    changes.emit(transaction, task, Kind.TIMELINE, "worker.assignment.lost", shown, source=Source.SYSTEM)
    if found.status is AssignmentStatus.ASSIGNED:
        return _back(transaction, found, task, AssignmentStatus.LOST, reason.value)
    _settle(transaction, found, AssignmentStatus.LOST, reason.value)
    if task.status is Status.PAUSED:
        # Whoever paused it wants it to wait, wherever it is.
        tasks.update(transaction, task.id, {"held": True})
        task = replace(task, held=True)
    losses = sum(
        one.status is AssignmentStatus.LOST and one.accepted_at is not None
        for one in workers.of_task(transaction, task.id)
    )
    if losses > MAX_LOSSES:
        data: JsonObject = {"worker_id": found.worker_id}
        after = run_states.escalate(transaction, task, failure(ErrorKind.TASK_FAILED, reason, detail, data))
    else:
        after = run_states.wait_for_retry(transaction, task, clock.now(), reason, detail)
    tasks.update(transaction, task.id, {"worker_id": None})
    return replace(after, worker_id=None)


def complete(transaction: Transaction, key: WorkerKey, assignment_id: str, result: JsonObject) -> Task:
    """The worker has done it."""
    assignment, task = accepted(transaction, key, assignment_id)
    _settle(transaction, assignment, AssignmentStatus.COMPLETED, Reason.RESULT.value)
    return run_states.end(transaction, task, Verdict(Status.COMPLETED, Reason.RESULT, result))


def fail(
    transaction: Transaction, key: WorkerKey, assignment_id: str, said: JsonObject, limits: TimeLimits
) -> Task:  # fmt: skip
    """The worker could not do it: tried again while the task's attempts last, unless it says that it is no use.

    Where several attempts were asked for and all have failed, a person decides (seed 003: repeated failures become
    blocked). `said`: `message`, and `reason`, `retryable`, `data` where it gave them.
    """
    assignment, task = accepted(transaction, key, assignment_id)
    _settle(transaction, assignment, AssignmentStatus.FAILED, Reason.REPORTED.value)
    data: dict[str, JsonValue] = {"worker_id": assignment.worker_id}
    for name, shown_as in (("reason", "program_reason"), ("data", "program_data")):
        if said.get(name) is not None:
            data[shown_as] = said[name]
    message = str(said.get("message") or "the worker reported a failure")
    retryable = said.get("retryable") is not False
    verdict = failure(ErrorKind.TASK_FAILED, Reason.REPORTED, message, data, retryable=retryable)
    several = OnFailure.ESCALATE if task.retry_max > 1 and retryable else OnFailure.FAIL
    return run_states.conclude(transaction, task, verdict, several, limits, idempotent=True)


def time_out(transaction: Transaction, task_id: str) -> None:
    """The task's time limit is over."""
    task = tasks.get(transaction, task_id)
    if task is None or task.status.is_final or task.deadline is None:
        return
    elapsed = 0 if task.started_at is None else (clock.now() - task.started_at) // 1000
    data: JsonObject = {"capability_id": "", "timeout_ms": task.timeout_ms, "elapsed_ms": elapsed}
    run_states.end(transaction, task, failure(ErrorKind.TASK_TIMEOUT, Reason.TIMEOUT, "Timeout", data))


def tell_of_worker(
    transaction: Transaction, worker: Worker, boss_type: str, payload: JsonObject, *, source: Source = Source.WORKER
) -> Event:
    """Append an event of the worker itself, for its user's worker feed."""
    event = Event(
        0, None, None, worker.uid, source, boss_type, Kind.TIMELINE, clock.now(),
        {"worker_id": worker.id, **payload}, worker_id=worker.id,
    )  # fmt: skip
    return journal.append_event(transaction, event)
