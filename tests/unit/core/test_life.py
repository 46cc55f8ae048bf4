"""A task's life with a launcher that does what it is told: every end that a run can have (seed 000, design)."""

from __future__ import annotations

import asyncio
import itertools
import os
from typing import TYPE_CHECKING

import pytest

from aiosd.errors import AiosError
from aiosd.model.ids import event_sequence
from aiosd.run.client import LauncherError, LauncherErrorCode
from tests.unit.core.rig import PLAIN, USER, core, eventually, kinds, manifest, play

if TYPE_CHECKING:
    from pathlib import Path

    from aiosd.model.jsontext import JsonObject
    from tests.unit.core.fakelauncher import FakeRun


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_task_that_exits_with_zero_completes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, in_memory: bool
) -> None:
    def waits(_fd: int, _buffers: list[bytearray], _offset: int, _flags: int) -> int:
        raise BlockingIOError

    if not in_memory:  # what the run left is on a disk that has to be waited for
        monkeypatch.setattr(os, "preadv", waits)

    async def scenario() -> None:
        async with core(tmp_path) as aios:
            task = await aios.create(arguments={"a": 1}, metadata={"tags": ["x"]})
            after = await aios.ended(task)
            assert after.status == "completed"
            assert after.result == {"exit_status": 0}
            assert after.started_at is not None
            assert after.ended_at is not None
            assert await aios.history(task) == ["pending", "working", "completed"]
            (run,) = aios.launcher.made(task)
            assert run.went is not None
            told = {key: run.went[key] for key in ("arguments", "task_id", "attempt", "metadata")}
            assert told == {"arguments": {"a": 1}, "task_id": task, "attempt": 1, "metadata": {"tags": ["x"]}}
            # The status comes before the result (seed 000's example), and numbers ascend.
            events = await aios.log(task)
            assert kinds(events)[-2:] == ["task.status", "task.result"]
            assert events == aios.events
            numbers = [event.sequence for event in events]
            assert numbers == sorted(set(numbers))

    play(scenario())


@pytest.mark.parametrize(
    ("how", "reason", "shown"),
    [
        ({"status": 3}, "exit-status", {"exit_status": 3}),
        ({"signal": "SIGSEGV"}, "signal", {"signal": "SIGSEGV"}),
        ({"signal": "SIGKILL", "oom": True}, "oom-kill", {}),
        ({"launch_error": "no such program"}, "launch", {}),
    ],
)
def test_ends_that_are_failures(tmp_path: Path, how: dict[str, object], reason: str, shown: dict[str, object]) -> None:
    async def program(run: FakeRun) -> None:
        await run.go()
        run.end(**how)  # type: ignore[arg-type]  # a table's row

    async def scenario() -> None:
        async with core(tmp_path) as aios:
            aios.launcher.program = program
            task = await aios.create()
            after = await aios.ended(task)
            assert (after.status, after.reason) == ("failed", reason)
            assert after.error is not None
            assert after.error["code"] == -32013
            data = after.error["data"]
            assert isinstance(data, dict)
            assert data["reason"] == reason
            assert data["capability_id"] == PLAIN
            assert shown.items() <= data.items()
            assert kinds(await aios.log(task))[-2:] == ["task.status", "task.error"]
            (run,) = await aios.runs(task)
            assert run.state == "ended"
            assert run.reason == reason

    play(scenario())


def test_a_time_limit_ends_it_with_the_data_of_seed_000(tmp_path: Path) -> None:
    async def program(run: FakeRun) -> None:
        await run.go()
        asked = await run.hear("cancel")
        assert asked["grace_ms"] == 5000
        run.end(0, stopped_by="cancel")

    async def scenario() -> None:
        async with core(tmp_path) as aios:
            aios.launcher.program = program
            task = await aios.create(timeout_ms=60)
            after = await aios.ended(task)
            assert (after.status, after.reason) == ("failed", "timeout")
            assert after.error is not None
            assert (after.error["code"], after.error["message"]) == (-32005, "Timeout")
            data = after.error["data"]
            assert isinstance(data, dict)
            assert (data["capability_id"], data["timeout_ms"]) == (PLAIN, 60)
            assert isinstance(data["elapsed_ms"], int)
            assert 60 <= data["elapsed_ms"] < 30_000
            # PID 1's limit is wider than ours: limit, grace and a margin (design: it acts while the daemon is away).
            assert aios.launcher.made(task)[0].request.runtime_max_usec > (60 + 5000) * 1000

    play(scenario())


