"""Handlers of `task.*` that make, show and change tasks."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from aiosd.auth.policy import Access, Action
from aiosd.core import clock, tree, views
from aiosd.core.authorization import refuse_own, task_not_found
from aiosd.core.operations import Reply
from aiosd.core.shares import at_rest
from aiosd.errors import AiosError, ErrorKind
from aiosd.model.jsontext import Settled
from aiosd.model.status import Priority, Status
from aiosd.store import artifacts, dependencies, journal, runs, tasks
from aiosd.store.tasks import TaskFilter

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Awaitable, Callable, Mapping

    from aiosd.auth.caller import Caller
    from aiosd.core.authorization import Authorizer
    from aiosd.core.control import Control
    from aiosd.core.creation import Creation
    from aiosd.core.events import EventHub
    from aiosd.core.holding import Holding
    from aiosd.core.scheduler import Scheduler
    from aiosd.model import wire
    from aiosd.model.jsontext import JsonObject, JsonValue
    from aiosd.model.task import Task
    from aiosd.store.database import Database


class TaskOperations:
    """Tasks as callers handle them."""

    def __init__(
        self,
        database: Database,
        hub: EventHub,
        authorizer: Authorizer,
        creation: Creation,
        control: Control,
        scheduler: Scheduler,
        holding: Holding,
    ) -> None:
        """Keeps what it calls."""
        self._database = database
        self._hub = hub
        self._authorizer = authorizer
        self._creation = creation
        self._control = control
        self._scheduler = scheduler
        self._holding = holding

    def handlers(self) -> Mapping[str, Callable[..., Awaitable[Reply]]]:
        """By operation name."""
        return {
            "task.create": self.create,
            "task.get": self.get,
            "task.list": self.list_tasks,
            "task.history": self.list_tasks,
            "task.cancel": self.cancel,
            "task.pause": self.pause,
            "task.resume": self.resume,
            "task.retry": self.retry,
            "task.set_priority": self.set_priority,
            "task.input": self.provide_input,
            "task.wait": self.wait,
            "task.state_history": self.state_history,
        }

    async def create(self, caller: Caller, params: wire.TaskCreate) -> Reply:
        """Store a task; unless `async`, wait until it is final or needs somebody."""
        if params.options.async_:
            return Reply(views.created(await self._creation.create(caller, params)))
        with at_rest():  # whoever may not wait is told so before the task is there
            task = await self._creation.create(caller, params)
            after = await self._until(task.id, None, until_waiting=True)
        if not after.status.is_final:
            raise _waits(after)
        return Reply(await self._view(after.id, with_history=False))

    async def retry(self, caller: Caller, params: wire.TaskRetry) -> Reply:
        """A new task like a finished one."""
        old = await self._visible(caller, params.task_id)
        return Reply(views.created(await self._creation.retry(caller, old, params)))

    async def get(self, caller: Caller, params: wire.TaskGet) -> Reply:
        """The whole task."""
        waiting_for, with_history = self._scheduler.waiting_for(params.task_id), params.include_history

        def look(db: sqlite3.Connection) -> tuple[Task, JsonObject | None] | None:
            task = tasks.get(db, params.task_id)
            if task is None:
                return None
            mine = caller.is_root or task.uid == caller.uid
            return task, Settled(whole(db, task, waiting_for, with_history=with_history)) if mine else None

        key = ("task.get", params.task_id, caller.uid, waiting_for, with_history)
        task, view = await self._database.glance(key, look) or (None, None)
        await self._authorizer.require_task(caller, Access.VIEW, task)
        # Another user's task is read after the person has said yes: that may have taken a while.
        return Reply(view if view is not None else await self._view(params.task_id, with_history=with_history))

    async def list_tasks(self, caller: Caller, params: wire.TaskList) -> Reply:
        """A page of the caller's tasks, or of everybody's for who may see them."""
        chosen = await self._filter(caller, params.filter)
        page, sort = params.pagination, params.sort
        before = _cursor(page.cursor)
        found = await self._database.read(
            lambda db: tasks.page(
                db, chosen, limit=page.limit, offset=page.offset, before=before, sort=sort.field,
                descending=sort.order == "desc",
            )
        )  # fmt: skip
        body: dict[str, JsonValue] = {
            "tasks": [views.summary(task) for task in found.tasks],
            "total": found.total,
            "has_more": found.has_more,
        }
        if found.next_sequence is not None:
            body["next_cursor"] = str(found.next_sequence)
        return Reply(body)

    async def cancel(self, caller: Caller, params: wire.TaskCancel) -> Reply:
        """End a task."""
        task = await self._controlled(caller, params.task_id)
        return Reply(views.short(await self._control.cancel(caller, task, params.reason, recursive=params.recursive)))

    async def pause(self, caller: Caller, params: wire.TaskHold) -> Reply:
        """Hold a task."""
        task = await self._controlled(caller, params.task_id)
        if not params.recursive:
            return Reply(views.short(await self._control.pause(f"uid:{caller.uid}", task)))
        paused, refusals = await self._control.carry_out(self._holding.pause_tree(caller, task))
        body: dict[str, JsonValue] = {**views.short(paused[0]), "tasks": [views.tree_row(one) for one in paused]}
        body["refused"] = [{"task_id": str(one.extra.get("task_id")), "reason": one.reason} for one in refusals]
        return Reply(body)

    async def resume(self, caller: Caller, params: wire.TaskHold) -> Reply:
        """Let a task go on."""
        task = await self._controlled(caller, params.task_id)
        if not params.recursive:
            return Reply(views.short(await self._control.resume(caller, task)))
        found = await self._holding.resume_tree(caller, task)
        return Reply({**views.short(found[0]), "tasks": [views.tree_row(one) for one in found]})

    async def set_priority(self, caller: Caller, params: wire.TaskPriority) -> Reply:
        """Change a task's priority; `urgent` has its own action."""
        task = await self._controlled(caller, params.task_id)
        priority = Priority.from_name(params.priority)
        if priority is Priority.URGENT:
            await self._authorizer.require(caller, Action.PRIORITY_URGENT, {"task": task.id})
        return Reply(views.short(await self._control.set_priority(caller, task, priority, recursive=params.recursive)))

    async def provide_input(self, caller: Caller, params: wire.TaskInput) -> Reply:
        """Answer a task's question."""
        task = await self._controlled(caller, params.task_id)
        await refuse_own(self._authorizer, self._database, caller, task.id)
        return Reply(views.short(await self._control.provide_input(caller, task, params.input)))

    async def wait(self, caller: Caller, params: wire.TaskWait) -> Reply:
        """Answer when the task is final; at once when it is."""
        await self._visible(caller, params.task_id)
        timeout = None if params.timeout_ms is None else params.timeout_ms / 1000
        after = await self._until(params.task_id, timeout, until_waiting=params.until_waiting)
        return Reply(await self._view(after.id, with_history=False))

    async def state_history(self, caller: Caller, params: wire.TaskRef) -> Reply:
        """Every state the task was in."""
        task = await self._visible(caller, params.task_id)
        rows = await self._database.read(lambda db: journal.history(db, task.sequence))
        return Reply({"task_id": task.id, "state_history": views.history_view(rows)})

    async def _visible(self, caller: Caller, task_id: str) -> Task:
        found = await self._database.read(lambda db: tasks.get(db, task_id))
        return await self._authorizer.require_task(caller, Access.VIEW, found)

    async def _controlled(self, caller: Caller, task_id: str) -> Task:
        """The task, looked at again after the person was asked."""
        found = await self._database.read(lambda db: tasks.get(db, task_id))
        await self._authorizer.require_task(caller, Access.CONTROL, found)
        again = await self._database.read(lambda db: tasks.get(db, task_id))
        if again is None:
            raise task_not_found()
        return again

    async def _until(self, task_id: str, timeout: float | None, *, until_waiting: bool) -> Task:  # noqa: ASYNC109  a parameter of the operation
        with self._hub.watch(task_id) as changed, ExitStack() as resting, suppress(TimeoutError):
            rests = False
            async with asyncio.timeout(timeout):
                while True:
                    changed.clear()
                    task = await self._database.read(lambda db: tasks.get(db, task_id))
                    if task is None:
                        raise task_not_found()
                    waits = task.status in (Status.INPUT_REQUIRED, Status.AUTH_REQUIRED)
                    if task.status.is_final or (until_waiting and waits):
                        return task
                    if not rests:
                        resting.enter_context(at_rest())
                        rests = True
                    await changed.wait()
        task = await self._database.read(lambda db: tasks.get(db, task_id))
        if task is None:
            raise task_not_found()
        return task

    async def _view(self, task_id: str, *, with_history: bool) -> JsonObject:
        waiting_for = self._scheduler.waiting_for(task_id)

        def look(db: sqlite3.Connection) -> JsonObject:
            task = tasks.get(db, task_id)
            if task is None:
                raise task_not_found()
            return whole(db, task, waiting_for, with_history=with_history)

        return await self._database.read(look)

    async def _filter(self, caller: Caller, asked: wire.ListFilter) -> TaskFilter:
        uid: int | None = caller.uid
        others = asked.all_users or (asked.uid is not None and asked.uid != caller.uid)
        if others:
            await self._authorizer.require(caller, Action.VIEW_OTHERS, {"list": "all"})
            uid = asked.uid
        return TaskFilter(
            uid=uid, statuses=tuple(Status(name) for name in asked.status or ()), capability_glob=asked.capability_id,
            created_from=_time(asked.start_time, "filter.start_time"),
            created_to=_time(asked.end_time, "filter.end_time"), parent_id=asked.parent_task_id,
            session_id=asked.session_id, tag=asked.tag,
        )  # fmt: skip


