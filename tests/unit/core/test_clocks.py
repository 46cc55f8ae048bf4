"""The clock is set, and the machine sleeps: what is a delay stays one, and what is a moment comes when it is that time.

With clocks of the test's own: `Machine` moves them as the kernel would. Its event loop knows nothing of it, as it does
not on a machine that sleeps.
"""

from __future__ import annotations

import asyncio
import itertools
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from aiosd.core import assigner, clock
from aiosd.core.delays import Delays
from aiosd.core.time_change import TOLERANCE, TimeChange
from tests.unit.core.rig import OPEN, ROOT, Config, Core, core, eventually, manifest, play
from tests.unit.core.session_rig import plan, session
from tests.unit.core.test_approval import waiting
from tests.unit.core.test_consent import HIGH, MUTE, installed
from tests.unit.core.worker_rig import register

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aiosd.model.jsontext import JsonObject
    from tests.unit.core.fakelauncher import FakeRun

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
CAPABILITY = "test.clock.run"
RETRIED = 'idempotent = true\n[retry]\nmax_attempts = 2\ndelay = "1h"\n' + OPEN
LIMIT = int(HOUR * 1000)
JUMPS = pytest.mark.parametrize("jump", [-DAY, DAY], ids=["back", "forward"])


class Machine:
    """Its three clocks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """As they are, from now on."""
        self.changes: list[TimeChange] = []
        self._set = self._slept = 0.0
        now, boottime = clock.now, clock.boottime
        monkeypatch.setattr(clock, "now", lambda: now() + round((self._set + self._slept) * clock.MICROSECONDS))
        monkeypatch.setattr(clock, "boottime", lambda: boottime() + self._slept)

    def _noticed(self) -> None:
        for change in self.changes:
            change.look()

    def set_clock(self, seconds: float) -> None:
        """Somebody sets the wall clock by so much."""
        self._set += seconds
        self._noticed()

    def sleep(self, seconds: float) -> None:
        """The machine is suspended for so long; its wall clock is right again when it wakes."""
        self._slept += seconds
        self._noticed()


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


@asynccontextmanager
async def living(root: Path, machine: Machine, config: Config | None = None) -> AsyncIterator[Core]:
    """A daemon on that machine. Its safety scan is far away: what happens is for the change of the clocks."""
    async with core(root, config=config or Config(schedule_interval=3600.0)) as aios:
        machine.changes = [aios.services.time_change]
        expiring = asyncio.create_task(aios.services.expiry.run())
        try:
            yield aios
        finally:
            machine.changes = []
            expiring.cancel()
            await asyncio.gather(expiring, return_exceptions=True)


async def still(aios: Core, task: str, state: str) -> None:
    """It is as it was, also after everybody has looked again: one that nothing holds has come and gone meanwhile."""
    other = await aios.ended(await aios.create())
    assert other.status == "completed"
    found = await aios.task(task)
    assert state in (found.status, found.phase)


async def has_an_hour(aios: Core, machine: Machine, jump: float, task: str, state: str, reason: str) -> None:
    """An hour of the machine's time, whatever the wall clock says; then it has failed for that reason."""
    machine.set_clock(jump)
    await still(aios, task, state)
    machine.sleep(HOUR - MINUTE)
    await still(aios, task, state)
    machine.sleep(2 * MINUTE)
    ended = await aios.ended(task)
    assert (ended.status, ended.reason) == ("failed", reason)


async def waits(run: FakeRun) -> None:
    await run.go()
    await run.hear("cancel")
    run.end(0, stopped_by="cancel")


async def fails(run: FakeRun) -> None:
    await run.go()
    run.end(3)


