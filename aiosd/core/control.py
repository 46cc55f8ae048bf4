"""What a person does to a task: cancel, pause, resume, answer, change its priority.

Each follows seed 002's four steps: is it allowed (with the reason when not), tell the program, freeze or stop it,
change the status. The status is looked at again in the transaction that changes it, so two people who act at once
cannot both be right by accident."""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from aiosd.core import changes, clock, run_events, run_states
from aiosd.core.authorization import task_not_found
from aiosd.core.outcome import Verdict
from aiosd.core.settings import MAX_DOCUMENT_BYTES
from aiosd.errors import AiosError, ErrorKind
from aiosd.manifest import schema
from aiosd.model import jsontext
from aiosd.model.event import Source
from aiosd.model.machine import IllegalTransition
from aiosd.model.manifest import Pausable
from aiosd.model.status import Actor, Phase, Priority, Reason, Status
from aiosd.run.client import LauncherError
from aiosd.store import tasks
from aiosd.store.database import StoreError

if TYPE_CHECKING:
    from collections.abc import Coroutine

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


class Control:
    """Operations on one task. The caller's right to it has been checked; the task is as it was then."""

    def __init__(self, database: Database, supervision: Supervision) -> None:
        """Keeps what it acts on."""
        self._database = database
        self._supervision = supervision
        self._begun: set[asyncio.Task[object]] = set()

    async def cancel(self, caller: Caller, task: Task, reason: str) -> Task:
        """End the task for good: at once when no program runs, else after the program's grace."""
        refuse_final(task)
        await self._ask_program(task, "can_cancel", "canceled")
        watch = await self._carry_out(self._begin_cancel(caller, task.id, reason))
        if watch is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(CANCEL_WAIT):
                    await watch.ended.wait()
        return await self._fresh(task.id)

    async def _begin_cancel(self, caller: Caller, task_id: str, reason: str) -> Watch | None:
        """Write it down and tell the program; the run to wait for, when there is one."""
        after = await self._database.write(lambda tx: _request_cancel(tx, task_id, caller, reason))
        watch = None if after.status.is_final else self._supervision.of_task(task_id)
        if watch is not None:
            await self._supervision.request_stop(watch, reason)
        return watch

    async def pause(self, caller: Caller, task: Task) -> Task:
        """Hold the task where it is, by its program's own hand or by the freezer."""
        refuse_final(task)
        watch = self._running_watch(task, "paused")
        if watch.capability is None or watch.capability.pausable is Pausable.NO:
            raise illegal(task, "paused", "not-pausable")
        return await self._carry_out(self._hold(caller, task.id, watch, watch.capability.pausable))

    async def _hold(self, caller: Caller, task_id: str, watch: Watch, how: Pausable) -> Task:
        async with watch.holding:
            task = await self._fresh(task_id)
            refuse_final(task)
            self._running_watch(task, "paused")
            if how is Pausable.COOPERATIVE:
                await self._ask_program(task, "can_pause", "paused")
            try:
                if how is not Pausable.COOPERATIVE or await watch.ask("pause", within=PAUSE_ANSWER) is None:
                    await self._freeze(task, watch)
                return await self._database.write(lambda tx: _hold(tx, task.id, caller))
            except (AiosError, StoreError):
                await self._let_go_quietly(watch)
                raise

    async def resume(self, caller: Caller, task: Task) -> Task:
        """Let a paused task go on."""
        refuse_final(task)
        if task.status is not Status.PAUSED:
            raise illegal(task, "resumed", "not-paused")
        watch = self._supervision.of_task(task.id)
        if watch is None:
            raise illegal(task, "resumed", "not-running")
        return await self._carry_out(self._release(caller, task.id, watch))

    async def _release(self, caller: Caller, task_id: str, watch: Watch) -> Task:
        async with watch.holding:
            after = await self._database.write(lambda tx: _release(tx, task_id, caller))
            await self._let_go(watch)
        return after

    async def set_priority(self, caller: Caller, task: Task, priority: Priority) -> Task:
        """Change the order of admission of a task that has not ended."""
        refuse_final(task)

        def change(transaction: Transaction) -> Task:
            found = _must(transaction, task.id)
            refuse_final(found)
            also: JsonObject = {"priority": int(priority)}
            after = changes.set_phase(transaction, found, found.phase, boss_type="task.priority", also=also)
            details: JsonObject = {"old": found.priority.wire, "new": priority.wire}
            changes.audit(transaction, found, "task.priority", f"uid:{caller.uid}", details)
            return after

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
        if watch is None or watch.control is None:
            raise illegal(task, "given input", "not-running")

        def accept(transaction: Transaction) -> Task:
            found = _must(transaction, task.id)
            if found.question != task.question:
                raise illegal(found, "given input", "question-changed")
            # Kept until it is delivered: an accepted answer survives a crash of ours.
            delivery = f"input-{os.urandom(8).hex()}"
            kept: JsonObject = {"interaction": interaction, "answer": answer, "delivery": delivery}
            return _enter(transaction, found, Status.WORKING, "given input", by=caller, reason="input-provided",
                          also={"question": kept})  # fmt: skip

        async def hand_over() -> Task:
            after = await self._database.write(accept)
            await self._supervision.deliver_answer(watch, after)
            return after

        return await self._carry_out(hand_over())

    async def _unblock(self, caller: Caller, task: Task, answer: JsonObject) -> Task:
        """A person decides about a task that failed too often: once more, or never."""

        def decide(transaction: Transaction) -> Task:
            found = _must(transaction, task.id)
            if found.phase is not Phase.BLOCKED:
                raise illegal(found, "unblocked", "not-blocked")
            if answer.get("action") == "retry":
                working = _enter(transaction, found, Status.WORKING, "unblocked", by=caller, reason="unblocked",
                                 also={"question": None, "error": None})  # fmt: skip
                return run_states.wait_for_retry(transaction, working, clock.now(), Reason.USER_REQUEST, "asked for")
            changes.audit(transaction, found, "task.input", f"uid:{caller.uid}", {"action": "fail"})
            verdict = Verdict(Status.FAILED, Reason(found.reason or Reason.REPORTED), None, found.error)
            return run_states.end(transaction, found, verdict)

        return await self._database.write(decide)

    async def _carry_out(self, work: Coroutine[None, None, T]) -> T:
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
            raise _launcher_error(error) from None

    async def _let_go(self, watch: Watch) -> None:
        if watch.frozen:
            try:
                await self._supervision.thaw(watch)
            except LauncherError as error:
                raise _launcher_error(error) from None
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


