"""The contract of seed 002's scheduler, line by line, and the four groups of its own test (TaskSchedulerTest).

`CONTRACT` points to the test of each line of the article; what has no better place is below, in the article's order.
`GROUPS` are the four test groups that the article describes, with their counterparts.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from aiosd.core.admission import WaitReason
from aiosd.core.pressure import Pressure
from aiosd.core.scheduler import Scheduler
from aiosd.model.event import Kind
from aiosd.model.status import Status
from tests.unit import pointing
from tests.unit.core.rig import PLAIN, Config, ErrorKind, core, eventually, manifest, play
from tests.unit.core.session_rig import session, types

if TYPE_CHECKING:
    from pathlib import Path

    from aiosd.model.jsontext import JsonObject
    from tests.unit.core.fakelauncher import FakeRun

ADDED = "test.added.run"
HERE = "unit/core/test_scheduler_contract"

GROUPS = {
    "executors are registered, had, and gone after removal": (
        f"{HERE}::test_a_capability_is_there_once_added_and_a_named_error_once_removed",
        "unit/core/test_scheduling::test_a_capability_that_was_removed_fails_what_waits_for_it",
    ),
    "submission wakes; metadata are merged": (
        f"{HERE}::test_a_submission_starts_at_once_and_its_events_have_the_merged_metadata",
        "unit/core/test_life::test_metadata_is_merged_under_the_payloads_own",
    ),
    "cancel of a submitted task, then again": (
        f"{HERE}::test_the_first_cancel_of_a_submitted_task_counts_and_the_second_is_refused",
    ),
    "suppression of the completion signal": (
        f"{HERE}::test_no_signal_where_it_is_suppressed_and_one_at_once_where_that_ends",
        "unit/core/test_sessions::test_a_suppressed_signal_comes_when_that_is_taken_back",
    ),
}  # fmt: skip

CONTRACT = {
    "wake-ups before the next pass are one": (f"{HERE}::test_many_wake_ups_before_the_next_pass_are_one",),
    "a scan every schedule_interval as the net": (
        f"{HERE}::test_the_safety_scan_finds_what_nobody_woke_it_for",
        f"{HERE}::test_the_safety_scan_is_not_made_while_it_can_find_nothing",
        f"{HERE}::test_the_scans_of_a_machine_under_pressure_go_on",
        "unit/core/test_admission::test_the_scan_is_slow_where_something_else_tells",
    ),
    "max_concurrent_tasks": ("unit/core/test_scheduling::test_limits_of_the_machine_of_a_tool_and_of_a_manifest",),
    "a task runs once, however often it is looked at": (
        "unit/reliability/test_crash::test_death_at_each_commit",
        "system/test_restart::test_a_task_that_was_promised_runs_once",
    ),
    "task_timeout ends it and says so": ("unit/core/test_life::test_a_time_limit_ends_it_with_the_data_of_seed_000",),
    "chunks have index, payload and last_chunk, in order": (
        "unit/run/test_conversation::test_chunks_become_events_in_order",
        "unit/run/test_conversation::test_nothing_is_heard_after_the_final_chunk",
        f"{HERE}::test_each_type_of_chunk_drives_the_state",
    ),
    "stream_first_frame_timeout": (
        "unit/core/test_first_frame::test_one_that_says_nothing_is_stopped_and_the_task_says_why",
        "unit/core/test_first_frame::test_after_the_first_chunk_it_may_take_its_time_and_a_plain_program_always",
    ),
    "event_queue_size and event_timeout": (
        "rpc/test_lines::test_a_client_that_does_not_read_is_told_of_the_gap_or_left",
        "rpc/test_streams::test_nobody_waits_for_a_reader_that_reads_nothing",
    ),
    "pause in four steps, asked of the program, with its reason": (
        "unit/core/test_control::test_a_cooperative_program_pauses_by_itself",
        "unit/core/test_control::test_a_program_may_refuse_with_its_reason",
        "unit/core/test_control::test_what_cannot_be_paused_says_why",
    ),
    "cancel in four steps, asked of the program, with its reason": (
        "unit/core/test_control::test_a_program_may_refuse_with_its_reason",
        "unit/core/test_control::test_not_cancelable_is_said",
        "unit/core/test_control::test_a_running_program_has_its_grace",
    ),
    "the completion signal, once for each time that a session becomes idle": (
        "unit/core/test_sessions::test_the_signal_comes_each_time_the_session_becomes_idle",
        "unit/core/test_sessions::test_a_task_that_waits_for_a_person_does_not_hold_the_signal_back",
        "unit/core/test_plans::test_a_session_that_a_diff_empties_and_fills_is_not_idle_in_between",
    ),
    "metadata of the payload before the task's": (
        f"{HERE}::test_a_submission_starts_at_once_and_its_events_have_the_merged_metadata",
    ),
    "every configuration name, its bounds and its effect": (
        "unit/config/test_config::test_defaults_are_the_seeds",
        "unit/core/test_settings_in_use::test_every_setting_is_read_by_somebody",
        "unit/core/test_settings_in_use::test_every_setting_has_a_test_of_what_it_does",
    ),
    "stop is bounded and leaves nothing undecided": (
        "unit/core/test_settings_in_use::test_a_stop_is_bounded_whatever_hangs",
        "system/test_faults::test_stopped_tasks_run_on_or_are_taken_along",
    ),
}  # fmt: skip


def test_every_line_and_every_group_has_its_test() -> None:
    assert pointing.missing({**GROUPS, **CONTRACT}) == []


def test_a_capability_is_there_once_added_and_a_named_error_once_removed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            asked: JsonObject = {"capability_id": ADDED, "options": {"async": True}}
            assert (await aios.refused("task.create", asked)).kind is ErrorKind.CAPABILITY_NOT_FOUND
            await aios.install(ADDED, manifest(ADDED))
            found = aios.registry.find(ADDED)
            assert found is not None
            assert found.id == ADDED
            assert (await aios.ended(await aios.create(ADDED))).status is Status.COMPLETED
            (aios.manifests / f"{ADDED}.toml").unlink()
            await aios.registry.load()
            assert aios.registry.find(ADDED) is None
            assert (await aios.refused("task.create", asked)).kind is ErrorKind.CAPABILITY_NOT_FOUND

    play(scenario())


@pytest.mark.parametrize(
    ("final", "kind"), [("task_completion", Kind.RESULT), ("task_failed", Kind.ERROR)], ids=["completed", "failed"]
)
def test_a_submission_starts_at_once_and_its_events_have_the_merged_metadata(
    tmp_path: Path, final: str, kind: Kind
) -> None:
    """The interval is far longer than the test, as in the article (5 s there), and the three events that it names."""
    own: JsonObject = {"payload_key": 1, "shared": "payload"}

    async def program(run: FakeRun) -> None:
        await run.go()
        run.say("task_interaction", {"interaction": 1, "prompt": "which?", "metadata": own})
        await run.hear("input")
        run.say(final, {"result": {}, "message": "done", "metadata": own})
        run.end(0)

    async def scenario() -> None:
        async with core(tmp_path, config=Config(schedule_interval=3600.0)) as aios:
            aios.launcher.program = program
            task = await aios.create(metadata={"task_key": 2, "shared": "task"})
            await aios.until(task, "input_required")
            await aios.invoke("task.input", {"task_id": task, "input": {}})
            await aios.ended(task)
            events = [event for event in await aios.log(task) if event.kind in (Kind.INPUT_REQUIRED, kind)]
            assert [event.kind for event in events] == [Kind.INPUT_REQUIRED, kind]
            for event in events:
                assert event.payload["metadata"] == {"task_key": 2, "payload_key": 1, "shared": "payload"}
            assert (await aios.task(task)).metadata == {"task_key": 2, "shared": "task"}, "the task's own stay"

    play(scenario())


def test_the_first_cancel_of_a_submitted_task_counts_and_the_second_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path, schedule=False) as aios:
            task = await aios.create()
            assert (await aios.task(task)).status is Status.PENDING
            assert (await aios.invoke("task.cancel", {"task_id": task}))["status"] == "canceled"
            assert (await aios.refused("task.cancel", {"task_id": task})).kind is ErrorKind.TASK_CANCELED

    play(scenario())


def test_no_signal_where_it_is_suppressed_and_one_at_once_where_that_ends(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            quiet = await session(aios, suppress_completion_signal=True)
            await aios.ended(await aios.create(session_id=quiet))
            assert "all_tasks_processed" not in await types(aios, quiet)
            await aios.invoke("session.update", {"session_id": quiet, "suppress_completion_signal": False})
            assert (await types(aios, quiet)).count("all_tasks_processed") == 1
            await aios.ended(await aios.create(session_id=quiet))
            assert (await types(aios, quiet)).count("all_tasks_processed") == 2

    play(scenario())


def test_many_wake_ups_before_the_next_pass_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[bool] = []
    looked = asyncio.Event()

    async def counted(_scheduler: Scheduler, *, woken: bool = False) -> None:
        passes.append(woken)
        looked.set()

    monkeypatch.setattr(Scheduler, "scan", counted)

    async def scenario() -> None:
        async with core(tmp_path, config=Config(schedule_interval=3600.0)) as aios:
            await asyncio.wait_for(looked.wait(), 30)
            assert passes == [False], "the first pass needs nobody to wake it"
            looked.clear()
            for _ in range(1000):
                aios.scheduler.wake()
            await asyncio.wait_for(looked.wait(), 30)
            await asyncio.sleep(0)
            assert passes == [False, True]

    play(scenario())


def _deaf(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler that nobody tells anything, neither of events nor before a commit."""
    monkeypatch.setattr(Scheduler, "wake", lambda _scheduler: None)
    monkeypatch.setattr(Scheduler, "heard", lambda _scheduler, _events: None)
    monkeypatch.setattr(Scheduler, "follow", lambda _scheduler, _items: None)


