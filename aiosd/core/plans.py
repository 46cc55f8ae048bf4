"""Plans in the store: what a diff is about laid out for `model.plan`, its effects, and what callers see of it.

`create_all` and `apply` are called in the writer thread, in the one transaction that does all of a diff; the rest
looks and shows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aiosd.core import clock, timeline, tree
from aiosd.core.control import release
from aiosd.errors import AiosError, ErrorKind
from aiosd.model import plan as rules
from aiosd.model.event import Source
from aiosd.model.ids import Prefix, new_id
from aiosd.model.jsontext import dump
from aiosd.model.later import dataclass
from aiosd.model.manifest import Pausable
from aiosd.model.plan import Diff, Known, New, PlanProblem
from aiosd.model.status import Reason, Status
from aiosd.store import dependencies, pages, plans, runs, tasks
from aiosd.store.plans import Plan, StoredDiff
from aiosd.store.tree import open_ids_below

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from aiosd.auth.caller import Caller
    from aiosd.core.registry import Registry
    from aiosd.model.jsontext import JsonObject, JsonValue
    from aiosd.model.plan import Outcome
    from aiosd.model.session import Session
    from aiosd.model.task import Task
    from aiosd.model.wire_sessions import PlanDiff
    from aiosd.store.database import Transaction
    from aiosd.store.tasks import Executor

MAX_SHOWN = 1000
"""Tasks of a plan that one answer shows."""
MAX_TOGETHER = 2000
"""Tasks that one diff may concern, those under canceled ones included: it is one transaction, whatever it costs."""
MAX_NAMED = 1000
"""Tasks that each list of a diff may name (`model.wire_sessions`)."""

_KINDS = {
    "unknown-task": ErrorKind.TASK_NOT_FOUND,
    "final": ErrorKind.INVALID_STATE,
    "not-pausable": ErrorKind.INVALID_STATE,
    "not-cancelable": ErrorKind.INVALID_STATE,
    "broken-dependency": ErrorKind.INVALID_STATE,
}


def refusal(problem: PlanProblem) -> AiosError:
    """A diff's problem as callers are told."""
    kind = _KINDS.get(problem.reason, ErrorKind.INVALID_PARAMS)
    data: JsonObject = {"task_id": problem.task_id} if problem.task_id else {}
    return AiosError(kind, str(problem), field=f"diff.{problem.field}", reason=problem.reason, data=data)


def plan_of(db: Executor, session_id: str) -> Plan:
    """The session's plan. Raises PLAN_NOT_FOUND."""
    found = plans.of_session(db, session_id)
    if found is None:
        raise AiosError(ErrorKind.PLAN_NOT_FOUND, "the session has no plan", field="session_id")
    return found


def same_version(plan: Plan, version: int) -> None:
    """Raise INVALID_STATE (stale-plan) when the plan has gone on since."""
    if plan.version != version:
        raise AiosError(
            ErrorKind.INVALID_STATE, f"the plan has version {plan.version}, the diff was made for {version}",
            field="version", reason="stale-plan", data={"version": plan.version},
        )  # fmt: skip


def as_rules(diff: PlanDiff) -> Diff:
    """A diff as `model.plan` sees it; what is to be made and has no name gets one that no id can be."""
    create = tuple(
        New(ref_of(row.ref, index), tuple(row.depends_on), row.parent_task_id)
        for index, row in enumerate(diff.create_tasks)
    )
    return Diff(tuple(diff.cancel_tasks), tuple(diff.pause_tasks), tuple(diff.continue_tasks), create)


def ref_of(ref: str | None, index: int) -> str:
    """The name of a task to be made, inside its request."""
    return f"#{index}" if ref is None else ref


def lay_out(db: Executor, registry: Registry, session_id: str, diff: Diff) -> dict[str, Known]:
    """The tasks that matter for this diff, as they are now. Costs in proportion to the diff, not to the session."""
    found: dict[str, Known] = {}
    refs = {new.ref for new in diff.create}
    named = [*diff.cancel, *diff.pause, *diff.resume]
    for new in diff.create:
        named += [one for one in (*new.depends_on, new.parent) if one is not None and one not in refs]
    waiting = list(named)
    for top in diff.cancel:
        task = tasks.get(db, top)
        if task is not None:
            waiting += open_ids_below(db, task)
            if len(waiting) > MAX_TOGETHER:
                message = f"more than {MAX_TOGETHER} tasks are concerned; cancel {top} by itself, which goes in steps"
                raise PlanProblem("cancel_tasks", "too-many", message, top)
            waiting += _between(db, waiting, top)
    for task_id in dict.fromkeys(waiting):
        task = tasks.get(db, task_id)
        if task is not None:
            found[task_id] = _known(db, registry, task, session_id)
    for task_id in diff.resume:
        for other in found[task_id].depends_on if task_id in found else ():
            other_task = None if other in found else tasks.get(db, other)
            if other_task is not None:
                found[other] = _known(db, registry, other_task, session_id)
    return found


