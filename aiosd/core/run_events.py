"""Applying what a run wrote to its event file: each event once, in order, with the offset in the same transaction.

`apply` is called in the writer thread. It is given a batch and the offset that follows it; the offset stored with the
run must be where the batch began, so a batch that was applied before (a crash between commit and answer) is not applied
again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from aiosd.auth.approvals import BY_WORKER
from aiosd.core import artifacts, authentication, changes, clock, program_approvals
from aiosd.core.progress import clean_progress, clean_summary, clean_text
from aiosd.manifest import schema
from aiosd.model.event import Kind, Source
from aiosd.model.later import dataclass
from aiosd.model.status import Phase, Reason, Status
from aiosd.model.task import RunState
from aiosd.run.records import RunEventType
from aiosd.store import runs, tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aiosd.model.jsontext import JsonObject, JsonValue
    from aiosd.model.task import Task
    from aiosd.run.records import RunEvent
    from aiosd.store.database import Transaction


@dataclass(frozen=True, slots=True)
class Batch:
    """Events read from `begin` to `end` (bytes), and the blobs that could not be taken, with the reason.

    `quota`: bytes that all artifacts of one user may have.
    `approval_wait`: microseconds that a person has for an approval. `worker`: the connection of a worker elsewhere.
    """

    begin: int
    end: int
    events: Sequence[RunEvent]
    refused: Mapping[str, str] = field(default_factory=dict)
    quota: int = 1 << 62
    approval_wait: int = program_approvals.LONGEST_WAIT
    worker: str = ""


def apply(transaction: Transaction, run_id: str, batch: Batch) -> bool:
    """Apply a batch; False when it had been applied before or the run has ended."""
    run = runs.get(transaction, run_id)
    if run is None or run.state is RunState.ENDED or run.events_offset != batch.begin:
        return False
    for event in batch.events:
        task = tasks.get(transaction, run.task_id)
        if task is not None and not task.status.is_final:  # one whose question's time was over has its end already
            _APPLIERS[event.type](transaction, task, run.id, event, batch)
    runs.update(transaction, run_id, {"events_offset": batch.end})
    return True


def apply_report(transaction: Transaction, task: Task, assignment_id: str, event: RunEvent, batch: Batch) -> None:
    """What a worker elsewhere says of its task, as if a program of ours had: `processing`, `artifact`, `log`,
    `task_interaction`."""
    _APPLIERS[event.type](transaction, task, assignment_id, event, batch)


def merged(task: Task, payload: JsonObject) -> dict[str, JsonValue]:
    """The payload with the task's metadata under the payload's own; the payload's keys win (seed 002)."""
    own = payload.get("metadata")
    metadata = {**task.metadata, **(own if isinstance(own, Mapping) else {})}
    return {**payload, "metadata": metadata} if metadata else dict(payload)


def _nothing(_transaction: Transaction, _task: Task, _run: str, _event: RunEvent, _batch: Batch) -> None:
    """Answers to the daemon's own questions change nothing in the store."""


def _processing(transaction: Transaction, task: Task, _run: str, event: RunEvent, _batch: Batch) -> None:
    payload = event.payload
    progress = clean_progress(payload.get("progress"))
    if progress is not None:
        tasks.update(transaction, task.id, {"progress": progress, "updated_at": clock.now()})
        changes.emit(transaction, task, Kind.PROGRESS, "task.progress", {"progress": progress}, source=Source.WORKER)
    summary = clean_summary(payload.get("summary"))
    if summary is not None:
        tasks.update(transaction, task.id, {"summary": summary, "updated_at": clock.now()})
        changes.emit(transaction, task, Kind.PROGRESS, "task.progress", {"summary": summary}, source=Source.WORKER)
    _named(transaction, task, payload.get("step"), "task.step", ("started", "finished", "failed"), "step")
    _named(transaction, task, payload.get("tool_call"), "tool.call", ("requested", "finished"), "tool")


