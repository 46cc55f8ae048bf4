"""Ends tasks that waited too long for consent or an approval, and withdraws approvals that no task waits for any more.

Questions of programs have their own limits (`expiry.py`); these are about tasks that have not started yet.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from aiosd.core import approving
from aiosd.core.delays import Delays
from aiosd.model.status import Status
from aiosd.store.database import StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiosd.model.event import Event
    from aiosd.store.database import Database

AFTER_ERROR = 1.0

_log = logging.getLogger(__name__)


class Lapse:
    """Looks at each start, at each change that could matter, and when the next time is over."""

    def __init__(self, database: Database) -> None:
        """Looks at nothing before `run`."""
        self._database = database
        self._wakeup = asyncio.Event()
        self.delays = Delays()
        """Of the writer thread: how long each has left, also for whoever answers."""

    def heard(self, events: Sequence[Event]) -> None:
        """An event listener: somebody began, or ceased, to wait."""
        waits = Status.AUTH_REQUIRED
        if any(event.change is not None and waits in (event.change.old, event.change.new) for event in events):
            self._wakeup.set()

    async def run(self) -> None:
        """For ever."""
        while True:
            self._wakeup.clear()
            delay: float | None = AFTER_ERROR
            try:
                delay = await self._look()
            except StoreError:
                _log.exception("Could not look for what has lapsed")
            try:
                async with asyncio.timeout(delay):
                    await self._wakeup.wait()
            except TimeoutError:
                continue

    @property
    def limited(self) -> int:
        """How many that wait have a limit that was noted."""
        return len(self.delays)

    def look_again(self) -> None:
        """The clock was set, or the machine has slept."""
        self._wakeup.set()

    async def _look(self) -> float | None:
        return await self._database.write(lambda tx: approving.expire(tx, self.delays))
