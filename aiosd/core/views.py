"""Rows as callers see them: the JSON bodies of docs/architecture.md, seed 000's names and shapes. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from aiosd.core.clock import rfc3339
from aiosd.model.status import Status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiosd.model.jsontext import JsonObject, JsonValue
    from aiosd.model.manifest import Capability, Limits
    from aiosd.model.task import Run, Task
    from aiosd.store.artifacts import Artifact
    from aiosd.store.journal import HistoryRow

ENDED_NAMES = {Status.COMPLETED: "completed_at", Status.FAILED: "failed_at", Status.CANCELED: "canceled_at"}


def _put(target: dict[str, JsonValue], **values: JsonValue) -> None:
    """Add what is there; absent stays absent."""
    target.update({name: value for name, value in values.items() if value is not None})


def _time(moment: int | None) -> str | None:
    return None if moment is None else rfc3339(moment)


def summary(task: Task) -> dict[str, JsonValue]:
    """A row of a list."""
    row: dict[str, JsonValue] = {
        "task_id": task.id,
        "capability_id": task.capability_id,
        "title": task.title,
        "uid": task.uid,
        "status": task.status.value,
        "phase": task.phase.value,
        "priority": task.priority.wire,
        "created_at": rfc3339(task.created_at),
    }
    _put(
        row,
        progress=task.progress,
        started_at=_time(task.started_at),
        ended_at=_time(task.ended_at),
        reason=task.reason,
    )
    return row


def tree_row(task: Task) -> dict[str, JsonValue]:
    """A row of a tree."""
    row = summary(task)
    _put(row, parent_task_id=task.parent_id, session_id=task.session_id, kind=task.kind, risk_level=task.risk_level)
    if task.held:
        row["held"] = True
    return row


def created(task: Task) -> dict[str, JsonValue]:
    """The answer to `task.create` and `task.retry`."""
    row: dict[str, JsonValue] = {
        "task_id": task.id,
        "status": task.status.value,
        "created_at": rfc3339(task.created_at),
    }
    _put(row, estimated_duration_ms=task.estimated_ms, auth_request=task.auth_request)
    return row


def short(task: Task) -> dict[str, JsonValue]:
    """The answer to an operation that changed a task."""
    row: dict[str, JsonValue] = {"task_id": task.id, "status": task.status.value}
    if task.ended_at is not None:
        row[ENDED_NAMES[task.status]] = rfc3339(task.ended_at)
    return row


def run_view(run: Run) -> dict[str, JsonValue]:
    """The live run of a task."""
    row: dict[str, JsonValue] = {"run_id": run.id, "attempt": run.attempt}
    _put(row, unit=run.unit, control_group=run.control_group, pid=run.pid, limits=run.limits)
    return row


def attempt_view(run: Run) -> dict[str, JsonValue]:
    """One attempt, for the list of them."""
    row: dict[str, JsonValue] = {"attempt": run.attempt, "run_id": run.id, "started_at": rfc3339(run.started_at)}
    _put(row, ended_at=_time(run.ended_at), reason=run.reason)
    return row


def history_view(rows: Sequence[HistoryRow]) -> list[JsonValue]:
    """`state_history` of seed 000, with our phase."""
    shown: list[JsonValue] = []
    for row in rows:
        entry: dict[str, JsonValue] = {"state": row.state, "phase": row.phase, "timestamp": rfc3339(row.time)}
        _put(entry, reason=row.reason, metadata=row.metadata)
        shown.append(entry)
    return shown


def task_view(
    task: Task,
    *,
    runs: Sequence[Run] = (),
    artifacts: Sequence[Artifact] = (),
    depends_on: Sequence[str] = (),
    history: Sequence[HistoryRow] | None = None,
    waiting_for: str | None = None,
) -> dict[str, JsonValue]:
    """The whole task."""
    view = summary(task)
    view.update(
        level=task.level.wire,
        attempt=task.attempt,
        retry_count=task.retry_count,
        updated_at=rfc3339(task.updated_at),
        arguments=task.arguments,
        metadata=task.metadata,
        options=_options(task, depends_on),
        execution_mode=task.execution_mode,
        artifacts=[{"id": one.id, "name": one.name, "type": one.type, "mime_type": one.mime_type} for one in artifacts],
        attempts=[attempt_view(run) for run in runs],
    )
    # In a working task that column holds an answer on its way.
    question = task.question if task.status is Status.INPUT_REQUIRED else None
    _put(
        view, estimated_duration_ms=task.estimated_ms, summary=task.summary, result=task.result, error=task.error,
        question=question, auth_request=task.auth_request, parent_task_id=task.parent_id,
        session_id=task.session_id, retry_of=task.retry_of, risk_level=task.risk_level, waiting_for=waiting_for,
        kind=task.kind, goal=task.goal, constraints=list(task.constraints) or None,
        shared_context_refs=list(task.shared_context) or None, held=task.held or None,
        handoff_expected=task.handoff or None, requires=list(task.requires) or None, workspace=task.workspace,
        worker_id=task.worker_id,
        retry_at=_time(task.retry_at), deadline=_time(task.deadline),
    )  # fmt: skip
    if task.ended_at is not None:
        view[ENDED_NAMES[task.status]] = rfc3339(task.ended_at)
    if runs:
        view["run"] = run_view(runs[-1])
        if runs[-1].exit is not None and runs[-1].ended_at is not None:
            view["exit"] = runs[-1].exit
    if history is not None:
        view["state_history"] = history_view(history)
    return view


def _options(task: Task, depends_on: Sequence[str]) -> dict[str, JsonValue]:
    options: dict[str, JsonValue] = {
        "priority": task.priority.wire,
        "retry": {"max_attempts": task.retry_max, "delay_ms": task.retry_delay_ms},
    }
    _put(options, timeout_ms=task.timeout_ms, not_before=_time(task.not_before), limits=task.limits)
    if depends_on:
        options["depends_on"] = list(depends_on)
    return options


def artifact_view(artifact: Artifact) -> dict[str, JsonValue]:
    """Seed 000's artifact."""
    return {
        "id": artifact.id,
        "name": artifact.name,
        "type": artifact.type,
        "mime_type": artifact.mime_type,
        "created_at": rfc3339(artifact.created_at),
        "size": artifact.size,
        "parts": artifact.parts,
        "metadata": {**artifact.metadata, "source_task": artifact.task_id, "version": artifact.version},
    }


