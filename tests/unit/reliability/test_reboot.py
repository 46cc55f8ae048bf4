"""The machine is rebooted with a task in each state: what ran comes back as its capability says, what waited waits.

A reboot is a daemon with another boot id beside a launcher whose scopes are gone; exit records on disk stay.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from aiosd.core import clock
from tests.unit.core.fakelauncher import FakeLauncher
from tests.unit.core.rig import OPEN, Core, daemon, eventually, manifest, play
from tests.unit.reliability.scenarios import asks, holds, waits

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from tests.unit.core.fakelauncher import FakeRun

NEXT_BOOT = "4f0c7f2e-0000-4000-8000-000000000002"
WORKER = "test.reboot.run"

POLICIES = {
    "fail": ("", "failed"),
    "ask": ('recovery = "ask"\n', "input_required"),
    "retry": ('recovery = "retry"\nidempotent = true\n', "working"),
}


async def again(run: FakeRun) -> None:
    """Attempts after the first end at once."""
    await run.go()
    run.say("task_completion", {"result": {"again": True}})
    run.end(0)


@asynccontextmanager
async def rebooted(root: Path, launcher: FakeLauncher) -> AsyncIterator[Core]:
    """The daemon's life after the reboot."""
    for run in launcher.runs.values():
        if run.task is not None:
            run.task.cancel()
        run.vanish()
    launcher.program = again
    async with daemon(root, launcher, boot=NEXT_BOOT) as aios:
        yield aios


def scenario(
    root: Path, extra: str, program: Callable[[FakeRun], Awaitable[None]],
    before: Callable[[Core], Awaitable[str]], after: Callable[[Core, str], Awaitable[None]],
) -> None:  # fmt: skip
    async def played() -> None:
        launcher = FakeLauncher(root / "launcher")
        launcher.program = program
        async with launcher.serving():
            async with daemon(root, launcher) as aios:
                await aios.install(WORKER, manifest(WORKER, f'{extra}pausable = "cooperative"\n' + OPEN))
                task = await before(aios)
            async with rebooted(root, launcher) as aios:
                await after(aios, task)

    play(played())


async def created(aios: Core, state: str, timeout_ms: int | None = None) -> str:
    task = await (aios.create(WORKER) if timeout_ms is None else aios.create(WORKER, timeout_ms=timeout_ms))
    await aios.until(task, state)
    if state == "running":
        await eventually(lambda: aios.launcher.made(task)[0].went is not None)
    return task


async def paused(aios: Core) -> str:
    task = await created(aios, "running")
    await aios.invoke("task.pause", {"task_id": task})
    await aios.until(task, "paused")
    return task


RAN: dict[str, tuple[Callable[[FakeRun], Awaitable[None]], Callable[[Core], Awaitable[str]]]] = {
    "running": (waits, lambda aios: created(aios, "running")),
    "input_required": (asks, lambda aios: created(aios, "input_required")),
    "paused": (holds, paused),
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("state", RAN)
def test_a_program_that_ran_is_lost_and_its_policy_holds(state: str, policy: str, tmp_path: Path) -> None:
    extra, wanted = POLICIES[policy]
    program, before = RAN[state]

    async def after(aios: Core, task_id: str) -> None:
        if policy == "retry":
            task = await aios.until(task_id, "completed")
            assert (task.result, task.attempt) == ({"again": True}, 2)
        else:
            await eventually(lambda: task_id not in aios.supervision.watches)
            task = await aios.task(task_id)
            assert (task.status.value, task.attempt) == (wanted, 1)
            assert policy == "fail" or task.phase == "blocked", "the question is whether to try again"
        runs = await aios.runs(task_id)
        assert runs[0].reason == "reboot"
        if policy == "fail":
            assert task.reason == "reboot"

    scenario(tmp_path, extra, program, before, after)


def test_a_result_that_was_on_disk_is_taken(tmp_path: Path) -> None:
    async def before(aios: Core) -> str:
        task = await created(aios, "running")
        aios.supervision.watches[task].gone = False
        return task

    async def after(aios: Core, task_id: str) -> None:
        task = await aios.until(task_id, "completed")
        assert task.attempt == 1

    async def leaves_a_record(run: FakeRun) -> None:
        await run.go()
        run.record(0)  # the power goes before the daemon hears of it
        await asyncio.Event().wait()

    scenario(tmp_path, "", leaves_a_record, before, after)


@pytest.mark.parametrize(
    ("not_before", "phase"),
    [("2099-01-01T00:00:00Z", "waiting"), ("2020-01-01T00:00:00Z", "completed")],
    ids=["not-before", "queued"],
)
def test_what_had_not_started_is_as_it_was(not_before: str, phase: str, tmp_path: Path) -> None:
    async def before(aios: Core) -> str:
        aios.scheduler.draining = True
        return await aios.create(WORKER, not_before=not_before)

    async def after(aios: Core, task_id: str) -> None:
        task = await aios.until(task_id, phase)
        assert task.attempt == (1 if phase == "completed" else 0)

    scenario(tmp_path, "", again, before, after)


@pytest.mark.parametrize("jump", [-86_400, 86_400], ids=["back", "forward"])
def test_a_time_limit_does_not_move_with_the_wall_clock(
    jump: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock is set while a task runs: its limit of a second is still a second of the machine's time."""

    async def played() -> None:
        launcher = FakeLauncher(tmp_path / "launcher")
        launcher.program = waits
        async with launcher.serving(), daemon(tmp_path, launcher) as aios:
            await aios.install(WORKER, manifest(WORKER, OPEN))
            task = await created(aios, "running", timeout_ms=1000)
            real = clock.now
            monkeypatch.setattr(clock, "now", lambda: real() + jump * clock.MICROSECONDS)
            begun = clock.boottime()
            ended = await aios.ended(task)
            assert (ended.status.value, ended.reason) == ("failed", "timeout")
            assert clock.boottime() - begun > 0.5

    play(played())


def test_not_before_is_a_moment_of_the_wall_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the clock is set past it, the task starts at the next scan and not a day later."""

    async def played() -> None:
        launcher = FakeLauncher(tmp_path / "launcher")
        launcher.program = again
        async with launcher.serving(), daemon(tmp_path, launcher) as aios:
            await aios.install(WORKER, manifest(WORKER, OPEN))
            task = await aios.create(WORKER, not_before="2099-01-01T00:00:00Z")
            assert (await aios.task(task)).phase == "waiting"
            monkeypatch.setattr(clock, "now", lambda: 4_102_444_800 * clock.MICROSECONDS)
            await aios.scheduler.scan()
            await aios.until(task, "completed")

    play(played())
