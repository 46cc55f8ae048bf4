"""The store's side of a run's life: assigned, running, ended. Each step is one transaction and happens once.

`core/supervision.py` does these steps in order while it talks to the launcher and the shim; `core/recovery.py` picks
them up after a restart. All functions here run in the writer thread."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from aiosd.core import changes, clock
from aiosd.core.outcome import Ending, Verdict, failure, judge
from aiosd.core.recovery_plan import Aftermath
from aiosd.core.retry import TASKS_OWN, Escalate, Failure, Retry, after_failure
from aiosd.core.run_events import merged
from aiosd.errors import ErrorKind
from aiosd.manifest import schema
from aiosd.model import jsontext
from aiosd.model.audit import AuditKind
from aiosd.model.event import Kind, Source
from aiosd.model.ids import Prefix, new_id
from aiosd.model.later import dataclass
from aiosd.model.manifest import Capability, OnFailure, RetryPolicy
from aiosd.model.redact import redacted
from aiosd.model.status import Phase, Reason, Status
from aiosd.model.task import Run, RunState
from aiosd.model.worker import AssignmentStatus
from aiosd.store import artifacts, runs, secrets, tasks, workers

if TYPE_CHECKING:
    from aiosd.core.time_limits import TimeLimits
    from aiosd.model.jsontext import JsonObject, JsonValue
    from aiosd.model.task import Task
    from aiosd.store.database import Transaction

LOSSES = frozenset({Reason.LOST, Reason.REBOOT, Reason.SUPERVISOR_DIED})
"""Ends of a run of which nobody knows what it did."""

MAX_LOSSES = 3
"""How often a lost run is run again by its capability's policy; a task that takes the machine down does so no more."""

LONGEST_REQUEUE = 30
"""Seconds between two tries at most."""

UNBLOCK: JsonObject = {
    "type": "object",
    "properties": {"action": {"enum": ["retry", "fail"]}, "reason": {"type": "string", "maxLength": 200}},
    "required": ["action"],
}
"""What answers a blocked task: once more or never, and why."""

MAX_REQUEUES = 3
"""How often a task that never came to run is queued again before it fails with reason `launch`."""


@dataclass(frozen=True, slots=True)
class Launch:
    """An admitted task and the run that was made for it."""

    task: Task
    run: Run


def assign(transaction: Transaction, task: Task, boot_id: str) -> Launch:
    """Make the run row of the next attempt; the task is `assigned` (or still in its retry wait, a slot held)."""
    attempt = task.attempt + 1
    run = Run(
        id=new_id(Prefix.RUN), task_id=task.id, attempt=attempt, state=RunState.STARTING, boot_id=boot_id,
        uid=task.uid, started_at=clock.now(),
    )  # fmt: skip
    runs.insert(transaction, run)
    # One that was authorised after it was stored keeps its phase: nothing leads back to `pending`.
    phase = {Status.PENDING: Phase.ASSIGNED, Status.AUTH_REQUIRED: task.phase}.get(task.status, Phase.RETRY_WAIT)
    boss_type = "task.assigned" if task.status is Status.PENDING else None
    after = changes.set_phase(
        transaction, task, phase, boss_type=boss_type, also={"attempt": attempt, "retry_at": None}
    )
    # Committed before the launcher is asked: what was started is on record, whatever comes of it.
    details: JsonObject = {
        "capability_id": task.capability_id, "level": task.level.wire, "attempt": attempt, "run_id": run.id
    }  # fmt: skip
    changes.audit(transaction, after, AuditKind.TASK_LAUNCH, "system", details)
    return Launch(after, run)


def mark_running(transaction: Transaction, run_id: str, placed: JsonObject) -> Task | None:
    """The scope is there and the gate still shut. None when the task must not run any more (canceled meanwhile)."""
    run = runs.get(transaction, run_id)
    if run is None or run.state is not RunState.STARTING:
        return None
    task = tasks.get(transaction, run.task_id)
    runs.update(transaction, run_id, {"state": RunState.RUNNING.value, **placed})
    if task is None or task.status.is_final or task.cancel_reason is not None:
        return None
    moment = clock.now()
    also: dict[str, JsonValue] = {}
    if task.started_at is None:
        also["started_at"] = moment
    also |= time_limit(task, moment)
    if task.status in (Status.PENDING, Status.AUTH_REQUIRED):
        return changes.enter(transaction, task, Status.WORKING, payload={"attempt": run.attempt}, also=also)
    return changes.set_phase(transaction, task, Phase.RUNNING, boss_type="task.started", also=also)


