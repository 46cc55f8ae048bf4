"""Rates of calls and creations: what one user does is bounded, and takes nothing from another."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from aiosd.core.rates import MAX_USERS, Bucket, Rates
from aiosd.core.settings import Settings
from aiosd.errors import AiosError, ErrorKind
from tests.unit.core.rig import OTHER, PLAIN, ROOT, USER, Config, core, play

if TYPE_CHECKING:
    from pathlib import Path

    from aiosd.auth.caller import Caller


class Clock:
    """Seconds, as the test has them pass."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def refused(rates: Rates, caller: Caller, operation: str) -> AiosError | None:
    try:
        rates.require(caller, operation)
    except AiosError as error:
        return error
    return None


def test_a_burst_then_so_many_a_second() -> None:
    clock = Clock()
    rates = Rates(Settings(Config(calls_per_second=2, calls_burst=3)), clock)
    assert [refused(rates, USER, "task.get") for _ in range(3)] == [None] * 3
    error = refused(rates, USER, "task.get")
    assert error is not None
    assert (error.kind, error.data()["retry_after_ms"]) == (ErrorKind.RATE_LIMITED, 500)
    clock.now += 0.5
    assert refused(rates, USER, "task.get") is None
    assert refused(rates, USER, "task.get") is not None
    clock.now += 3600
    assert [refused(rates, USER, "task.get") is None for _ in range(4)] == [True, True, True, False]


def test_creations_have_a_limit_of_their_own_and_root_none() -> None:
    rates = Rates(Settings(Config(creates_per_second=1, creates_burst=1)), Clock())
    assert refused(rates, USER, "task.create") is None
    error = refused(rates, USER, "task.retry")
    assert error is not None
    assert error.data()["limit"] == "creates_per_second"
    assert refused(rates, USER, "task.get") is None
    assert refused(rates, OTHER, "task.create") is None
    assert [refused(rates, ROOT, "task.create") for _ in range(100)] == [None] * 100


def test_what_makes_less_work_always_gets_through() -> None:
    rates = Rates(Settings(Config(calls_per_second=1, calls_burst=1)), Clock())
    rates.require(USER, "task.get")
    assert refused(rates, USER, "task.get") is not None
    for name in ("task.cancel", "emergency.stop"):
        assert refused(rates, USER, name) is None


def test_users_without_number_are_forgotten() -> None:
    clock = Clock()
    rates = Rates(Settings(Config()), clock)
    for uid in range(1, 5 * MAX_USERS):
        clock.now += 1
        rates.require(type(USER)(uid, USER.subject), "task.get")
    assert len(rates._buckets) <= 2 * MAX_USERS


@given(st.lists(st.floats(0, 10), min_size=1, max_size=50), st.integers(1, 20), st.integers(1, 20))
def test_never_more_than_burst_and_rate_allow(pauses: list[float], per_second: int, burst: int) -> None:
    bucket, now, taken = Bucket(burst, 0.0), 0.0, 0
    for pause in pauses:
        now += pause
        wait = bucket.take(now, per_second, burst)
        taken += wait == 0
        assert taken <= burst + now * per_second + 1e-6
        if wait:
            assert bucket.take(now + wait + 1e-6, per_second, burst) == 0
            now, taken = now + wait + 1e-6, taken + 1


def test_ten_thousand_creates_of_one_user_do_not_starve_another(tmp_path: Path) -> None:
    """With the limits as they are by default; only that the flood's own tasks end in between is kept from it."""
    config = Config(schedule_interval=30.0, max_concurrent_tasks=1)

    async def scenario() -> None:
        async with core(tmp_path, config=config) as aios:

            async def greedy() -> str:
                try:
                    await aios.create()
                except AiosError as error:
                    return error.kind.name
                return "created"

            async with asyncio.TaskGroup() as group:
                flood = [group.create_task(greedy()) for _ in range(10_000)]
                await asyncio.sleep(0)
                theirs = await aios.create(PLAIN, OTHER, priority="high")
                assert (await aios.task(theirs)).uid == OTHER.uid
            told = {one.result() for one in flood}
            created = sum(one.result() == "created" for one in flood)
            assert told <= {"created", "RATE_LIMITED", "QUEUE_FULL"}
            assert "RATE_LIMITED" in told
            assert created <= config.creates_burst + 5 * config.creates_per_second
            await aios.until(theirs, "completed")

    play(scenario())
