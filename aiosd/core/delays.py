"""Delays that are stored as moments of the wall clock, measured as what they are: time that passes for the machine.

A moment is stored so that people can be shown it and so that it survives the daemon. But that a task may be tried again
in a minute, or that a person has ten minutes to answer, does not change when somebody sets the clock. So a moment is
taken for the delay that it was when it was first seen, and counted on the boot clock, which goes on while the machine
sleeps. A daemon that was restarted sees it anew, by the wall clock as it then is.

What is meant as a moment (`not_before`, a grant's end) does not come here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiosd.core import clock

if TYPE_CHECKING:
    from collections.abc import Collection


class Delays:
    """By the name of what waits. Of one thread at a time."""

    def __init__(self) -> None:
        """Knows of none."""
        self._ends: dict[tuple[str, int], float] = {}

    def __len__(self) -> int:
        """How many are waited for."""
        return len(self._ends)

    def left(self, name: str, moment: int) -> float:
        """Seconds until then, negative when it is over. `moment`: microseconds since the epoch."""
        boot = clock.boottime()
        end = self._ends.setdefault((name, moment), boot + (moment - clock.now()) / clock.MICROSECONDS)
        return end - boot

    def now_as(self, name: str, moment: int) -> int:
        """`moment` as it would have to be called by the wall clock as it is now."""
        return clock.now() + round(self.left(name, moment) * clock.MICROSECONDS)

    def forget_all_but(self, names: Collection[str]) -> None:
        """Others have ceased to wait."""
        self._ends = {key: end for key, end in self._ends.items() if key[0] in names}
