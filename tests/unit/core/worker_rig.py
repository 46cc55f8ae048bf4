"""A worker as the tests play it: it says what it is told to say, by the operations that any worker uses."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.unit.core.rig import PATIENCE, USER
from tests.unit.core.session_rig import rows

if TYPE_CHECKING:
    from aiosd.auth.caller import Caller
    from aiosd.model.jsontext import JsonObject, JsonValue
    from tests.unit.core.rig import AiosError, Core

MAC: JsonObject = {
    "worker_id": "worker_mac_001", "hostname": "mac-studio", "os": "macos", "shell": "zsh",
    "capabilities": ["git", "terminal", "playwright", "xcode"],
}  # fmt: skip
"""Seed 003's registration, as it stands there."""


@dataclass
class Hand:
    """One registered worker."""

    aios: Core
    id: str
    registration: str
    caller: Caller = USER
    fd: int | None = None

    async def beat(self, **params: JsonValue) -> list[JsonObject]:
        """A heartbeat; what the worker has now."""
        named: JsonObject = {"worker_id": self.id, "registration": self.registration}
        return rows(await self.aios.invoke("worker.heartbeat", {**named, **params}, self.caller), "assignments")

    async def offered(self) -> JsonObject:
        """Wait until it is offered something."""
        return await self.until("offered")

    async def until(self, state: str) -> JsonObject:
        """Wait until one of its assignments is in that state."""
        async with asyncio.timeout(PATIENCE * 4):
            known: JsonValue = None
            while True:
                named: JsonObject = {"worker_id": self.id, "registration": self.registration}
                wait: JsonObject = {} if known is None else {"known": known, "wait_ms": 2000}
                answer = await self.aios.invoke("worker.heartbeat", {**named, **wait}, self.caller)
                known = answer["tag"]
                for one in rows(answer, "assignments"):
                    if one["state"] == state:
                        return one

    async def say(self, operation: str, assignment: JsonObject, **params: JsonValue) -> JsonObject:
        """One word about an assignment."""
        return await self.aios.invoke(f"worker.{operation}", self._about(assignment, params), self.caller)

    async def refused(self, operation: str, assignment: JsonObject, **params: JsonValue) -> AiosError:
        """One that must not be taken."""
        return await self.aios.refused(f"worker.{operation}", self._about(assignment, params), self.caller)

    async def takes(self) -> JsonObject:
        """Wait for an offer and accept it."""
        found = await self.offered()
        await self.say("accept", found)
        return found

    def _about(self, assignment: JsonObject, params: JsonObject) -> JsonObject:
        return {"worker_id": self.id, "assignment_id": assignment["assignment_id"], **params}


async def register(aios: Core, caller: Caller = USER, **params: JsonValue) -> Hand:
    """A new worker: seed 003's, with these changes."""
    given = {**MAC, **params}
    reply = await aios.reply("worker.register", given, caller)
    fd = reply.fds[0] if reply.fds else None
    return Hand(aios, str(given["worker_id"]), str(reply.body["registration"]), caller, fd)
