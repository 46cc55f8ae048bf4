"""The daemon is killed at each commit, before and after it, and comes back: nothing is lost and nothing happens twice.

How many commits a scenario has is found by a life without death. Then each is died at on both sides; then lives that
die, in recovery, a second time.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from aiosd.store.errors import StoreError
from tests.outcomes import note
from tests.unit.core.rig import PATIENCE, play
from tests.unit.hooks.receiver import receiving
from tests.unit.reliability.client import Client
from tests.unit.reliability.crashing import Crash, Moment, world
from tests.unit.reliability.invariants import check
from tests.unit.reliability.scenarios import SCENARIOS, stage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.unit.reliability.scenarios import Scenario


async def lived(scenario: Scenario, crashes: list[Crash]) -> int:
    """Play it with these deaths; how many commits the last life had."""
    with stage(scenario) as (root, launcher):
        async with world(root, launcher, crashes) as made:
            client = Client(made)
            async with asyncio.timeout(3 * PATIENCE), receiving(client.receiver):
                await scenario.script(client)
                while True:
                    with suppress(StoreError):  # it died while it was looked at
                        await check(made, client, scenario)
                        break
        return made.commits


@pytest.fixture(autouse=True)
def hushed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A dead daemon complains of its store; that it has to wait a second for a retry is not what is tested."""
    monkeypatch.setattr("aiosd.core.durable.STORE_RETRY", 0.01)
    logger = logging.getLogger("aiosd")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(before)


def leaf(error: BaseException) -> BaseException:
    """The first of the errors in a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def died_at(name: str, deaths: list[list[Crash]], what: str) -> None:
    """Play it once for each; every failure is told, not the first only."""
    scenario = SCENARIOS[name]

    async def all_of_them() -> None:
        wrong = []
        for crashes in deaths:
            try:
                await lived(scenario, crashes)
            except BaseExceptionGroup as group:
                error = leaf(group)
                wrong.append(f"{', '.join(f'{one.moment} commit {one.commit}' for one in crashes)}: {error!r}")
        note("crashes", f"{scenario.title}{what}", len(deaths), len(wrong))
        assert not wrong, "\n".join([f"{len(wrong)} of {len(deaths)} deaths:", *wrong])

    asyncio.run(all_of_them())


def commits_of(scenario: Scenario) -> int:
    """Commits of a life without death."""
    found: list[int] = []

    async def once() -> None:
        found.append(await lived(scenario, []))

    play(once())
    return found[0]


@pytest.mark.parametrize("name", SCENARIOS)
def test_death_at_each_commit(name: str) -> None:
    numbers = range(1, commits_of(SCENARIOS[name]) + 1)
    died_at(name, [[Crash(number, moment)] for number in numbers for moment in Moment], "")


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_second_death_while_it_recovers(name: str) -> None:
    numbers = range(1, commits_of(SCENARIOS[name]) + 1, 2)
    deaths = [[Crash(number, Moment.AFTER), Crash(second, Moment.BEFORE)] for number in numbers for second in (2, 4, 6)]
    died_at(name, deaths, "; and again in recovery")
