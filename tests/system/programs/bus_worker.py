"""A worker on D-Bus: `bus_worker.py ID DIRECTORY`. It registers, takes one assignment, and does as worker.py does."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from aiosd.bus.connection import Call, SystemBus, Variant

if TYPE_CHECKING:
    from aiosd.bus.message import BusValue

MANAGER = "org.aios.TaskManager1"
WORKER = f"{MANAGER}.Worker"
SERVICE, PATH = "org.aios.TaskManager", "/org/aios/TaskManager"


async def offered(bus: SystemBus, path: str, registration: str, state: str) -> str:
    """The id of the first assignment that is offered."""
    while True:
        seen = json.loads(state)
        for one in seen["assignments"]:
            if one["state"] == "offered":
                return str(one["assignment_id"])
        options: dict[str, BusValue] = {"known": Variant("s", seen["tag"]), "wait_ms": Variant("u", 10_000)}
        answer = await bus.call(Call(SERVICE, path, WORKER, "Heartbeat", "sa{sv}", (registration, options)))
        state = str(answer.body[0])


async def main() -> None:
    """One assignment, and then for ever nothing."""
    worker_id, place = sys.argv[1], Path(sys.argv[2])
    async with SystemBus() as bus:
        options: dict[str, BusValue] = {
            "hostname": Variant("s", "box"), "os": Variant("s", "linux"), "shell": Variant("s", "sh"),
            "capabilities": Variant("as", ["git", "terminal"]),
        }  # fmt: skip
        made = await bus.call(Call(SERVICE, PATH, MANAGER, "RegisterWorker", "sa{sv}", (worker_id, options)))
        path, registration, state = (str(value) for value in made.body[:3])
        assert len(made.fds) == 1, "the descriptor, which is open until this process ends"
        assignment = await offered(bus, path, registration, state)

        async def say(member: str, signature: str, *words: BusValue) -> None:
            await bus.call(Call(SERVICE, path, WORKER, member, signature, (assignment, *words, {})))

        await say("Accept", "sa{sv}")
        await say("Report", "ssa{sv}", '{"step": {"name": "look", "status": "started"}}')
        await asyncio.to_thread((place / "begun-1").touch)
        while not await asyncio.to_thread((place / "go").exists):  # noqa: ASYNC110  what is waited for is a file
            await asyncio.sleep(0.05)
        await say("Complete", "ssa{sv}", json.dumps({"attempt": 1, "by": worker_id}))
        await asyncio.Event().wait()


asyncio.run(main())
