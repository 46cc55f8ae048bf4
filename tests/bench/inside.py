"""The rounds that run in the box: product and floor in turns. `python3 -m tests.bench.inside MEASURE …`, as root.

Prints one JSON object: lists of samples by name, times in milliseconds. The pipe through which a program tells of its
first instruction costs the same on both sides.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from aiosd.bus.connection import SystemBus
from tests.bench import cgroups, floor, product

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

Samples: TypeAlias = dict[str, list[float]]

PIPE = Path("/srv/bench/first")
DATABASE = Path("/var/lib/bench/floor.db")
TELL = ("/usr/bin/sh", "-c", f"echo >{PIPE}")
AT_ONCE = 10
PATIENCE = 120.0
"""Seconds after which a program that has told nothing counts as one that could not."""


@contextmanager
def echo_server() -> Iterator[None]:
    """The other end of `floor.call`."""
    argv = [sys.executable, "-m", "tests.bench.server"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        assert server.stdin is not None
        server.stdout.readline()
        try:
            yield
        finally:
            server.stdin.close()


class FirstInstruction:
    """Told by a program through the pipe."""

    def __init__(self) -> None:
        """Makes the pipe."""
        PIPE.parent.mkdir(mode=0o755, exist_ok=True)
        PIPE.unlink(missing_ok=True)
        os.mkfifo(PIPE)
        PIPE.chmod(0o666)
        # Both ends: with a writer of our own the pipe never ends.
        self._fd = os.open(PIPE, os.O_RDWR | os.O_NONBLOCK)
        self._told: asyncio.Future[float] | None = None
        asyncio.get_running_loop().add_reader(self._fd, self._on_told)

    def _on_told(self) -> None:
        moment = time.perf_counter()
        os.read(self._fd, 64)
        if self._told is not None and not self._told.done():
            self._told.set_result(moment)

    def expected(self) -> asyncio.Future[float]:
        """The moment of the next one."""
        self._told = asyncio.get_running_loop().create_future()
        return self._told


@asynccontextmanager
async def _connected() -> AsyncIterator[tuple[product.Tasks, floor.Scopes]]:
    async with SystemBus() as for_tasks, SystemBus() as for_scopes:
        tasks, scopes = product.Tasks(for_tasks), floor.Scopes(for_scopes)
        await tasks.listen()
        await scopes.subscribe()
        yield tasks, scopes


async def latency(count: int) -> Samples:
    """Durable reply and first instruction, each beside its floor."""
    found: Samples = {name: [] for name in ("reply", "call", "commit", "first", "scope_first")}

    def note(name: str, seconds: float) -> None:
        found[name].append(seconds * 1000)

    async with _connected() as (tasks, scopes), SystemBus() as plain:
        told = FirstInstruction()
        with echo_server(), floor.database(DATABASE) as database:
            for _ in range(count):
                note("call", await floor.call(plain))
                note("commit", floor.commit(database))
                expected, begin = told.expected(), time.perf_counter()
                task_id, seconds = await tasks.create("bench.first")
                note("reply", seconds)
                note("first", await asyncio.wait_for(expected, PATIENCE) - begin)
                await tasks.until_completed({task_id})
                process = floor.Gated.fork(TELL)
                expected, begin = told.expected(), time.perf_counter()
                await scopes.start(process.pid)
                process.open()
                note("scope_first", await asyncio.wait_for(expected, PATIENCE) - begin)
                process.wait()
                await asyncio.sleep(0.02)  # what is left of both ends in quiet
    return found


async def rates(rounds: int, count: int) -> Samples:
    """Tasks and raw scopes a second, ten at a time; processor time of each part in ms a task."""
    found: Samples = {"tasks": [], "scopes": []}
    async with _connected() as (tasks, scopes):
        # The slice's counters last as long as there is something in it.
        anchor, _ = await tasks.create("bench.sleep")
        for _ in range(rounds):
            found["scopes"].append(await floor.rate(scopes, count, AT_ONCE))
            await asyncio.sleep(0.5)
            before = cgroups.times()
            found["tasks"].append(await product.rate(tasks, count))
            await asyncio.sleep(0.5)
            for name, used in cgroups.since(before).items():
                found.setdefault(f"cpu {name}", []).append(used * 1000 / count)
        await tasks.cancel(anchor)
    return found


async def pages(count: int) -> Samples:
    """The first page of a list."""
    async with SystemBus() as bus:
        tasks = product.Tasks(bus)
        await tasks.list_page()
        return {"list": [await tasks.list_page() * 1000 for _ in range(count)]}


async def live(count: int) -> Samples:
    """MiB that each running task adds to the daemon, and to the launcher and all supervisors together."""
    parts = {"aiosd": ("aiosd",), "launcher and supervisors": (cgroups.SERVICES[1], "tasks and supervisors")}
    async with _connected() as (tasks, _):
        warm = [(await tasks.create("bench.sleep"))[0] for _ in range(2)]
        await asyncio.sleep(1.0)
        before = {name: cgroups.share(of, "sleep") for name, of in parts.items()}
        made = [(await tasks.create("bench.sleep"))[0] for _ in range(count - len(warm))]
        await asyncio.sleep(2.0)
        found = {name: [(cgroups.share(of, "sleep") - before[name]) / len(made)] for name, of in parts.items()}
        for task_id in (*warm, *made):
            await tasks.cancel(task_id)
        return found


def main() -> None:
    """Run one of them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("measure", choices=("latency", "rates", "pages", "live"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=100)
    options = parser.parse_args()
    measures = {
        "latency": lambda: latency(options.count),
        "rates": lambda: rates(options.rounds, options.count),
        "pages": lambda: pages(options.count),
        "live": lambda: live(options.count),
    }
    json.dump(asyncio.run(measures[options.measure]()), sys.stdout)


if __name__ == "__main__":
    main()