def time_limit(task: Task, moment: int) -> dict[str, JsonValue]:
    """The column to be set as a task begins: its time limit counts from then, over all attempts until a person says
    `retry`."""
    begins = task.deadline is None and task.timeout_ms is not None
    return {"deadline": moment + (task.timeout_ms or 0) * 1000} if begins else {}


@dataclass(frozen=True, slots=True)
class Finish:
    """A run that has ended: what is known of it, what is kept of its record, and what its loss would mean."""

    run_id: str
    ending: Ending
    record: JsonObject
    capability: Capability | None
    limits: TimeLimits
    aftermath: Aftermath = Aftermath.FAIL


def finish(transaction: Transaction, given: Finish) -> Task | None:
    """The run has ended: take its result, once. Returns the task afterwards; None when it was taken before."""
    run_id = given.run_id
    run = runs.get(transaction, run_id)
    if run is None or run.state is RunState.ENDED:
        return None
    task = tasks.get(transaction, run.task_id)
    kept = run.exit or {}
    ending = replace(given.ending, completion=_object(kept, "completion"), failure=_object(kept, "failure"))
    if task is not None:
        ending = _with_task(ending, task, given.limits)
    verdict = _checked(replace(judge(ending), metadata=_said_with(kept)), given.capability)
    runs.update(
        transaction, run_id,
        {"state": RunState.ENDED.value, "ended_at": clock.now(), "exit": given.record, "reason": verdict.reason.value},
    )  # fmt: skip
    if task is None or task.status.is_final:
        return task
    if verdict.reason in LOSSES and given.aftermath is not Aftermath.FAIL:
        return _go_on(transaction, task, verdict, given)
    return _conclude(transaction, task, verdict, given)


def _go_on(transaction: Transaction, task: Task, verdict: Verdict, given: Finish) -> Task:
    """A lost run whose capability's policy is to try again, or to ask a person whether to."""
    lost = sum(one.reason in LOSSES for one in runs.of_task(transaction, task.id))
    if given.aftermath is Aftermath.ASK:
        return escalate(transaction, task, verdict)
    if lost > MAX_LOSSES:
        return _conclude(transaction, task, replace(verdict, retryable=False), given)
    return wait_for_retry(transaction, task, clock.now(), verdict.reason, verdict.detail)


def _with_task(ending: Ending, task: Task, limits: TimeLimits) -> Ending:
    left = limits.left(task.id, task.deadline)
    killed = ending.signal is not None or ending.lost is not None
    timed_out = ending.timed_out or (left is not None and left <= 0 and killed)
    elapsed = 0 if task.started_at is None else (clock.now() - task.started_at) // 1000
    return replace(
        ending, capability_id=task.capability_id, cancel_reason=task.cancel_reason, timed_out=timed_out,
        timeout_ms=task.timeout_ms, elapsed_ms=elapsed,
    )  # fmt: skip


def _object(kept: JsonObject, name: str) -> JsonObject | None:
    value = kept.get(name)
    if not isinstance(value, dict):
        return None
    result = value.get("result") if name == "completion" else value
    return result if isinstance(result, dict) else {"value": result}


def _said_with(kept: JsonObject) -> JsonObject | None:
    """The metadata of the program's final chunk (seed 002: they are merged over the task's)."""
    for name in ("completion", "failure"):
        value = kept.get(name)
        if isinstance(value, dict) and isinstance(found := value.get("metadata"), dict):
            return found
    return None


def _checked(verdict: Verdict, capability: Capability | None) -> Verdict:
    """A result that the capability's own schema forbids is a failure of the program."""
    if verdict.status is not Status.COMPLETED or capability is None or capability.result_schema is None:
        return verdict
    problems = schema.validate(capability.result_schema, verdict.result)
    if not problems:
        return verdict
    message = f"the program's result does not fit its schema: {problems[0]}"
    return failure(
        ErrorKind.TASK_FAILED, Reason.INVALID_RESULT, message, {"capability_id": capability.id}, retryable=True
    )


def _conclude(transaction: Transaction, task: Task, verdict: Verdict, given: Finish) -> Task:
    capability = given.capability
    on_failure = capability.on_failure if capability is not None else OnFailure.FAIL
    # A caller or a manifest that asks for several attempts has said that the program may run again.
    idempotent = verdict.reason in TASKS_OWN or (capability is not None and capability.idempotent)
    return conclude(transaction, task, verdict, on_failure, given.limits, idempotent=idempotent)


