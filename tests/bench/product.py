"""The product as a caller meets it: tasks made over D-Bus, and their ends heard as signals."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aiosd.bus.connection import Call, Signal, SystemBus

if TYPE_CHECKING:
    from aiosd.bus.message import Answer, BusValue

AIOSD = "org.aios.TaskManager"
PATH = "/org/aios/TaskManager"
MANAGER = "org.aios.TaskManager1"
TASK = "org.aios.TaskManager1.Task"

IN_FLIGHT = 48
"""Calls that wait for an answer: dbus-daemon allows 128 a connection, aiosd 64."""


@dataclass
class Tasks:
    """One caller, root."""

    bus: SystemBus
    completed: set[str] = field(default_factory=set)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def listen(self) -> None:
        """Hear of tasks that complete."""
        self.bus.on_signal(self._on_signal)
        await self.bus.add_match(f"type='signal',interface='{MANAGER}',member='StateChanged',arg4='completed'")

    def _on_signal(self, signal: Signal) -> None:
        if signal.member == "StateChanged" and signal.interface == MANAGER:
            self.completed.add(str(signal.body[0]))
            self.changed.set()

    async def _call(self, member: str, signature: str, *body: BusValue) -> Answer:
        return await self.bus.call(Call(AIOSD, PATH, MANAGER, member, signature, body))

    async def create(self, capability: str) -> tuple[str, float]:
        """A task: its id, and the seconds until the answer that it is stored."""
        begin = time.perf_counter()
        answer = await self._call("CreateTask", "ssa{sv}", capability, "{}", {})
        return str(answer.body[0]), time.perf_counter() - begin

    async def until_completed(self, tasks: set[str], seconds: float = 120.0) -> None:
        """Until all of these have."""
        async with asyncio.timeout(seconds):
            while not tasks <= self.completed:
                self.changed.clear()
                await self.changed.wait()

    async def list_page(self) -> float:
        """Seconds of the first page of a list."""
        begin = time.perf_counter()
        await self._call("ListTasks", "a{sv}", {})
        return time.perf_counter() - begin

    async def cancel(self, task_id: str) -> None:
        """End a task."""
        path = f"{PATH}/task/{task_id.replace('-', '_')}"
        await self.bus.call(Call(AIOSD, path, TASK, "Cancel", "sa{sv}", ("", {})))


async def rate(tasks: Tasks, count: int) -> float:
    """Tasks a second from the first request to the last end; the daemon runs ten at a time."""
    places = asyncio.Semaphore(IN_FLIGHT)
    made: set[str] = set()

    async def one() -> None:
        async with places:
            task_id, _ = await tasks.create("bench.noop")
            made.add(task_id)

    begin = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(one())
    await tasks.until_completed(made)
    return count / (time.perf_counter() - begin)
