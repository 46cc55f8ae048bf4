"""What a person does to a task: cancel, pause, resume, answer, change its priority.

Each follows seed 002's four steps: is it allowed (with the reason when not), tell the program, freeze or stop it,
change the status. The status is looked at again in the transaction that changes it, so two people who act at once
cannot both be right by accident."""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from aiosd.core import changes, clock, run_events, run_states, tree
from aiosd.core.answers import check_answer
from aiosd.core.authorization import task_not_found
from aiosd.core.executors import WORKERS
from aiosd.core.outcome import Verdict
from aiosd.core.refusals import illegal, launcher_busy, refuse_final
from aiosd.core.steps import thin
from aiosd.errors import AiosError
from aiosd.model.event import Source
from aiosd.model.machine import IllegalTransition
from aiosd.model.manifest import Pausable
from aiosd.model.status import Actor, Phase, Priority, Reason, Status
from aiosd.run.client import LauncherError
from aiosd.store import tasks, workers
from aiosd.store.database import StoreError
from aiosd.store.tree import open_ids_below

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence

    from aiosd.auth.caller import Caller
    from aiosd.core.supervision import Supervision
    from aiosd.core.watch import Watch
    from aiosd.model.jsontext import JsonObject
    from aiosd.model.task import Task
    from aiosd.store.database import Database, Transaction

T = TypeVar("T")

_log = logging.getLogger(__name__)

PAUSE_ANSWER = 5.0
"""Seconds that a cooperative program has to say that it has paused; after that it is frozen."""

ASK_ANSWER = 2.0
"""Seconds that a program has to answer `can_pause` or `can_cancel`; silence is yes."""

CANCEL_WAIT = 20.0
"""Seconds that a cancel waits for the program's end before it answers with the state as it is (D-Bus allows 25)."""