def _between(db: Executor, below: Sequence[str], top: str) -> list[str]:
    """Ended tasks on the way from these up to `top`: without them the way could not be seen."""
    passed: dict[str, None] = {}
    for start in below:
        at: str | None = start
        while at is not None and at != top and at not in passed:
            task = tasks.get(db, at)
            at = None if task is None else task.parent_id
            if at is not None and at != top:
                passed.setdefault(at)
    return list(passed)


def _known(db: Executor, registry: Registry, task: Task, session_id: str) -> Known:
    running = runs.has_live(db, task.sequence)
    capability = registry.find(task.capability_id) if running else None
    return Known(
        status=task.status, parent=task.parent_id,
        depends_on=tuple(other for other, _ in dependencies.of(db, task.sequence)),
        can_pause=not running or (capability is not None and capability.pausable is not Pausable.NO),
        can_cancel=capability is None or capability.cancelable, in_session=task.session_id == session_id,
    )  # fmt: skip


def resolved(db: Executor, registry: Registry, session_id: str, diff: Diff) -> Outcome:
    """What the diff comes to now. Raises AiosError."""
    try:
        return rules.resolve(lay_out(db, registry, session_id, diff), diff)
    except PlanProblem as problem:
        raise refusal(problem) from None


def cautious(db: Executor, registry: Registry, session_id: str, reason: str) -> JsonObject:
    """The diff that is proposed when an objective changes and nobody says how: what can wait, waits.

    Of very many it names those at work, then the oldest of the others: what one diff can.
    """
    unfinished = tasks.foremost_of_session(db, session_id, MAX_NAMED)
    known = {task.id: _known(db, registry, task, session_id) for task in unfinished if task.cancel_reason is None}
    diff = rules.propose(known)
    return {
        "change_reason": reason, "cancel_tasks": [], "pause_tasks": list(diff.pause),
        "continue_tasks": list(diff.resume), "create_tasks": [],
    }  # fmt: skip


def keep_diff(
    transaction: Transaction, session: Session, plan: Plan, caller: Caller, body: JsonObject, *, applied: bool
) -> StoredDiff:
    """Store a diff that was found good, and tell of it."""
    now = clock.now()
    diff = StoredDiff(
        id=new_id(Prefix.DIFF), uid=caller.uid, base_version=plan.version, body=body, created_at=now,
        applied_at=now if applied else None,
    )  # fmt: skip
    plans.insert_diff(transaction, plan.sequence, diff)
    payload: JsonObject = {
        "plan_id": plan.id, "version": plan.version, "diff_id": diff.id, "diff": {"session_id": session.id, **body}
    }  # fmt: skip
    timeline.tell(transaction, session, "plan.diff.generated", payload, source=Source.MANAGER)
    return diff


@dataclass(frozen=True, slots=True)
class Effects:
    """What applying a diff did: what is left for after the commit is in `canceled`, `held` and `released`."""

    plan: Plan
    canceled: tuple[Task, ...]
    held: tuple[Task, ...]
    resumed: tuple[Task, ...]
    released: tuple[str, ...]
    created: Mapping[str, Task]


def create_all(
    transaction: Transaction, plan: Plan, order: Sequence[str], makers: Mapping[str, Callable[..., Task]]
) -> dict[str, Task]:
    """Store the new tasks of a plan, each after what it needs."""
    made: dict[str, Task] = {}
    for ref in order:
        made[ref] = makers[ref](transaction, {name: task.id for name, task in made.items()})
    plans.add_tasks(transaction, plan.sequence, [task.sequence for task in made.values()], plan.version)
    return made


