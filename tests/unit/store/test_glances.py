"""Answers that are kept: never older than the last write that was answered, never many, never large."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiosd.store import glances
from aiosd.store.database import Database
from aiosd.store.glances import LARGEST, MOST, Glances, weight
from tests.unit.store.rows import adding, names

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable


def test_asking_again_reads_once_until_something_is_written(tmp_path: Path) -> None:
    async def scenario() -> None:
        reads = 0

        def counted(connection: sqlite3.Connection) -> list[str]:
            nonlocal reads
            reads += 1
            return names(connection)

        async with Database.open(tmp_path / "tasks.db") as database:
            await database.write(adding("a"))
            for _ in range(5):
                assert await database.glance("names", counted) == ["a"]
            assert reads == 1
            await database.write(adding("b"))
            assert await database.glance("names", counted) == ["a", "b"]
            assert await database.glance("other", counted) == ["a", "b"]
            assert reads == 3

    asyncio.run(scenario())


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(["write", "begin", "glance", "start", "pause"]), min_size=4, max_size=30))
def test_whatever_overlaps_an_answer_has_every_write_that_was_answered(steps: list[str]) -> None:
    """`begin` and `start` leave a write and a glance under way; `write` and `glance` wait for theirs."""

    async def scenario(database: Database) -> None:
        written, answered = 0, 0

        async def write(number: int) -> None:
            nonlocal answered
            await database.write(adding(f"n{number:03d}"))
            answered += 1

        async def glance() -> None:
            before = answered
            assert len(await database.glance("names", names)) >= before

        async with asyncio.TaskGroup() as group:
            for step in steps:
                if step in ("write", "begin"):
                    written += 1
                    started = group.create_task(write(written))
                elif step in ("glance", "start"):
                    started = group.create_task(glance())
                else:
                    await asyncio.sleep(0)
                    continue
                if step in ("write", "glance"):
                    await started
        assert len(await database.glance("names", names)) == written

    async def opened(place: Path) -> None:
        async with Database.open(place / "tasks.db") as database:
            await scenario(database)

    with tempfile.TemporaryDirectory() as place:
        asyncio.run(opened(Path(place)))


def test_brief_reads_are_answered_together_and_do_not_wait_for_a_long_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Database.open(tmp_path / "a.db", readers=1) as database:
            holds = [threading.Event() for _ in range(2)]
            entered = threading.Event()

            def slow(hold: threading.Event) -> Callable[[sqlite3.Connection], None]:
                def read(_: sqlite3.Connection) -> None:
                    entered.set()
                    hold.wait(30)

                return read

            def brief(number: int) -> asyncio.Task[int]:
                return asyncio.create_task(database.glance(number, lambda _: number))

            first = asyncio.create_task(database.read(slow(holds[0])))
            await asyncio.to_thread(entered.wait, 30)
            before = [brief(number) for number in range(40)]
            await asyncio.sleep(0)
            second = asyncio.create_task(database.read(slow(holds[1])))
            await asyncio.sleep(0)
            after = brief(40)
            await asyncio.sleep(0)
            holds[0].set()
            async with asyncio.timeout(30):
                assert await asyncio.gather(*before) == list(range(40))
                assert not second.done()
                assert not after.done()
                holds[1].set()
                assert await after == 40
                await asyncio.gather(first, second)

    asyncio.run(scenario())


def test_it_stays_small() -> None:
    kept = Glances()
    for number in range(MOST * 2):
        kept.keep(number, [number])
    assert kept.get(0) is None
    assert kept.get(MOST * 2 - 1) == [MOST * 2 - 1]
    kept.keep("large", {"text": "x" * LARGEST, "more": 1})
    assert kept.get("large") is None
    assert weight([[0] * 10] * 1_000_000) <= LARGEST + 1000, "counting stops"


@pytest.mark.parametrize("value", [None, [], {"a": [1, "two", {"b": None}]}])
def test_weight_is_about_the_length_of_the_json(value: object) -> None:
    assert 0 <= weight(value) < 100
    assert glances.weight("x" * 500) == 500
