"""A core for the door's tests: parses with the real models, answers what a test lays out, remembers calls."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pydantic import ValidationError

from aiosd.bus.connection import Call, SystemBus
from aiosd.bus.door import BusDoor
from aiosd.bus.interfaces import load
from aiosd.bus.paths import BUS_NAME, MANAGER_PATH, task_path
from aiosd.bus.peers import Limits
from aiosd.core.operations import MANAGER, OPERATIONS, TASK, Reply
from aiosd.core.parameters import refusal
from aiosd.errors import AiosError, ErrorKind

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from aiosd.auth.caller import Caller
    from aiosd.bus.message import BusValue
    from aiosd.model.event import Event
    from aiosd.model.jsontext import JsonObject
    from aiosd.model.secrettext import SecretText

TASK_ID = "task-01jdxg3v7m9q2w4e6r8t0y1abc"
OTHERS_ID = "task-01jdxg3v7m9q2w4e6r8t0y1abd"
"""A task that only root may see."""
PRIVATE = "correct horse battery staple"

TASK_BODY: JsonObject = {
    "task_id": TASK_ID,
    "capability_id": "org.example.search",
    "title": "Search",
    "uid": 1000,
    "level": "low",
    "status": "working",
    "phase": "running",
    "priority": "normal",
    "attempt": 1,
    "created_at": "2026-01-05T10:00:00.000Z",
    "started_at": "2026-01-05T10:00:01.500Z",
    "progress": {"percent": 40, "message": "reading"},
    "arguments": {"query": PRIVATE},
    "metadata": {},
    "run": {"run_id": "run-1", "unit": "aios-task-1.scope", "control_group": "/aios.slice/x"},
    "attempts": [],
}
STATUS_BODY: JsonObject = {
    "version": "0.1.0",
    "protocol_version": "2.0.0",
    "state": "running",
    "tasks": {"running": 2, "queued": 3},
    "limits": {"max_concurrent_tasks": 10, "max_tasks_per_tool": 3, "max_queue_size": 100},
}


@dataclass
class FakeCore:
    """`answers` by operation; `gates`: operations that wait until their event is set."""

    answers: dict[str, Reply] = field(default_factory=dict)
    errors: dict[str, Exception] = field(default_factory=dict)
    gates: dict[str, asyncio.Event] = field(default_factory=dict)
    calls: list[tuple[str, Caller, JsonObject]] = field(default_factory=list)
    entered: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    cancelled: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    secrets: list[bytes] = field(default_factory=list)
    _listeners: list[Callable[[Sequence[Event]], None]] = field(default_factory=list)

    async def invoke(self, name: str, caller: Caller, params: JsonObject, secret: SecretText | None = None) -> Reply:
        """As core/manager.py does."""
        if secret is not None:
            self.secrets.append(bytes(secret.json))
        try:
            OPERATIONS[name].params.model_validate(dict(params))
        except ValidationError as error:
            raise refusal(error) from None
        self.calls.append((name, caller, params))
        self.entered.put_nowait(name)
        try:
            if name in self.gates:
                await self.gates[name].wait()
        except asyncio.CancelledError:
            self.cancelled.put_nowait(name)
            raise
        if name in self.errors:
            raise self.errors[name]
        if name in self.answers:
            return self.answers[name]
        return self._default(name, caller, params)

    def _default(self, name: str, caller: Caller, params: JsonObject) -> Reply:
        if name == "task.get":
            known = params["task_id"] == TASK_ID or (params["task_id"] == OTHERS_ID and caller.uid == 0)
            if not known:
                raise AiosError(ErrorKind.TASK_NOT_FOUND, field="task_id")
            return Reply({**TASK_BODY, "task_id": params["task_id"]})
        if name == "task.subscribe":
            return Reply(
                {
                    "subscription_id": f"sub-{len(self.calls)}",
                    "task_id": params.get("task_id", ""),
                    "uid": caller.uid,
                    "events": params.get("events", []),
                }
            )
        return Reply(STATUS_BODY if name == "service.status" else {})

    def listen(self, callback: Callable[[Sequence[Event]], None]) -> Callable[[], None]:
        """As core/events.py does."""
        self._listeners.append(callback)
        return lambda: self._listeners.remove(callback)

    def publish(self, *events: Event) -> None:
        """A committed batch."""
        for listener in tuple(self._listeners):
            listener(events)


def manager_call(member: str, signature: str = "", *body: BusValue) -> Call:
    return Call(BUS_NAME, MANAGER_PATH, MANAGER, member, signature, body)


def task_call(member: str, signature: str = "", *body: BusValue, task_id: str = TASK_ID) -> Call:
    return Call(BUS_NAME, task_path(task_id), TASK, member, signature, body)


@asynccontextmanager
async def served(core: FakeCore, limits: Limits | None = None) -> AsyncIterator[tuple[SystemBus, BusDoor]]:
    """The door with that core behind it, and a client that is not the daemon's own connection."""
    async with (
        SystemBus() as bus,
        BusDoor(bus, core, core, limits=lambda: limits or Limits(), interfaces=load()) as door,
        SystemBus() as client,
    ):
        await door.open()
        yield client, door
