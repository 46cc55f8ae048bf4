"""Handlers of messages, plans and task trees (seed 003).

A diff of a plan is looked at twice: before anybody is asked anything (polkit, running programs), and again in the one
transaction that applies it. That transaction writes all of it, intents for running programs included, or nothing;
programs are stopped, paused and let go after the commit (docs/decisions.md).
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from aiosd.auth.approvals import connection_of
from aiosd.auth.policy import Access
from aiosd.core import clock, plans, sessions, timeline, views
from aiosd.core.creation import Draft
from aiosd.core.operations import Reply
from aiosd.errors import AiosError, ErrorKind
from aiosd.model.event import Source
from aiosd.model.ids import Prefix, new_id
from aiosd.model.status import Level, Phase, Priority, Status
from aiosd.model.task import Task
from aiosd.store import plans as stored
from aiosd.store import sessions as session_rows
from aiosd.store import tasks
from aiosd.store.tree import lineage, page

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from aiosd.auth.caller import Caller
    from aiosd.core.authorization import Authorizer
    from aiosd.core.control import Control
    from aiosd.core.creation import Creation
    from aiosd.core.holding import Holding
    from aiosd.core.registry import Registry
    from aiosd.core.settings import Settings
    from aiosd.model import wire_sessions as wire
    from aiosd.model.jsontext import JsonObject, JsonValue
    from aiosd.model.session import Session
    from aiosd.store.database import Database, Transaction

    Maker = Callable[[Transaction, Mapping[str, str]], Task]


class PlanOperations:
    """Messages and plans as callers handle them."""

    def __init__(
        self,
        database: Database,
        authorizer: Authorizer,
        settings: Settings,
        registry: Registry,
        creation: Creation,
        control: Control,
        holding: Holding,
    ) -> None:
        """Keeps what it calls."""
        self._database = database
        self._authorizer = authorizer
        self._settings = settings
        self._registry = registry
        self._creation = creation
        self._control = control
        self._holding = holding

    def handlers(self) -> Mapping[str, Callable[..., Awaitable[Reply]]]:
        """By operation name."""
        return {
            "message.add": self.add_message,
            "plan.create": self.create,
            "plan.get": self.get,
            "plan.propose_diff": self.propose,
            "plan.apply_diff": self.apply,
            "task.tree": self.task_tree,
            "session.tree": self.session_tree,
        }

    async def add_message(self, caller: Caller, params: wire.MessageAdd) -> Reply:
        """Put a message on the timeline. With a new objective a diff of the plan is proposed."""
        await self._session(caller, Access.CONTROL, params.session_id)

        room = self._room(caller, "content")

        def add(transaction: Transaction) -> JsonObject:
            room(transaction)
            message = sessions.add_message(transaction, caller, params)
            view: dict[str, JsonValue] = {**sessions.message_view(message)}
            if not params.objective_change:
                return view
            session = sessions.open_session(transaction, params.session_id)
            objective = params.objective or params.content[:4000]
            session = sessions.set_objective(transaction, session, objective, reason="message", message_id=message.id)
            proposed = self._propose_for(transaction, caller, session, params)
            return view if proposed is None else {**view, "proposed": proposed}

        return Reply(await self._database.write(add))

    def _propose_for(
        self, transaction: Transaction, caller: Caller, session: Session, params: wire.MessageAdd
    ) -> JsonObject | None:
        plan = stored.of_session(transaction, session.id)
        if plan is None:
            if params.diff is not None:
                raise AiosError(ErrorKind.PLAN_NOT_FOUND, "the session has no plan to change", field="diff")
            return None
        if params.diff is None:
            body = plans.cautious(transaction, self._registry, session.id, params.content[:200])
        else:
            plans.resolved(transaction, self._registry, session.id, plans.as_rules(params.diff))
            body = params.diff.model_dump(exclude_defaults=True)
        return plans.diff_view(plans.keep_diff(transaction, session, plan, caller, body, applied=False))

    async def create(self, caller: Caller, params: wire.PlanCreate) -> Reply:
        """A session's plan with its first tasks, all or none."""
        session = await self._session(caller, Access.CONTROL, params.session_id)
        diff = params.as_diff()
        await self._database.read(lambda db: plans.resolved(db, self._registry, session.id, plans.as_rules(diff)))
        makers = await self._makers(caller, session, params.tasks, "tasks")

        room = self._room(caller, "tasks")

        def make(transaction: Transaction) -> JsonObject:
            room(transaction)
            found = sessions.open_session(transaction, session.id)
            if stored.of_session(transaction, session.id) is not None:
                raise AiosError(
                    ErrorKind.INVALID_STATE, "the session has a plan; change it by a diff", field="session_id",
                    reason="plan-exists",
                )  # fmt: skip
            outcome = plans.resolved(transaction, self._registry, session.id, plans.as_rules(diff))
            now = clock.now()
            objective = params.objective if params.objective is not None else found.active_objective or ""
            plan = stored.Plan(new_id(Prefix.PLAN), session.id, session.uid, 1, objective, now, now)
            plan = replace(plan, sequence=stored.insert(transaction, plan))
            made = plans.create_all(transaction, plan, outcome.create, makers)
            payload: JsonObject = {
                "plan_id": plan.id, "version": 1, "objective": objective, "created": [one.id for one in made.values()]
            }  # fmt: skip
            timeline.tell(transaction, found, "plan.created", payload, source=Source.MANAGER)
            return plans.plan_view(transaction, session.id)

        return Reply(await self._database.write(make))

    async def get(self, caller: Caller, params: wire.PlanGet) -> Reply:
        """A session's plan."""
        session = await self._session(caller, Access.VIEW, params.session_id)
        after = 0 if params.cursor is None else int(params.cursor)
        look = partial(plans.plan_view, session_id=session.id, diffs=params.diffs, limit=params.limit, after=after)
        return Reply(await self._database.read(look))

    async def propose(self, caller: Caller, params: wire.PlanPropose) -> Reply:
        """Check a diff and keep it, without applying it."""
        await self._session(caller, Access.CONTROL, params.session_id)

        room = self._room(caller, "diff")

        def propose(transaction: Transaction) -> JsonObject:
            room(transaction)
            session = sessions.open_session(transaction, params.session_id)
            plan = plans.plan_of(transaction, session.id)
            plans.same_version(plan, params.version)
            plans.resolved(transaction, self._registry, session.id, plans.as_rules(params.diff))
            body = params.diff.model_dump(exclude_defaults=True)
            return plans.diff_view(plans.keep_diff(transaction, session, plan, caller, body, applied=False))

        return Reply(await self._database.write(propose))

    async def apply(self, caller: Caller, params: wire.PlanApply) -> Reply:
        """Apply a diff whole, or not at all."""
        session = await self._session(caller, Access.CONTROL, params.session_id)
        body, resumed = await self._first_look(session, params)
        diff = params.diff_of(body)
        makers = await self._makers(caller, session, diff.create_tasks, "diff.create_tasks")
        work = self._carry_out(caller, params, diff, makers, resumed)
        return Reply(await self._control.carry_out(work))

    async def _first_look(self, session: Session, params: wire.PlanApply) -> tuple[JsonObject, list[str]]:
        """The diff, found good as things are; its programs do not mind. And which tasks it lets go on."""

        def look(db: tasks.Executor) -> tuple[JsonObject, list[Task], list[Task], list[str]]:
            plan = plans.plan_of(db, session.id)
            plans.same_version(plan, params.version)
            body = _body(db, plan, params)
            diff = plans.as_rules(params.diff_of(body))
            outcome = plans.resolved(db, self._registry, session.id, diff)
            return body, _all(db, outcome.cancel), _all(db, outcome.pause), [*outcome.resume]

        body, cancel, pause, resumed = await self._database.read(look)
        await self._control.ask_programs(cancel, pause)
        return body, resumed

    async def _carry_out(
        self,
        caller: Caller,
        params: wire.PlanApply,
        asked: wire.PlanDiff,
        makers: Mapping[str, Maker],
        resumed: Sequence[str],
    ) -> JsonObject:
        body = asked.model_dump(exclude_defaults=True)
        room = self._room(caller, "diff")

        def apply(transaction: Transaction) -> plans.Effects:
            session = sessions.open_session(transaction, params.session_id)
            plan = plans.plan_of(transaction, session.id)
            plans.same_version(plan, params.version)
            diff = plans.as_rules(asked)
            outcome = plans.resolved(transaction, self._registry, session.id, diff)
            diff_id = params.diff_id
            if diff_id is None:
                room(transaction)
                diff_id = plans.keep_diff(transaction, session, plan, caller, body, applied=True).id
            else:
                stored.mark_applied(transaction, diff_id, clock.now())
            return plans.apply(transaction, session, plan, caller, diff, outcome, makers, body, diff_id)

        async with self._control.letting_go(resumed) as released:  # whoever pauses one of them is before it, or after
            done = await self._database.write(apply)
            released.update(done.released)
            self._holding.expect(done.held)
        await self._control.stop(done.canceled)
        refusals = await self._holding.pause_programs(done.held)
        ended = [task.id for task in done.canceled]
        view = await self._database.read(lambda db: plans.changed_view(db, params.session_id, ended))
        view["applied"] = {
            "canceled": [*ended],
            "paused": [task.id for task in done.held],
            "continued": [task.id for task in done.resumed],
            "created": [{"ref": ref, "task_id": task.id} for ref, task in done.created.items()],
        }
        view["refused"] = [{"task_id": str(one.extra.get("task_id")), "reason": one.reason} for one in refusals]
        return view

    async def task_tree(self, caller: Caller, params: wire.TaskTree) -> Reply:
        """A page of a task and all under it."""
        found = await self._database.read(lambda db: tasks.get(db, params.task_id))
        top = await self._authorizer.require_task(caller, Access.VIEW, found)

        def look(db: tasks.Executor) -> dict[str, JsonValue]:
            behind = _behind(db, params.cursor, lambda above: above[0].id == top.id, top.id)
            return _forest(*page(db, lambda after: top if after < top.sequence else None, behind, params.limit))

        body = await self._database.read(look)
        if not caller.is_root:
            body["tasks"] = [row for row in _rows(body) if row["uid"] == top.uid]
        return Reply({"task_id": top.id, **body})

    async def session_tree(self, caller: Caller, params: wire.SessionTree) -> Reply:
        """A page of a session's tasks as trees."""
        session = await self._session(caller, Access.VIEW, params.session_id)

        def look(db: tasks.Executor) -> dict[str, JsonValue]:
            behind = _behind(db, params.cursor, lambda above: above[0].session_id == session.id, None)
            return _forest(*page(db, partial(tasks.next_root, db, session.id), behind, params.limit))

        return Reply({"session_id": session.id, **await self._database.read(look)})

    def _room(self, caller: Caller, field: str) -> Callable[[Transaction], None]:
        quota = self._settings.current.session_quota_bytes
        return partial(sessions.require_room, uid=caller.uid, quota=quota, field=field)

    async def _session(self, caller: Caller, access: Access, session_id: str) -> Session:
        found = await self._database.read(lambda db: session_rows.get(db, session_id))
        return await sessions.require_session(self._authorizer, caller, access, found)

    async def _makers(
        self, caller: Caller, session: Session, rows: Sequence[wire.PlanTask], field: str
    ) -> dict[str, Maker]:
        """What will store each new task. All that has to be asked of people is asked here."""
        makers: dict[str, Maker] = {}
        for index, row in enumerate(rows):
            place = f"{field}[{index}]"
            with _named(place):
                makers[plans.ref_of(row.ref, index)] = await self._maker(caller, session, row, place)
        return makers

    async def _maker(self, caller: Caller, session: Session, row: wire.PlanTask, place: str) -> Maker:
        if row.capability_id is None:
            draft = Draft(_planned(caller, session, row))
            return partial(_store, row=row, draft=draft, store=self._creation.store_planned, place=place)
        prepared = await self._creation.prepare(caller, row.request(session.id))
        store = partial(self._creation.store, consent=prepared.consent)
        return partial(_store, row=row, draft=prepared.draft, store=store, place=place)


