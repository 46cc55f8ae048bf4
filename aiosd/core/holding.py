"""Tasks that are held: not started while they wait, paused as soon as their program runs.

`tasks.held` is the intent, written in the transaction of whoever wanted it (a diff of a plan, the pause of a subtree).
What has no program is held by that alone: the scheduler passes it by. Programs are paused here, after the commit, or
as soon as they have started; after a restart of the daemon the row still says so. A program that will not be paused
goes on, the intent is taken back, and the timeline says why (`task.pause_refused`).
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from aiosd.core import changes, tree
from aiosd.core.executors import WORKERS
from aiosd.core.refusals import refuse_final
from aiosd.core.steps import thin
from aiosd.errors import AiosError
from aiosd.model.event import Kind, Source
from aiosd.model.status import Status
from aiosd.store import tasks
from aiosd.store.database import StoreError
from aiosd.store.tree import open_ids_below

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aiosd.auth.caller import Caller
    from aiosd.core.control import Control
    from aiosd.model.event import Event
    from aiosd.model.task import Task
    from aiosd.store.database import Database, Transaction

_log = logging.getLogger(__name__)

ACTOR = "manager"
"""Who pauses a program because its task is held, as the audit names them."""


class Holding:
    """Holds tasks and lets them go on, one or a whole tree."""

    def __init__(self, database: Database, control: Control) -> None:
        """`control`: pauses programs."""
        self._database = database
        self._control = control
        self._starting: set[str] = set()
        self._pausing: set[asyncio.Task[None]] = set()

    async def pause_tree(self, caller: Caller, top: Task) -> tuple[list[Task], list[AiosError]]:
        """Hold a task and all under it; the tasks as they then are, and the refusals of programs that go on.

        Raises AiosError, with nothing changed, when one of the programs is of a kind that cannot be paused.
        """
        refuse_final(top)
        self._control.check_pausable(top)
        for task in await self._database.read(self._control.running(partial(open_ids_below, top=top))):
            self._control.check_pausable(task)
        held = await self._over_tree(top, tree.hold)
        refusals = await self.pause_programs(held, f"uid:{caller.uid}")
        ids = [task.id for task in held]
        return await self._database.read(lambda db: _all(db, ids)), refusals

    async def resume_tree(self, caller: Caller, top: Task) -> list[Task]:
        """Let a task and all under it go on; the tasks as they then are."""
        refuse_final(top)
        found = await self._over_tree(top, tree.unhold)
        for task in found:
            if task.status is Status.PAUSED:
                await self._control.resume(caller, task)
        ids = [task.id for task in found]
        return await self._database.read(lambda db: _all(db, ids))

    async def _over_tree(self, top: Task, each: Callable[[Transaction, Task], Task]) -> list[Task]:
        """Do `each` to a task and to all under it; the tasks as they then are, `top` first."""
        done: dict[str, Task] = {}
        async for step in thin(self._database, partial(open_ids_below, top=top), each):
            self.expect(step)
            done.update((task.id, task) for task in step)

        def rest(transaction: Transaction) -> list[Task]:
            found = _open(transaction, top.id)
            return [each(transaction, task) for task in tree.with_open_below(transaction, found, done)]

        return [*await self._database.write(rest), *done.values()]

    async def pause_programs(self, held: Sequence[Task], actor: str = ACTOR) -> list[AiosError]:
        """Pause the running programs of tasks that are held; the refusals. One that is being started follows."""
        programs = [task for task in held if task.capability_id != WORKERS]
        running = [task for task in programs if task.held and task.status is Status.WORKING]
        self.expect(held)
        outcomes = await asyncio.gather(*(self._pause(task, actor) for task in running))
        return [outcome for outcome in outcomes if outcome is not None]

    def expect(self, held: Sequence[Task]) -> None:
        """Pause those of them that do not run yet as soon as they do. To be called before anything is awaited after the
        commit: the event of a start that follows it must not be missed."""
        waiting = (task for task in held if task.held and task.status is not Status.WORKING)
        self._starting.update(task.id for task in waiting if task.capability_id != WORKERS)

    async def recover(self) -> None:
        """After a restart: pause what an earlier daemon wrote down and did not come to pause."""
        self._spawn(await self._database.read(tasks.held))

    def heard(self, events: Sequence[Event]) -> None:
        """An event listener: a held task whose program has started is paused."""
        for event in events:
            if event.change is None or event.task_id not in self._starting:
                continue
            if event.change.new == Status.WORKING:
                self._starting.discard(event.task_id)
                self._spawn_by_id(event.task_id)
            elif Status(event.change.new).is_final:
                self._starting.discard(event.task_id)

    def _spawn_by_id(self, task_id: str) -> None:
        async def look() -> None:
            found = await self._database.read(lambda db: tasks.get(db, task_id))
            if found is not None:
                await self.pause_programs([found])

        self._keep(asyncio.create_task(look()))

    def _spawn(self, held: Sequence[Task]) -> None:
        async def pause() -> None:
            await self.pause_programs(held)

        if held:
            self._keep(asyncio.create_task(pause()))

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._pausing.add(task)
        task.add_done_callback(self._pausing.discard)

    async def _pause(self, task: Task, actor: str) -> AiosError | None:
        try:
            await self._control.pause(actor, task, held=True)
        except AiosError as error:
            refusal = error
        else:
            return None
        try:
            await self._database.write(lambda tx: _give_up(tx, task.id, refusal))
        except StoreError:
            _log.exception("%s could not be paused, and that could not be stored", task.id)
        refusal.extra = {**refusal.extra, "task_id": task.id}
        return refusal


def _give_up(transaction: Transaction, task_id: str, refusal: AiosError) -> None:
    """Its program goes on: the row must not claim that it is held. Between two attempts it still can be."""
    task = tasks.get(transaction, task_id)
    if task is None or not task.held or task.status is not Status.WORKING or task.retry_at is not None:
        return
    tasks.update(transaction, task_id, {"held": False})
    payload = {"reason": refusal.reason, "message": refusal.text}
    changes.emit(transaction, task, Kind.TIMELINE, "task.pause_refused", payload, source=Source.SYSTEM)


def _open(transaction: Transaction, task_id: str) -> Task:
    found = tasks.get(transaction, task_id)
    if found is None:
        raise LookupError(f"{task_id} is gone")
    refuse_final(found)
    return found


def _all(db: tasks.Executor, task_ids: Sequence[str]) -> list[Task]:
    found = [tasks.get(db, task_id) for task_id in task_ids]
    return [task for task in found if task is not None]