def _named(
    transaction: Transaction, task: Task, raw: JsonValue, prefix: str, states: Sequence[str], label: str
) -> None:
    """Seed 003's `task.step.*` and `tool.call.*`."""
    if not isinstance(raw, Mapping) or raw.get("status") not in states:
        return
    shown: dict[str, JsonValue] = {label: clean_text(raw.get("name"), 200) or ""}
    summary = clean_text(raw.get("summary"))
    if summary:
        shown["summary"] = summary
    changes.emit(transaction, task, Kind.TIMELINE, f"{prefix}.{raw['status']}", shown, source=Source.WORKER)


def _artifact(transaction: Transaction, task: Task, run: str, event: RunEvent, batch: Batch) -> None:
    problem = artifacts.record(transaction, task, run, event.payload, batch.refused, batch.quota)
    if problem is not None:
        _complain(transaction, task, problem)


def _log(transaction: Transaction, task: Task, _run: str, event: RunEvent, _batch: Batch) -> None:
    shown: JsonObject = {
        "level": clean_text(event.payload.get("level"), 16) or "info",
        "message": clean_text(event.payload.get("message"), 4000) or "",
    }
    changes.emit(transaction, task, Kind.LOG, "task.progress", shown, source=Source.WORKER)


def _interaction(transaction: Transaction, task: Task, _run: str, event: RunEvent, batch: Batch) -> None:
    if event.payload.get("kind") == "auth":
        _authentication(transaction, task, event.payload)
    elif event.payload.get("kind") == "approval":
        _approval(transaction, task, event.payload, batch)
    elif task.status is Status.PAUSED:
        # Asked before it was held: the question comes up when it goes on.
        tasks.update(transaction, task.id, {"question": _question(transaction, task, event.payload)})
    elif task.status is Status.WORKING:
        ask(transaction, task, _question(transaction, task, event.payload))
    else:
        _complain(transaction, task, f"a question while the task is {task.status} was ignored")


def _question(transaction: Transaction, task: Task, payload: JsonObject) -> JsonObject:
    """A program's question as it is kept: bounded, and its schema one that can be used."""
    question: dict[str, JsonValue] = {
        name: payload[name]
        for name in ("interaction", "options", "schema", "timeout_ms")
        if payload.get(name) is not None
    }
    if payload.get("secret") is True:
        question["secret"] = True
    if isinstance(payload.get("metadata"), Mapping):
        question["metadata"] = payload["metadata"]
    question["interaction"] = _interaction_number(payload)
    question["prompt"] = clean_text(payload.get("prompt")) or ""
    asked = question.get("schema")
    if asked is not None and (not isinstance(asked, Mapping) or schema.check_schema(asked, trusted=False)):
        _complain(transaction, task, "a question's schema was not usable and was dropped")
        del question["schema"]
    return question


def _authentication(transaction: Transaction, task: Task, payload: JsonObject) -> None:
    """As a question, but what is answered is a secret (core/authentication_operations.py)."""
    try:
        asked = authentication.request(payload)
    except authentication.RequestError as error:
        _complain(transaction, task, str(error))
        return
    kept = {**asked, "interaction": _interaction_number(payload)}
    if task.status is Status.PAUSED:
        tasks.update(transaction, task.id, {"auth_request": kept})
    elif task.status is Status.WORKING:
        ask_authentication(transaction, task, kept)
    else:
        _complain(transaction, task, f"an authentication while the task is {task.status} was ignored")


def _approval(transaction: Transaction, task: Task, payload: JsonObject, batch: Batch) -> None:
    """As a question, but the answer is yes or no, and an approval's (core/program_approvals.py)."""
    number = _interaction_number(payload)
    asked = program_approvals.request(payload, number, batch.approval_wait)
    if batch.worker:
        asked = {**asked, "worker": f"{BY_WORKER}{batch.worker}"}
    if task.status is Status.PAUSED:
        tasks.update(transaction, task.id, {"auth_request": asked})
    elif task.status is Status.WORKING:
        program_approvals.ask(transaction, task, asked)
    else:
        _complain(transaction, task, f"an approval asked for while the task is {task.status} was ignored")


def ask_again(transaction: Transaction, task: Task, asked: JsonObject) -> Task:
    """What a program asked for before it was held comes up when it goes on."""
    if asked.get("type") == program_approvals.APPROVAL:
        return program_approvals.ask(transaction, task, asked)
    return ask_authentication(transaction, task, asked)