def conclude(
    transaction: Transaction, task: Task, verdict: Verdict, on_failure: OnFailure, limits: TimeLimits, *,
    idempotent: bool,
) -> Task:  # fmt: skip
    """An attempt has ended with this verdict: the task's end, another attempt, or a person's decision."""
    if verdict.status is Status.FAILED:
        policy = RetryPolicy(task.retry_max, task.retry_delay_ms)
        # Runs that were queued again never ran, and are no attempts of the task's own.
        failed = Failure(verdict.reason, task.retry_count + 1, None if verdict.retryable else False)
        now, left = clock.now(), limits.left(task.id, task.deadline)
        outcome = after_failure(
            failed, policy, on_failure, idempotent=idempotent, now=now, deadline=None if left is None else now + left
        )
        if isinstance(outcome, Retry):
            return wait_for_retry(transaction, task, outcome.at, verdict.reason, verdict.detail)
        if isinstance(outcome, Escalate):
            return escalate(transaction, task, verdict)
    return end(transaction, task, verdict)


def wait_for_retry(
    transaction: Transaction, task: Task, at: int, reason: Reason, detail: str, *, counts: bool = True
) -> Task:
    """Between two attempts: the task is `retry_wait` (`queued` when none came to run), and says why.

    `counts`: whether the attempt that has ended is one of those that the task may have.
    """
    unstarted = task.status is Status.AUTH_REQUIRED and task.started_at is None
    if task.status.is_waiting and not unstarted:
        task = changes.enter(transaction, task, Status.WORKING, reason=reason)
    retries = task.retry_count + 1 if counts else task.retry_count
    also: dict[str, JsonValue] = {
        "retry_at": at, "reason": reason.value, "question": None, "auth_request": None, "retry_count": retries,
    }  # fmt: skip
    phase = Phase.QUEUED if task.status is Status.PENDING else task.phase if unstarted else Phase.RETRY_WAIT
    shown: JsonObject = {
        "reason": reason.value, "message": detail, "attempt": task.attempt, "retry_count": retries,
        "retry_at": clock.rfc3339(at),
    }  # fmt: skip
    after = changes.set_phase(transaction, task, phase, boss_type="task.retry", also=also, payload=shown)
    changes.audit(transaction, after, "task.retry", "system", shown)
    return after


def escalate(transaction: Transaction, task: Task, verdict: Verdict) -> Task:
    """A person decides whether it is tried once more; they are asked as by a program (seed 000)."""
    prompt = f"{verdict.detail}; try again?"
    question: JsonObject = {"interaction": 0, "prompt": prompt, "options": ["retry", "fail"], "schema": UNBLOCK}
    if task.status is not Status.WORKING:
        task = changes.enter(transaction, task, Status.WORKING, reason=verdict.reason)
    after = changes.enter(
        transaction, task, Status.INPUT_REQUIRED, phase=Phase.BLOCKED, reason=verdict.reason,
        history_metadata={"prompt": prompt, "options_count": 2}, also={"question": question, "error": verdict.error},
    )  # fmt: skip
    shown = merged(task, question)
    changes.emit(transaction, after, Kind.INPUT_REQUIRED, "task.blocked", shown, source=Source.SYSTEM)
    return after


def end(transaction: Transaction, task: Task, verdict: Verdict) -> Task:
    """The task's final state, and the event that carries its result or its error."""
    if verdict.status is Status.COMPLETED and task.status is not Status.WORKING:
        task = changes.enter(transaction, task, Status.WORKING, reason="the program ended")
    also: dict[str, JsonValue] = {"result": verdict.result, "error": verdict.error}
    reason = task.cancel_reason if verdict.status is Status.CANCELED else verdict.reason
    shown = None if verdict.status is Status.COMPLETED else reason
    after = changes.enter(transaction, task, verdict.status, reason=shown, also=also)
    secrets.forget(transaction, task.id)
    said: JsonObject = {} if verdict.metadata is None else {"metadata": verdict.metadata}
    if not after.capability_id:
        workers.settle(transaction, after.id, _ASSIGNMENT_ENDS[after.status], after.reason, after.ended_at or 0)
    if verdict.status is Status.COMPLETED:
        found: list[JsonValue] = [
            {"id": one.id, "name": one.name, "type": one.type} for one in artifacts.of_task(transaction, task.id)
        ]
        payload = merged(after, {"result": verdict.result, "artifacts": found, **said})
        changes.emit(transaction, after, Kind.RESULT, "task.completed", payload, source=Source.WORKER)
    elif verdict.status is Status.FAILED:
        payload = merged(after, {"error": verdict.error, **said})
        changes.emit(transaction, after, Kind.ERROR, "task.failed", payload, source=Source.SYSTEM)
    started = after.started_at if after.started_at is not None else after.created_at
    details: JsonObject = {
        "status": after.status.value, "reason": after.reason, "elapsed_ms": ((after.ended_at or 0) - started) // 1000,
        "result": result_summary(verdict.result),
    }  # fmt: skip
    changes.audit(transaction, after, AuditKind.TASK_ENDED, "system", details)
    return after


