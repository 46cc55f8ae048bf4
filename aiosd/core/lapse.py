"""Ends tasks that waited too long for consent or an approval, and withdraws approvals that no task waits for any more.

Questions of programs have their own limits (`expiry.py`); these are about tasks that have not started yet.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from aiosd.core import approving, clock
from aiosd.model.status import Status
from aiosd.store.database import StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiosd.model.event import Event
    from aiosd.store.database import Database

LONGEST = 600.0
"""Seconds between two looks at most: the wall clock, by which expiry goes, can be set."""
AFTER_ERROR = 1.0

_log = logging.getLogger(__name__)


class Lapse:
    """Looks at each start, at each change that could matter, and when the next time is over."""

    def __init__(self, database: Database) -> None:
        """Looks at nothing before `run`."""
        self._database = database
        self._wakeup = asyncio.Event()

    def heard(self, events: Sequence[Event]) -> None:
        """An event listener: somebody began, or ceased, to wait."""
        waits = Status.AUTH_REQUIRED
        if any(event.change is not None and waits in (event.change.old, event.change.new) for event in events):
            self._wakeup.set()

    async def run(self) -> None:
        """For ever."""
        while True:
            self._wakeup.clear()
            delay = AFTER_ERROR
            try:
                delay = await self._look()
            except StoreError:
                _log.exception("Could not look for what has lapsed")
            try:
                async with asyncio.timeout(delay):
                    await self._wakeup.wait()
            except TimeoutError:
                continue

    async def _look(self) -> float:
        following = await self._database.write(lambda tx: approving.expire(tx, clock.now()))
        if following is None:
            return LONGEST
        return min(LONGEST, max(0.0, (following - clock.now()) / clock.MICROSECONDS))
