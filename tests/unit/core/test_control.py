"""What people do to a task, in every state and against every race: cancel, pause, resume, input, wait."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from aiosd.errors import AiosError
from aiosd.run.client import LauncherError, LauncherErrorCode
from tests.unit.core.fakelauncher import FakeRun, exits_at_once
from tests.unit.core.rig import Config, core, eventually, manifest, play

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from aiosd.model.jsontext import JsonObject

COOPERATIVE = "test.cooperative.run"
STUBBORN = "test.stubborn.run"
STEADY = "test.steady.run"


async def patient(run: FakeRun) -> None:
    """Runs until it is canceled, and goes then."""
    await run.go()
    await run.hear("cancel")
    run.end(0, stopped_by="cancel")


async def polite(run: FakeRun) -> None:
    """Speaks the protocol: says that it may be paused, pauses, goes on, ends when canceled."""
    await run.go()
    while True:
        kind, message = await run._message()
        if kind in ("can_pause", "can_cancel"):
            run.say(kind, {"id": message["id"], "allowed": True})
        elif kind == "pause":
            run.say("paused", {"id": message["id"]})
        elif kind == "cancel":
            run.end(0, stopped_by="cancel")
            return


async def question(run: FakeRun) -> None:
    """Asks one, and returns what it is told."""
    await run.go()
    schema: JsonObject = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    run.say("task_interaction", {"interaction": 1, "prompt": "how many?", "schema": schema})
    answer = await run.hear("input")
    run.say("task_completion", {"result": {"was": answer["input"]}})
    run.end(0)


def test_canceling_a_pending_task_is_immediate(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path, schedule=False) as aios:
            task = await aios.create()
            answer = await aios.invoke("task.cancel", {"task_id": task, "reason": "not needed"})
            assert answer["status"] == "canceled"
            assert isinstance(answer["canceled_at"], str)
            after = await aios.task(task)
            assert after.reason == "not needed"
            assert await aios.history(task) == ["pending", "canceled"]
            error = await aios.refused("task.cancel", {"task_id": task})
            assert (error.kind.value.code, error.reason) == (-32107, "canceled")

    play(scenario())


def test_every_operation_on_a_finished_task_says_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            task = await aios.create()
            await aios.ended(task)
            before = await aios.log(task)
            for name, more in (
                ("task.cancel", {}), ("task.pause", {}), ("task.resume", {}), ("task.input", {"input": {}}),
                ("task.set_priority", {"priority": "low"}),
            ):  # fmt: skip
                error = await aios.refused(name, {"task_id": task, **more})
                assert (error.kind.value.code, error.kind.value.error_id) == (-32107, "AIOS-TASK-COMPLETED"), name
            assert await aios.log(task) == before

    play(scenario())


def test_a_running_program_has_its_grace(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            asked = asyncio.Event()

            async def ends_when_both_have_asked(run: FakeRun) -> None:
                await run.go()
                await run.hear("cancel")
                await asked.wait()
                run.end(0, stopped_by="cancel")

            aios.launcher.program = ends_when_both_have_asked
            task = await aios.create()
            await aios.until(task, "running")
            first = asyncio.create_task(aios.invoke("task.cancel", {"task_id": task}))
            (run,) = aios.launcher.made(task)
            await eventually(lambda: any(kind == "cancel" for kind, _ in run.heard))
            again = asyncio.create_task(aios.invoke("task.cancel", {"task_id": task, "reason": "again"}))
            for _ in range(3000):
                if (await aios.task(task)).cancel_reason == "again":
                    break
                await asyncio.sleep(0.01)
            asked.set()
            assert [(await one)["status"] for one in (first, again)] == ["canceled", "canceled"]
            told = [message for kind, message in run.heard if kind == "cancel"]
            assert len(told) == 1
            assert (told[0]["reason"], told[0]["grace_ms"]) == ("user_request", 5000)
            assert ("stop", run.request.run) not in aios.launcher.calls
            assert await aios.history(task) == ["pending", "working", "canceled"]

    play(scenario())


def test_a_cancel_while_the_launcher_is_busy_starting_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            aios.launcher.held = asyncio.Event()
            task = await aios.create()
            await aios.until(task, "assigned")
            canceling = asyncio.create_task(aios.invoke("task.cancel", {"task_id": task}))
            await eventually(lambda: any(watch.stopping for watch in aios.supervision.watches.values()))
            aios.launcher.held.set()
            assert (await canceling)["status"] == "canceled"
            (run,) = aios.launcher.made(task)
            assert run.went is None
            assert await aios.history(task) == ["pending", "canceled"]

    play(scenario())


def test_a_cancel_between_the_commit_of_running_and_the_gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            opened = aios.supervision._open_gate
            canceling: list[asyncio.Task[object]] = []

            async def late(*args: object) -> None:
                canceling.append(asyncio.create_task(aios.invoke("task.cancel", {"task_id": task})))
                await eventually(lambda: any(watch.stopping for watch in aios.supervision.watches.values()))
                await opened(*args)  # type: ignore[arg-type]

            monkeypatch.setattr(aios.supervision, "_open_gate", late)
            task = await aios.create()
            await eventually(lambda: bool(canceling))
            await canceling[0]
            assert (await aios.task(task)).status == "canceled"
            assert aios.launcher.made(task)[0].went is None

    play(scenario())


def test_canceling_a_frozen_task_thaws_it_first_and_kills_it_when_that_fails(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            aios.launcher.program = patient
            task = await aios.create()
            await aios.until(task, "running")
            await aios.invoke("task.pause", {"task_id": task})
            assert (await aios.invoke("task.cancel", {"task_id": task}))["status"] == "canceled"
            calls = [name for name, _ in aios.launcher.calls]
            assert calls.index("freeze") < calls.index("thaw")
            assert "stop" not in calls

            task = await aios.create()
            await aios.until(task, "running")
            await aios.invoke("task.pause", {"task_id": task})
            aios.launcher.broken["thaw"] = LauncherError(LauncherErrorCode.SYSTEMD, "it hangs")
            assert (await aios.invoke("task.cancel", {"task_id": task}))["status"] == "canceled"
            assert ("stop", aios.launcher.made(task)[0].request.run) in aios.launcher.calls
            assert await aios.history(task) == ["pending", "working", "paused", "canceled"]

    play(scenario())


def test_canceling_between_two_attempts(tmp_path: Path) -> None:
    async def fails(run: FakeRun) -> None:
        await run.go()
        run.end(1)

    async def scenario() -> None:
        async with core(tmp_path) as aios:
            aios.launcher.program = fails
            task = await aios.create(retry={"max_attempts": 2, "delay_ms": 60_000})
            await aios.until(task, "retry_wait")
            await eventually(lambda: aios.scheduler.waiting_for(task) is not None)
            assert (await aios.invoke("task.get", {"task_id": task}))["waiting_for"] == "retry-delay"
            assert (await aios.invoke("task.cancel", {"task_id": task}))["status"] == "canceled"

    play(scenario())


def test_canceling_a_task_that_waits_for_an_answer(tmp_path: Path) -> None:
    async def asks(run: FakeRun) -> None:
        await run.go()
        run.say("task_interaction", {"interaction": 1, "prompt": "?"})
        await run.hear("cancel")
        run.end(0, stopped_by="cancel")

    async def scenario() -> None:
        async with core(tmp_path) as aios:
            aios.launcher.program = asks
            task = await aios.create()
            await aios.until(task, "input_required")
            assert (await aios.invoke("task.cancel", {"task_id": task}))["status"] == "canceled"
            after = await aios.task(task)
            assert after.question is None

    play(scenario())


def test_a_cancel_is_carried_out_when_whoever_asked_has_gone(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            aios.launcher.program = patient
            for turns in range(12):
                task = await aios.create()
                await aios.until(task, "running")
                asking = asyncio.create_task(aios.invoke("task.cancel", {"task_id": task}))
                for _ in range(turns):
                    await asyncio.sleep(0)
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)
                if (await aios.task(task)).cancel_reason is None:  # it left before anything had begun, or just now
                    with suppress(AiosError):
                        await aios.invoke("task.cancel", {"task_id": task})
                assert (await aios.ended(task)).status == "canceled"

    play(scenario())


def test_a_program_that_finished_by_itself_is_completed(tmp_path: Path) -> None:
    async def finishing(run: FakeRun) -> None:
        await run.go()
        await run.hear("cancel")
        run.say("task_completion", {"result": {"done": True}})
        run.end(0)

    async def scenario() -> None:
        async with core(tmp_path) as aios:
            aios.launcher.program = finishing
            task = await aios.create()
            await aios.until(task, "running")
            assert (await aios.invoke("task.cancel", {"task_id": task}))["status"] == "completed"

    play(scenario())


def test_not_cancelable_is_said(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await aios.install(STUBBORN, manifest(STUBBORN, "cancelable = false\n"))
            released = asyncio.Event()

            async def asks(run: FakeRun) -> None:
                await run.go()
                run.say("task_interaction", {"interaction": 1, "prompt": "?"})
                await released.wait()
                run.end(0)

            aios.launcher.program = asks
            task = await aios.create(STUBBORN)
            await aios.until(task, "input_required")
            error = await aios.refused("task.cancel", {"task_id": task})
            assert (error.kind.value.code, error.reason) == (-32108, "not-cancelable")
            assert (await aios.task(task)).cancel_reason is None
            released.set()
            await aios.ended(task)

    play(scenario())


def test_freeze_and_thaw(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            aios.launcher.program = patient
            task = await aios.create()
            await aios.until(task, "running")
            assert (await aios.invoke("task.pause", {"task_id": task}))["status"] == "paused"
            (run,) = aios.launcher.made(task)
            assert run.is_frozen()
            error = await aios.refused("task.pause", {"task_id": task})
            assert error.kind.value.code == -32108
            assert (await aios.invoke("task.resume", {"task_id": task}))["status"] == "working"
            assert not run.is_frozen()
            error = await aios.refused("task.resume", {"task_id": task})
            assert error.kind.value.code == -32108
            assert await aios.history(task) == ["pending", "working", "paused", "working"]
            types = [event.type for event in await aios.log(task) if event.kind == "task.status"]
            assert types[-2:] == ["task.paused", "task.resumed"]
            await aios.invoke("task.cancel", {"task_id": task})

    play(scenario())


def test_two_pauses_at_once_are_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            aios.launcher.program = patient
            task = await aios.create()
            await aios.until(task, "running")
            both = await asyncio.gather(
                *(aios.invoke("task.pause", {"task_id": task}) for _ in range(2)), return_exceptions=True
            )
            assert sum(isinstance(one, dict) for one in both) == 1
            # The one that was too late must not have let it go.
            assert aios.launcher.made(task)[0].is_frozen()
            assert (await aios.task(task)).status == "paused"
            await aios.invoke("task.cancel", {"task_id": task})

    play(scenario())


def test_a_cooperative_program_pauses_by_itself(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await aios.install(COOPERATIVE, manifest(COOPERATIVE, 'pausable = "cooperative"\n'))
            aios.launcher.program = polite
            task = await aios.create(COOPERATIVE)
            await aios.until(task, "running")
            assert (await aios.invoke("task.pause", {"task_id": task}))["status"] == "paused"
            (run,) = aios.launcher.made(task)
            assert not run.is_frozen()
            await aios.invoke("task.resume", {"task_id": task})
            await eventually(lambda: "resume" in [kind for kind, _ in run.heard])
            await aios.invoke("task.cancel", {"task_id": task})
            assert [kind for kind, _ in run.heard] == ["go", "can_pause", "pause", "resume", "can_cancel", "cancel"]

    play(scenario())


def test_a_cooperative_program_that_does_not_answer_is_frozen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiosd.core.control.PAUSE_ANSWER", 0.05)
    monkeypatch.setattr("aiosd.core.control.ASK_ANSWER", 0.05)

    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await aios.install(COOPERATIVE, manifest(COOPERATIVE, 'pausable = "cooperative"\n'))
            aios.launcher.program = patient
            task = await aios.create(COOPERATIVE)
            await aios.until(task, "running")
            assert (await aios.invoke("task.pause", {"task_id": task}))["status"] == "paused"
            (run,) = aios.launcher.made(task)
            assert run.is_frozen()
            await aios.invoke("task.resume", {"task_id": task})
            assert not run.is_frozen()
            await aios.invoke("task.cancel", {"task_id": task})

    play(scenario())


def test_a_program_may_refuse_with_its_reason(tmp_path: Path) -> None:
    async def refusing(run: FakeRun) -> None:
        await run.go()
        while True:
            kind, message = await run._message()
            if kind in ("can_pause", "can_cancel"):
                run.say(kind, {"id": message["id"], "allowed": False, "reason": "in a transaction"})

    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await aios.install(COOPERATIVE, manifest(COOPERATIVE, 'pausable = "cooperative"\n'))
            aios.launcher.program = refusing
            task = await aios.create(COOPERATIVE)
            await aios.until(task, "running")
            for name in ("task.pause", "task.cancel"):
                error = await aios.refused(name, {"task_id": task})
                assert (error.kind.value.code, error.reason) == (-32108, "program-refused")
                assert error.data()["program_reason"] == "in a transaction"
            assert (await aios.task(task)).status == "working"
            aios.launcher.made(task)[0].end(0)
            await aios.ended(task)

    play(scenario())


def test_what_cannot_be_paused_says_why(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await aios.install(STEADY, manifest(STEADY, "pausable = false\n"))
            aios.launcher.program = patient
            task = await aios.create(STEADY)
            await aios.until(task, "running")
            error = await aios.refused("task.pause", {"task_id": task})
            assert (error.kind.value.code, error.reason) == (-32108, "not-pausable")
            pending = await aios.create(not_before="2100-01-01T00:00:00Z")
            error = await aios.refused("task.pause", {"task_id": pending})
            assert (error.kind.value.code, error.reason) == (-32108, "not-running")
            await aios.invoke("task.cancel", {"task_id": task})

    play(scenario())


def test_a_freezer_that_fails_changes_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            aios.launcher.program = patient
            aios.launcher.broken["freeze"] = LauncherError(LauncherErrorCode.SYSTEMD, "no")
            task = await aios.create()
            await aios.until(task, "running")
            error = await aios.refused("task.pause", {"task_id": task})
            assert (error.kind.value.code, error.reason) == (-32007, "launcher")
            assert (await aios.task(task)).status == "working"
            # A program that ended meanwhile has completed, which is what the caller is told.
            freeze = aios.launcher.freeze

            async def too_late(run: str) -> None:
                aios.launcher.runs[run].end(0)
                await aios.ended(task)
                await freeze(run)

            aios.launcher.broken.clear()
            aios.launcher.freeze = too_late  # type: ignore[method-assign]
            error = await aios.refused("task.pause", {"task_id": task})
            assert error.kind.value.code == -32107

    play(scenario())


def test_a_program_that_ends_while_it_is_paused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            for status, end in ((0, "completed"), (1, "failed")):
                aios.launcher.program = patient
                task = await aios.create()
                await aios.until(task, "running")
                await aios.invoke("task.pause", {"task_id": task})
                aios.launcher.made(task)[0].end(status)
                after = await aios.ended(task)
                assert after.status == end
            assert await aios.history(task) == ["pending", "working", "paused", "failed"]

    play(scenario())


def test_a_time_limit_goes_on_while_paused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            aios.launcher.program = patient
            task = await aios.create(timeout_ms=300)
            await aios.until(task, "running")
            await aios.invoke("task.pause", {"task_id": task})
            after = await aios.ended(task)
            assert (after.status, after.reason) == ("failed", "timeout")
            assert await aios.history(task) == ["pending", "working", "paused", "failed"]

    play(scenario())


def test_a_question_is_answered_once_and_with_what_its_schema_allows(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            aios.launcher.program = question
            task = await aios.create()
            waiting = await aios.until(task, "input_required")
            assert waiting.phase == "waiting_input"
            wrongs: list[JsonObject] = [{}, {"n": "3"}, {"n": 1.5}, {"n": 3, "x": "y" * 70000}]
            for wrong in wrongs:
                error = await aios.refused("task.input", {"task_id": task, "input": wrong})
                assert (error.kind.value.code, error.kind.value.error_id) == (-32108, "AIOS-INVALID-INPUT")
            answers = await asyncio.gather(
                *(aios.invoke("task.input", {"task_id": task, "input": {"n": n}}) for n in (1, 2)),
                return_exceptions=True,
            )
            taken = [n for n, one in zip((1, 2), answers, strict=True) if isinstance(one, dict)]
            assert len(taken) == 1
            after = await aios.ended(task)
            assert after.result == {"was": {"n": taken[0]}}
            assert after.question is None
            assert await aios.history(task) == ["pending", "working", "input_required", "working", "completed"]
            error = await aios.refused("task.input", {"task_id": task, "input": {}})
            assert error.kind.value.code == -32107

    play(scenario())


def test_a_question_with_the_same_number_again_is_answered_again(tmp_path: Path) -> None:
    async def twice(run: FakeRun) -> None:
        await run.go()
        for _ in range(2):
            run.say("task_interaction", {"interaction": 1, "prompt": "?"})
            await run.hear("input")
        run.end(0)

    async def scenario() -> None:
        async with core(tmp_path) as aios:
            aios.launcher.program = twice
            task = await aios.create()
            for _ in range(2):
                await aios.until(task, "input_required")
                await aios.invoke("task.input", {"task_id": task, "input": {}})
            assert (await aios.ended(task)).status == "completed"

    play(scenario())


def test_a_question_asked_in_the_moment_of_a_pause_comes_up_on_resume(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            released = asyncio.Event()

            async def asks(run: FakeRun) -> None:
                await run.go()
                await released.wait()
                run.say("task_interaction", {"interaction": 1, "prompt": "now?"})
                await run.hear("input")
                run.end(0)

            aios.launcher.program = asks
            task = await aios.create()
            await aios.until(task, "running")
            await aios.invoke("task.pause", {"task_id": task})
            released.set()  # it had written it before it was frozen
            (run,) = aios.launcher.made(task)
            await eventually(lambda: run.events is not None and run.events.count == 2)
            await asyncio.sleep(0.05)
            assert (await aios.invoke("task.get", {"task_id": task}))["status"] == "paused"
            assert (await aios.invoke("task.resume", {"task_id": task}))["status"] == "input_required"
            await aios.invoke("task.input", {"task_id": task, "input": {}})
            assert (await aios.ended(task)).status == "completed"

    play(scenario())


def test_waiting(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            aios.launcher.program = question
            task = await aios.create()
            loop = asyncio.get_running_loop()
            begun = loop.time()
            shown = await aios.invoke("task.wait", {"task_id": task, "timeout_ms": 100})
            assert shown["status"] in ("pending", "working", "input_required")
            assert loop.time() - begun >= 0.09
            shown = await aios.invoke("task.wait", {"task_id": task, "until_waiting": True})
            assert shown["status"] == "input_required"
            assert "question" in shown
            counts = (await aios.invoke("service.status", {}))["tasks"]
            assert isinstance(counts, dict)
            assert (counts["waiting"], counts["queued"], counts["total"]) == (1, 0, 1)
            waiting = asyncio.create_task(aios.invoke("task.wait", {"task_id": task}))
            await aios.invoke("task.input", {"task_id": task, "input": {"n": 1}})
            assert (await waiting)["status"] == "completed"
            assert (await aios.invoke("task.wait", {"task_id": task}))["status"] == "completed"
            # Who waited has left nothing behind.
            assert aios.hub._watchers == {}
            await eventually(lambda: aios.supervision.watches == {})

    play(scenario())


def test_the_launcher_is_away_when_a_program_is_to_be_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiosd.core.supervision.STOP_MARGIN", 0.0)
    monkeypatch.setattr("aiosd.core.supervision.LAUNCHER_RETRY", 0.05)

    async def deaf(run: FakeRun) -> None:
        await run.go()
        await asyncio.Event().wait()

    async def scenario() -> None:
        async with core(tmp_path, config=Config(schedule_interval=30.0)) as aios:
            await aios.install(STEADY, manifest(STEADY, 'cancel_grace = "20ms"\n'))
            aios.launcher.program = deaf
            task = await aios.create(STEADY)
            await aios.until(task, "running")
            aios.launcher.away = True
            canceling = asyncio.create_task(aios.invoke("task.cancel", {"task_id": task}))
            await eventually(lambda: sum(name == "stop" for name, _ in aios.launcher.calls) >= 3)
            assert (await aios.task(task)).status == "working"
            aios.launcher.away = False
            assert (await canceling)["status"] == "canceled"

    play(scenario())


def test_one_runs_fault_is_its_own(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            aios.launcher.program = patient
            good, bad = await aios.create(), await aios.create()
            await aios.until(good, "running")
            await aios.until(bad, "running")
            aios.launcher.made(bad)[0].paths.events.unlink()
            aios.launcher.made(bad)[0].paths.events.mkdir()
            aios.launcher.made(bad)[0].shim.tell({"type": "poke"})
            after = await aios.ended(bad)
            assert (after.status, after.reason) == ("failed", "lost")
            assert (await aios.task(good)).status == "working"
            assert (await aios.invoke("task.cancel", {"task_id": good}))["status"] == "canceled"
            aios.launcher.program = exits_at_once
            assert (await aios.ended(await aios.create())).status == "completed"

    play(scenario())
