"""The loop over the outbox: each webhook's events in order, one at a time; several webhooks beside each other.

Nothing about a delivery is remembered but in the store: a restart repeats at most the ones that were under way, with
the same delivery id. A round of a webhook sends what waits for it until there is nothing more, one fails, or it has had
its share; then the loop looks again at who has something that is due.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, TypeVar

from aiosd.core import clock
from aiosd.core.secrets import Context, SecretError
from aiosd.core.webhooks import MAX_PAUSE, Outcome, Verdict, body, next_try, purpose
from aiosd.store import tasks, webhooks
from aiosd.store.database import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aiosd.core.secrets import Vault
    from aiosd.core.settings import Settings
    from aiosd.hooks.sending import Sender
    from aiosd.model.event import Event
    from aiosd.model.task import Task
    from aiosd.model.webhook import Delivery, Webhook
    from aiosd.store.database import Database, Transaction

MAX_PARALLEL = 16
MAX_PARALLEL_PER_USER = 4
"""Webhooks that are sent to at a time: a slow receiver holds one place, a user with many of them not all."""

SHARE = 32
"""Deliveries of one webhook before others that wait for a place get it."""

STORE_RETRY = 1.0
"""Seconds before a result that the store refused is offered again."""

IDLE = 60.0
"""Seconds without a delivery after which the HTTP client is let go."""

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Deliverer:
    """Sends what is in the outbox."""

    def __init__(self, database: Database, vault: Vault, settings: Settings) -> None:
        """Keeps what it asks."""
        self._database = database
        self._vault = vault
        self._settings = settings
        self._wakeup = asyncio.Event()
        self._busy: dict[str, int] = {}
        self._some = True
        self._chance = random.Random()  # noqa: S311  spreads load, guards nothing

    def wake(self) -> None:
        """There may be something to deliver."""
        self._some = True
        self._wakeup.set()

    def heard(self, events: Sequence[Event]) -> None:
        """An event listener. Without webhooks it costs nothing."""
        if self._some and any(event.task_id is not None for event in events):
            self._wakeup.set()

    async def run(self) -> None:
        """For ever. Cancelled, what is under way is given up; it is sent again after the next start."""
        while True:
            await self._until_work()
            try:
                async with AsyncExitStack() as stack:
                    sender = await _open(stack, self._settings)
                    await self._rounds(sender)
            except OSError as error:  # the system's certificates cannot be read
                _log.error("Webhooks cannot be delivered now: %s", error)
                await asyncio.sleep(IDLE)

    async def _until_work(self) -> None:
        while True:
            self._wakeup.clear()
            if await self._waiting():
                return
            await self._wakeup.wait()

    async def _waiting(self) -> list[Webhook]:
        """Webhooks for which something waits; also whether there are webhooks at all."""

        def look(db: tasks.Executor) -> tuple[bool, list[Webhook]]:
            some = db.execute("SELECT 1 FROM webhooks WHERE state <> 'ended' LIMIT 1").fetchone() is not None
            return some, webhooks.with_work(db) if some else []

        self._some = True  # one that is registered while we look is not overlooked
        try:
            some, found = await self._database.read(look)
        except StoreError:
            _log.exception("The outbox cannot be read")
            await asyncio.sleep(STORE_RETRY)
            self._wakeup.set()
            return []
        if not self._wakeup.is_set():
            self._some = some
        return found

    async def _rounds(self, sender: Sender) -> None:
        """Start a round for each webhook that is due, until nothing has waited for a while."""
        idle_since = clock.boottime()
        async with asyncio.TaskGroup() as group:
            while True:
                self._wakeup.clear()
                waiting = await self._waiting()
                for hook in self._due(waiting):
                    self._busy[hook.id] = hook.uid
                    group.create_task(self._guarded(sender, hook))
                if waiting or self._busy:
                    idle_since = clock.boottime()
                elif clock.boottime() - idle_since >= IDLE:
                    return
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._delay(waiting)):
                        await self._wakeup.wait()

    def _due(self, waiting: Sequence[Webhook]) -> list[Webhook]:
        """Those that may start now: due, not busy, and with a place."""
        moment = clock.now()
        users = list(self._busy.values())
        chosen: list[Webhook] = []
        for hook in waiting:
            if hook.id in self._busy or not _is_due(hook, moment) or len(users) >= MAX_PARALLEL:
                continue
            if users.count(hook.uid) < MAX_PARALLEL_PER_USER:
                users.append(hook.uid)
                chosen.append(hook)
        return chosen

    def _delay(self, waiting: Sequence[Webhook]) -> float:
        """Seconds until somebody is due who is not yet; who waits for a place is woken by the end of a round."""
        moment = clock.now()
        later = [hook.next_at or 0 for hook in waiting if hook.id not in self._busy and not _is_due(hook, moment)]
        return min([IDLE, *(max(0.0, (at - moment) / clock.MICROSECONDS) for at in later)])

    async def _guarded(self, sender: Sender, hook: Webhook) -> None:
        """A mistake of ours with one webhook parks it; the others go on."""
        try:
            await self._round(sender, hook)
        except Exception:  # noqa: BLE001  one webhook must not end the deliveries of all
            _log.exception("Delivering to %s failed unexpectedly", hook.id)
            await self._park(hook.id)
        finally:
            del self._busy[hook.id]
            self._wakeup.set()

    async def _round(self, sender: Sender, hook: Webhook) -> None:
        for _ in range(SHARE):
            delivery, task = await self._store_read(lambda db: _next(db, hook.id))
            if delivery is None:
                await self._settle(lambda tx: _tidy(tx, hook.id))
                return
            if not _is_due_at(delivery.due_at, clock.now()):
                return
            outcome = await self._send(sender, hook, delivery, task)
            await self._settle(lambda tx, done=delivery, how=outcome: self._record(tx, hook, done, how))  # type: ignore[misc]  # mypy cannot infer a lambda with defaults
            if outcome.verdict is not Verdict.DELIVERED:
                return

    async def _send(self, sender: Sender, hook: Webhook, delivery: Delivery, task: Task | None) -> Outcome:
        secret: bytearray | None = None
        if hook.secret is not None:
            try:
                secret = self._vault.unseal(Context(hook.uid, purpose(hook.task_id, hook.url)), hook.secret)
            except SecretError as error:
                return Outcome(Verdict.AGAIN, str(error))
        outcome = await sender.send(hook.url, delivery, body(delivery.event, task), secret)
        if outcome.verdict is not Verdict.DELIVERED:
            _log.info("%s to %s, try %d: %s", delivery.id, hook.id, delivery.attempts + 1, outcome.error)
        return outcome

    def _record(self, transaction: Transaction, hook: Webhook, delivery: Delivery, outcome: Outcome) -> None:
        moment = clock.now()
        if outcome.verdict is Verdict.DELIVERED:
            webhooks.delivered(transaction, hook.id, delivery.id, moment)
        elif outcome.verdict is Verdict.GONE:
            webhooks.end(transaction, hook.id, outcome.error, moment)
        else:
            pause = next_try(hook.retry, delivery.attempts + 1, outcome.retry_after, self._chance)
            again = None if pause is None else moment + int(pause * clock.MICROSECONDS)
            webhooks.failed(transaction, hook.id, delivery.id, outcome.error, moment, again)
            if again is None:
                _log.warning("%s is parked after %d tries: %s", hook.id, delivery.attempts + 1, outcome.error)

    async def _park(self, hook_id: str) -> None:
        def park(transaction: Transaction) -> None:
            found = webhooks.first(transaction, hook_id)
            if found is not None:
                webhooks.failed(transaction, hook_id, found.id, "an internal error", clock.now(), None)

        await self._settle(park)

    async def _store_read(self, function: Callable[[tasks.Executor], T]) -> T:
        while True:
            try:
                return await self._database.read(function)
            except StoreError:
                _log.exception("The outbox cannot be read")
                await asyncio.sleep(STORE_RETRY)

    async def _settle(self, function: Callable[[Transaction], None]) -> None:
        """Write what became of it, and keep trying: what was delivered must not be sent again for want of a disk."""
        while True:
            try:
                return await self._database.write(function)
            except StoreError:
                _log.exception("The outbox cannot be written")
                await asyncio.sleep(STORE_RETRY)


async def _open(stack: AsyncExitStack, settings: Settings) -> Sender:
    """Import the HTTP client, off the loop because it takes a third of a second, and make one."""
    import importlib

    await asyncio.to_thread(importlib.import_module, "aiosd.hooks.sending")
    from aiosd.hooks.sending import Sender

    gc.freeze()  # what is imported stays
    return await stack.enter_async_context(Sender.opened(settings))


def _next(db: tasks.Executor, hook_id: str) -> tuple[Delivery | None, Task | None]:
    found = webhooks.first(db, hook_id)
    task_id = None if found is None else found.event.task_id
    return found, None if task_id is None else tasks.get(db, task_id)


def _tidy(transaction: Transaction, hook_id: str) -> None:
    webhooks.skip_pruned(transaction, hook_id)
    webhooks.end_finished(transaction, hook_id)


def _is_due(hook: Webhook, moment: int) -> bool:
    return _is_due_at(hook.next_at or 0, moment)


def _is_due_at(due_at: int, moment: int) -> bool:
    """A moment further away than any wait is long means that the clock was set back: it is due."""
    return due_at <= moment or due_at > moment + int(MAX_PAUSE * clock.MICROSECONDS)
