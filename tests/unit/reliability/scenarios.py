"""What is done while the daemon dies: each scenario with the programs it runs and what must have come of it."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.unit.core.fakelauncher import FakeLauncher
from tests.unit.core.rig import OPEN, PATIENCE, manifest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from aiosd.model.jsontext import JsonObject
    from tests.unit.core.fakelauncher import FakeRun
    from tests.unit.reliability.client import Client

WORKER = "test.crash.run"
RETRIED = "test.crash.retried"
HELD = "test.crash.held"
LINES = 3


async def works(run: FakeRun) -> None:
    """Progress, log lines, an artifact and a result."""
    await run.go()
    for number in range(1, LINES + 1):
        run.say("processing", {"progress": {"percent": number * 10}})
        run.say("log", {"level": "info", "message": f"line {number}"})
        run.write("stdout", f"out {number}\n".encode())
        await asyncio.sleep(0.002)
    part: JsonObject = {"file": {"blob": run.blob(b"kept")}}
    run.say("artifact", {"key": "one", "name": "one", "type": "file", "mime_type": "text/plain", "parts": [part]})
    run.say("task_completion", {"result": {"done": True}})
    run.end(0)


async def asks(run: FakeRun) -> None:
    """One question; the answer is the result."""
    await run.go()
    run.say("task_interaction", {"interaction": 1, "prompt": "how many?"})
    answer = await run.hear("input")
    run.say("task_completion", {"result": {"answer": answer["input"]}})
    run.end(0)


async def waits(run: FakeRun) -> None:
    """Until it is canceled."""
    await run.go()
    run.say("log", {"level": "info", "message": "line 1"})
    await run.hear("cancel")
    run.end(0, stopped_by="cancel")


async def holds(run: FakeRun) -> None:
    """Can be paused and resumed, as often as it is told, and is canceled."""
    await run.go()
    while True:
        kind, message = await run._message()
        if kind in ("can_pause", "can_cancel"):
            run.say(kind, {"id": message.get("id"), "allowed": True})
        elif kind == "pause":
            run.say("paused", {"id": message.get("id")})
        elif kind == "cancel":
            run.end(0, stopped_by="cancel")
            return


async def fails(run: FakeRun) -> None:
    """Fails each time."""
    await run.go()
    run.end(3)


async def run_to_its_end(client: Client) -> None:
    await client.until(await client.create(WORKER, "one"), "completed")


async def two_in_a_row(client: Client) -> None:
    first = await client.create(WORKER, "one")
    second = await client.create(WORKER, "two", depends_on=[first])
    await client.until(second, "completed")


async def question_and_answer(client: Client) -> None:
    task = await client.create(WORKER, "one")
    await client.until(task, "input_required")
    await client.do(
        "task.input", {"task_id": task, "input": {"n": 7}}, lambda found: found["status"] != "input_required"
    )
    await client.until(task, "completed")


async def cancel_while_running(client: Client) -> None:
    task = await client.create(WORKER, "one")
    await client.until(task, "running")
    await client.begun(task)
    await client.do("task.cancel", {"task_id": task}, lambda found: found["status"] == "canceled")
    await client.until(task, "canceled")


async def pause_and_resume(client: Client) -> None:
    task = await client.create(HELD, "one")
    await client.until(task, "running")
    await client.do("task.pause", {"task_id": task}, lambda found: found["status"] == "paused")
    await client.until(task, "paused")
    await client.do("task.resume", {"task_id": task}, lambda found: found["status"] != "paused")
    await client.until(task, "running")
    await client.do("task.cancel", {"task_id": task}, lambda found: found["status"] == "canceled")


async def attempts(client: Client) -> None:
    await client.until(await client.create(RETRIED, "one"), "failed")


async def webhook(client: Client) -> None:
    task = await client.create(WORKER, "one")
    await client.until(task, "input_required")
    wanted: JsonObject = {"task_id": task, "webhook_url": client.receiver.url, "events": ["status", "result"]}
    await client.do("task.subscribe_webhook", wanted, lambda _: False)  # the same one again changes nothing
    await client.do(
        "task.input", {"task_id": task, "input": {"n": 7}}, lambda found: found["status"] != "input_required"
    )
    await client.until(task, "completed")
    async with asyncio.timeout(PATIENCE):
        while "task.result" not in client.delivered():  # noqa: ASYNC110  a receiver elsewhere tells nobody here
            await asyncio.sleep(0.01)


async def by_a_worker(client: Client) -> None:
    """A task of a plan, done by a worker elsewhere that registers again after each death."""
    await client.planned()
    await client.works_elsewhere({"done": True})


@dataclass(frozen=True)
class Scenario:
    """`title`: what is done. `ends`: the status of each task; `runs`: programs started for each.

    `lines`: log lines told of each task.

    `delivered`: states that the webhook was told, in order; a death may have one told twice, never left out.
    """

    title: str
    script: Callable[[Client], Awaitable[None]]
    program: Callable[[FakeRun], Awaitable[None]]
    ends: str
    tasks: int = 1
    runs: int = 1
    lines: int = 0
    artifacts: int = 0
    result: JsonObject | None = None
    delivered: tuple[str, ...] = ()


SCENARIOS = {
    "run": Scenario(
        "create, run, progress, log, artifact, finish",
        run_to_its_end,
        works,
        "completed",
        lines=LINES,
        artifacts=1,
        result={"done": True},
    ),
    "dependency": Scenario(
        "two tasks, one after the other",
        two_in_a_row,
        works,
        "completed",
        tasks=2,
        lines=LINES,
        artifacts=1,
        result={"done": True},
    ),
    "input": Scenario("question and answer", question_and_answer, asks, "completed", result={"answer": {"n": 7}}),
    "cancel": Scenario("cancel", cancel_while_running, waits, "canceled", lines=1),
    "pause": Scenario("pause, resume, cancel", pause_and_resume, holds, "canceled"),
    "webhook": Scenario(
        "webhook registered and delivered",
        webhook,
        asks,
        "completed",
        result={"answer": {"n": 7}},
        delivered=("working", "completed"),
    ),
    "retry": Scenario("three attempts", attempts, fails, "failed", runs=3),
    "worker": Scenario(
        "a worker does a task of a plan", by_a_worker, works, "completed", runs=0, result={"done": True}
    ),
}

MANIFESTS = {
    WORKER: manifest(WORKER, OPEN),
    HELD: manifest(HELD, 'pausable = "cooperative"\n' + OPEN),
    RETRIED: manifest(RETRIED, 'idempotent = true\n[retry]\nmax_attempts = 3\ndelay = "1ms"\n' + OPEN),
}


@contextmanager
def stage(scenario: Scenario) -> Iterator[tuple[Path, FakeLauncher]]:
    """A directory with the capabilities, and the launcher of the scenario's programs."""
    with tempfile.TemporaryDirectory(prefix="aiosd-scenario-") as folder:
        root = Path(folder)
        (root / "capabilities.d").mkdir()
        for name, text in MANIFESTS.items():
            (root / "capabilities.d" / f"{name}.toml").write_text(text)
        launcher = FakeLauncher(root / "launcher")
        launcher.program = scenario.program
        yield root, launcher
