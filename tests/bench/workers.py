"""What workers cost: `python3 -m tests.bench.workers [--rounds N] [--calls N]`.

As `sessions`: the real core and a JSON-RPC door in this process, asked in turns with few and with many workers there; a
figure is the processor time of one call, client included. Beside the times: how many transactions it takes to store
what a minute of a hundred heartbeats a second comes to, which is what keeps them cheap.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiosd.auth.caller import BusSubject, Caller
from aiosd.config import Config
from tests.bench.figures import Figure, Spread, as_text
from tests.rpc.serving import Http, door
from tests.unit.core.rig import core

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from tests.unit.core.rig import Core

FEW, MANY = 10, 1_000
RATE = 100
"""Heartbeats a second (issue: 1 000 workers registered, 100 heartbeats a second)."""
ME = Caller(os.geteuid(), BusSubject(":1.7"))
UNLIMITED = Config(
    schedule_interval=30.0, creates_per_second=100_000, creates_burst=1_000_000, calls_per_second=100_000,
    calls_burst=1_000_000, max_workers_per_user=10_000, worker_lease=3600.0,
)  # fmt: skip
CAPABILITIES = ["git", "terminal", "playwright", "xcode"]


@dataclass
class Crowd:
    """One size: who is asked, and the registrations by worker."""

    size: int
    aios: Core
    http: Http
    session: str
    registrations: dict[str, str]
    version: int = 1
    turn: int = 0
    writes: int = 0
    samples: dict[str, list[float]] = field(default_factory=dict)

    async def ask(self, method: str, **params: object) -> Any:
        """What it answers."""
        answer = await self.http.call(f"aios/{method}", params)
        assert "result" in answer, answer
        return answer["result"]


async def _prepared(stack: AsyncExitStack, place: Path, size: int) -> Crowd:
    await asyncio.to_thread(place.mkdir)
    aios = await stack.enter_async_context(core(place, config=UNLIMITED))
    paths, _ = await stack.enter_async_context(door(place, aios.manager, aios.hub))
    http = await stack.enter_async_context(Http.connect(paths.http))
    made = (await http.call("aios/session.create", {"title": "Large"}))["result"]
    crowd = Crowd(size, aios, http, made["session_id"], {})
    await crowd.ask("plan.create", session_id=crowd.session, tasks=[])
    for number in range(size):
        await _register(crowd, f"worker-{number}")
    return crowd


async def _register(crowd: Crowd, worker_id: str) -> None:
    about = {"hostname": "mac-studio", "os": "macos", "shell": "zsh", "capabilities": CAPABILITIES}
    made = await crowd.ask("worker.register", worker_id=worker_id, **about)
    crowd.registrations[worker_id] = made["registration"]


async def _again(crowd: Crowd) -> None:
    """One of them registers anew."""
    await _register(crowd, "worker-0")


async def _beat(crowd: Crowd) -> None:
    """The next one's turn."""
    crowd.turn = (crowd.turn + 1) % crowd.size
    worker_id = f"worker-{crowd.turn}"
    await crowd.ask(
        "worker.heartbeat", worker_id=worker_id, registration=crowd.registrations[worker_id], load=0.25, status="idle"
    )


async def _work(crowd: Crowd) -> None:
    """A task of a plan from its making to its end, by the worker that gets it."""
    diff = {"create_tasks": [{"title": "next", "requires": ["git"]}]}
    done = await crowd.ask("plan.apply_diff", session_id=crowd.session, version=crowd.version, diff=diff)
    crowd.version, task_id = done["version"], done["applied"]["created"][0]["task_id"]
    task = await crowd.aios.until(task_id, "assigned")
    worker_id = str(task.worker_id)
    beat = await crowd.ask("worker.heartbeat", worker_id=worker_id, registration=crowd.registrations[worker_id])
    about = {"worker_id": worker_id, "assignment_id": beat["assignments"][0]["assignment_id"]}
    await crowd.ask("worker.accept", **about)
    await crowd.ask("worker.complete", **about)


OPERATIONS: dict[str, Callable[[Crowd], Awaitable[object]]] = {
    "a heartbeat": _beat,
    "a registration": _again,
    "a task of a worker, from a plan's diff to its end": _work,
}


async def _transactions(crowd: Crowd, seconds: float) -> int:
    """How many transactions the heartbeats of that time come to, at RATE."""
    write, count = crowd.aios.database.write, 0

    async def counted(function: Any) -> Any:
        nonlocal count
        count += 1
        return await write(function)

    crowd.aios.database.write = counted  # type: ignore[method-assign]  # to count them
    begun = time.monotonic()
    for number in range(round(seconds * RATE)):
        await asyncio.sleep(max(0.0, begun + number / RATE - time.monotonic()))
        await _beat(crowd)
    crowd.aios.database.write = write  # type: ignore[method-assign]
    return count


async def _measure(
    sizes: Sequence[int], rounds: int, calls: int, seconds: float
) -> tuple[list[Crowd], float, float, int]:
    async with AsyncExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="aiosd-workers-")))
        crowds = [await _prepared(stack, place / str(size), size) for size in sizes]
        for number in range(rounds + 1):
            for name, operation in OPERATIONS.items():
                for crowd in crowds:
                    before = time.process_time()
                    for _ in range(calls):
                        await operation(crowd)
                    if number:  # the first round warms up
                        took = (time.process_time() - before) * 1000 / calls
                        crowd.samples.setdefault(name, []).append(took)
        before = time.process_time()
        written = await _transactions(crowds[-1], seconds)
        return crowds, time.process_time() - before, seconds, written


def figures(
    sizes: tuple[int, int] = (FEW, MANY), rounds: int = 5, calls: int = 20, seconds: float = 60.0
) -> list[Figure]:
    """Each operation with many workers there beside the same with few."""
    (few, many), cpu, lasted, written = asyncio.run(_measure(sizes, rounds, calls, seconds))
    rows = [
        Figure(
            f"{name}, {many.size} workers, {few.size} as the floor", "ms", Spread.of(many.samples[name]),
            Spread.of(few.samples[name]), "≤ 2",
        )
        for name in OPERATIONS
    ]  # fmt: skip
    beats = f"{RATE} heartbeats a second of {many.size} workers, client included"
    return [
        *rows,
        Figure(f"{beats}: processor time a second", "ms", Spread.of([cpu * 1000 / lasted])),
        Figure(f"{beats}: transactions a minute", "", Spread.of([written * 60 / lasted]), None, "≤ 12"),
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="tests.bench.workers", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="in turns (default: %(default)s)")
    parser.add_argument("--calls", type=int, default=20, help="of each operation in a round (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=60.0, help="of heartbeats (default: %(default)s)")
    options = parser.parse_args()
    print(as_text(figures(rounds=options.rounds, calls=options.calls, seconds=options.seconds)))


if __name__ == "__main__":
    main()