@JUMPS
def test_a_retry_comes_after_its_delay(jump: float, machine: Machine, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with living(tmp_path, machine) as aios:
            await aios.install(CAPABILITY, manifest(CAPABILITY, RETRIED))
            aios.launcher.programs[CAPABILITY] = fails
            task = await aios.create(CAPABILITY)
            await aios.until(task, "retry_wait")
            await eventually(lambda: aios.scheduler.waiting_for(task) == "retry-delay")
            machine.set_clock(jump)
            await still(aios, task, "retry_wait")
            machine.sleep(HOUR - MINUTE)
            await still(aios, task, "retry_wait")
            machine.sleep(2 * MINUTE)
            assert (await aios.ended(task)).attempt == 2

    play(scenario())


@JUMPS
def test_a_time_limit_is_time_of_the_machine(jump: float, machine: Machine, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with living(tmp_path, machine) as aios:
            await aios.install(CAPABILITY, manifest(CAPABILITY, OPEN))
            aios.launcher.programs[CAPABILITY] = waits
            task = await aios.create(CAPABILITY, timeout_ms=int(HOUR * 1000))
            await aios.until(task, "running")
            await eventually(lambda: aios.supervision.watches[task].deadline_at is not None)
            assert len(aios.services.limits) == 1
            await has_an_hour(aios, machine, jump, task, "running", "timeout")
            await eventually(lambda: not aios.supervision.watches)
            assert len(aios.services.limits) == 0, "it is forgotten with its task"

    play(scenario())


@JUMPS
def test_a_time_limit_lasts_over_all_attempts_and_a_crash_is_no_timeout(
    jump: float, machine: Machine, tmp_path: Path
) -> None:
    crash = asyncio.Event()
    attempts = itertools.count(1)

    async def crashes_first(run: FakeRun) -> None:
        await run.go()
        if next(attempts) > 1:
            await run.hear("cancel")
            run.end(0, stopped_by="cancel")
        else:
            await crash.wait()
            run.end(signal="SIGSEGV")

    async def scenario() -> None:
        async with living(tmp_path, machine) as aios:
            await aios.install(CAPABILITY, manifest(CAPABILITY, RETRIED.replace("1h", "1ms")))
            aios.launcher.programs[CAPABILITY] = crashes_first
            task = await aios.create(CAPABILITY, timeout_ms=int(2 * HOUR * 1000))
            await aios.until(task, "running")
            await eventually(lambda: aios.supervision.watches[task].deadline_at is not None)
            machine.set_clock(jump)
            machine.sleep(HOUR)
            crash.set()
            await eventually(lambda: len(aios.launcher.made(task)) == 2)
            first, second = aios.launcher.made(task)
            spent = first.request.runtime_max_usec - second.request.runtime_max_usec
            assert spent == pytest.approx(HOUR * clock.MICROSECONDS, rel=0.1), "systemd's limit is what is left, too"
            await eventually(lambda: (watch := aios.supervision.of_task(task)) is not None and watch.begun)
            assert [run.reason for run in await aios.runs(task)] == ["signal", None]
            await has_an_hour(aios, machine, jump, task, "running", "timeout")

    play(scenario())


def test_who_is_told_to_try_again_has_the_whole_time_limit(machine: Machine, tmp_path: Path) -> None:
    """A person answers when they come to it: the limit is of the program, and not of how long they took."""

    async def once(run: FakeRun) -> None:
        went = await run.go()
        if went["attempt"] == 1:
            run.end(4)
        else:
            await run.hear("cancel")
            run.end(0, stopped_by="cancel")

    async def scenario() -> None:
        async with living(tmp_path, machine) as aios:
            await aios.install(CAPABILITY, manifest(CAPABILITY, 'on_failure = "escalate"\n' + OPEN))
            aios.launcher.programs[CAPABILITY] = once
            task = await aios.create(CAPABILITY, timeout_ms=LIMIT)
            await aios.until(task, "blocked")
            machine.sleep(2 * HOUR)
            await aios.invoke("task.input", {"task_id": task, "input": {"action": "retry"}})
            await aios.until(task, "running")
            await eventually(lambda: (watch := aios.supervision.of_task(task)) is not None and watch.begun)
            await has_an_hour(aios, machine, -DAY, task, "running", "timeout")

    play(scenario())


def test_what_a_program_says_after_its_question_was_not_answered_changes_nothing(
    machine: Machine, tmp_path: Path
) -> None:
    async def asks(run: FakeRun) -> None:
        await run.go()
        run.say("task_interaction", {"interaction": 1, "prompt": "?", "timeout_ms": LIMIT})
        await run.hear("cancel")
        run.say("processing", {"progress": {"percent": 3}})
        run.say("artifact", {"key": "k", "parts": [{"text": "x"}]})
        run.say("task_completion", {"result": {}})
        run.end(0, stopped_by="cancel")

    async def scenario() -> None:
        async with living(tmp_path, machine) as aios:
            await aios.install(CAPABILITY, manifest(CAPABILITY, OPEN))
            aios.launcher.programs[CAPABILITY] = asks
            task = await aios.create(CAPABILITY)
            await aios.until(task, "input_required")
            await eventually(lambda: aios.services.expiry.limited == 1)
            machine.sleep(2 * HOUR)
            ended = await aios.ended(task)
            await eventually(lambda: not aios.supervision.watches)
            assert await aios.task(task) == ended
            assert [event.type for event in await aios.log(task)][-2:] == ["task.failed", "task.failed"]

    play(scenario())


@JUMPS
def test_a_worker_that_fails_has_its_delay_and_the_rest_of_its_limit(
    jump: float, machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assigner, "LOOK_AGAIN", HOUR)
    step: JsonObject = {
        "title": "a", "goal": "it", "timeout_ms": int(DAY / 2 * 1000),
        "retry": {"max_attempts": 3, "delay_ms": int(HOUR * 1000)},
    }  # fmt: skip

    async def scenario() -> None:
        async with living(tmp_path, machine, Config(schedule_interval=3600.0, worker_lease=3600.0)) as aios:
            (task,) = (await plan(aios, await session(aios), step)).values()
            hand = await register(aios)
            taken = await hand.takes()
            await eventually(lambda: aios.services.assigner.limited == 1)
            machine.set_clock(jump)
            await hand.say("fail", taken, message="no")
            await eventually(lambda: aios.services.assigner.delayed == 1)
            machine.set_clock(jump)
            machine.sleep(HOUR - MINUTE)
            await still(aios, task, "retry_wait")
            machine.sleep(2 * MINUTE)
            assert (await hand.offered())["attempt"] == 2

    play(scenario())


def test_what_a_worker_rejects_is_not_offered_to_it_again_when_the_clock_goes_back(
    machine: Machine, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with living(tmp_path, machine, Config(schedule_interval=3600.0, worker_lease=3600.0)) as aios:
            (task,) = (await plan(aios, await session(aios), {"title": "a", "goal": "it"})).values()
            hand = await register(aios)
            offered = await hand.offered()
            machine.set_clock(-DAY)
            await hand.say("reject", offered, reason="not mine")
            other = await register(aios, worker_id="another")
            assert (await other.offered())["task_id"] == task

    play(scenario())


@JUMPS
def test_the_time_limit_of_a_workers_task_is_time_of_the_machine(
    jump: float, machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assigner, "LOOK_AGAIN", HOUR)

    async def scenario() -> None:
        async with living(tmp_path, machine, Config(schedule_interval=3600.0, worker_lease=3600.0)) as aios:
            where = await session(aios)
            (task,) = (await plan(aios, where, {"title": "a", "goal": "it", "timeout_ms": LIMIT})).values()
            await (await register(aios)).takes()
            await eventually(lambda: aios.services.assigner.limited == 1)
            await has_an_hour(aios, machine, jump, task, "working", "timeout")

    play(scenario())


QUESTIONS: dict[str, tuple[JsonObject, str, str]] = {
    "input": ({"prompt": "?", "timeout_ms": LIMIT}, "input_required", "input-timeout"),
    "auth": (
        {"kind": "auth", "auth_request": {"type": "api_key", "provider": "x", "timeout_ms": LIMIT}},
        "auth_required", "auth-timeout",
    ),
}  # fmt: skip


@JUMPS
@pytest.mark.parametrize("kind", QUESTIONS)
def test_a_program_waits_as_long_as_it_said(kind: str, jump: float, machine: Machine, tmp_path: Path) -> None:
    question, state, reason = QUESTIONS[kind]

    async def asks(run: FakeRun) -> None:
        await run.go()
        run.say("task_interaction", {"interaction": 1, **question})
        await run.hear("cancel")
        run.end(0, stopped_by="cancel")

    async def scenario() -> None:
        async with living(tmp_path, machine) as aios:
            await aios.install(CAPABILITY, manifest(CAPABILITY, OPEN))
            aios.launcher.programs[CAPABILITY] = asks
            task = await aios.create(CAPABILITY)
            await aios.until(task, state)
            await eventually(lambda: aios.services.expiry.limited == 1)
            await has_an_hour(aios, machine, jump, task, state, reason)

    play(scenario())


@JUMPS
@pytest.mark.parametrize("kind", ["consent", "approval"])
def test_a_person_has_as_long_as_was_said(kind: str, jump: float, machine: Machine, tmp_path: Path) -> None:
    config = Config(schedule_interval=3600.0, auth_timeout=HOUR, approval_timeout=HOUR)

    async def scenario() -> None:
        async with living(tmp_path, machine, config) as aios:
            if kind == "consent":
                await installed(aios)
                task = await aios.create(HIGH, MUTE)
            else:
                task, _ = await waiting(aios)
            await aios.until(task, "auth_required")
            await eventually(lambda: aios.services.lapse.limited == 1)
            await has_an_hour(aios, machine, jump, task, "auth_required", "auth-timeout")

    play(scenario())


@JUMPS
def test_an_approval_can_be_given_as_long_as_it_is_waited_for(jump: float, machine: Machine, tmp_path: Path) -> None:
    config = Config(schedule_interval=3600.0, approval_timeout=HOUR)

    async def scenario() -> None:
        async with living(tmp_path, machine, config) as aios:
            task, approval = await waiting(aios)
            await eventually(lambda: aios.services.lapse.limited == 1)
            machine.set_clock(jump)
            machine.sleep(HOUR - MINUTE)
            await aios.invoke("approval.respond", {"approval_id": approval, "action": "approve"}, ROOT)
            assert (await aios.ended(task)).status == "completed"

    play(scenario())


def test_not_before_is_a_moment_whoever_sets_the_clock(machine: Machine, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with living(tmp_path, machine) as aios:
            task = await aios.create(not_before=clock.now() + int(HOUR) * clock.MICROSECONDS)
            await eventually(lambda: aios.scheduler.waiting_for(task) == "not-before")
            machine.set_clock(-DAY)
            machine.sleep(2 * HOUR)
            await still(aios, task, "waiting")
            machine.set_clock(DAY)
            assert (await aios.ended(task)).status == "completed"

    play(scenario())


def test_a_sleep_that_lasts_longer_than_not_before(machine: Machine, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with living(tmp_path, machine) as aios:
            task = await aios.create(not_before=clock.now() + int(HOUR) * clock.MICROSECONDS)
            await eventually(lambda: aios.scheduler.waiting_for(task) == "not-before")
            machine.sleep(2 * HOUR)
            assert (await aios.ended(task)).status == "completed"

    play(scenario())


def test_a_clock_that_is_steered_is_left_alone_until_it_is_far_off(machine: Machine) -> None:
    told: list[None] = []
    change = TimeChange([lambda: told.append(None)])
    for _ in range(3):
        machine.set_clock(0.3 * TOLERANCE)
        change.look()
        assert not told
    machine.set_clock(0.3 * TOLERANCE)
    change.look()
    assert len(told) == 1
    change.look()
    assert len(told) == 1


def test_a_delay_is_forgotten_with_who_waited(machine: Machine) -> None:
    delays = Delays()
    moment = clock.now() + 10 * clock.MICROSECONDS
    assert delays.left("a", moment) == pytest.approx(10, abs=1)
    machine.set_clock(DAY)
    assert delays.left("a", moment) == pytest.approx(10, abs=1)
    assert delays.now_as("a", moment) == pytest.approx(clock.now() + 10 * clock.MICROSECONDS, abs=1_000_000)
    delays.forget_all_but(["b"])
    assert delays.left("a", moment) < 0