def _launcher_error(error: LauncherError) -> AiosError:
    return AiosError(ErrorKind.BUSY, f"the launcher could not do it: {error}", reason="launcher")


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
    by: Caller,
    reason: str,
    also: JsonObject | None = None,
) -> Task:
    refuse_final(task)
    try:
        return changes.enter(
            transaction, task, status, actor=Actor.USER, by=f"uid:{by.uid}", source=Source.USER, reason=reason,
            also=also,
        )  # fmt: skip
    except IllegalTransition:
        raise illegal(task, wanted, "illegal-transition") from None


def _hold(transaction: Transaction, task_id: str, caller: Caller) -> Task:
    """A held program's task is paused; one that is to end is not held any more."""
    found = _must(transaction, task_id)
    refuse_final(found)
    if found.cancel_reason is not None:
        raise illegal(found, "paused", "stopping")
    return _enter(transaction, found, Status.PAUSED, "paused", by=caller, reason=Reason.USER_REQUEST)


def _release(transaction: Transaction, task_id: str, caller: Caller) -> Task:
    """A paused task goes on: to work, or to the question that its program asked before it was held."""
    found = _must(transaction, task_id)
    question = found.question
    working = _enter(transaction, found, Status.WORKING, "resumed", by=caller, reason=Reason.USER_REQUEST,
                     also={"question": None})  # fmt: skip
    return working if question is None else run_events.ask(transaction, working, question)


def _request_cancel(transaction: Transaction, task_id: str, caller: Caller, reason: str) -> Task:
    """Write down that the task is to end; a task without a program ends here and now."""
    task = _must(transaction, task_id)
    refuse_final(task)
    tasks.update(transaction, task_id, {"cancel_reason": reason})
    details: JsonObject = {"reason": reason}
    changes.audit(transaction, task, "task.cancel", f"uid:{caller.uid}", details)
    if run_states.has_live_run(transaction, task_id):
        return task
    return run_states.end(transaction, _must(transaction, task_id), Verdict(Status.CANCELED, Reason.CANCELED))


def check_answer(question: JsonObject, answer: JsonObject) -> None:
    """Raise INVALID_INPUT for an answer that the question's schema, or our bounds, forbid."""
    try:
        jsontext.check_value(answer)
    except jsontext.JsonTextError as error:
        raise AiosError(ErrorKind.INVALID_INPUT, str(error), field="input") from None
    if len(jsontext.dump(answer).encode()) > MAX_DOCUMENT_BYTES:
        raise AiosError(ErrorKind.INVALID_INPUT, f"longer than {MAX_DOCUMENT_BYTES} bytes", field="input")
    asked = question.get("schema")
    if isinstance(asked, dict):
        problems = schema.validate(asked, answer, trusted=False)
        if problems:
            raise AiosError(ErrorKind.INVALID_INPUT, problems[0].message, field=f"input{problems[0].path}")
