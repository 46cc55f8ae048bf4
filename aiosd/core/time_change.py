"""Notices that the machine has slept, or that its clock was set: whoever waits for a time then looks at it anew.

An event loop's timers stand still while the machine sleeps (CLOCK_MONOTONIC, clock_gettime(2)), and a timer for a
moment of the wall clock does not know that the clock was set. Both show in how far the clocks are apart, which is
looked at when the kernel says that the clock made a step (`clock_steps`). What is steered (adjtimex(2)) moves all three
clocks alike, and no delay with it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from aiosd.core import clock, clock_steps

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PERIOD = 5.0
"""Seconds between two looks where the kernel does not tell; of the loop, so that the first one after a sleep comes as
soon."""
TOLERANCE = 0.5
"""Seconds: small steps are left alone until they are a large one."""

_log = logging.getLogger(__name__)


def apart() -> tuple[float, float]:
    """Seconds that the machine has slept since its boot, and the wall clock's moment of that boot."""
    boot = clock.boottime()
    return boot - clock.monotonic(), clock.now() / clock.MICROSECONDS - boot


class TimeChange:
    """Tells its listeners."""

    def __init__(self, listeners: Sequence[Callable[[], None]]) -> None:
        """`listeners`: called on the loop."""
        self._listeners = listeners
        self._apart = apart()

    async def run(self) -> None:
        """For ever."""
        try:
            with clock_steps.heard(self.look):
                self.look()  # what was before is not told
                await asyncio.Event().wait()
        except OSError as error:
            _log.warning("The clocks are compared every %g s, the kernel does not tell of steps: %s", PERIOD, error)
        while True:
            await asyncio.sleep(PERIOD)
            self.look()

    def look(self) -> None:
        """Compare with the last look."""
        before, self._apart = self._apart, apart()
        slept, moved = (now - then for now, then in zip(self._apart, before, strict=True))
        if abs(slept) < TOLERANCE and abs(moved) < TOLERANCE:
            self._apart = before  # many small steps are one large one
            return
        _log.info("The machine slept for %.1f s, and its clock was set by %+.1f s", slept, moved)
        for listener in self._listeners:
            listener()
