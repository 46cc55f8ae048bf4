"""A shutdown of the machine waits a moment for tasks that should not be interrupted: a delay lock at logind.

The lock is held all the time; what counts is when it is let go (https://systemd.io/INHIBITOR_LOCKS). When logind says
that the machine is going down, no more tasks start, and the lock goes once no task runs whose program cannot simply be
run again, which is at once when there is none. logind waits for that no longer than its InhibitDelayMaxSec=.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING

from aiosd.bus.connection import BusCallError, Call

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiosd.bus.connection import SystemBus
    from aiosd.bus.message import Signal

LOGIND = "org.freedesktop.login1"
PATH = "/org/freedesktop/login1"
MANAGER = "org.freedesktop.login1.Manager"
SIGNAL = "PrepareForShutdown"
RULE = f"type='signal',sender='{LOGIND}',interface='{MANAGER}',member='{SIGNAL}',path='{PATH}'"
RETRY = 60.0
"""Seconds before a logind that was not there is asked again."""
WHY = "Tasks that cannot be run again are given a moment to end"

_log = logging.getLogger(__name__)


class ShutdownDelay:
    """The lock and what happens when the machine goes down."""

    def __init__(self, bus: SystemBus, drain: Callable[[bool], None], at_rest: Callable[[], Awaitable[None]]) -> None:
        """`drain(True)`: start nothing more; `drain(False)`: start again. `at_rest`: waits until the lock may go."""
        self._bus = bus
        self._drain = drain
        self._at_rest = at_rest
        self._lock: int | None = None
        self._news: asyncio.Queue[bool] = asyncio.Queue()

    async def run(self) -> None:
        """Hold the lock and obey logind, for ever. A machine without logind goes down without waiting for us."""
        quiet = self._bus.on_signal(self._heard)
        told = False
        try:
            while True:
                try:
                    await self._bus.add_match(RULE)
                    await self._take()
                    told = False
                    await self._obey()
                except BusCallError as error:
                    if not told:
                        _log.info("A shutdown will not wait for tasks: %s", error)
                        told = True
                await asyncio.sleep(RETRY)
        finally:
            quiet()
            self._let_go()

    async def _obey(self) -> None:
        going = await self._news.get()
        while True:
            self._drain(going)
            if not going:
                await self._take()
                going = await self._news.get()
                continue
            resting = asyncio.ensure_future(self._at_rest())
            called_off = asyncio.ensure_future(self._news.get())
            try:
                await asyncio.wait((resting, called_off), return_when=asyncio.FIRST_COMPLETED)
                if not called_off.done():
                    self._let_go()
                going = await called_off
            finally:
                resting.cancel()
                called_off.cancel()

    def _heard(self, signal: Signal) -> None:
        if (signal.interface, signal.member, signal.path) == (MANAGER, SIGNAL, PATH) and signal.signature == "b":
            self._news.put_nowait(bool(signal.body[0]))

    async def _take(self) -> None:
        if self._lock is None:
            answer = await self._bus.call(
                Call(LOGIND, PATH, MANAGER, "Inhibit", "ssss", ("shutdown", "aiosd", WHY, "delay"))
            )
            self._lock = answer.fds[0] if answer.fds else None

    def _let_go(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