def whole(db: sqlite3.Connection, task: Task, waiting_for: str | None, *, with_history: bool) -> JsonObject:
    """Everything of one task, from the snapshot that it was read from."""
    return views.task_view(
        task,
        runs=runs.of_task(db, task.id),
        artifacts=artifacts.of_task(db, task.id),
        depends_on=[other for other, _ in dependencies.of(db, task.sequence)],
        history=journal.history(db, task.sequence) if with_history else None,
        waiting_for=tree.waits_for(task) or waiting_for,
    )


def _waits(task: Task) -> AiosError:
    """The answer of a blocking call whose task needs somebody; the task lives on."""
    kind = ErrorKind.INPUT_REQUIRED if task.status is Status.INPUT_REQUIRED else ErrorKind.AUTH_REQUIRED
    data: dict[str, JsonValue] = {"task_id": task.id, "status": task.status.value}
    if task.question is not None:
        data["question"] = task.question
    if task.auth_request is not None:
        data["auth_request"] = task.auth_request
    return AiosError(kind, data=data, reason=task.phase.value)


def _time(text: str | None, field: str) -> int | None:
    if text is None:
        return None
    try:
        return clock.parse_rfc3339(text)
    except (ValueError, OverflowError):
        raise AiosError(
            ErrorKind.INVALID_PARAMS, "is not a time in RFC 3339, as 2026-01-05T10:00:00Z", field=field
        ) from None


def _cursor(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise AiosError(ErrorKind.INVALID_PARAMS, "is not a cursor of an earlier answer", field="pagination.cursor")
    return int(text)
