"""Large answers wait for the bus, one after the other; small ones never, and nobody for ever."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import pytest

from aiosd.bus import turns
from aiosd.bus.dispatch import Outcome
from aiosd.bus.turns import HELD, ROOM, SMALL, Turns, size_of
from aiosd.errors import AiosError, ErrorKind

if TYPE_CHECKING:
    from aiosd.bus.connection import SystemBus

LARGE = Outcome("s", ("x" * (SMALL + 1),))
USER = 1000


@dataclass
class Bus:
    """What a `Turns` sees of a bus. `reads` is set while it takes what waits for it."""

    waiting: int = 0
    reads: asyncio.Event = field(default_factory=asyncio.Event)

    def backlog(self) -> tuple[int, int]:
        return self.waiting, 0

    async def flush(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self.reads.wait()
        except TimeoutError:
            return
        self.waiting = 0


def made() -> tuple[Bus, Turns]:
    bus = Bus()
    return bus, Turns(cast("SystemBus", bus))


def test_sizes() -> None:
    assert size_of(("abc", [("d", 1), ("ef", 2)], {"g": "hi"})) == 3 + 1 + 8 + 2 + 8 + 3


def test_small_answers_never_wait_and_large_ones_only_for_the_bus() -> None:
    async def scenario() -> None:
        bus, waits = made()
        await waits.wait(USER, LARGE)
        bus.waiting = ROOM + 1
        await waits.wait(USER, Outcome("s", ("x" * SMALL,)))
        later = [asyncio.create_task(waits.wait(USER, LARGE)) for _ in range(3)]
        await asyncio.sleep(0)
        assert not any(one.done() for one in later)
        bus.reads.set()
        await asyncio.gather(*later)

    asyncio.run(scenario())


def test_nobody_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "WITHIN", 0.01)

    async def scenario() -> None:
        bus, waits = made()
        bus.waiting = ROOM + 1
        for outcome in (LARGE, Outcome("s", LARGE.body, afterwards=lambda: None)):
            with pytest.raises(AiosError) as met:
                await waits.wait(USER, outcome)
            assert (met.value.kind, met.value.reason) == (ErrorKind.RATE_LIMITED, "unread")

    asyncio.run(scenario())


def test_so_much_of_one_user_waits() -> None:
    async def scenario() -> None:
        bus, waits = made()
        bus.waiting = ROOM + 1
        half = Outcome("s", ("x" * (HELD // 2),))
        begun = [asyncio.create_task(waits.wait(USER, half)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(AiosError):
            await waits.wait(USER, half)
        other = asyncio.create_task(waits.wait(USER + 1, half))
        begun[0].cancel()
        await asyncio.wait(begun[:1])
        begun.append(asyncio.create_task(waits.wait(USER, half)))
        bus.reads.set()
        await asyncio.gather(*begun[1:], other)

    asyncio.run(scenario())