def _store(
    transaction: Transaction,
    made: Mapping[str, str],
    *,
    row: wire.PlanTask,
    draft: Draft,
    store: Callable[[Transaction, Draft], Task],
    place: str,
) -> Task:
    """Store a new task, its links to others of the same request by their ids."""
    parent = row.parent_task_id
    depends_on = tuple(dict.fromkeys(made.get(other, other) for other in row.depends_on))
    task = replace(draft.task, parent_id=None if parent is None else made.get(parent, parent))
    if depends_on and task.phase is Phase.QUEUED:
        task = replace(task, phase=Phase.WAITING)
    with _named(place):
        return store(transaction, Draft(task, depends_on))


@contextmanager
def _named(place: str) -> Iterator[None]:
    """Name the part of the request that a refusal is about: the row, and in it what `task.create` calls it."""
    try:
        yield
    except AiosError as error:
        error.field = place + (f".{error.field.removeprefix('options.')}" if error.field else "")
        raise


def _planned(caller: Caller, session: Session, row: wire.PlanTask) -> Task:
    """A task that nobody can run yet: it stays in planning until a worker takes it."""
    moment = clock.now()
    return Task(
        id=new_id(Prefix.TASK), uid=caller.uid, capability_id="", title=row.title, level=Level.PUBLIC,
        status=Status.PENDING, phase=Phase.PLANNING, created_at=moment, updated_at=moment,
        priority=Priority.NORMAL if row.priority is None else Priority.from_name(row.priority),
        creator={"uid": caller.uid, "subject": connection_of(caller.subject)},
        arguments=row.arguments, metadata=row.metadata,
        session_id=session.id, kind=row.kind, goal=row.goal, constraints=tuple(row.constraints),
        risk_level=row.risk_level, execution_mode=row.execution_mode or "independent", timeout_ms=row.timeout_ms,
        shared_context=tuple(dict.fromkeys(row.shared_context_refs)), handoff=row.handoff_expected,
        retry_max=1 if row.retry is None else row.retry.max_attempts,
        retry_delay_ms=1000 if row.retry is None else row.retry.delay_ms,
        requires=tuple(dict.fromkeys(row.requires)),
        workspace=None if row.workspace is None else row.workspace.model_dump(),
    )  # fmt: skip