def apply(
    transaction: Transaction, session: Session, plan: Plan, caller: Caller, diff: Diff, outcome: Outcome,
    makers: Mapping[str, Callable[..., Task]], body: JsonObject, diff_id: str,
) -> Effects:  # fmt: skip
    """All of a diff's effects on the store: rows, states, intents, events, the plan's next version."""
    actor = f"uid:{caller.uid}"
    after = replace(plan, version=plan.version + 1, updated_at=clock.now())
    created = create_all(transaction, after, outcome.create, makers)
    reason = str(body.get("change_reason") or "") or "plan-changed"
    canceled = []
    for task_id in outcome.cancel:
        task = _must(transaction, task_id)
        why = reason if task_id in diff.cancel else Reason.PARENT_CANCELED.value
        canceled.append(tree.request_cancel(transaction, task, actor, why) if task.cancel_reason is None else task)
    held = tuple(tree.hold(transaction, _must(transaction, task_id)) for task_id in outcome.pause)
    going_on = [_must(transaction, task_id) for task_id in outcome.resume]
    released = tuple(task.id for task in going_on if task.status is Status.PAUSED)
    resumed = tuple(_resume(transaction, task, caller) for task in going_on)
    plans.advance(transaction, plan, after.version, session.active_objective or plan.objective, after.updated_at)
    payload: JsonObject = {
        "plan_id": plan.id, "version": after.version, "diff_id": diff_id, "change_reason": reason,
        "canceled": list(outcome.cancel), "paused": list(outcome.pause), "continued": list(outcome.resume),
        "created": [task.id for task in created.values()],
    }  # fmt: skip
    timeline.tell(transaction, session, "plan.updated", payload, source=Source.MANAGER)
    return Effects(after, tuple(canceled), held, resumed, released, created)


def _resume(transaction: Transaction, task: Task, caller: Caller) -> Task:
    if task.status is Status.PAUSED:
        return release(transaction, task.id, caller)
    return tree.unhold(transaction, task)


def _must(transaction: Transaction, task_id: str) -> Task:
    found = tasks.get(transaction, task_id)
    if found is None:
        raise LookupError(f"{task_id} is gone in the transaction that found it")
    return found


def diff_view(diff: StoredDiff) -> JsonObject:
    """A diff as it is shown."""
    view: dict[str, JsonValue] = {
        "diff_id": diff.id, "version": diff.base_version, "uid": diff.uid, "diff": diff.body,
        "created_at": clock.rfc3339(diff.created_at), "applied": diff.applied_at is not None,
    }  # fmt: skip
    if diff.applied_at is not None:
        view["applied_at"] = clock.rfc3339(diff.applied_at)
    return view


def plan_view(
    db: Executor, session_id: str, *, diffs: bool = False, limit: int = MAX_SHOWN, after: int = 0
) -> dict[str, JsonValue]:
    """The session's plan with a page of its tasks as they are now. Raises PLAN_NOT_FOUND."""
    plan = plan_of(db, session_id)
    view = _view(db, plan, plans.task_ids(db, plan.sequence, limit + 1, after), limit)
    if diffs:
        view["diffs"] = [diff_view(one) for one in plans.diffs(db, plan.sequence)]
    return view


def changed_view(db: Executor, session_id: str, canceled: Sequence[str]) -> dict[str, JsonValue]:
    """The plan after a diff: its tasks that have not ended, and those that the diff has ended."""
    plan = plan_of(db, session_id)
    return _view(db, plan, plans.open_task_ids(db, plan, MAX_SHOWN + 1, canceled[:MAX_SHOWN]), MAX_SHOWN)


def _view(db: Executor, plan: Plan, found: Sequence[tuple[str, int]], limit: int) -> dict[str, JsonValue]:
    there = ((task, version) for task_id, version in found if (task := tasks.get(db, task_id)) is not None)
    steps = ((task.sequence, _numbered(db, task, version)) for task, version in there)
    shown, more = pages.page(steps, limit, lambda step: len(dump(step[1])))
    rows: list[JsonValue] = [row for _, row in shown]
    view: dict[str, JsonValue] = {
        "id": plan.id, "plan_id": plan.id, "session_id": plan.session_id, "version": plan.version,
        "objective": plan.objective, "created_at": clock.rfc3339(plan.created_at),
        "updated_at": clock.rfc3339(plan.updated_at), "tasks": rows, "has_more": more,
    }  # fmt: skip
    if more:
        view["next_cursor"] = str(shown[-1][0])
    return view


def _numbered(db: Executor, task: Task, version: int) -> dict[str, JsonValue]:
    others: list[JsonValue] = [other for other, _ in dependencies.of(db, task.sequence)]
    return {**_step(task), "version": version, "depends_on": others}


def _step(task: Task) -> dict[str, JsonValue]:
    """A task in a plan: seed 003's `task`."""
    row: dict[str, JsonValue] = {
        "task_id": task.id, "title": task.title, "status": task.status.value, "phase": task.phase.value,
        "priority": task.priority.wire, "held": task.held,
    }  # fmt: skip
    more: dict[str, JsonValue] = {
        "kind": task.kind, "risk_level": task.risk_level, "parent_task_id": task.parent_id,
        "capability_id": task.capability_id or None, "worker_id": task.worker_id,
    }  # fmt: skip
    return row | {name: value for name, value in more.items() if value is not None}
