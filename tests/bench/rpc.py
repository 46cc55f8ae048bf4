"""The JSON-RPC door beside an aiohttp echo in the same process: `python3 -m tests.bench.rpc [--seconds N]`.

Both answer on Unix sockets of one server process with the real core on a real store; the client is a process of its own
that knows only bytes. Rounds alternate, so that what else the machine does meets both.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web

from aiosd.model.event import Event, Kind, Source
from aiosd.store import journal
from aiosd.store.glances import MOST
from tests.rpc.serving import EventStream, Http, door
from tests.unit.core.rig import USER, core

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiosd.model.jsontext import JsonObject
    from aiosd.store.database import Transaction

ROUNDS = 4
CONNECTIONS = 8
FOLLOWERS = 50
TASKS = 2 * MOST
"""Asked for in turn, none is kept from the last time (`store/glances.py`)."""
BATCH = 20
"""Events in one commit."""


async def _echo(request: web.Request) -> web.Response:
    return web.Response(body=await request.read(), content_type="application/json")


async def _serve(directory: Path) -> None:
    """Echo and door; a line on stdin commits that many events."""
    application = web.Application()
    application.router.add_post("/rpc", _echo)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.UnixSite(runner, str(directory / "echo.sock")).start()
    async with core(directory) as aios, door(directory, aios.manager, aios.hub):
        made = [await aios.create() for _ in range(TASKS)]
        for one in made:
            await aios.ended(one)
        task = made[0]
        print(" ".join(made), flush=True)
        while line := (await asyncio.to_thread(sys.stdin.readline)).strip():
            for _ in range(int(line) // BATCH):
                await aios.database.write(lambda transaction: _append(transaction, task))
            print(time.monotonic(), flush=True)
    await runner.cleanup()


def _append(transaction: Transaction, task: str) -> None:
    """A batch of progress, each with the moment of its making."""
    for _ in range(BATCH):
        progress: JsonObject = {"percent": 50, "message": "half", "at": time.monotonic()}
        data: JsonObject = {"progress": progress}
        made = Event(0, task, None, USER.uid, Source.WORKER, "task.progress", Kind.PROGRESS, 0, data)
        journal.append_event(transaction, made)


async def _load(path: Path, bodies: Sequence[bytes], seconds: float) -> list[float]:
    """Milliseconds of each request on `CONNECTIONS` connections, that take the bodies in turn."""
    turns = itertools.cycle(bodies)
    took: list[float] = []
    end = time.monotonic() + seconds

    async def one() -> None:
        async with Http.connect(path) as http:
            while (begin := time.monotonic()) < end:
                answer = await http.post(next(turns))
                took.append((time.monotonic() - begin) * 1000)
                assert answer.status == 200

    async with asyncio.TaskGroup() as group:
        for _ in range(CONNECTIONS):
            group.create_task(one())
    return took


def _line(name: str, took: list[float], seconds: float) -> float:
    rate = len(took) / seconds
    cuts = statistics.quantiles(took, n=100)
    print(f"{name:10} {rate:7.0f} requests/s   p50 {cuts[49]:.2f} ms   p99 {cuts[98]:.2f} ms")
    return rate


async def _follow(directory: Path, server: subprocess.Popen[str], task: str, count: int) -> None:
    """How long after its making each event is at `FOLLOWERS` clients, and how many a second."""
    delays: list[float] = []

    async def one(stream: EventStream) -> None:
        for _ in range(count):
            event = await anext(stream)
            delays.append((time.monotonic() - event.json["progress"]["at"]) * 1000)

    assert server.stdin is not None
    async with AsyncExitStack() as stack:
        query = f"task_id={task}&events=progress"
        streams = [
            await stack.enter_async_context(EventStream.open(directory / "aios.sock", query)) for _ in range(FOLLOWERS)
        ]
        begin = time.monotonic()
        server.stdin.write(f"{count}\n")
        server.stdin.flush()
        await asyncio.gather(*map(one, streams))
    rate, middle = count * FOLLOWERS / (time.monotonic() - begin), statistics.median(delays)
    print(f"{count} events to {FOLLOWERS} clients: {rate:.0f}/s in all, p50 {middle:.1f} ms after they were made")


async def _measure(directory: Path, server: subprocess.Popen[str], tasks: list[str], seconds: float) -> None:
    bodies = [
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "aios/task.get", "params": {"task_id": task}}).encode()
        for task in tasks
    ]
    took: dict[str, list[float]] = {"echo": [], "the same": [], "another": []}
    for _ in range(ROUNDS):
        took["echo"] += await _load(directory / "echo.sock", bodies[:1], seconds / ROUNDS)
        took["the same"] += await _load(directory / "aios.sock", bodies[:1], seconds / ROUNDS)
        took["another"] += await _load(directory / "aios.sock", bodies, seconds / ROUNDS)
    echo = _line("echo", took["echo"], seconds)
    for name in ("the same", "another"):
        share = _line(name, took[name], seconds) / echo
        print(f"task.get of {name} task each time is {share:.0%} of the echo")
    await _follow(directory, server, tasks[0], 100)
    await _follow(directory, server, tasks[0], 2000)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="tests.bench.rpc", description=__doc__)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each, in all rounds (default: %(default)s)")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(_serve(options.serve))
        return
    with tempfile.TemporaryDirectory(prefix="aiosd-rpc-") as place:
        command = [sys.executable, "-m", "tests.bench.rpc", "--serve", place]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            made = server.stdout.readline().split()
            try:
                asyncio.run(_measure(Path(place), server, made, options.seconds))
            finally:
                server.kill()


if __name__ == "__main__":
    main()
