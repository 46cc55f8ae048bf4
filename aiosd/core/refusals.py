"""Refusals of what is asked of a task, in seed 000's words: it has ended, the table of states forbids it, or
the launcher cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiosd.errors import AiosError, ErrorKind
from aiosd.model.status import Status

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonObject
    from aiosd.model.task import Task
    from aiosd.run.client import LauncherError


def refuse_final(task: Task) -> None:
    """Raise seed 000's error for an operation on a finished task."""
    if task.status is Status.CANCELED:
        raise AiosError(ErrorKind.TASK_CANCELED, reason="canceled", data={"task_id": task.id})
    if task.status.is_final:
        data: JsonObject = {"task_id": task.id, "status": task.status.value}
        raise AiosError(ErrorKind.TASK_COMPLETED, f"it is {task.status}", reason=task.status.value, data=data)


def illegal(task: Task, wanted: str, reason: str) -> AiosError:
    """The error for what the table forbids."""
    return AiosError(
        ErrorKind.INVALID_STATE, f"a task that is {task.status} ({task.phase}) cannot be {wanted}", reason=reason,
        data={"task_id": task.id, "status": task.status.value, "phase": task.phase.value},
    )  # fmt: skip


def launcher_busy(error: LauncherError) -> AiosError:
    """The error for what the launcher could not do."""
    return AiosError(ErrorKind.BUSY, f"the launcher could not do it: {error}", reason="launcher")
