"""The daemon dies and comes back: each row of the design's recovery table, with runs that went on meanwhile."""

from __future__ import annotations

import asyncio
import errno
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from aiosd.core.artifacts import BlobStore
from aiosd.core.intake import Intake
from aiosd.run import records
from aiosd.run.client import LauncherError, LauncherErrorCode, StartRequest
from aiosd.store import runs
from aiosd.store.errors import StoreError, StoreFailure
from tests.unit.core.fakelauncher import FakeLauncher, FakeRun
from tests.unit.core.rig import BOOT, PLAIN, Core, daemon, eventually, manifest, play

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from aiosd.core.watch import Watch
    from aiosd.model.task import Run

OTHER_BOOT = "4f0c7f2e-0000-4000-8000-000000000002"
CAPABILITY = "test.recovered.run"


@asynccontextmanager
async def machine(
    root: Path, program: Callable[[FakeRun], Awaitable[None]] | None = None
) -> AsyncIterator[FakeLauncher]:
    launcher = FakeLauncher(root / "launcher")
    if program is not None:
        launcher.program = program
    async with launcher.serving():
        yield launcher


async def waits(run: FakeRun) -> None:
    await run.go()
    await asyncio.Event().wait()


async def patient(run: FakeRun) -> None:
    await run.go()
    await run.hear("cancel")
    run.end(0, stopped_by="cancel")


async def running(aios: Core, extra: str = "") -> str:
    """A task that runs."""
    await aios.install(CAPABILITY, manifest(CAPABILITY, extra))
    task = await aios.create(CAPABILITY)
    await aios.until(task, "running")
    await eventually(lambda: all(run.went is not None for run in aios.launcher.made(task)))
    return task


