"""The delay lock: kept while a task runs that cannot be run again, let go in time, taken again when called off."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from aiosd.bus.connection import Answer, BusCallError, Call
from aiosd.bus.message import Signal
from aiosd.bus.shutdown import MANAGER, PATH, SIGNAL, ShutdownDelay

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    import pytest


class Logind:
    """The bus with a logind that hands out locks, as a pipe whose other end shows whether the lock is held."""

    def __init__(self, *, there: bool = True) -> None:
        self.there = there
        self.locks: list[int] = []
        self.asked: list[tuple[object, ...]] = []
        self.listeners: list[Callable[[Signal], None]] = []

    async def call(self, call: Call) -> Answer:
        if not self.there:
            raise BusCallError("org.freedesktop.DBus.Error.ServiceUnknown", "no logind")
        self.asked.append(call.body)
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        self.locks.append(reading)
        return Answer("h", (0,), (writing,))

    async def add_match(self, _rule: str) -> None:
        return

    def on_signal(self, listener: Callable[[Signal], None]) -> Callable[[], None]:
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    def says(self, going: bool) -> None:  # noqa: FBT001  as logind says it
        for listener in self.listeners:
            listener(Signal(":1.1", PATH, MANAGER, SIGNAL, "b", (going,)))

    def held(self) -> list[bool]:
        """Of each lock that was handed out."""

        def one(reading: int) -> bool:
            try:
                return os.read(reading, 1) != b""
            except BlockingIOError:
                return True

        return [one(reading) for reading in self.locks]

    def close(self) -> None:
        for reading in self.locks:
            os.close(reading)


def play(scenario: Coroutine[None, None, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 60))


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_the_lock_outlasts_the_task_and_no_longer() -> None:
    async def scenario() -> None:
        logind, drained, rest = Logind(), list[bool](), asyncio.Event()

        async def at_rest() -> None:
            await rest.wait()

        delay = ShutdownDelay(logind, drained.append, at_rest)  # type: ignore[arg-type]  # what is used of a bus
        running = asyncio.create_task(delay.run())
        await turns()
        assert logind.asked[0][0] == "shutdown"
        assert logind.asked[0][3] == "delay"
        assert (logind.held(), drained) == ([True], [])
        logind.says(True)
        await turns()
        assert (logind.held(), drained) == ([True], [True])
        rest.set()
        await turns()
        assert logind.held() == [False]
        logind.says(False)
        await turns()
        assert (logind.held(), drained) == ([False, True], [True, False])
        rest.clear()
        logind.says(True)
        await turns()
        logind.says(False)  # called off while a task still ran: it is held on
        await turns()
        assert (logind.held(), drained[2:]) == ([False, True], [True, False])
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert logind.held() == [False, False]
        assert logind.listeners == []
        logind.close()

    play(scenario())


def test_without_logind_there_is_no_lock_until_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiosd.bus.shutdown.RETRY", 0.05)

    async def scenario() -> None:
        async def at_rest() -> None:
            return

        logind = Logind(there=False)
        running = asyncio.create_task(ShutdownDelay(logind, lambda _: None, at_rest).run())  # type: ignore[arg-type]
        await turns()
        assert logind.asked == []
        logind.there = True
        async with asyncio.timeout(30):
            while not logind.asked:  # noqa: ASYNC110  a machine's logind tells nobody that it is there
                await asyncio.sleep(0.01)
        assert logind.held() == [True]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert logind.listeners == []
        logind.close()

    play(scenario())
