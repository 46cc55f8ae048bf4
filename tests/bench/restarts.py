"""What a restart costs: time to ready with many tasks stored and running, and the silence of a client that streams.

`python3 -m tests.bench.restarts RUNNING ROUNDS`, in the box, as root, on the database that is there: prints one JSON
object of samples in milliseconds. The floor of both is the interpreter with the daemon's modules (`python3 -I -c
"import aiosd.app"`), measured in turns: no daemon in this language is ready before that.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

from aiosd.client import Client
from tests.bench.figures import Figure, Spread

if TYPE_CHECKING:
    from tests.bench.box import Bench

RUNNING = 50
TICKS = 10
"""Events that are awaited before and after each restart."""
SETTINGS = "/run/aios/aiosd.conf.d/50-restarts.conf"
PATIENCE = 120.0


def figures(bench: Bench, stored: int, rounds: int) -> list[Figure]:
    """The rows, with `stored` finished tasks and RUNNING that run."""
    bench.box.sh(f"mkdir -p {SETTINGS.rpartition('/')[0]}")
    bench.box.write(SETTINGS, f"[Scheduler]\nmax_concurrent_tasks={RUNNING + 10}\nmax_tasks_per_tool={RUNNING}\n")
    bench.restart_with(stored)
    argv = ["python3", "-m", "tests.bench.restarts", str(RUNNING), str(rounds)]
    found = json.loads(bench.box.run("env", "--chdir=/src", *argv, timeout=900).stdout)
    bench.box.run("rm", SETTINGS)
    floor = Spread.of(found["imports"])
    load = f"{stored} finished and {RUNNING} running tasks"
    return [
        Figure(f"start of the process → ready, {load}, its imports as the floor", "ms",
               Spread.of(found["ready"]), floor, "≤ 1000 ms"),
        Figure(f"restart: silence of a streaming client, {load}, imports as the floor", "ms",
               Spread.of(found["silence"]), floor, "≤ 500 ms"),
    ]  # fmt: skip


class Listener:
    """Follows a task from a thread of its own, as any client does, and knows when it heard something."""

    def __init__(self, task_id: str) -> None:
        """Begins at once."""
        self.times: list[float] = []
        threading.Thread(target=self._listen, args=(task_id,), daemon=True).start()

    def _listen(self, task_id: str) -> None:
        with Client() as client:
            for _ in client.events(task_id, ("log",)):
                self.times.append(time.monotonic())

    def hear(self, count: int) -> None:
        """Wait for so many more."""
        wanted, deadline = len(self.times) + count, time.monotonic() + PATIENCE
        while len(self.times) < wanted:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(self.times)} of {wanted} events")
            time.sleep(0.01)


def _ready() -> float:
    names = ("ExecMainStartTimestampMonotonic", "ActiveEnterTimestampMonotonic")
    begin, end = (
        int(subprocess.run(
            ["systemctl", "show", "aiosd.service", f"--property={name}", "--value"],
            check=True, capture_output=True, text=True,
        ).stdout)
        for name in names
    )  # fmt: skip
    return (end - begin) / 1000


def main() -> None:
    """Measure."""
    running, rounds = int(sys.argv[1]), int(sys.argv[2])
    with Client() as client:
        tasks = [str(client.create("bench.many")["task_id"]) for _ in range(running)]
        ticking = str(client.create("bench.tick", options={"priority": "urgent"})["task_id"])
        while any(client.get(task)["status"] != "working" for task in (*tasks, ticking)):
            time.sleep(0.1)
    listener = Listener(ticking)
    found: dict[str, list[float]] = {"ready": [], "silence": [], "imports": []}
    for _ in range(rounds):
        begun = time.monotonic()
        subprocess.run([sys.executable, "-I", "-c", "import aiosd.app"], cwd="/", check=True)  # as installed
        found["imports"].append((time.monotonic() - begun) * 1000)
        listener.hear(TICKS)
        before = len(listener.times)
        subprocess.run(["systemctl", "restart", "aiosd.service"], check=True)
        listener.hear(TICKS)
        heard = listener.times[before - 1 :]
        pauses = [after - earlier for earlier, after in itertools.pairwise(heard)]
        found["silence"].append(max(pauses) * 1000)
        found["ready"].append(_ready())
    with Client() as client:
        for task in (*tasks, ticking):
            client.cancel(task)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