def test_what_does_not_end_in_its_grace_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiosd.core.supervision.STOP_MARGIN", 0.0)

    async def deaf(run: FakeRun) -> None:
        await run.go()
        await asyncio.Event().wait()

    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await aios.install("test.deaf.run", manifest("test.deaf.run", 'cancel_grace = "50ms"\n'))
            aios.launcher.program = deaf
            task = await aios.create("test.deaf.run", timeout_ms=30)
            after = await aios.ended(task)
            assert (after.status, after.reason) == ("failed", "timeout")
            assert ("stop", aios.launcher.made(task)[0].request.run) in aios.launcher.calls

    play(scenario())


def test_retries_each_with_its_reason_then_success(tmp_path: Path) -> None:
    async def program(run: FakeRun) -> None:
        went = await run.go()
        run.end(3 if went["attempt"] != 3 else 0)

    async def scenario() -> None:
        async with core(tmp_path) as aios:
            aios.launcher.program = program
            task = await aios.create(retry={"max_attempts": 3, "delay_ms": 20})
            after = await aios.ended(task)
            assert (after.status, after.attempt, after.retry_count) == ("completed", 3, 2)
            assert after.error is None
            runs = await aios.runs(task)
            assert [run.reason for run in runs] == ["exit-status", "exit-status", "result"]
            for earlier, later in itertools.pairwise(runs):
                assert earlier.ended_at is not None
                assert later.started_at - earlier.ended_at >= 20_000
            retries = [event for event in await aios.log(task) if event.type == "task.retry"]
            assert [event.payload["reason"] for event in retries] == ["exit-status", "exit-status"]
            assert [event.payload["phase"] for event in retries] == ["retry_wait", "retry_wait"]
            assert all(event.change is not None for event in retries)
            # A retry is inside `working`: final states and pending are entered once (design: attempts).
            assert await aios.history(task) == ["pending", "working", "completed"]

    play(scenario())


def test_a_task_that_waits_for_its_retry_holds_no_slot(tmp_path: Path) -> None:
    async def fails(run: FakeRun) -> None:
        await run.go()
        run.end(1)

    async def scenario() -> None:
        async with core(tmp_path) as aios:
            aios.settings.current = aios.settings.current.__class__(max_concurrent_tasks=1, schedule_interval=30.0)
            held = asyncio.Event()

            async def waits_then_fails(run: FakeRun) -> None:
                await run.go()
                await held.wait()
                run.end(1)

            aios.launcher.program = waits_then_fails
            first = await aios.create(retry={"max_attempts": 2, "delay_ms": 60_000})
            await aios.until(first, "running")
            aios.launcher.program = _exit
            second = await aios.create()
            held.set()
            # The safety scan is half a minute away: only the wake-up can bring it this soon.
            assert (await aios.ended(second)).status == "completed"
            assert (await aios.task(first)).phase == "retry_wait"

    play(scenario())


async def _exit(run: FakeRun) -> None:
    await run.go()
    run.end(0)


def test_attempts_exhausted(tmp_path: Path) -> None:
    async def program(run: FakeRun) -> None:
        await run.go()
        run.end(1)

    async def scenario() -> None:
        async with core(tmp_path) as aios:
            aios.launcher.program = program
            task = await aios.create(retry={"max_attempts": 2, "delay_ms": 0})
            after = await aios.ended(task)
            assert (after.status, after.reason, after.attempt) == ("failed", "exit-status", 2)
            # A time limit and a program's own "not again" are final at once.
            aios.launcher.program = _final_failure
            task = await aios.create(retry={"max_attempts": 5, "delay_ms": 0})
            after = await aios.ended(task)
            assert (after.status, after.reason, after.attempt) == ("failed", "reported", 1)
            assert after.error is not None
            assert after.error["message"] == "no such page"

    play(scenario())