class Control:
    """Operations on one task. The caller's right to it has been checked; the task is as it was then."""

    def __init__(self, database: Database, supervision: Supervision) -> None:
        """Keeps what it acts on."""
        self._database = database
        self._supervision = supervision
        self._begun: set[asyncio.Task[object]] = set()

    async def cancel(self, caller: Caller, task: Task, reason: str, *, recursive: bool = True) -> Task:
        """End the task for good, and all under it: at once where no program runs, else after the program's grace."""
        refuse_final(task)
        under = await self._database.read(self.running(partial(open_ids_below, top=task))) if recursive else []
        await self.ask_programs([task, *under], [])
        watch = await self.carry_out(self._begin_cancel(caller, task, reason, recursive=recursive))
        if watch is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(CANCEL_WAIT):
                    await watch.ended.wait()
        return await self._fresh(task.id)

    def running(self, ids: Callable[[tasks.Executor], list[str]]) -> Callable[[tasks.Executor], list[Task]]:
        """A reading function: those of the tasks whose programs run, and can be asked."""

        def look(db: tasks.Executor) -> list[Task]:
            found = [tasks.get(db, one) for one in ids(db) if self._supervision.of_task(one)]
            return [task for task in found if task is not None]

        return look

    async def _begin_cancel(self, caller: Caller, task: Task, reason: str, *, recursive: bool) -> Watch | None:
        """Write it down and tell the programs; the run to wait for, when there is one."""
        if recursive:
            each = partial(tree.request_cancel, actor=f"uid:{caller.uid}", reason=Reason.PARENT_CANCELED.value)
            async for step in thin(self._database, partial(open_ids_below, top=task), each):
                await self.stop(step)
        asked = await self._database.write(lambda tx: _request_cancel(tx, task.id, caller, reason, recursive=recursive))
        await self.stop(asked)
        return None if asked[0].status.is_final else self._supervision.of_task(task.id)

    async def stop_for_the_daemon(self, task_ids: Sequence[str], reason: str) -> None:
        """Cancel tasks because the daemon is told to take them along. Raises StoreError."""

        def request(transaction: Transaction) -> list[Task]:
            found = (tasks.get(transaction, task_id) for task_id in task_ids)
            open_ones = [task for task in found if task is not None and not task.status.is_final]
            return [
                one
                for task in open_ones
                for one in tree.request_cancel_all(transaction, task, "system", reason, recursive=False)
            ]

        await self.stop(await self._database.write(request))

    async def stop(self, asked: Sequence[Task]) -> None:
        """Tell the programs of tasks that are to end (the store says so already)."""
        for task in asked:
            watch = None if task.status.is_final else self._supervision.of_task(task.id)
            if watch is not None:
                await self._supervision.request_stop(watch, task.cancel_reason or Reason.CANCELED)

    async def pause(self, actor: str, task: Task, *, held: bool = False) -> Task:
        """Hold the task where it is, by its program's own hand or by the freezer. `actor`: as the audit names them.
        `held`: because its row says so, and not if that is taken back meanwhile."""
        refuse_final(task)
        if task.capability_id == WORKERS and task.status is Status.WORKING:
            return await self._database.write(lambda tx: _hold_at_worker(tx, task.id, actor))
        if (begun := self._supervision.of_task(task.id)) is not None:
            await begun.connected()
        watch = self._running_watch(task, "paused")
        if watch.capability is None or watch.capability.pausable is Pausable.NO:
            raise illegal(task, "paused", "not-pausable")
        written = partial(_hold, task_id=task.id, actor=actor, held=held)
        return await self.carry_out(self._hold(written, task.id, watch, watch.capability.pausable))

    def check_pausable(self, task: Task) -> None:
        """Raise INVALID_STATE when its program runs and is none that can be paused."""
        watch = self._supervision.of_task(task.id)
        if watch is not None and (watch.capability is None or watch.capability.pausable is Pausable.NO):
            raise illegal(task, "paused", "not-pausable")

    async def ask_programs(self, cancel: Sequence[Task], pause: Sequence[Task]) -> None:
        """Ask the programs of these tasks whether they allow it. Raises the first refusal."""
        asked = [self._ask_program(task, "can_cancel", "canceled") for task in cancel]
        for task in pause:
            self.check_pausable(task)
            asked.append(self._ask_program(task, "can_pause", "paused"))
        await asyncio.gather(*asked)

    async def _hold(self, written: Callable[[Transaction], Task], task_id: str, watch: Watch, how: Pausable) -> Task:
        async with watch.holding:
            task = await self._fresh(task_id)
            refuse_final(task)
            self._running_watch(task, "paused")
            if how is Pausable.COOPERATIVE:
                await self._ask_program(task, "can_pause", "paused")
            try:
                if how is not Pausable.COOPERATIVE or await watch.ask("pause", within=PAUSE_ANSWER) is None:
                    await self._freeze(task, watch)
                return await self._database.write(written)
            except (AiosError, StoreError):
                await self._let_go_quietly(watch)
                raise

    async def resume(self, caller: Caller, task: Task) -> Task:
        """Let a paused task go on."""
        refuse_final(task)
        if task.held and task.status is not Status.PAUSED:
            return await self._database.write(lambda tx: _unhold(tx, task.id))
        if task.status is not Status.PAUSED:
            raise illegal(task, "resumed", "not-paused")
        if task.capability_id == WORKERS:
            return await self._database.write(lambda tx: release(tx, task.id, caller))
        watch = self._supervision.of_task(task.id)
        if watch is None:
            raise illegal(task, "resumed", "not-running")
        return await self.carry_out(self._release(caller, task.id, watch))

    async def _release(self, caller: Caller, task_id: str, watch: Watch) -> Task:
        async with watch.holding:
            after = await self._database.write(lambda tx: release(tx, task_id, caller))
            await self._let_go(watch)
        return after

    @asynccontextmanager
    async def letting_go(self, task_ids: Sequence[str]) -> AsyncIterator[set[str]]:
        """For who resumes tasks in a transaction of their own, with `release`: the programs of those whose ids are then
        in the set go on after it. None of `task_ids` is paused or let go by anybody else meanwhile."""
        watches = [watch for one in sorted(task_ids) if (watch := self._supervision.of_task(one)) is not None]
        released: set[str] = set()
        async with AsyncExitStack() as held:
            for watch in watches:
                await held.enter_async_context(watch.holding)
            yield released
            for watch in watches:
                if watch.task_id in released:
                    await self._let_go_quietly(watch)

    async def set_priority(self, caller: Caller, task: Task, priority: Priority, *, recursive: bool = False) -> Task:
        """Change the order of admission of a task that has not ended."""
        refuse_final(task)

        each = partial(tree.set_priority, priority=priority, actor=f"uid:{caller.uid}")
        done: set[str] = set()
        if recursive:
            async for step in thin(self._database, partial(open_ids_below, top=task), each):
                done.update(one.id for one in step)

        def change(transaction: Transaction) -> Task:
            found = _must(transaction, task.id)
            refuse_final(found)
            wanted = tree.with_open_below(transaction, found, done) if recursive else [found]
            changed = [each(transaction, one) for one in wanted]
            return changed[0]

        return await self._database.write(change)

    async def provide_input(self, caller: Caller, task: Task, answer: JsonObject) -> Task:
        """Answer the question that the task waits for; checked against the question's own schema first."""
        refuse_final(task)
        if task.status is not Status.INPUT_REQUIRED or task.question is None:
            raise illegal(task, "given input", "no-question")
        check_answer(task.question, answer)
        if task.phase is Phase.BLOCKED:
            return await self._unblock(caller, task, answer)
        interaction = task.question.get("interaction")
        watch = self._supervision.of_task(task.id)
        if watch is not None:
            await watch.connected()  # one that is just taken up after a restart
        if task.capability_id != WORKERS and (watch is None or watch.control is None):
            raise illegal(task, "given input", "not-running")

        def accept(transaction: Transaction) -> Task:
            found = _must(transaction, task.id)
            if found.question != task.question:
                raise illegal(found, "given input", "question-changed")
            # Kept until it is delivered: an accepted answer survives a crash of ours.
            delivery = f"input-{os.urandom(8).hex()}"
            kept: JsonObject = {"interaction": interaction, "answer": answer, "delivery": delivery}
            return _enter(
                transaction, found, Status.WORKING, "given input", by=f"uid:{caller.uid}", reason="input-provided",
                also={"question": kept},
            )  # fmt: skip

        async def hand_over() -> Task:
            after = await self._database.write(accept)
            if watch is not None:  # a worker comes for it
                await self._supervision.deliver_answer(watch, after)
            return after

        return await self.carry_out(hand_over())

    async def _unblock(self, caller: Caller, task: Task, answer: JsonObject) -> Task:
        """A person decides about a task that failed too often: once more, or never."""

        def decide(transaction: Transaction) -> Task:
            found = _must(transaction, task.id)
            if found.phase is not Phase.BLOCKED:
                raise illegal(found, "unblocked", "not-blocked")
            if answer.get("action") == "retry":
                working = _enter(
                    transaction, found, Status.WORKING, "unblocked", by=f"uid:{caller.uid}", reason="unblocked",
                    also={"question": None, "error": None, "deadline": None},
                )  # fmt: skip
                why = str(answer.get("reason") or "asked for")
                return run_states.wait_for_retry(transaction, working, clock.now(), Reason.USER_REQUEST, why)
            changes.audit(transaction, found, "task.input", f"uid:{caller.uid}", answer)
            verdict = Verdict(Status.FAILED, Reason(found.reason or Reason.REPORTED), None, found.error)
            return run_states.end(transaction, found, verdict)

        return await self._database.write(decide)

    async def carry_out(self, work: Coroutine[None, None, T]) -> T:
        """What has begun is done to its end, also when whoever asked for it leaves meanwhile."""
        task = asyncio.create_task(work)
        self._begun.add(task)
        task.add_done_callback(self._begun.discard)
        return await asyncio.shield(task)

    async def _ask_program(self, task: Task, question: str, wanted: str) -> None:
        """Seed 002's first step: a program that speaks the protocol may say no, with its reason."""
        watch = self._supervision.of_task(task.id)
        if watch is None or watch.control is None or watch.stopping or watch.capability is None:
            return
        if question == "can_cancel" and not watch.capability.cancelable:
            raise illegal(task, wanted, "not-cancelable")
        if watch.frozen or task.status is not Status.WORKING:
            return
        if watch.capability.pausable is not Pausable.COOPERATIVE:
            return
        answer = await watch.ask(question, within=ASK_ANSWER)
        if answer is not None and answer.get("allowed") is False:
            error = illegal(task, wanted, "program-refused")
            error.extra = {**error.extra, "program_reason": str(answer.get("reason") or "")[:200]}
            raise error

    def _running_watch(self, task: Task, wanted: str) -> Watch:
        watch = self._supervision.of_task(task.id)
        if task.status is not Status.WORKING or watch is None or watch.control is None or watch.stopping:
            raise illegal(task, wanted, "not-running")
        return watch

    async def _freeze(self, task: Task, watch: Watch) -> None:
        try:
            await self._supervision.freeze(watch)
        except LauncherError as error:
            refuse_final(await self._fresh(task.id))
            raise launcher_busy(error) from None

    async def _let_go(self, watch: Watch) -> None:
        if watch.frozen:
            try:
                await self._supervision.thaw(watch)
            except LauncherError as error:
                raise launcher_busy(error) from None
        await watch.send("resume")

    async def _let_go_quietly(self, watch: Watch) -> None:
        try:
            await self._let_go(watch)
        except AiosError as error:
            _log.warning("%s was not paused and could not be let go: %s", watch.run_id, error)

    async def _fresh(self, task_id: str) -> Task:
        found = await self._database.read(lambda db: tasks.get(db, task_id))
        if found is None:
            raise task_not_found()
        return found


