"""How much is left of tasks' time limits: time of the machine, whatever becomes of the wall clock.

A limit is stored as a moment (`deadline`), so that it survives the daemon and can be shown; what it is worth is noted
on the boot clock when this daemon first sees it (`delays.py` says why). It lasts over all attempts at a task, so it is
kept here and not with a run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiosd.core import clock
from aiosd.model.status import FINAL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiosd.model.event import Event


class TimeLimits:
    """By task. Of the loop and of the writer thread, which may both be the first to ask: they would note the same."""

    def __init__(self) -> None:
        """Knows of none."""
        self._ends: dict[str, tuple[int, float]] = {}

    def __len__(self) -> int:
        """How many are noted."""
        return len(self._ends)

    def left(self, task_id: str, deadline: int | None) -> int | None:
        """Microseconds until the limit of that task, negative when it is over; None without one."""
        if deadline is None:
            return None
        boot = clock.boottime()
        noted = self._ends.get(task_id)
        if noted is None or noted[0] != deadline:
            noted = self._ends[task_id] = (deadline, boot + (deadline - clock.now()) / clock.MICROSECONDS)
        return round((noted[1] - boot) * clock.MICROSECONDS)

    def heard(self, events: Sequence[Event]) -> None:
        """An event listener: who has ended has no limit any more."""
        for event in events:
            if event.change is not None and event.change.new in FINAL and event.task_id is not None:
                self._ends.pop(event.task_id, None)
