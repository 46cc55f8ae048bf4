"""A plan's diff, checked as a whole: what it comes to, or the first thing that is wrong with it. Pure.

Seed 003: `{change_reason, cancel_tasks, pause_tasks, continue_tasks, create_tasks}`. The caller lays out the tasks that
matter: those named, the unfinished ones under those to be canceled, and what the named ones depend on. The same rules
look at a diff when it is proposed and, inside the transaction, when it is applied.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from aiosd.model import tree
from aiosd.model.later import dataclass
from aiosd.model.status import FINAL, Status

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class PlanProblem(Exception):
    """Why a diff cannot be applied. `field`: as `pause_tasks[2]`; `reason`: machine-readable; `task_id`: which task."""

    def __init__(self, field: str, reason: str, message: str, task_id: str = "") -> None:
        """`message`: one sentence for people."""
        super().__init__(message)
        self.field = field
        self.reason = reason
        self.task_id = task_id


@dataclass(frozen=True, slots=True)
class Known:
    """A task that exists, as it is now. `can_pause`, `can_cancel`: whether its running program allows that."""

    status: Status
    parent: str | None = None
    depends_on: tuple[str, ...] = ()
    can_pause: bool = True
    can_cancel: bool = True
    in_session: bool = True


@dataclass(frozen=True, slots=True)
class New:
    """A task to be made. `depends_on`, `parent`: tasks that exist, or other new ones by their `ref`."""

    ref: str
    depends_on: tuple[str, ...] = ()
    parent: str | None = None


@dataclass(frozen=True, slots=True)
class Diff:
    """What is asked for."""

    cancel: tuple[str, ...] = ()
    pause: tuple[str, ...] = ()
    resume: tuple[str, ...] = ()
    create: tuple[New, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What to do. `cancel`: those named, each after what is under it; `create`: refs, each after what it needs."""

    cancel: tuple[str, ...] = ()
    pause: tuple[str, ...] = ()
    resume: tuple[str, ...] = ()
    create: tuple[str, ...] = ()


def resolve(known: Mapping[str, Known], diff: Diff) -> Outcome:
    """What the diff comes to. Raises PlanProblem, and then nothing of it may be done."""
    _check_named(known, diff)
    ending = _ending(known, diff.cancel)
    _check_cancel(known, ending)
    for field, named in (("pause_tasks", diff.pause), ("continue_tasks", diff.resume)):
        for index, task_id in enumerate(named):
            if task_id in ending:
                message = f"{task_id} is under a task that the same diff cancels"
                raise PlanProblem(f"{field}[{index}]", "conflict", message, task_id)
    for index, task_id in enumerate(diff.pause):
        if not known[task_id].can_pause:
            raise PlanProblem(f"pause_tasks[{index}]", "not-pausable", f"{task_id} cannot be paused", task_id)
    for index, task_id in enumerate(diff.resume):
        broken = _broken(known, ending, known[task_id].depends_on)
        if broken is not None:
            message = f"{task_id} depends on {broken}, which does not complete"
            raise PlanProblem(f"continue_tasks[{index}]", "broken-dependency", message, task_id)
    return Outcome(ending, diff.pause, diff.resume, _creation_order(known, ending, diff.create))


def propose(known: Mapping[str, Known]) -> Diff:
    """A cautious diff for an objective that has changed: what can wait waits until somebody says more."""
    unfinished = {task_id: task for task_id, task in known.items() if task.status not in FINAL}
    pause = tuple(task_id for task_id, task in unfinished.items() if task.can_pause)
    return Diff(pause=pause, resume=tuple(task_id for task_id in unfinished if task_id not in set(pause)))


def _check_named(known: Mapping[str, Known], diff: Diff) -> None:
    """Each task is named once, exists in this session, and has not ended."""
    seen: set[str] = set()
    for field, named in (("cancel_tasks", diff.cancel), ("pause_tasks", diff.pause), ("continue_tasks", diff.resume)):
        for index, task_id in enumerate(named):
            place = f"{field}[{index}]"
            if task_id in seen:
                raise PlanProblem(place, "conflict", f"{task_id} is named more than once", task_id)
            seen.add(task_id)
            task = known.get(task_id)
            if task is None or not task.in_session:
                raise PlanProblem(place, "unknown-task", f"the session has no task {task_id}", task_id)
            if task.status in FINAL:
                raise PlanProblem(place, "final", f"{task_id} is {task.status} already", task_id)


def _ending(known: Mapping[str, Known], cancel: Sequence[str]) -> tuple[str, ...]:
    """The tasks to be canceled with all that is unfinished under them; each comes after those under it."""
    parents = {task_id: task.parent for task_id, task in known.items()}
    ending: dict[str, None] = {}
    for top in cancel:
        under = [one for one in tree.below(top, parents) if known[one].status not in FINAL]
        ordered = tree.preorder((one, parents[one]) for one in (top, *under))
        for one, _ in reversed(ordered):
            ending.setdefault(one)
    # One that is canceled for its own sake may have been found under another: both ways it ends once.
    return tuple(ending)


def _check_cancel(known: Mapping[str, Known], ending: Sequence[str]) -> None:
    for task_id in ending:
        if not known[task_id].can_cancel:
            raise PlanProblem("cancel_tasks", "not-cancelable", f"{task_id} cannot be canceled", task_id)


def _broken(known: Mapping[str, Known], ending: Sequence[str], depends_on: Sequence[str]) -> str | None:
    """The first of these that will not complete."""
    for other in depends_on:
        task = known.get(other)
        if other in ending or (task is not None and task.status in (Status.FAILED, Status.CANCELED)):
            return other
    return None


def _creation_order(known: Mapping[str, Known], ending: Sequence[str], create: Sequence[New]) -> tuple[str, ...]:
    twice = [ref for ref, count in Counter(new.ref for new in create).items() if count > 1]
    refs = {new.ref for new in create}
    for index, new in enumerate(create):
        place = f"create_tasks[{index}]"
        if new.ref in twice or new.ref in known:
            raise PlanProblem(f"{place}.ref", "conflict", f"{new.ref} names more than one task", new.ref)
        for position, other in enumerate(new.depends_on):
            _check_needed(known, refs, other, f"{place}.depends_on[{position}]")
        broken = _broken(known, ending, new.depends_on)
        if broken is not None:
            message = f"it depends on {broken}, which does not complete"
            raise PlanProblem(f"{place}.depends_on", "broken-dependency", message, broken)
        if new.parent is not None:
            _check_needed(known, refs, new.parent, f"{place}.parent_task_id")
            if new.parent in ending or (new.parent in known and known[new.parent].status in FINAL):
                message = f"its parent {new.parent} has ended or is to end"
                raise PlanProblem(f"{place}.parent_task_id", "final", message, new.parent)
    graph = {new.ref: (*new.depends_on, *([] if new.parent is None else [new.parent])) for new in create}
    circle = tree.find_cycle(graph)
    if circle is not None:
        raise PlanProblem("create_tasks", "cycle", f"these wait for each other: {', '.join(circle)}", circle[0])
    return tree.in_order(graph)


def _check_needed(known: Mapping[str, Known], refs: set[str], other: str, place: str) -> None:
    if other in refs:
        return
    if other not in known or not known[other].in_session:
        raise PlanProblem(place, "unknown-task", f"neither the session nor this request has a task {other}", other)
