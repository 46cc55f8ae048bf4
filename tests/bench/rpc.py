"""The JSON-RPC door beside an aiohttp echo in the same process: `python3 -m tests.bench.rpc [--seconds N]`.

Both answer on Unix sockets of one server process (`rpc_server`) with the real core on a real store; the clients are a
process of their own that knows only bytes (`rpc_client`). Rounds alternate, so that what else the machine does meets
both. A commit's moment is when the daemon knew of it: the clock is the machine's, the same in both processes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench import rpc_client
from tests.bench.figures import Figure, Spread, as_text
from tests.rig import host

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROUNDS = 4
CONNECTIONS = 8
FOLLOWERS = 50
STORED = 100_000
"""Finished tasks of the large store."""


@dataclass(frozen=True)
class Server:
    """The server process. `tasks`: of the small store."""

    directory: Path
    process: subprocess.Popen[str]
    tasks: list[str]

    def ask(self, line: str) -> None:
        """Say one line; `told` has the answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def told(self) -> list[float]:
        """The answer to a line."""
        assert self.process.stdout is not None
        answer: list[float] = json.loads(self.process.stdout.readline())
        return answer

    def processor_time(self) -> float:
        """Seconds that it has used."""
        self.ask("cpu")
        return self.told()[0]


@contextmanager
def serving(stored: int) -> Iterator[Server]:
    """A server, ended at the end."""
    with tempfile.TemporaryDirectory(prefix="aiosd-rpc-") as place:
        command = [sys.executable, "-m", "tests.bench.rpc_server", place, str(stored)]
        with subprocess.Popen(
            command, cwd=host.CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as server:
            assert server.stdout is not None
            try:
                yield Server(Path(place), server, server.stdout.readline().split())
            finally:
                server.kill()


def _call(method: str, **params: object) -> bytes:
    call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return rpc_client.request(json.dumps(call).encode())


@dataclass
class Load:
    """One kind of request, in rounds: requests a second, milliseconds of each, server's processor time of each."""

    path: Path
    requests: Sequence[bytes]
    connections: int
    rates: list[float]
    took: list[float]
    cpu: list[float]

    @classmethod
    def of(cls, path: Path, *requests: bytes, connections: int = CONNECTIONS) -> Load:
        return cls(path, requests, connections, [], [], [])

    async def round(self, server: Server, seconds: float) -> None:
        """For so long."""
        before = server.processor_time()
        took = await rpc_client.load(self.path, self.requests, seconds, self.connections)
        self.cpu.append((server.processor_time() - before) * 1e6 / len(took))
        self.rates.append(len(took) / seconds)
        self.took += took

    def rows(self, name: str, floor: Load, goal: str) -> list[Figure]:
        """Beside the floor's."""
        cuts, floors = statistics.quantiles(self.took, n=100), statistics.quantiles(floor.took, n=100)
        return [
            Figure(f"{name}, requests a second", "/s", Spread.of(self.rates), Spread.of(floor.rates), goal),
            Figure(f"{name}, p50", "ms", Spread.of([cuts[49]]), Spread.of([floors[49]])),
            Figure(f"{name}, p99", "ms", Spread.of([cuts[98]]), Spread.of([floors[98]])),
            Figure(f"{name}, processor time", "µs", Spread.of(self.cpu), Spread.of(floor.cpu)),
        ]


async def _requests(server: Server, seconds: float, stored: int) -> list[Figure]:
    bodies = [_call("aios/task.get", task_id=task) for task in server.tasks]
    few, many = server.directory / "few/aios.sock", server.directory / "many/aios.sock"
    echo = Load.of(server.directory / "echo.sock", bodies[0])
    same, another = Load.of(few, bodies[0]), Load.of(few, *bodies)
    pages = [Load.of(path, _call("aios/task.list"), connections=1) for path in (few, many)]
    for _ in range(ROUNDS):
        for one in (echo, same, another, *pages):
            await one.round(server, seconds / ROUNDS)
    middle = [Spread.of([statistics.median(one.took)]) for one in pages]
    count = f"{stored} finished tasks, at {len(server.tasks)} as the floor"
    return [
        *same.rows("task.get of a task that is polled, an echo as the floor", echo, "≥ 0.5"),
        *another.rows("task.get of another task each time", echo, ""),
        Figure(f"first page of aios/task.list at {count}", "ms", middle[1], middle[0], "≤ 1.3"),
        Figure(
            f"its processor time at {count}", "µs", Spread.of(pages[1].cpu), Spread.of(pages[0].cpu), "≤ 1.3"
        ),
    ]  # fmt: skip


async def _events(server: Server, clients: int, count: int, batch: int, pause: float) -> tuple[list[float], float]:
    """Milliseconds from each commit to each client, and deliveries a second from the first commit to the last one."""
    query = f"task_id={server.tasks[0]}&events=progress"
    with ExitStack() as stack:
        made = await rpc_client.followers(stack, server.directory / "few/aios.sock", query, clients, count)
        server.ask(f"events {count} {batch} {pause}")
        await asyncio.gather(*(one.complete for one in made))
        commits = await asyncio.to_thread(server.told)
        arrived = [one.arrivals() for one in made]
    assert all(len(one) == count for one in arrived)
    delays = [(moment - commits[number]) * 1000 for one in arrived for number, moment in one.items()]
    last = max(max(one.values()) for one in arrived)
    return delays, count * clients / (last - commits[0])


async def _follow(server: Server, events: int) -> list[Figure]:
    rows = []
    for clients in (1, FOLLOWERS):
        delays, _ = await _events(server, clients, events, 1, 0.02)
        cuts = statistics.quantiles(delays, n=100)
        name = f"an event at {clients} client{'s' if clients > 1 else ''} after its commit, 50 a second"
        rows.append(Figure(f"{name}, p50", "ms", Spread.of([cuts[49]]), goal="≤ 5"))
        rows.append(Figure(f"{name}, p99", "ms", Spread.of([cuts[98]])))
    rates = [(await _events(server, FOLLOWERS, events * 10, 20, 0))[1] for _ in range(ROUNDS)]
    rows.append(Figure(f"events a second to {FOLLOWERS} clients, in all", "/s", Spread.of(rates), goal="≥ 20000"))
    return rows


async def _measure(server: Server, seconds: float, stored: int) -> list[Figure]:
    return [*await _requests(server, seconds, stored), *await _follow(server, max(20, round(25 * seconds)))]


def figures(seconds: float, stored: int = STORED) -> list[Figure]:
    """All rows of the door; `seconds` for each kind of request."""
    with serving(stored) as server:
        return asyncio.run(_measure(server, seconds, stored))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="tests.bench.rpc", description=__doc__)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each, in all rounds (default: %(default)s)")
    parser.add_argument("--stored", type=int, default=STORED, help="finished tasks (default: %(default)s)")
    options = parser.parse_args()
    print(as_text(figures(options.seconds, options.stored)))


if __name__ == "__main__":
    main()
