"""A receiver of webhooks that behaves as a test says, and the outbox that sends to it."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from aiohttp import web

from aiosd.config import Config
from aiosd.core import clock, secrets
from aiosd.core.secrets import Context
from aiosd.core.settings import Settings
from aiosd.core.webhooks import purpose
from aiosd.hooks.delivery import Deliverer
from aiosd.model.event import Event, Kind, Source, StateChange
from aiosd.model.status import Level, Phase, Priority, Status
from aiosd.model.task import Task
from aiosd.model.webhook import Webhook, WebhookRetry
from aiosd.store import journal, tasks, webhooks
from aiosd.store.database import Database

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from pathlib import Path

    from aiosd.core.secrets import Vault
    from aiosd.model.jsontext import JsonObject

    Behave = Callable[[web.Request], Awaitable[web.StreamResponse]]

TOKEN = "webhook-secret-token"  # noqa: S105  seed 000's
TASK = "task-001"
QUICK = WebhookRetry(3, 20)
PATIENCE = 60.0


@dataclass(frozen=True)
class Request:
    """What arrived."""

    headers: dict[str, str]
    body: bytes
    at: float

    @property
    def number(self) -> int:
        """Of the event, as `Outbox.event` gave it."""
        return int(json.loads(self.body)["data"]["number"])


@dataclass
class Receiver:
    """Records every request and answers by `script`, one after the other, then 204."""

    script: list[Behave] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    accepted: list[Request] = field(default_factory=list)
    busy: int = 0
    most_busy: int = 0
    url: str = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.busy += 1
        self.most_busy = max(self.most_busy, self.busy)
        try:
            seen = Request(dict(request.headers), await request.read(), asyncio.get_running_loop().time())
            self.requests.append(seen)
            if self.script:
                return await self.script.pop(0)(request)
            self.accepted.append(seen)
            return web.Response(status=204)
        finally:
            self.busy -= 1


@asynccontextmanager
async def receiving(receiver: Receiver, port: int = 0) -> AsyncIterator[int]:
    """Serve it on loopback; the port."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", receiver.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        port = int(runner.addresses[0][1])
        receiver.url = f"http://127.0.0.1:{port}/aios/webhook"
        yield port
    finally:
        await runner.cleanup()


@dataclass
class Outbox:
    """A store with one working task, and what delivers from it."""

    database: Database
    vault: Vault
    settings: Settings
    registered: Callable[[], None] = lambda: None

    async def task(self, name: str = TASK) -> None:
        moment = clock.now()
        task = Task(name, 1000, "test.plain.run", "", Level.LOW, Status.WORKING, Phase.RUNNING, Priority.NORMAL,
                    moment, moment)  # fmt: skip
        await self.database.write(lambda tx: tasks.insert(tx, task))

    async def hook(self, url: str, *, events: Sequence[str] = (), retry: WebhookRetry = QUICK, task: str = TASK,
                   uid: int = 1000, sealed: str = f'{{"type":"bearer","token":"{TOKEN}"}}') -> Webhook:  # fmt: skip
        wanted = Webhook("", task, uid, url, tuple(events), retry, clock.now())

        def add(transaction: object) -> Webhook:
            made = webhooks.insert(transaction, wanted)  # type: ignore[arg-type]  # a Transaction
            closed = self.vault.seal(Context(uid, purpose(made.task_id, made.url)), bytearray(sealed.encode()))
            webhooks.set_secret(transaction, made.id, closed)  # type: ignore[arg-type]  # a Transaction
            return made

        hook = await self.database.write(add)
        self.registered()
        return hook

    async def event(self, number: int, *, task: str = TASK, kind: Kind = Kind.PROGRESS,
                    payload: JsonObject | None = None, new: Status | None = None) -> Event:  # fmt: skip
        change = None if new is None else StateChange("working", new, Phase(new))
        event = Event(0, task, None, 1000, Source.WORKER, "task.progress", kind, clock.now(),
                      payload or {"number": number}, change)  # fmt: skip

        def append(transaction: object) -> Event:
            if new is not None:
                tasks.update(transaction, task, {"status": new, "phase": Phase(new), "ended_at": clock.now(),  # type: ignore[arg-type]  # a Transaction
                                                 "result": {"best": "taobao"}})  # fmt: skip
            return journal.append_event(transaction, event)  # type: ignore[arg-type]  # a Transaction

        return await self.database.write(append)

    async def look(self, hook: Webhook) -> Webhook:
        found = await self.database.read(lambda db: webhooks.get(db, hook.id))
        assert found is not None
        return found

    async def until(self, hook: Webhook, wanted: Callable[[Webhook], bool]) -> Webhook:
        async with asyncio.timeout(PATIENCE):
            while not wanted(found := await self.look(hook)):  # noqa: ASYNC110 - the store has no event for it
                await asyncio.sleep(0.01)
        return found

    @asynccontextmanager
    async def delivering(self) -> AsyncIterator[Deliverer]:
        """One life of the loop."""
        deliverer = Deliverer(self.database, self.vault, self.settings)
        end = self.database.on_commit(lambda items: deliverer.heard([one for one in items if isinstance(one, Event)]))
        running = asyncio.create_task(deliverer.run())
        self.registered = deliverer.wake
        try:
            yield deliverer
        finally:
            self.registered = lambda: None
            end()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


@asynccontextmanager
async def outbox(root: Path, **config: object) -> AsyncIterator[Outbox]:
    """On a store in `root`."""
    settings = Settings(replace(Config(allow_private_addresses=True, delivery_timeout=30.0), **config))  # type: ignore[arg-type]  # fields of Config
    async with Database.open(root / "aiosd.db") as database:
        yield Outbox(database, await asyncio.to_thread(secrets.load, root), settings)