def _interaction_number(payload: JsonObject) -> JsonValue:
    given = payload.get("interaction")
    if isinstance(given, str):
        return given[:128]
    return 0 if isinstance(given, bool) or not isinstance(given, int) else given


def ask_authentication(transaction: Transaction, task: Task, asked: JsonObject) -> Task:
    """A working task waits for an authentication from now on."""
    kept = authentication.with_expiry(asked, clock.now())
    shown = authentication.public(kept)
    metadata: JsonObject = {name: shown[name] for name in ("type", "provider") if name in shown}
    after = changes.enter(
        transaction, task, Status.AUTH_REQUIRED, phase=Phase.WAITING_AUTH, by="worker", source=Source.WORKER,
        reason=str(shown.get("reason") or "") or None, history_metadata=metadata, also={"auth_request": kept},
    )  # fmt: skip
    payload = merged(task, {"status": Status.AUTH_REQUIRED.value, "auth_request": shown})
    changes.emit(transaction, task, Kind.AUTH_REQUIRED, "task.blocked", payload, source=Source.WORKER)
    return after


def ask(transaction: Transaction, task: Task, question: JsonObject) -> Task:
    """A working task waits for a person's answer from now on."""
    question = authentication.with_expiry(question, clock.now())
    metadata: dict[str, JsonValue] = {"prompt": question.get("prompt")}
    options = question.get("options")
    if isinstance(options, list):
        metadata["options_count"] = len(options)
    after = changes.enter(
        transaction, task, Status.INPUT_REQUIRED, phase=Phase.WAITING_INPUT, by="worker", source=Source.WORKER,
        reason=str(question.get("prompt") or "") or None, history_metadata=metadata, also={"question": question},
    )  # fmt: skip
    shown = merged(task, question)
    changes.emit(transaction, task, Kind.INPUT_REQUIRED, "task.blocked", shown, source=Source.WORKER)
    return after


def _final(transaction: Transaction, _task: Task, run: str, event: RunEvent, _batch: Batch) -> None:
    """Kept with the run until it has ended: the verdict is made of it and the exit record together."""
    key = "completion" if event.type is RunEventType.TASK_COMPLETION else "failure"
    runs.update(transaction, run, {"exit": {**_kept(transaction, run), key: event.payload}})


def _kept(transaction: Transaction, run: str) -> JsonObject:
    current = runs.get(transaction, run)
    return {} if current is None or current.exit is None else current.exit


def _protocol_error(transaction: Transaction, task: Task, _run: str, event: RunEvent, _batch: Batch) -> None:
    _complain(transaction, task, clean_text(event.payload.get("message")) or "the program broke the protocol")


def _complain(transaction: Transaction, task: Task, message: str) -> None:
    shown: JsonObject = {"level": "warning", "message": message, "reason": Reason.PROTOCOL.value}
    changes.emit(transaction, task, Kind.LOG, "task.progress", shown, source=Source.SYSTEM)


_APPLIERS: Mapping[RunEventType, Callable[[Transaction, Task, str, RunEvent, Batch], None]] = {
    RunEventType.PROCESSING: _processing,
    RunEventType.ARTIFACT: _artifact,
    RunEventType.LOG: _log,
    RunEventType.TASK_INTERACTION: _interaction,
    RunEventType.TASK_COMPLETION: _final,
    RunEventType.TASK_FAILED: _final,
    RunEventType.PAUSED: _nothing,
    RunEventType.CAN_PAUSE: _nothing,
    RunEventType.CAN_CANCEL: _nothing,
    RunEventType.STARTED: _nothing,
    RunEventType.PROTOCOL_ERROR: _protocol_error,
}


WITHOUT_EFFECT = frozenset(kind for kind, applier in _APPLIERS.items() if applier is _nothing)
"""Events that change nothing in the store."""


def log_grew(transaction: Transaction, task_id: str, grown: Sequence[JsonObject]) -> None:
    """The program wrote to its output: one `task.log` event a stream."""
    task = tasks.get(transaction, task_id)
    if task is None or task.status.is_final:
        return
    for piece in grown:
        changes.emit(transaction, task, Kind.LOG, "task.progress", piece, source=Source.WORKER)