def _must(transaction: Transaction, task_id: str) -> Task:
    found = tasks.get(transaction, task_id)
    if found is None:
        raise task_not_found()
    return found


def _enter(
    transaction: Transaction,
    task: Task,
    status: Status,
    wanted: str,
    *,
    by: str,
    reason: str,
    also: JsonObject | None = None,
) -> Task:
    refuse_final(task)
    try:
        return changes.enter(
            transaction, task, status, actor=Actor.USER, by=by, source=Source.USER, reason=reason,
            also=also,
        )  # fmt: skip
    except IllegalTransition:
        raise illegal(task, wanted, "illegal-transition") from None


def _unhold(transaction: Transaction, task_id: str) -> Task:
    found = _must(transaction, task_id)
    refuse_final(found)
    return tree.unhold(transaction, found)


def _hold(transaction: Transaction, task_id: str, actor: str, *, held: bool = False) -> Task:
    """A held program's task is paused; one that is to end is not held any more."""
    found = _must(transaction, task_id)
    refuse_final(found)
    if found.cancel_reason is not None:
        raise illegal(found, "paused", "stopping")
    if held and not found.held:
        raise illegal(found, "paused", "released")
    return _enter(
        transaction, found, Status.PAUSED, "paused", by=actor, reason=Reason.USER_REQUEST, also={"held": False}
    )