async def _final_failure(run: FakeRun) -> None:
    await run.go()
    run.say("task_failed", {"message": "no such page", "reason": "conflict", "retryable": False})
    run.end(1)


ESCALATE = 'on_failure = "escalate"\n'


def test_escalation_to_a_person_who_tries_again_or_gives_up(tmp_path: Path) -> None:
    async def program(run: FakeRun) -> None:
        went = await run.go()
        run.end(0 if went["attempt"] == 2 else 4)

    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await aios.install("test.escalating.run", manifest("test.escalating.run", ESCALATE))
            aios.launcher.program = program
            task = await aios.create("test.escalating.run")
            blocked = await aios.until(task, "blocked")
            assert (blocked.status, blocked.reason) == ("input_required", "exit-status")
            (asked,) = [event for event in await aios.log(task) if event.kind == "task.input_required"]
            assert asked.payload["prompt"] == "exit status 4; try again?"
            assert asked.payload["options"] == ["retry", "fail"]
            whole = await aios.invoke("task.get", {"task_id": task, "include_history": True})
            assert isinstance(whole["state_history"], list)
            last = whole["state_history"][-1]
            assert isinstance(last, dict)
            assert last["metadata"] == {"prompt": asked.payload["prompt"], "options_count": 2}
            refusal = await aios.refused("task.input", {"task_id": task, "input": {"action": "perhaps"}})
            assert refusal.kind.value.code == -32108
            await aios.invoke("task.input", {"task_id": task, "input": {"action": "retry"}})
            assert (await aios.ended(task)).status == "completed"
            assert await aios.history(task) == ["pending", "working", "input_required", "working", "completed"]

            task = await aios.create("test.escalating.run")
            question = (await aios.until(task, "blocked")).question
            assert question is not None
            assert question["options"] == ["retry", "fail"]
            answer = await aios.invoke("task.input", {"task_id": task, "input": {"action": "fail"}})
            assert answer["status"] == "failed"
            after = await aios.task(task)
            assert after.reason == "exit-status"
            assert after.error is not None

    play(scenario())


def test_the_completion_chunk_is_the_result_and_has_to_fit_its_schema(tmp_path: Path) -> None:
    schema = 'retry = {max_attempts = 1}\n[result]\ntype = "object"\nrequired = ["sum"]\n'
    results: list[JsonObject] = [{"sum": 3}, {"total": 3}]

    async def program(run: FakeRun) -> None:
        await run.go()
        run.say("task_completion", {"result": results.pop(0)})
        run.end(0)

    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await aios.install("test.result.run", manifest("test.result.run", schema))
            aios.launcher.program = program
            good = await aios.ended(await aios.create("test.result.run", metadata={"who": "me"}))
            assert (good.status, good.result) == ("completed", {"sum": 3})
            shown = (await aios.log(good.id))[-1]
            assert shown.payload["result"] == {"sum": 3}
            assert shown.payload["metadata"] == {"who": "me"}
            bad = await aios.ended(await aios.create("test.result.run"))
            assert (bad.status, bad.reason, bad.result) == ("failed", "invalid-result", None)

    play(scenario())


