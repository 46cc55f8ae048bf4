"""What a new task hangs on: its session, its parent, what it depends on, the context that it may read.

Looked at in the transaction that stores it. A new task can close no circle but one through itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aiosd.core import sessions
from aiosd.core.authorization import task_not_found
from aiosd.errors import AiosError, ErrorKind
from aiosd.model.status import Level
from aiosd.store import artifacts, tasks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiosd.model.task import Task
    from aiosd.store.database import Transaction

COLLABORATIVE = "collaborative"
RESEARCH_ONLY = "research_only"
SUMMARY = ".summary"
HANDOFF = ".handoff"
"""What stands in a task's context for all that a task before it hands over."""


def checked(transaction: Transaction, task: Task, depends_on: Sequence[str]) -> Task:
    """The task with its parent's session when it names none. Raises AiosError for what it may not hang on."""
    handed_over: list[str] = []
    for index, other_id in enumerate(depends_on):
        field = f"options.depends_on[{index}]"
        if other_id == task.id:
            raise AiosError(ErrorKind.INVALID_PARAMS, "a task cannot depend on itself", field=field, reason="cycle")
        other = tasks.get(transaction, other_id)
        if other is None or (other.uid != task.uid and task.uid != 0):
            raise AiosError(ErrorKind.TASK_NOT_FOUND, "there is no such task to depend on", field=field)
        if other.handoff:
            handed_over.append(f"{other_id}{HANDOFF}")
    if task.parent_id is not None:
        task = _under_parent(transaction, task, task.parent_id)
    if task.session_id is not None:
        sessions.for_task(transaction, task.session_id, task.uid)
    _check_context(transaction, task)
    return replace(task, shared_context=(*task.shared_context, *handed_over)) if handed_over else task


def _under_parent(transaction: Transaction, task: Task, parent_id: str) -> Task:
    """One tree belongs to one session; and nothing new begins under what has ended or is to end."""
    parent = tasks.get(transaction, parent_id)
    if parent is None or (parent.uid != task.uid and task.uid != 0):
        raise task_not_found()
    if parent.status.is_final:
        raise AiosError(ErrorKind.INVALID_STATE, f"the parent is {parent.status}", field="options.parent_task_id")
    if parent.cancel_reason is not None:
        raise AiosError(
            ErrorKind.INVALID_STATE, "the parent is being canceled", field="options.parent_task_id", reason="stopping"
        )
    if task.session_id is None:
        return replace(task, session_id=parent.session_id)
    if task.session_id != parent.session_id:
        raise AiosError(ErrorKind.INVALID_PARAMS, "a child belongs to its parent's session", field="options.session_id")
    return task


def _check_context(transaction: Transaction, task: Task) -> None:
    """Each reference is an artifact or a task of the same owner (root may name anybody's)."""
    if task.execution_mode == RESEARCH_ONLY and task.level is Level.CRITICAL:
        message = "a critical capability sees the system as it is: it cannot be kept to research"
        raise AiosError(ErrorKind.INVALID_PARAMS, message, field="options.execution_mode")
    if task.execution_mode != COLLABORATIVE and (task.shared_context or task.handoff):
        field = "options.shared_context_refs" if task.shared_context else "options.handoff_expected"
        raise AiosError(ErrorKind.INVALID_PARAMS, "belongs to execution_mode collaborative", field=field)
    for index, reference in enumerate(task.shared_context):
        owner = owner_of(transaction, reference)
        if owner is None or (owner != task.uid and task.uid != 0):
            kind = ErrorKind.TASK_NOT_FOUND if reference.endswith(SUMMARY) else ErrorKind.ARTIFACT_NOT_FOUND
            raise AiosError(
                kind, "there is nothing of that name to share", field=f"options.shared_context_refs[{index}]"
            )


def named(references: Sequence[str]) -> tuple[str, ...]:
    """Those that a request named, without what was handed over to this one task."""
    return tuple(one for one in references if not one.endswith(HANDOFF))


def owner_of(db: tasks.Executor, reference: str) -> int | None:
    """Whose the artifact or the summarised task is; None when there is none."""
    if reference.endswith(SUMMARY):
        task = tasks.get(db, reference.removesuffix(SUMMARY))
        return None if task is None else task.uid
    artifact = artifacts.get(db, reference)
    return None if artifact is None else artifact.uid