def limits_view(limits: Limits) -> dict[str, JsonValue]:
    """Limits by name; absent means none."""
    shown: dict[str, JsonValue] = {}
    _put(
        shown, memory_max=limits.memory_max, memory_high=limits.memory_high, cpu_quota_percent=limits.cpu_quota_percent,
        tasks_max=limits.tasks_max, io_weight=limits.io_weight, cpu_weight=limits.cpu_weight,
        open_files=limits.open_files, scratch_max=limits.scratch_max,
    )  # fmt: skip
    return shown


def capability_view(capability: Capability) -> dict[str, JsonValue]:
    """A manifest with its defaults filled in."""
    view: dict[str, JsonValue] = {
        "id": capability.id,
        "title": capability.title,
        "description": capability.description,
        "level": capability.level.wire,
        "exec": list(capability.exec),
        "user": capability.user or capability.identity.value,
        "network": capability.network.value,
        "home": capability.home.value,
        "read_write_paths": list(capability.read_write_paths),
        "limits": limits_view(capability.limits),
        "input_schema": capability.input_schema,
        "pausable": capability.pausable.value,
        "protocol": capability.protocol.value,
        "cancelable": capability.cancelable,
        "cancel_grace_ms": capability.cancel_grace_ms,
        "recovery": capability.recovery.value,
        "idempotent": capability.idempotent,
        "retry": {"max_attempts": capability.retry.max_attempts, "delay_ms": capability.retry.delay_ms},
        "on_failure": capability.on_failure.value,
        "source": capability.source,
    }
    _put(
        view, result_schema=capability.result_schema, concurrency=capability.concurrency,
        timeout_ms=capability.timeout_ms, estimated_duration_ms=capability.estimated_duration_ms,
    )  # fmt: skip
    return view


def capability_row(capability: Capability) -> JsonObject:
    """A row of the list of capabilities."""
    return {
        "id": capability.id,
        "title": capability.title,
        "description": capability.description,
        "level": capability.level.wire,
    }


def pretty(value: JsonValue) -> str:
    """JSON for a person's eyes."""
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"