def test_refusals_of_the_launcher(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            # One that says nothing about the task: queued again, no attempt of it used up.
            aios.launcher.refusals = [LauncherError(LauncherErrorCode.SYSTEMD, "the bus is busy")]
            task = await aios.create()
            again = await aios.until(task, "queued")
            after = await aios.ended(task)
            assert (again.status, after.status, after.retry_count) == ("pending", "completed", 0)
            assert [run.reason for run in await aios.runs(task)] == ["launch", "result"]
            # One that is about the task: the program cannot run, so pending becomes failed (seed 000's table).
            aios.launcher.refusals = [LauncherError(LauncherErrorCode.CAPABILITY_MISSING, "not installed")]
            task = await aios.create()
            after = await aios.ended(task)
            assert (after.status, after.reason) == ("failed", "launch")
            assert await aios.history(task) == ["pending", "failed"]
            # The administrator forbids it by now: nothing to try again.
            aios.launcher.refusals = [LauncherError(LauncherErrorCode.DENIED, "always_deny 'test.*' forbids it")]
            task = await aios.create(retry={"max_attempts": 3, "delay_ms": 0})
            after = await aios.ended(task)
            assert (after.status, after.reason, after.retry_count) == ("failed", "permission-denied", 0)
            assert after.error is not None
            assert after.error["message"] == "always_deny 'test.*' forbids it"

    play(scenario())


def test_being_queued_again_has_an_end_but_waiting_for_the_launcher_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aiosd.core.run_states.LONGEST_REQUEUE", 0)

    async def scenario() -> None:
        async with core(tmp_path) as aios:
            aios.launcher.refusals = [LauncherError(LauncherErrorCode.SYSTEMD, "no")] * 9
            after = await aios.ended(await aios.create())
            assert (after.status, after.reason, len(await aios.runs(after.id))) == ("failed", "launch", 4)
            aios.launcher.refusals = []
            aios.launcher.away = True
            task = await aios.create(retry={"max_attempts": 2, "delay_ms": 0})
            await eventually(lambda: sum(name == "start" for name, _ in aios.launcher.calls) >= 4 + 8)
            aios.launcher.away = False
            after = await aios.ended(task)
            assert (after.status, after.retry_count) == ("completed", 0)

    play(scenario())


def test_progress_steps_and_summary_reach_the_row_and_the_log(tmp_path: Path) -> None:
    async def program(run: FakeRun) -> None:
        await run.go()
        for percent in range(0, 101, 5):
            run.say("processing", {"progress": {"percent": percent, "message": f"at {percent}\u202e"}}, poke=False)
        run.say("processing", {"progress": {"percent": 1e9}, "step": {"name": "one", "status": "started"}})
        run.say("processing", {"summary": {"summary": "half", "risk": "low"}, "tool_call": {"status": "nonsense"}})
        run.end(0)

    async def scenario() -> None:
        async with core(tmp_path) as aios:
            aios.launcher.program = program
            task = await aios.create()
            after = await aios.ended(task)
            assert after.progress == {"percent": 100}
            assert after.summary == {"summary": "half", "risk": "low"}
            events = await aios.log(task)
            told = [event.payload["progress"] for event in events if "progress" in event.payload]
            # What came faster than it was read is coalesced; the last word before another thing is not lost.
            every = [{"percent": n, "message": f"at {n}"} for n in range(0, 101, 5)]
            assert told[-2:] == [every[-1], {"percent": 100}]
            assert [one for one in every if one in told] == told[:-1]
            assert [event.type for event in events if event.kind == "timeline"] == ["task.step.started"]

    play(scenario())


def test_logs_are_told_of_to_their_last_byte_and_can_be_read(tmp_path: Path) -> None:
    async def program(run: FakeRun) -> None:
        await run.go()
        run.write("stdout", b"one\n")
        await asyncio.sleep(0.05)
        run.write("stdout", b"two\n", tell=False)  # the shim tells at most four times a second
        run.write("stderr", b"\xff\n", tell=False)
        run.end(0)

    async def scenario() -> None:
        async with core(tmp_path) as aios:
            aios.launcher.program = program
            task = await aios.create()
            await aios.ended(task)
            told = [event.payload for event in await aios.log(task) if event.kind == "task.log"]
            assert "".join(str(piece["text"]) for piece in told if piece["stream"] == "stdout") == "one\ntwo\n"
            assert [piece["text"] for piece in told if piece["stream"] == "stderr"] == ["\ufffd\n"]
            read = await aios.invoke("task.logs", {"task_id": task, "offset": 4})
            assert (read["text"], read["eof"], read["next_offset"]) == ("two\n", True, 8)

    play(scenario())


def test_the_log_of_a_task_that_is_being_started_is_waited_for(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            aios.launcher.held = asyncio.Event()
            refused, task = await aios.create(), await aios.create()
            for one in (refused, task):
                await aios.until(one, "assigned")
            asked = [asyncio.create_task(aios.invoke("task.logs", {"task_id": one})) for one in (refused, task)]
            await eventually(lambda: len([call for call in aios.launcher.calls if call[0] == "start"]) == 2)
            await aios.database.read(lambda db: db.execute("SELECT 1").fetchone())
            assert not any(one.done() for one in asked)  # there is no file yet
            aios.launcher.refusals = [LauncherError(LauncherErrorCode.CAPABILITY_MISSING, "it is gone")]
            aios.launcher.held.set()
            with pytest.raises(AiosError) as error:
                await asked[0]
            assert error.value.reason == "no-log"
            assert (await asked[1])["text"] == ""

    play(scenario())


def test_metadata_is_merged_under_the_payloads_own(tmp_path: Path) -> None:
    async def program(run: FakeRun) -> None:
        await run.go()
        run.say("task_interaction", {"interaction": 1, "prompt": "?", "options": ["a", "b"]})
        await run.hear("input")
        run.end(0)

    async def scenario() -> None:
        async with core(tmp_path) as aios:
            aios.launcher.program = program
            task = await aios.create(metadata={"who": "me"})
            await aios.until(task, "input_required")
            (asked,) = [event for event in await aios.log(task) if event.kind == "task.input_required"]
            assert asked.payload["metadata"] == {"who": "me"}
            assert (asked.payload["prompt"], asked.payload["options"]) == ("?", ["a", "b"])
            history = await aios.invoke("task.state_history", {"task_id": task})
            rows = history["state_history"]
            assert isinstance(rows, list)
            last = rows[-1]
            assert isinstance(last, dict)
            assert (last["state"], last["metadata"]) == ("input_required", {"prompt": "?", "options_count": 2})
            await aios.invoke("task.input", {"task_id": task, "input": {}})
            await aios.ended(task)

    play(scenario())


def test_resubscribing_gives_exactly_what_was_missed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            task = await aios.create()
            await aios.ended(task)
            other = await aios.create()
            await aios.ended(other)
            events = await aios.log(task)
            for index, event in enumerate(events):
                body = await aios.invoke("task.resubscribe", {"task_id": task, "last_event_id": event.id})
                missed = body["missed_events"]
                assert isinstance(missed, list)
                numbers = [event_sequence(str(one["id"])) for one in missed if isinstance(one, dict)]
                assert numbers == [one.sequence for one in events[index + 1 :]]
            every = await aios.invoke("task.resubscribe", {"last_event_id": events[0].id, "events": ["result"]})
            assert isinstance(every["missed_events"], list)
            assert len(every["missed_events"]) == 2

    play(scenario())


def test_the_audit_trail_is_a_chain(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await aios.ended(await aios.create())
            rows = await aios.database.read(
                lambda db: db.execute("SELECT actor, kind, previous, hash FROM audit ORDER BY seq").fetchall()
            )
            previous = bytes(32)
            for row in rows:
                assert row["previous"] == previous
                assert len(row["hash"]) == 32
                previous = row["hash"]
            of_tasks = [row for row in rows if row["kind"].startswith("task.")]
            kinds_ = [row["kind"] for row in of_tasks]
            assert kinds_[0] == "task.created"
            assert kinds_[-1] == "task.ended"
            assert "task.status" in kinds_
            assert of_tasks[0]["actor"] == f"uid:{USER.uid}"

    play(scenario())


def test_a_noisy_program_does_not_fill_the_store(tmp_path: Path) -> None:
    async def program(run: FakeRun) -> None:
        await run.go()
        for number in range(20_000):
            run.say("processing", {"progress": {"percent": number % 101, "message": "x" * 40}}, poke=False)
        run.say("processing", {"progress": {"percent": 77}})
        run.end(0)

    async def scenario() -> None:
        async with core(tmp_path) as aios:
            aios.launcher.program = program
            task = await aios.create()
            after = await aios.ended(task)
            assert after.progress == {"percent": 77}
            assert await aios.count("events") < 50

    play(scenario())