def _body(db: tasks.Executor, plan: stored.Plan, params: wire.PlanApply) -> JsonObject:
    """The diff that is asked for: given, or proposed before for this version of the plan."""
    if params.diff is not None:
        return params.diff.model_dump(exclude_defaults=True)
    found = stored.diff_of(db, plan.sequence, params.diff_id or "")
    if found is None:
        raise AiosError(ErrorKind.INVALID_PARAMS, "the plan has no such diff", field="diff_id")
    if found.applied_at is not None:
        raise AiosError(ErrorKind.INVALID_STATE, "it has been applied", field="diff_id", reason="applied")
    plans.same_version(plan, found.base_version)
    return found.body


def _all(db: tasks.Executor, task_ids: Sequence[str]) -> list[Task]:
    found = [tasks.get(db, task_id) for task_id in task_ids]
    return [task for task in found if task is not None]


def _behind(
    db: tasks.Executor, cursor: str | None, belongs: Callable[[Sequence[Task]], bool], top: str | None
) -> Sequence[Task]:
    """The last task of the page before, under what is above it; nothing for the first page."""
    if cursor is None:
        return ()
    above = lineage(db, int(cursor), top)
    if not above or not belongs(above):
        raise AiosError(ErrorKind.INVALID_PARAMS, "is of no earlier answer, or its task is gone", field="cursor")
    return above


def _forest(found: Sequence[tuple[Task, int]], more: bool) -> dict[str, JsonValue]:  # noqa: FBT001 - as `page` has it
    body: dict[str, JsonValue] = {
        "tasks": [{**views.tree_row(task), "depth": depth} for task, depth in found],
        "complete": not more,
    }
    if more:
        body["next_cursor"] = str(found[-1][0].sequence)
    return body


def _rows(body: JsonObject) -> list[dict[str, JsonValue]]:
    rows = body["tasks"]
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
