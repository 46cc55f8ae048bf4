"""Whatever people and programs do, in whatever order: histories are legal, events have an order, ends are ends."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aiosd.errors import AiosError
from aiosd.model import machine
from aiosd.model.status import FINAL, Actor, Status
from tests.unit.core.rig import Config, Core, core, manifest, play

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiosd.model.jsontext import JsonObject
    from tests.unit.core.fakelauncher import FakeRun

CAPABILITY = "test.random.run"
MANIFEST = 'on_failure = "escalate"\nrecovery = "ask"\ncancel_grace = "20ms"\n'

MOVES = st.lists(
    st.tuples(
        st.sampled_from(
            ["cancel", "pause", "resume", "answer", "unblock", "give-up", "raise", "exit-0", "exit-1", "signal",
             "vanish", "ask", "complete", "fail", "progress", "settle", "twice"]
        ),
        st.integers(0, 2),
    ),
    min_size=4,
    max_size=25,
)  # fmt: skip


class Programs:
    """Programs that do nothing by themselves but obey a cancel."""

    def __init__(self) -> None:
        self.of: dict[str, FakeRun] = {}
        self.asked = 0

    async def __call__(self, run: FakeRun) -> None:
        await run.go()
        self.of[run.request.task] = run
        await run.hear("cancel")
        if run.active:
            run.end(0, stopped_by="cancel")

    def live(self, task: str) -> FakeRun | None:
        run = self.of.get(task)
        return run if run is not None and run.active and not run.frozen else None


def does(programs: Programs, run: FakeRun, move: str) -> None:
    """What a program does by itself."""
    acts: dict[str, Callable[[], None]] = {
        "exit-0": lambda: run.end(0),
        "exit-1": lambda: run.end(1),
        "signal": lambda: run.end(signal="SIGSEGV"),
        "vanish": run.vanish,
        "complete": lambda: run.say("task_completion", {"result": {}}),
        "fail": lambda: run.say("task_failed", {"message": "no"}),
        "progress": lambda: run.say("processing", {"progress": {"percent": programs.asked}}),
        "ask": lambda: run.say("task_interaction", {"interaction": programs.asked, "prompt": "?"}),
    }
    programs.asked += 1
    if move in acts:
        acts[move]()


ASKED: dict[str, tuple[str, JsonObject]] = {
    "cancel": ("task.cancel", {}), "pause": ("task.pause", {}), "resume": ("task.resume", {}),
    "answer": ("task.input", {"input": {}}), "unblock": ("task.input", {"input": {"action": "retry"}}),
    "give-up": ("task.input", {"input": {"action": "fail"}}), "raise": ("task.set_priority", {"priority": "high"}),
}  # fmt: skip


async def ask(aios: Core, task: str, move: str) -> None:
    name, more = ASKED[move]
    try:
        await aios.invoke(name, {"task_id": task, **more})
    except AiosError as error:
        # Refused for its state, never for a fault of ours.
        assert error.kind.value.code in (-32107, -32108, -32007), error.text


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(MOVES)
def test_any_order_of_deeds_keeps_the_contract(moves: list[tuple[str, int]]) -> None:
    async def scenario(root: Path) -> None:
        async with core(root, config=Config(max_concurrent_tasks=2, schedule_interval=30.0)) as aios:
            await aios.install(CAPABILITY, manifest(CAPABILITY, MANIFEST))
            aios.launcher.program = programs = Programs()
            names = [
                await aios.create(CAPABILITY),
                await aios.create(CAPABILITY, retry={"max_attempts": 2, "delay_ms": 0}),
                await aios.create(CAPABILITY, priority="low"),
            ]
            for move, which in moves:
                run = programs.live(names[which])
                if move in ASKED:
                    await ask(aios, names[which], move)
                elif move == "twice":
                    await asyncio.gather(ask(aios, names[which], "pause"), ask(aios, names[which], "cancel"))
                elif move == "settle":
                    await asyncio.sleep(0.01)
                elif run is not None:
                    does(programs, run, move)
            for name in names:
                await ask(aios, name, "cancel")
            for name in names:
                await aios.ended(name)
            for name in names:
                await check(aios, name)
            numbers = [event.sequence for event in aios.events]
            assert numbers == list(range(1, len(numbers) + 1))

    with tempfile.TemporaryDirectory() as folder:
        play(scenario(Path(folder)))


async def check(aios: Core, name: str) -> None:
    """What must hold of a task that has ended, whatever happened."""
    task = await aios.task(name)
    assert task.status in FINAL
    assert task.ended_at is not None
    states = [Status(state) for state in await aios.history(name)]
    assert states[0] is Status.PENDING
    for old, new in itertools.pairwise(states):
        assert machine.may(old, new, Actor.SYSTEM), states
    assert sum(state in FINAL for state in states) == 1
    events = await aios.log(name)
    changed = [event for event in events if event.change is not None]
    ends = [event for event in changed if event.change is not None and event.change.new in FINAL]
    assert len(ends) == 1
    for earlier, later in itertools.pairwise(changed):
        assert earlier.change is not None
        assert later.change is not None
        assert later.change.old == earlier.change.new
    after = [event.kind for event in events if event.sequence > ends[0].sequence]
    assert after in ([], ["task.result"], ["task.error"])
    assert (task.error is not None) == (task.status is Status.FAILED)
    assert (task.result is not None) == (task.status is Status.COMPLETED)
    assert task.question is None
    assert all(run.state == "ended" and run.ended_at is not None for run in await aios.runs(name))