def test_a_run_that_lives_is_adopted_with_all_that_it_wrote(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with machine(tmp_path, waits) as launcher:
            async with daemon(tmp_path, launcher) as aios:
                task = await running(aios)
                (run,) = launcher.made(task)
                run.say("processing", {"progress": {"percent": 10}})
                run.write("stdout", b"before\n")
                await eventually(lambda: sum(event.kind in ("task.progress", "task.log") for event in aios.events) >= 2)
            run.say("log", {"message": "nobody hears"})
            run.say("processing", {"progress": {"percent": 20}})
            run.say("log", {"message": "nobody hears this either"})
            run.write("stdout", b"while\n")
            async with daemon(tmp_path, launcher) as aios:
                run.say("processing", {"progress": {"percent": 30}})
                run.say("task_completion", {"result": {"x": 1}})
                run.end(0)
                after = await aios.ended(task)
                assert (after.status, after.result, after.attempt) == ("completed", {"x": 1}, 1)
                told = [event.payload for event in await aios.log(task)]
                assert [one["progress"] for one in told if "progress" in one] == [
                    {"percent": 10}, {"percent": 20}, {"percent": 30}
                ]  # fmt: skip
                assert "".join(str(one["text"]) for one in told if "text" in one) == "before\nwhile\n"
                said = [str(one["message"]) for one in told if "message" in one]
                assert said == ["nobody hears", "nobody hears this either"]
                assert [kind for kind, _ in run.heard].count("go") == 1
                assert await aios.history(task) == ["pending", "working", "completed"]

    play(scenario())


def test_a_result_that_came_while_nobody_looked_is_taken_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with machine(tmp_path, waits) as launcher:
            async with daemon(tmp_path, launcher) as aios:
                task = await running(aios)
            launcher.made(task)[0].end(3)
            for _ in range(2):
                async with daemon(tmp_path, launcher) as aios:
                    after = await aios.ended(task)
                    assert (after.status, after.reason) == ("failed", "exit-status")
                    assert await aios.history(task) == ["pending", "working", "failed"]

    play(scenario())


@pytest.mark.parametrize(
    ("extra", "end"),
    [
        ("", ("failed", "failed")),
        ('recovery = "fail"\n', ("failed", "failed")),
        ('recovery = "ask"\n', ("input_required", "blocked")),
        ('recovery = "retry"\nidempotent = true\n', ("completed", "completed")),
    ],
)
@pytest.mark.parametrize("how", ["reboot", "supervisor-died", "lost"])
def test_a_lost_run_follows_the_capabilitys_policy(tmp_path: Path, extra: str, end: tuple[str, str], how: str) -> None:
    async def scenario() -> None:
        async with machine(tmp_path, waits) as launcher:
            async with daemon(tmp_path, launcher) as aios:
                task = await running(aios, extra)
            (run,) = launcher.made(task)
            if how == "supervisor-died":
                launcher.broken["attach"] = LauncherError(LauncherErrorCode.GONE, "no answer")
            else:
                run.vanish()
            launcher.program = _exit
            async with daemon(tmp_path, launcher, boot=OTHER_BOOT if how == "reboot" else BOOT) as aios:
                await aios.until(task, end[1])
                after = await aios.task(task)
                assert after.status == end[0]
                first = (await aios.runs(task))[0]
                assert (first.state, first.reason) == ("ended", how)
                if end[0] != "completed":
                    assert after.reason == how
                    assert len(launcher.made(task)) == 1

    play(scenario())


async def _exit(run: FakeRun) -> None:
    await run.go()
    run.end(0)


def test_a_supervisor_that_dies_in_front_of_us_is_a_lost_run_too(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with machine(tmp_path, waits) as launcher, daemon(tmp_path, launcher) as aios:
            task = await running(aios, 'recovery = "ask"\n')
            launcher.made(task)[0].vanish()
            blocked = await aios.until(task, "blocked")
            assert blocked.reason == "supervisor-died"

    play(scenario())


def test_a_task_that_takes_the_machine_down_each_time_does_so_only_so_often(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with machine(tmp_path) as launcher, daemon(tmp_path, launcher) as aios:

            async def dies(run: FakeRun) -> None:
                await run.go()
                run.vanish()

            await aios.install(CAPABILITY, manifest(CAPABILITY, 'recovery = "retry"\nidempotent = true\n'))
            launcher.program = dies
            task = await aios.create(CAPABILITY)
            after = await aios.ended(task)
            assert (after.status, after.reason) == ("failed", "supervisor-died")
            assert len(launcher.made(task)) == 4

    play(scenario())


def test_what_a_lost_run_had_finished_is_not_done_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with machine(tmp_path, waits) as launcher:
            async with daemon(tmp_path, launcher) as aios:
                task = await running(aios, 'recovery = "retry"\nidempotent = true\n')
            (run,) = launcher.made(task)
            run.say("task_completion", {"result": {"paid": True}})
            run.vanish()
            async with daemon(tmp_path, launcher) as aios:
                after = await aios.ended(task)
                assert (after.status, after.result) == ("completed", {"paid": True})
                assert len(launcher.made(task)) == 1

    play(scenario())


def test_a_run_that_was_being_started_is_started_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with machine(tmp_path) as launcher:
            launcher.held = asyncio.Event()
            async with daemon(tmp_path, launcher) as aios:
                task = await aios.create()
                await aios.until(task, "assigned")
            launcher.held = None
            async with daemon(tmp_path, launcher) as aios:
                after = await aios.ended(task)
                assert (after.status, after.retry_count) == ("completed", 0)
                assert [run.reason for run in await aios.runs(task)] == ["launch", "result"]

    play(scenario())


def test_a_shim_whose_gate_closed_never_ran(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with machine(tmp_path) as launcher:
            launcher.held = asyncio.Event()
            async with daemon(tmp_path, launcher) as aios:
                task = await aios.create()
                await aios.until(task, "assigned")
                (row,) = await aios.runs(task)
            launcher.held = None
            run = launcher.make(StartRequest(row.id, task, PLAIN, 1000))
            run.end(None, launch_error="the start gate was closed", started=False)
            async with daemon(tmp_path, launcher) as aios:
                assert (await aios.ended(task)).status == "completed"

    play(scenario())


def test_a_run_at_its_gate_is_let_go_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with machine(tmp_path) as launcher:
            launcher.held = asyncio.Event()
            async with daemon(tmp_path, launcher) as aios:
                task = await aios.create()
                await aios.until(task, "assigned")
                (row,) = await aios.runs(task)
            launcher.held = None
            run = launcher.make(StartRequest(row.id, task, PLAIN, 1000))
            program = asyncio.create_task(_exit(run))
            async with daemon(tmp_path, launcher) as aios:
                assert (await aios.ended(task)).status == "completed"
                assert len(await aios.runs(task)) == 1
            await program

    play(scenario())


def test_a_cancel_that_was_asked_for_before_the_crash_is_carried_out(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with machine(tmp_path, waits) as launcher:
            async with daemon(tmp_path, launcher) as aios:
                task = await running(aios)
                asking = asyncio.create_task(aios.invoke("task.cancel", {"task_id": task, "reason": "enough"}))
                await eventually(lambda: any(watch.stopping for watch in aios.supervision.watches.values()))
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)
            (run,) = launcher.made(task)

            async def obeys() -> None:
                await run.hear("cancel")
                await run.hear("cancel")  # the second daemon says it again
                run.end(0, stopped_by="cancel")

            assert run.task is not None
            run.task.cancel()
            await asyncio.gather(run.task, return_exceptions=True)
            obeying = asyncio.create_task(obeys())
            async with daemon(tmp_path, launcher) as aios:
                after = await aios.ended(task)
                assert (after.status, after.reason) == ("canceled", "enough")
            await obeying

    play(scenario())


@pytest.mark.parametrize("how", ["frozen before it was stored", "stored before it was thawed"])
def test_a_crash_in_the_middle_of_a_pause_leaves_no_working_task_frozen(tmp_path: Path, how: str) -> None:
    async def scenario() -> None:
        async with machine(tmp_path, patient) as launcher:
            async with daemon(tmp_path, launcher) as aios:
                task = await running(aios)
                (run,) = launcher.made(task)
                if how == "stored before it was thawed":
                    await aios.invoke("task.pause", {"task_id": task})
                    launcher.broken["thaw"] = LauncherError(LauncherErrorCode.GONE_AWAY, "crash")
                    await aios.refused("task.resume", {"task_id": task})
                    launcher.broken.clear()
            run.frozen = True
            async with daemon(tmp_path, launcher) as aios:
                await eventually(lambda: not run.is_frozen())
                assert (await aios.task(task)).status == "working"
                await aios.invoke("task.cancel", {"task_id": task})

    play(scenario())


def test_what_is_paused_before_programs_are_let_go_stays_paused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    calm, began = asyncio.Event(), asyncio.Event()

    async def until_calm(_: float) -> None:
        began.set()
        await calm.wait()

    async def scenario() -> None:
        async with machine(tmp_path, patient) as launcher:
            async with daemon(tmp_path, launcher) as aios:
                task = await running(aios, 'pausable = "freeze"\n')
            (run,) = launcher.made(task)
            monkeypatch.setattr("aiosd.core.half_paused.until_calm", until_calm)
            async with daemon(tmp_path, launcher) as aios:
                await began.wait()
                await aios.invoke("task.pause", {"task_id": task})
                watch = aios.supervision.watches[task]
                async with watch.holding:
                    calm.set()
                    for _ in range(10):  # until it waits for the lock, too
                        await asyncio.sleep(0)
                async with watch.holding:  # after it
                    assert run.is_frozen()
                assert "thaw" not in [call for call, _ in launcher.calls]
                await aios.invoke("task.cancel", {"task_id": task})

    play(scenario())


def test_a_paused_task_stays_paused_and_can_be_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiosd.core.control.PAUSE_ANSWER", 0.05)
    monkeypatch.setattr("aiosd.core.control.ASK_ANSWER", 0.05)

    async def scenario() -> None:
        async with machine(tmp_path, patient) as launcher:
            async with daemon(tmp_path, launcher) as aios:
                # It did not answer and was frozen: the next daemon must know that it may be.
                task = await running(aios, 'pausable = "cooperative"\n')
                await aios.invoke("task.pause", {"task_id": task})
            (run,) = launcher.made(task)
            async with daemon(tmp_path, launcher) as aios:
                assert (await aios.task(task)).status == "paused"
                assert run.is_frozen()
                await aios.invoke("task.resume", {"task_id": task})
                assert not run.is_frozen()
                await aios.invoke("task.cancel", {"task_id": task})

    play(scenario())


def test_an_accepted_answer_survives_a_crash_before_its_delivery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with machine(tmp_path) as launcher:
            heard: list[object] = []

            async def asks(run: FakeRun) -> None:
                await run.go()
                run.say("task_interaction", {"interaction": 5, "prompt": "?"})
                heard.append((await run.hear("input"))["input"])
                run.say("task_completion", {"result": {}})
                run.end(0)

            launcher.program = asks
            async with daemon(tmp_path, launcher) as aios:
                task = await aios.create()
                await aios.until(task, "input_required")

                async def crash(*_args: object) -> None:
                    return None

                monkeypatch.setattr(aios.supervision, "deliver_answer", crash)
                await aios.invoke("task.input", {"task_id": task, "input": {"n": 1}})
                shown = await aios.invoke("task.get", {"task_id": task})
                assert shown["status"] == "working"
                assert "question" not in shown
            async with daemon(tmp_path, launcher) as aios:
                assert (await aios.ended(task)).status == "completed"
            assert heard == [{"n": 1}]

    play(scenario())


def test_scopes_that_belong_to_nobody_are_stopped_and_removed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with machine(tmp_path) as launcher:
            orphan = launcher.make(StartRequest("run-01m8nv0000000000000000000a", "task-x", PLAIN, 1000))
            dead = launcher.make(StartRequest("run-01m8nv0000000000000000000b", "task-y", PLAIN, 1000))
            dead.vanish()
            async with daemon(tmp_path, launcher) as aios:
                assert [call for call in launcher.calls if call[0] != "list"] == [
                    ("stop", orphan.request.run), ("remove", orphan.request.run), ("remove", dead.request.run)
                ]  # fmt: skip
                kept = await aios.create()
                await aios.ended(kept)
            async with daemon(tmp_path, launcher) as aios:
                # The directory of an ended run is its log: it stays.
                assert ("remove", launcher.made(kept)[0].request.run) not in launcher.calls

    play(scenario())


def test_a_launcher_that_goes_away_in_the_middle_loses_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with machine(tmp_path, patient) as launcher:
            async with daemon(tmp_path, launcher) as aios:
                first = await running(aios)
                second = await running(aios)
            async with daemon(tmp_path, launcher, recover=False) as aios:
                attach = launcher.attach
                attached: list[str] = []

                async def once(run: str) -> object:
                    attached.append(run)
                    if len(attached) == 2:
                        raise LauncherError(LauncherErrorCode.GONE_AWAY, "restarted")
                    return await attach(run)

                launcher.attach = once  # type: ignore[method-assign,assignment]
                with pytest.raises(LauncherError):
                    await aios.recoverer.run()
                await aios.recoverer.run()
                assert len(attached) == 3  # the one that was adopted is not adopted twice
                assert len(aios.supervision.watches) == 2
                for task in (first, second):
                    assert (await aios.task(task)).status == "working"
                    assert (await aios.invoke("task.cancel", {"task_id": task}))["status"] == "canceled"

    play(scenario())


def test_waiting_tasks_go_on_waiting(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with machine(tmp_path) as launcher:

            async def asks(run: FakeRun) -> None:
                await run.go()
                run.say("task_interaction", {"interaction": 1, "prompt": "?"})
                await run.hear("input")
                run.end(0)

            launcher.program = asks
            async with daemon(tmp_path, launcher) as aios:
                later = await aios.create(not_before="2100-01-01T00:00:00Z")
                asking = await aios.create()
                await aios.until(asking, "input_required")
            async with daemon(tmp_path, launcher) as aios:
                assert (await aios.task(later)).phase == "waiting"
                assert (await aios.task(asking)).status == "input_required"
                await aios.invoke("task.input", {"task_id": asking, "input": {}})
                assert (await aios.ended(asking)).status == "completed"

    play(scenario())


def test_a_cancel_right_after_a_restart_is_told_to_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run is only just being taken up: its program is asked all the same, and not killed without its grace."""
    release = asyncio.Event()
    recall = Intake.recall

    async def late(intake: Intake, watch: Watch, run: Run) -> None:
        await release.wait()
        await recall(intake, watch, run)

    async def scenario() -> None:
        async with machine(tmp_path, patient) as launcher:
            async with daemon(tmp_path, launcher) as aios:
                task = await running(aios)
            monkeypatch.setattr(Intake, "recall", late)
            async with daemon(tmp_path, launcher) as aios:
                canceling = asyncio.create_task(aios.invoke("task.cancel", {"task_id": task}))
                while (await aios.task(task)).cancel_reason is None:  # noqa: ASYNC110  no event tells
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.05)  # the cancel goes on until it waits for the run, or ends it
                release.set()
                await canceling
                assert (await aios.task(task)).status == "canceled"
            assert "cancel" in [kind for kind, _ in launcher.made(task)[0].heard]
            assert not [call for call in launcher.calls if call[0] == "stop"]

    play(scenario())


def wanting(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, error: Exception, times: int) -> list[Exception]:
    """The next calls fail with that; how many have."""
    real: Callable[..., object] = getattr(owner, name)
    failed: list[Exception] = []

    def poor(*arguments: object, **more: object) -> object:
        if len(failed) < times:
            failed.append(error)
            raise error
        return real(*arguments, **more)

    monkeypatch.setattr(owner, name, poor)
    return failed


NO_DESCRIPTOR = OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def test_a_daemon_without_descriptors_gives_no_program_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the daemon that lacks something (or the machine: ENFILE). Its programs are not killed for that."""
    monkeypatch.setattr("aiosd.core.durable.STORE_RETRY", 0.01)

    async def works(run: FakeRun) -> None:
        await run.go()
        failed = [
            wanting(monkeypatch, records, "read_events", NO_DESCRIPTOR, 5),
            wanting(monkeypatch, BlobStore, "take", NO_DESCRIPTOR, 3),
        ]
        run.say("artifact", {"key": "k", "parts": [{"file": {"blob": run.blob(b"kept")}}]})
        await eventually(lambda: len(failed[0]) == 5 and len(failed[1]) == 3)
        wanting(monkeypatch, records, "read_exit", NO_DESCRIPTOR, 3)
        run.say("task_completion", {"result": {"n": 1}})
        run.end(0)

    async def scenario() -> None:
        launcher = FakeLauncher(tmp_path / "launcher")
        launcher.program = works
        async with launcher.serving(), daemon(tmp_path, launcher) as aios:
            task = await aios.create()
            ended = await aios.ended(task)
            assert (ended.status, ended.result, ended.attempt) == ("completed", {"n": 1}, 1)
            found = (await aios.invoke("artifact.list", {"task_id": task}))["artifacts"]
            assert isinstance(found, list)
            assert len(found) == 1
            assert "error" not in str(found[0])
            assert ("stop", aios.launcher.made(task)[0].request.run) not in launcher.calls

    play(scenario())


def test_a_result_that_cannot_be_read_yet_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiosd.core.durable.STORE_RETRY", 0.01)

    async def scenario() -> None:
        launcher = FakeLauncher(tmp_path / "launcher")
        launcher.program = waits
        async with launcher.serving():
            async with daemon(tmp_path, launcher) as aios:
                task = await aios.create()
                await aios.until(task, "running")
                await eventually(lambda: launcher.made(task)[0].went is not None)
            launcher.made(task)[0].end(0)
            failed = wanting(monkeypatch, records, "read_exit", NO_DESCRIPTOR, 4)
            busy = wanting(monkeypatch, runs, "told_log_sizes", StoreError(StoreFailure.BUSY), 3)
            async with daemon(tmp_path, launcher) as aios:
                assert (await aios.ended(task)).status == "completed"
            assert (len(failed), len(busy)) == (4, 3)

    play(scenario())
