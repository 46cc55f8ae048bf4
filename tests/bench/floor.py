"""The floors: one call and one commit; a scope around a process that waits at a gate; many of those at a time.

Nothing of the product's is on these paths but its D-Bus connection (the library as it is) and the list of properties,
so that a raw scope has exactly the limits that a task's has.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aiosd.bus.connection import Call, Signal, SystemBus, Variant
from aiosd.model.manifest import Limits
from aiosd.run.limits import scope_properties
from tests.bench.server import NAME, PATH

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from aiosd.bus.message import BusValue

SYSTEMD = "org.freedesktop.systemd1"
SYSTEMD_PATH = "/org/freedesktop/systemd1"
MANAGER = f"{SYSTEMD}.Manager"

LIMITS = Limits(memory_max=64 << 20, cpu_quota_percent=20, tasks_max=16)
"""Those of capabilities.d/bench.*.toml."""

ROW = "x" * 1024
"""About what one small task writes."""


@contextmanager
def database(path: Path) -> Iterator[sqlite3.Connection]:
    """A database with the durability of the product's: write-ahead log, every commit on the disk."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE IF NOT EXISTS rows(text TEXT)")
        yield connection


def commit(connection: sqlite3.Connection) -> float:
    """Seconds of one durable commit."""
    begin = time.perf_counter()
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO rows VALUES (?)", (ROW,))
    connection.execute("COMMIT")
    return time.perf_counter() - begin


async def call(bus: SystemBus) -> float:
    """Seconds of one call of `server`, with arguments like those of CreateTask."""
    begin = time.perf_counter()
    await bus.call(Call(NAME, PATH, NAME, "Echo", "ssa{sv}", ("bench.noop", "{}", {"async": Variant("b", True)})))
    return time.perf_counter() - begin


@dataclass(frozen=True)
class Gated:
    """A process that was forked beforehand and waits for one byte; what it does then was fixed at the fork."""

    pid: int
    gate: int

    @classmethod
    def fork(cls, argv: tuple[str, ...] = ()) -> Gated:
        """`argv`: what it executes; without one it ends."""
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(write)
            os.read(read, 1)
            if argv:
                os.execv(argv[0], argv)  # noqa: S606 - no shell is wanted
            os._exit(0)
        os.close(read)
        return cls(pid, write)

    def open(self) -> None:
        """Let it go on."""
        os.write(self.gate, b"g")
        os.close(self.gate)

    def wait(self) -> None:
        """Until it has ended."""
        os.waitpid(self.pid, 0)


@dataclass
class Scopes:
    """StartTransientUnit, and its JobRemoved."""

    bus: SystemBus
    count: int = 0
    jobs: dict[str, asyncio.Future[None]] = field(default_factory=dict)

    async def subscribe(self) -> None:
        """Before the first start."""
        self.bus.on_signal(self._on_signal)
        await self.bus.add_match(f"type='signal',sender='{SYSTEMD}',interface='{MANAGER}',member='JobRemoved'")
        await self.bus.call(Call(SYSTEMD, SYSTEMD_PATH, MANAGER, "Subscribe"))

    def _on_signal(self, signal: Signal) -> None:
        if signal.member == "JobRemoved":
            job = self.jobs.pop(str(signal.body[2]), None)
            if job is not None and not job.done():
                job.set_result(None)

    async def start(self, pid: int) -> None:
        """A scope with a task's limits around `pid`; returns when systemd says that it is there."""
        self.count += 1
        unit = f"bench-{os.getpid()}-{self.count}.scope"
        done = self.jobs[unit] = asyncio.get_running_loop().create_future()
        properties: list[BusValue] = [
            ["Description", Variant("s", "a raw scope")],
            ["Slice", Variant("s", "bench.slice")],
            ["PIDs", Variant("au", [pid])],
        ]
        limits = scope_properties(LIMITS, grace_ms=5000, runtime_max_usec=0)
        properties += [[item.name, Variant(item.signature, item.value)] for item in limits]
        body: tuple[BusValue, ...] = (unit, "fail", properties, [])
        await self.bus.call(Call(SYSTEMD, SYSTEMD_PATH, MANAGER, "StartTransientUnit", "ssa(sv)a(sa(sv))", body))
        await done


async def rate(scopes: Scopes, count: int, in_flight: int) -> float:
    """Scopes a second: `count` of them, each around a process that ends once its scope is there."""
    processes = [Gated.fork() for _ in range(count)]
    waiting = list(reversed(processes))

    async def worker() -> None:
        while waiting:
            process = waiting.pop()
            await scopes.start(process.pid)
            process.open()

    begin = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(in_flight):
            group.create_task(worker())
    seconds = time.perf_counter() - begin
    for process in processes:
        process.wait()
    return count / seconds
