"""Seed 002's `stream_first_frame_timeout`: a program that speaks chunks by its manifest sends the first one in time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiosd.core.watch import Watch
from aiosd.model.status import Reason
from tests.unit.core.fakelauncher import FakeLauncher
from tests.unit.core.rig import PLAIN, Config, core, daemon, eventually, manifest, play, timed_out

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.core.fakelauncher import FakeRun
    from tests.unit.core.rig import Core

SPEAKS = "test.speaks.run"
CHUNKS = 'protocol = "chunks"\n'
SOON = Config(schedule_interval=30.0, stream_first_frame_timeout=0.1)
NEVER = Config(schedule_interval=30.0, stream_first_frame_timeout=None)


async def silent(run: FakeRun) -> None:
    await run.go()
    await run.hear("cancel")
    run.end(0, stopped_by="cancel")


async def speaks_then_works(run: FakeRun) -> None:
    await run.go()
    run.say("log", {"level": "info", "message": "here"})
    await run.hear("cancel")
    run.end(0, stopped_by="cancel")


def test_one_that_says_nothing_is_stopped_and_the_task_says_why(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path, config=SOON) as aios:
            await aios.install(SPEAKS, manifest(SPEAKS, CHUNKS))
            aios.launcher.program = silent
            task = await aios.ended(await aios.create(SPEAKS))
            assert (task.status, task.reason) == ("failed", "first-frame-timeout")
            assert task.error is not None
            assert (task.error["code"], task.error["message"]) == (-32005, "the program sent no chunk within 0.1 s")
            assert timed_out(task, 100)
            (run,) = aios.launcher.made(task.id)
            assert [message["reason"] for kind, message in run.heard if kind == "cancel"] == ["first-frame-timeout"]

    play(scenario())


def test_it_is_tried_again_as_often_as_the_caller_asked(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path, config=SOON) as aios:
            await aios.install(SPEAKS, manifest(SPEAKS, CHUNKS))
            aios.launcher.program = silent
            asked = {"max_attempts": 2, "delay_ms": 0}
            task = await aios.ended(await aios.create(SPEAKS, retry=asked))
            assert (task.reason, task.retry_count) == ("first-frame-timeout", 1)
            assert [run.reason for run in await aios.runs(task.id)] == ["first-frame-timeout"] * 2

    play(scenario())


async def spoken(aios: Core, task: str) -> Watch:
    """The run of a task whose program has been heard."""
    await aios.until(task, "running")
    watch = aios.supervision.of_task(task)
    assert watch is not None
    await eventually(lambda: watch.spoken)
    return watch


def test_after_the_first_chunk_it_may_take_its_time_and_a_plain_program_always(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path, config=Config(schedule_interval=30.0)) as aios:
            await aios.install(SPEAKS, manifest(SPEAKS, CHUNKS))
            aios.launcher.program = speaks_then_works
            speaks, plain = await aios.create(SPEAKS), await aios.create(PLAIN)
            watch, other = await spoken(aios, speaks), await spoken(aios, plain)
            assert other.first_frame_at is None, "nothing is expected of it"
            await eventually(lambda: watch.first_frame_at is None)
            assert watch.time_is_up(1e12) is None
            for task in (speaks, plain):
                await aios.invoke("task.cancel", {"task_id": task})

    play(scenario())


def test_the_next_daemon_gives_it_its_time_anew_unless_it_has_spoken(tmp_path: Path) -> None:
    async def scenario() -> None:
        launcher = FakeLauncher(tmp_path / "launcher")
        async with launcher.serving():
            async with daemon(tmp_path, launcher, config=NEVER) as aios:
                await aios.install(SPEAKS, manifest(SPEAKS, CHUNKS))
                launcher.program = speaks_then_works
                spoke = await aios.create(SPEAKS)
                await spoken(aios, spoke)
                launcher.program = silent
                mute = await aios.create(SPEAKS)
                await aios.until(mute, "running")
            async with daemon(tmp_path, launcher, config=SOON) as aios:
                # What has spoken is read from its file before any time is looked at, so the limit may be short.
                assert (await aios.ended(mute)).reason == "first-frame-timeout"
                assert (await aios.task(spoke)).status == "working"

    play(scenario())


def test_a_frozen_program_is_not_blamed_for_its_silence(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path, config=NEVER) as aios:
            await aios.install(SPEAKS, manifest(SPEAKS, CHUNKS))
            watch = Watch("run-1", "task-1", aios.registry.find(SPEAKS), tmp_path)
            watch.expect_first_frame(100.0, 30.0)
            assert watch.next_moment() == 130.0
            watch.frozen = True
            assert watch.time_is_up(130.0) is None
            watch.frozen = False
            assert watch.time_is_up(159.0) is None
            assert watch.time_is_up(160.0) is Reason.FIRST_FRAME_TIMEOUT
            assert watch.time_is_up(161.0) is None, "said once"

    play(scenario())
