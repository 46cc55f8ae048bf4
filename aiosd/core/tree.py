"""What is asked of a task and of all under it, in one transaction: to end, to wait, to go on, to come sooner.

A task without a program is done with here; of one that has a program, the row says what is wanted and whoever asked
(`control`) tells the program after the commit. "Under it" are the unfinished tasks of the same owner, also those under
children that have ended. See docs/control-plane.md for what a parent's end means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiosd.core import assignments, changes, run_states
from aiosd.core.executors import WORKERS
from aiosd.core.outcome import Verdict
from aiosd.model.status import Phase, Priority, Reason, Status
from aiosd.store import tasks, workers
from aiosd.store.tree import open_below

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from aiosd.model.jsontext import JsonObject
    from aiosd.model.task import Task
    from aiosd.store.database import Transaction


def request_cancel(transaction: Transaction, task: Task, actor: str, reason: str) -> Task:
    """Write down that an unfinished task is to end; one without a program ends here and now."""
    tasks.update(transaction, task.id, {"cancel_reason": reason})
    changes.audit(transaction, task, "task.cancel", actor, {"reason": reason})
    after = _again(transaction, task)
    if run_states.has_live_run(transaction, task.id):
        return after
    return run_states.end(transaction, after, Verdict(Status.CANCELED, Reason.CANCELED))


def request_cancel_all(
    transaction: Transaction, top: Task, actor: str, reason: str, *, recursive: bool = True
) -> list[Task]:
    """The same for a task and, unless not `recursive`, all under it, children first. Returns all, the top first.

    What is under it ends with reason `parent-canceled`.
    """
    under = open_below(transaction, top) if recursive else []
    ended = [
        request_cancel(transaction, task, actor, Reason.PARENT_CANCELED.value)
        for task in reversed(under)
        if task.cancel_reason is None
    ]
    return [request_cancel(transaction, top, actor, reason), *ended]


def hold(transaction: Transaction, task: Task) -> Task:
    """An unfinished task is not to go on: not started while it waits, paused when its program runs (after the commit).

    Its status stays: only a program can be paused (seed 000's table has no way from pending to paused).
    """
    if task.held or task.status is Status.PAUSED:
        return task
    if task.capability_id == WORKERS:
        return _hold_at_worker(transaction, task)
    running = run_states.has_live_run(transaction, task.id)
    if running:
        tasks.update(transaction, task.id, {"held": True})
        return _again(transaction, task)
    return changes.set_phase(
        transaction, task, task.phase, boss_type="task.paused", also={"held": True}, payload={"held": True}
    )


def _hold_at_worker(transaction: Transaction, task: Task) -> Task:
    """A worker that has it is to pause; one that has not taken it yet does not get it."""
    task = assignments.withdraw(transaction, task, "held")
    if task.phase is Phase.RUNNING and workers.open_of_task(transaction, task.id) is not None:
        return changes.enter(transaction, task, Status.PAUSED, reason=Reason.USER_REQUEST)
    return changes.set_phase(
        transaction, task, task.phase, boss_type="task.paused", also={"held": True}, payload={"held": True}
    )


def unhold(transaction: Transaction, task: Task) -> Task:
    """Take that back."""
    if not task.held:
        return task
    return changes.set_phase(
        transaction, task, task.phase, boss_type="task.resumed", also={"held": False}, payload={"held": False}
    )


def set_priority(transaction: Transaction, task: Task, priority: Priority, actor: str) -> Task:
    """Change the order of admission of an unfinished task."""
    also: JsonObject = {"priority": int(priority)}
    after = changes.set_phase(transaction, task, task.phase, boss_type="task.priority", also=also)
    details: JsonObject = {"old": task.priority.wire, "new": priority.wire}
    changes.audit(transaction, task, "task.priority", actor, details)
    return after


def with_open_below(transaction: Transaction, top: Task, without: Collection[str] = ()) -> Sequence[Task]:
    """A task and what is unfinished under it, but for those ids."""
    return [top, *open_below(transaction, top, without)]


def waits_for(task: Task) -> str | None:
    """Why the scheduler does not look at a task at all."""
    if task.status.is_final:
        return None
    if task.held:
        return "held"
    if task.capability_id != WORKERS or task.worker_id is not None:
        return None
    return "worker" if task.phase in (Phase.PLANNING, Phase.RETRY_WAIT) else None


def _again(transaction: Transaction, task: Task) -> Task:
    found = tasks.get(transaction, task.id)
    if found is None:
        raise LookupError(f"{task.id} is gone in the transaction that read it")
    return found
