"""`task.authenticate`: a person's answer to `auth_required`, from a descriptor to the one program that asked.

The answer is sealed at once and stored in the transaction that lets the task go on; then it is opened into a buffer,
sent to the run's shim and wiped, and the row is removed. A crash in between leaves the sealed row, and the next daemon
hands it over (`Handover.run`); the shim takes it once.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, TypeVar

from aiosd.auth.policy import Access
from aiosd.core import changes, clock, views
from aiosd.core.approving import POLKIT
from aiosd.core.authentication import check_response, is_programs
from aiosd.core.authorization import refuse_own, task_not_found
from aiosd.core.deferred import waits_for_polkit
from aiosd.core.durable import write_durably
from aiosd.core.operations import Reply
from aiosd.core.refusals import illegal, refuse_final
from aiosd.core.secrets import Context, SecretError
from aiosd.errors import AiosError, ErrorKind
from aiosd.model.event import Source
from aiosd.model.jsontext import dump
from aiosd.model.secrettext import wipe
from aiosd.model.status import Actor, Status
from aiosd.store import secrets, tasks
from aiosd.store.database import StoreError
from aiosd.store.secrets import SealedAnswer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping

    from aiosd.auth.caller import Caller
    from aiosd.core.authorization import Authorizer
    from aiosd.core.deferred import Deferred
    from aiosd.core.secrets import Vault
    from aiosd.core.supervision import Supervision
    from aiosd.core.watch import Watch
    from aiosd.model import wire
    from aiosd.model.secrettext import SecretText
    from aiosd.model.task import Task
    from aiosd.store.database import Database, Transaction

T = TypeVar("T")

LOOK_AGAIN = 0.25
"""Seconds between looks for the runs of answers that an earlier daemon left."""

_log = logging.getLogger(__name__)


class Handover:
    """Takes sealed answers to the programs that wait for them."""

    def __init__(self, database: Database, vault: Vault, supervision: Supervision) -> None:
        """Keeps what it acts on."""
        self._database = database
        self._vault = vault
        self._supervision = supervision
        self._wakeup = asyncio.Event()

    async def run(self) -> None:
        """For ever: hand over what an earlier daemon was given and did not come to pass on, and what failed to pass."""
        while True:
            self._wakeup.clear()
            try:
                left = await self.sweep()
            except StoreError as error:
                _log.warning("Answers that wait cannot be read: %s", error)
                left = True
            if left:
                await asyncio.sleep(LOOK_AGAIN)
            else:
                await self._wakeup.wait()

    async def sweep(self) -> bool:
        """Look once at every answer that waits; whether one may still. Raises StoreError."""
        left = await self._database.read(secrets.all_)
        for answer in left:
            await self._one(answer)
        return bool(left)

    async def pass_on(self, watch: Watch) -> None:
        """`deliver` now or, when that cannot be, soon."""
        try:
            await self.deliver(watch)
        except StoreError as error:
            _log.warning("What %s was given is handed over later: %s", watch.task_id, error)
        self._wakeup.set()

    async def _one(self, answer: SealedAnswer) -> None:
        task = await self._database.read(lambda db: tasks.get(db, answer.task_id))
        watch = self._supervision.of_task(answer.task_id)
        if task is None or task.status.is_final or (watch is not None and watch.run_id != answer.run_id):
            await write_durably(self._database, lambda tx: secrets.forget(tx, answer.task_id))
        elif watch is not None and watch.control is not None:
            await self.deliver(watch)

    async def deliver(self, watch: Watch) -> None:
        """Send this run what was given for it, and forget that."""
        for answer in await self._database.read(lambda db: secrets.of_run(db, watch.run_id)):
            if await self._send(watch, answer):
                await write_durably(self._database, lambda tx, done=answer: secrets.delivered(tx, done))  # type: ignore[misc]  # mypy cannot infer a lambda with defaults

    async def _send(self, watch: Watch, answer: SealedAnswer) -> bool:
        """Whether the shim has it, or never will."""
        if watch.control is None:
            return False
        try:
            plain = self._vault.unseal(context(answer.uid, answer.run_id, answer.interaction), answer.sealed)
        except SecretError as error:
            _log.error("What %s was given cannot be handed over: %s", answer.task_id, error)
            return True
        head = {"type": "authentication", "id": f"auth-{answer.sequence}"}
        try:
            packet = _packet(f'{dump(head)[:-1]},"interaction":{answer.interaction},"input":'.encode(), plain)
        finally:
            wipe(plain)
        try:
            await watch.control.send_raw(packet)
        except ConnectionError:
            return False
        finally:
            wipe(packet)
        return True


def _packet(head: bytes, secret: bytearray) -> bytearray:
    """The message, in a buffer that was made in its length: one that grows leaves pieces behind."""
    packet = bytearray(len(head) + len(secret) + 1)
    packet[: len(head)] = head
    with memoryview(packet) as view:
        view[len(head) : -1] = secret
    packet[-1:] = b"}"
    return packet


def context(owner: int, run_id: str, interaction: str) -> Context:
    """What an answer is sealed for."""
    return Context(owner, f"authentication {run_id} {interaction}")


class AuthenticationOperations:
    """`task.authenticate`."""

    def __init__(
        self, database: Database, authorizer: Authorizer, vault: Vault, supervision: Supervision, handover: Handover,
        deferred: Deferred,
    ) -> None:  # fmt: skip
        """Keeps what it asks."""
        self._deferred = deferred
        self._database = database
        self._authorizer = authorizer
        self._vault = vault
        self._supervision = supervision
        self._handover = handover
        self._begun: set[asyncio.Task[object]] = set()

    def handlers(self) -> Mapping[str, Callable[..., Awaitable[Reply]]]:
        """By operation name."""
        return {"task.authenticate": self.authenticate}

    async def authenticate(self, caller: Caller, params: wire.TaskAuthenticate, secret: SecretText | None) -> Reply:
        """Give a task's program what it asked for; the task works on."""
        found = await self._database.read(lambda db: tasks.get(db, params.task_id))
        await self._authorizer.require_task(caller, Access.CONTROL, found)
        task = await self._database.read(lambda db: tasks.get(db, params.task_id))
        if task is None:
            raise task_not_found()
        refuse_final(task)
        if waits_for_polkit(task):
            await self._authorizer.require_person(caller)
            if secret is not None and secret.word("type") != POLKIT:
                raise AiosError(ErrorKind.INVALID_INPUT, f"this task asks for {POLKIT}", field="auth_response.type")
            return Reply(views.short(await self._deferred.authenticate(caller, task)))
        asked = task.auth_request
        if task.status is not Status.AUTH_REQUIRED or asked is None or not is_programs(asked):
            raise illegal(task, "authenticated", "no-auth-request")
        if secret is None:
            raise AiosError(ErrorKind.INVALID_PARAMS, "is missing", field="auth_response")
        check_response(asked, secret)
        await refuse_own(self._authorizer, self._database, caller, task.id)
        watch = self._supervision.of_task(task.id)
        if watch is not None:
            await watch.connected()  # one that is just taken up after a restart
        if watch is None or watch.control is None:
            raise illegal(task, "authenticated", "not-running")
        interaction = dump(asked.get("interaction", 0))
        sealed = self._vault.seal(context(task.uid, watch.run_id, interaction), secret.json)
        answer = SealedAnswer(0, task.id, watch.run_id, task.uid, interaction, sealed)
        return Reply(views.short(await self._carry_out(self._accept(caller, task, watch, answer))))

    async def _accept(self, caller: Caller, task: Task, watch: Watch, answer: SealedAnswer) -> Task:
        def accept(transaction: Transaction) -> Task:
            found = tasks.get(transaction, task.id)
            if found is None:
                raise task_not_found()
            refuse_final(found)
            if found.status is not Status.AUTH_REQUIRED or found.auth_request != task.auth_request:
                raise illegal(found, "authenticated", "auth-request-changed")
            secrets.keep(transaction, answer, clock.now())
            return changes.enter(
                transaction, found, Status.WORKING, actor=Actor.USER, by=f"uid:{caller.uid}", source=Source.USER,
                reason="authenticated", also={"auth_request": None},
            )  # fmt: skip

        after = await self._database.write(accept)
        await self._handover.pass_on(watch)
        return after

    async def _carry_out(self, work: Coroutine[None, None, T]) -> T:
        """What was accepted is handed over, also when whoever gave it leaves meanwhile."""
        running = asyncio.create_task(work)
        self._begun.add(running)
        running.add_done_callback(self._begun.discard)
        return await asyncio.shield(running)