def test_the_safety_scan_finds_what_nobody_woke_it_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _deaf(monkeypatch)

    async def scenario() -> None:
        async with core(tmp_path, config=Config(schedule_interval=0.1)) as aios:
            await asyncio.sleep(0.05)  # the pass at the start is over, or sees the task: both are good
            assert (await aios.ended(await aios.create())).status is Status.COMPLETED
            assert (await aios.ended(await aios.create())).status is Status.COMPLETED

    play(scenario())


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When there was one, by the loop's clock."""
    found: list[float] = []
    scan = Scheduler.scan

    async def counted(scheduler: Scheduler, *, woken: bool = False) -> None:
        found.append(asyncio.get_running_loop().time())
        await scan(scheduler, woken=woken)

    monkeypatch.setattr(Scheduler, "scan", counted)
    return found


async def _at_rest(scans: list[float]) -> int:
    """Wait until there was no scan for five intervals; one that made them all the time would never come to that."""
    while True:
        before = len(scans)
        await asyncio.sleep(0.5)
        if len(scans) == before:
            return before


@pytest.mark.parametrize("one_waits", [False, True], ids=["nobody waits", "a moment is waited for"])
def test_the_safety_scan_is_not_made_while_it_can_find_nothing(
    *, one_waits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scans: list[float]
) -> None:
    """At rest there is none. A write brings one, and then it rests again."""
    _deaf(monkeypatch)

    async def scenario() -> None:
        async with core(tmp_path, config=Config(schedule_interval=0.1)) as aios:
            await aios.ended(await aios.create())
            if one_waits:
                await aios.create(not_before="2100-01-01T00:00:00Z")
            before = await _at_rest(scans)
            written = asyncio.get_running_loop().time()
            await aios.database.write(lambda tx: tx.execute("UPDATE tasks SET title = title").rowcount)
            assert await _at_rest(scans) > before
            assert scans[-1] >= written + 0.09, "within the interval, but not at each write at once"

    play(scenario())


