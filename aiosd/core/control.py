"""What a person does to a task: cancel, pause, resume, answer, change its priority.

Each follows seed 002's four steps: is it allowed (with the reason when not), tell the program, freeze or stop it,
change the status. The status is looked at again in the transaction that changes it, so two people who act at once
cannot both be right by accident."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiosd.core import changes, clock, run_states
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

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from aiosd.auth.caller import Caller
    from aiosd.core.supervision import Supervision
    from aiosd.core.watch import Watch
    from aiosd.model.jsontext import JsonObject
    from aiosd.model.task import Task
    from aiosd.store.database import Database, Transaction

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

    async def cancel(self, caller: Caller, task: Task, reason: str) -> Task:
        """End the task for good: at once when no program runs, else after the program's grace."""
        refuse_final(task)
        await self._ask_program(task, "can_cancel", "canceled")
        after = await self._database.write(lambda tx: _request_cancel(tx, task.id, caller, reason))
        if after.status.is_final:
            return after
        watch = self._supervision.of_task(task.id)
        if watch is not None:
            await self._supervision.request_stop(watch, reason)
            try:
                async with asyncio.timeout(CANCEL_WAIT):
                    await watch.ended.wait()
            except TimeoutError:
                pass
        return await self._fresh(task.id)

    async def pause(self, caller: Caller, task: Task) -> Task:
        """Hold the task where it is, by its program's own hand or by the freezer."""
        refuse_final(task)
        watch = self._running_watch(task, "paused")
        capability = watch.capability
        if capability is None or capability.pausable is Pausable.NO:
            raise illegal(task, "paused", "not-pausable")
        cooperative = capability.pausable is Pausable.COOPERATIVE
        if cooperative:
            await self._ask_program(task, "can_pause", "paused")
            cooperative = await watch.ask("pause", within=PAUSE_ANSWER) is not None
        if not cooperative:
            await self._launcher(self._supervision.freeze(watch))
        try:
            return await self._move(caller, task.id, Status.PAUSED, "paused", Reason.USER_REQUEST)
        except AiosError:
            await self._let_go(watch)
            raise

    async def resume(self, caller: Caller, task: Task) -> Task:
        """Let a paused task go on."""
        refuse_final(task)
        if task.status is not Status.PAUSED:
            raise illegal(task, "resumed", "not-paused")
        after = await self._move(caller, task.id, Status.WORKING, "resumed", Reason.USER_REQUEST)
        watch = self._supervision.of_task(task.id)
        if watch is not None:
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

        def accept(transaction: Transaction) -> Task:
            found = _must(transaction, task.id)
            if found.question is None or found.question.get("interaction") != interaction:
                raise illegal(found, "given input", "question-changed")
            return _enter(transaction, found, Status.WORKING, "given input", by=caller, reason="input-provided",
                          also={"question": None})  # fmt: skip

        after = await self._database.write(accept)
        watch = self._supervision.of_task(task.id)
        if watch is not None:
            fields: JsonObject = {"interaction": interaction, "input": answer}
            await watch.send("input", fields, identifier=f"input-{interaction}")
        return after

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
            verdict = Verdict(Status.FAILED, Reason(found.reason or Reason.REPORTED), None, found.error)
            return run_states.end(transaction, found, verdict)

        return await self._database.write(decide)

    async def _ask_program(self, task: Task, question: str, wanted: str) -> None:
        """Seed 002's first step: a program that speaks the protocol may say no, with its reason."""
        watch = self._supervision.of_task(task.id)
        if watch is None or watch.frozen or watch.capability is None or task.status is not Status.WORKING:
            return
        if question == "can_cancel" and not watch.capability.cancelable:
            raise illegal(task, wanted, "not-cancelable")
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

    async def _let_go(self, watch: Watch) -> None:
        if watch.frozen:
            await self._launcher(self._supervision.thaw(watch))
        await watch.send("resume")

    async def _launcher(self, act: Coroutine[None, None, None]) -> None:
        try:
            await act
        except LauncherError as error:
            raise AiosError(ErrorKind.BUSY, f"the launcher could not do it: {error}", reason="launcher") from None

    async def _move(self, caller: Caller, task_id: str, status: Status, wanted: str, reason: Reason) -> Task:
        return await self._database.write(
            lambda tx: _enter(tx, _must(tx, task_id), status, wanted, by=caller, reason=reason)
        )

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
