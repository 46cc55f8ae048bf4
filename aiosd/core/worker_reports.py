"""What a worker reports about its task, applied as a program's own words are (`run_events`): one vocabulary for both.

Reports have been parsed strictly (`model.wire_workers`); here they become the chunks of the chunk protocol. In the
writer thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiosd.core import run_events
from aiosd.core.settings import MAX_DOCUMENT_BYTES
from aiosd.errors import AiosError, ErrorKind
from aiosd.manifest import schema
from aiosd.model import jsontext
from aiosd.model.status import Status
from aiosd.run.records import RunEvent, RunEventType
from aiosd.store import tasks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiosd.core.run_events import Batch
    from aiosd.model import wire_workers as wire
    from aiosd.model.jsontext import JsonObject, JsonValue
    from aiosd.model.task import Task
    from aiosd.model.worker import Assignment
    from aiosd.store.database import Transaction

MAX_REPORT_BYTES = 128 * 1024
"""Largest report, in bytes of JSON."""


def check(params: wire.WorkerReport) -> None:
    """Raise INVALID_PARAMS for what the bounds of its fields do not catch: what is too much together, and a schema that
    nobody could answer."""
    bounded("report", params.model_dump(exclude_defaults=True), MAX_REPORT_BYTES)
    asked = None if params.question is None else params.question.answer_schema
    problems = [] if asked is None else schema.check_schema(asked, trusted=False)
    if problems:
        raise AiosError(ErrorKind.INVALID_PARAMS, problems[0].message, field="question.answer_schema")


def bounded(field: str, value: JsonObject, most: int = MAX_DOCUMENT_BYTES) -> None:
    """Raise INVALID_PARAMS for a document that is too long or too deep."""
    try:
        jsontext.check_value(value)
    except jsontext.JsonTextError as error:
        raise AiosError(ErrorKind.INVALID_PARAMS, str(error), field=field) from None
    if len(jsontext.dump(value).encode()) > most:
        raise AiosError(ErrorKind.INVALID_PARAMS, f"longer than {most} bytes of JSON", field=field)


def apply(
    transaction: Transaction, assignment: Assignment, task: Task, params: wire.WorkerReport, limits: Batch
) -> Task:
    """All of a report. Raises AiosError, and then nothing of it is to stay. `limits`: quotas and waits, no events."""
    if (params.question or params.approval) and task.status is not Status.WORKING:
        field = "question" if params.question else "approval"
        raise AiosError(
            ErrorKind.INVALID_STATE, f"the task is {task.status}, so nothing can be asked", field=field,
            reason=task.status.value,
        )  # fmt: skip
    for event in _chunks(params):
        current = _fresh(transaction, task.id)
        run_events.apply_report(transaction, current, assignment.id, event, limits)
    return _fresh(transaction, task.id)


def _fresh(transaction: Transaction, task_id: str) -> Task:
    found = tasks.get(transaction, task_id)
    if found is None:
        raise LookupError(f"{task_id} is gone in the transaction that read it")
    return found


def _chunks(params: wire.WorkerReport) -> Iterator[RunEvent]:
    """The report in the words of the chunk protocol (docs/architecture.md)."""
    given = params.model_dump(exclude_none=True)
    processing: dict[str, JsonValue] = {
        name: given[name] for name in ("progress", "step", "tool_call", "summary") if name in given
    }
    if processing:
        yield _chunk(RunEventType.PROCESSING, processing)
    if params.log is not None:
        yield _chunk(RunEventType.LOG, given["log"])
    if params.artifact is not None:
        yield _chunk(RunEventType.ARTIFACT, given["artifact"])
    if params.question is not None:
        asked: dict[str, JsonValue] = {"kind": "input", **given["question"]}
        if "answer_schema" in asked:
            asked["schema"] = asked.pop("answer_schema")
        yield _chunk(RunEventType.TASK_INTERACTION, asked)
    if params.approval is not None:
        wish = dict(given["approval"])
        about = {name: wish.pop(name) for name in ("kind", "summary", "risk_level")}
        yield _chunk(RunEventType.TASK_INTERACTION, {"kind": "approval", "approval": about, **wish})


def _chunk(kind: RunEventType, payload: JsonObject) -> RunEvent:
    return RunEvent(0, "", kind, payload)