def _hold_at_worker(transaction: Transaction, task_id: str, actor: str) -> Task:
    """A worker's task is paused by saying so; the worker sees it, and what it does meanwhile is not undone."""
    found = _must(transaction, task_id)
    if workers.open_of_task(transaction, task_id) is None or found.phase is not Phase.RUNNING:
        raise illegal(found, "paused", "not-running")
    return _hold(transaction, task_id, actor)


def release(transaction: Transaction, task_id: str, caller: Caller) -> Task:
    """A paused task goes on: to work, or to the question that its program asked before it was held."""
    found = _must(transaction, task_id)
    question, asked = found.question, found.auth_request
    on_its_way = question if run_states.undelivered(found) is not None else None
    working = _enter(transaction, found, Status.WORKING, "resumed", by=f"uid:{caller.uid}", reason=Reason.USER_REQUEST,
                     also={"question": on_its_way, "auth_request": None})  # fmt: skip
    if asked is not None:
        return run_events.ask_again(transaction, working, asked)
    return working if question is None or on_its_way is not None else run_events.ask(transaction, working, question)


def _request_cancel(
    transaction: Transaction, task_id: str, caller: Caller, reason: str, *, recursive: bool
) -> list[Task]:
    """Write down what is to end; see core/tree.py."""
    task = _must(transaction, task_id)
    refuse_final(task)
    return tree.request_cancel_all(transaction, task, f"uid:{caller.uid}", reason, recursive=recursive)