def test_the_scans_of_a_machine_under_pressure_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for its end starts though nothing is written and nobody wakes the scheduler."""
    _deaf(monkeypatch)
    short = True

    def reason(_pressure: Pressure, _config: Config) -> WaitReason | None:
        return WaitReason.MEMORY_PRESSURE if short else None

    monkeypatch.setattr(Pressure, "reason", reason)

    async def scenario() -> None:
        nonlocal short
        async with core(tmp_path, config=Config(schedule_interval=0.1)) as aios:
            task = await aios.create(priority="low")
            await eventually(lambda: aios.scheduler.waiting_for(task) == "memory-pressure")
            await asyncio.sleep(0.3)
            assert (await aios.task(task)).status is Status.PENDING
            short = False
            assert (await aios.ended(task)).status is Status.COMPLETED

    play(scenario())


def test_each_type_of_chunk_drives_the_state(tmp_path: Path) -> None:
    """The article's five payload types: processing goes on, an interaction waits, completion and failure end."""

    async def program(run: FakeRun) -> None:
        await run.go()
        run.say("processing", {"progress": {"percent": 10}})
        run.say("task_interaction", {"interaction": 1, "prompt": "go on?"})
        answer = await run.hear("input")
        final = "task_completion" if answer["input"] == {"well": True} else "task_failed"
        run.say(final, {"result": {"done": True}} if final == "task_completion" else {"message": "no"})
        run.end(0)

    async def scenario() -> None:
        async with core(tmp_path) as aios:
            aios.launcher.program = program
            for well, status in ((True, Status.COMPLETED), (False, Status.FAILED)):
                where = await session(aios)
                task = await aios.create(PLAIN, session_id=where)
                assert (await aios.until(task, "input_required")).progress is not None
                await aios.invoke("task.input", {"task_id": task, "input": {"well": well}})
                assert (await aios.ended(task)).status is status
                states = await aios.history(task)
                assert states == ["pending", "working", "input_required", "working", status.value]
                assert (await types(aios, where))[-1] == "all_tasks_processed"

    play(scenario())