_ASSIGNMENT_ENDS = {
    Status.COMPLETED: AssignmentStatus.COMPLETED,
    Status.FAILED: AssignmentStatus.FAILED,
    Status.CANCELED: AssignmentStatus.CANCELED,
}
"""What becomes of the assignment of a task that ends while a worker has it."""


def fail_dependent(transaction: Transaction, task_id: str, dependency: str) -> None:
    """A task depends on one that ended otherwise than completed: it can never start."""
    task = tasks.get(transaction, task_id)
    if task is None or task.status.is_final:
        return
    message = f"it depends on {dependency}, which did not complete"
    verdict = failure(ErrorKind.TASK_FAILED, Reason.DEPENDENCY_FAILED, message, {"dependency": dependency})
    end(transaction, task, verdict)


SUMMARY_LENGTH = 500
"""Characters of a result that its audit record shows."""


def result_summary(result: JsonObject | None) -> str | None:
    """The beginning of a result's JSON, without its secrets."""
    return None if result is None else jsontext.dump(redacted(result))[:SUMMARY_LENGTH]


def requeue(transaction: Transaction, run_id: str, message: str, reason: Reason) -> Task | None:
    """The run never came to start its program: the task is queued again, or fails when that keeps happening.

    `reason`: `launch`, of which there may be MAX_REQUEUES, or `worker-lost`: the launcher is away and waited for.
    """
    run = runs.get(transaction, run_id)
    if run is None or run.state is RunState.ENDED:
        return None
    task = tasks.get(transaction, run.task_id)
    runs.update(transaction, run_id, {"state": RunState.ENDED.value, "ended_at": clock.now(), "reason": reason.value})
    if task is None or task.status.is_final:
        return task
    if task.cancel_reason is not None:
        return end(transaction, task, Verdict(Status.CANCELED, Reason.CANCELED, detail=task.cancel_reason))
    failed = Counter(one.reason for one in runs.of_task(transaction, task.id))
    if failed[Reason.LAUNCH.value] > MAX_REQUEUES:
        verdict = judge(Ending(task.capability_id, lost=Reason.LAUNCH, lost_message=message))
        return end(transaction, task, verdict)
    wait = min(LONGEST_REQUEUE, 2 ** min(failed[reason.value] - 1, 16))
    return wait_for_retry(transaction, task, clock.now() + wait * clock.MICROSECONDS, reason, message, counts=False)


def has_live_run(transaction: Transaction, task_id: str) -> bool:
    """Whether a run of this task has not ended."""
    return any(run.state is not RunState.ENDED for run in runs.of_task(transaction, task_id))


@dataclass(frozen=True, slots=True)
class Answer:
    """A person's answer on its way to the program: the message, and the id by which the shim takes it once."""

    identifier: str
    fields: JsonObject


def undelivered(task: Task) -> Answer | None:
    """The answer that was accepted and not yet handed over; it is kept in the place of its question."""
    kept = task.question if task.status in (Status.WORKING, Status.PAUSED) else None
    if kept is None or "answer" not in kept:
        return None
    return Answer(str(kept["delivery"]), {"interaction": kept["interaction"], "input": kept["answer"]})


def delivered(transaction: Transaction, task_id: str, identifier: str) -> None:
    """The program has its answer."""
    task = tasks.get(transaction, task_id)
    answer = None if task is None else undelivered(task)
    if answer is not None and answer.identifier == identifier:
        tasks.update(transaction, task_id, {"question": None})
