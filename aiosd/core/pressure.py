"""Whether the machine is short of memory or CPU: the kernel's pressure stall information, and what it means for tasks.

`/proc/pressure/memory` says which share of the last ten seconds some process waited for memory
(https://docs.kernel.org/accounting/psi.html). Above the configured share, tasks of low priority wait until it is over
and say so (`waiting_for`); all others start. For CPU they wait for each other only (`admission`). A kernel without it
never holds anybody back.
"""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

from aiosd.core.admission import WaitReason

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiosd.config import Config

PRESSURE = Path("/proc/pressure")
FRESH = 1.0
"""Seconds that one look is good for; the kernel itself averages every two."""

_SOME = re.compile(r"^some avg10=([0-9]+(?:\.[0-9]+)?)\s", re.MULTILINE)


def some(text: str) -> float | None:
    """Percent of the last ten seconds in which some process waited; None when the text does not say."""
    found = _SOME.search(text)
    return None if found is None else float(found[1])


def reason_for(memory: float | None, cpu: float | None, config: Config) -> WaitReason | None:
    """Why tasks of low priority wait, if they do. Memory before CPU: it does more harm."""
    for value, limit, reason in (
        (memory, config.memory_pressure, WaitReason.MEMORY_PRESSURE),
        (cpu, config.cpu_pressure, WaitReason.CPU_PRESSURE),
    ):
        if value is not None and limit is not None and value >= limit:
            return reason
    return None


class Pressure:
    """Looks at most once a second. Reading these files waits for nothing."""

    def __init__(self, directory: Path = PRESSURE, now: Callable[[], float] = time.monotonic) -> None:
        """`now`: seconds of a clock that never goes back."""
        self._directory = directory
        self._now = now
        self._next = 0.0
        self._values: tuple[float | None, float | None] = (None, None)

    def reason(self, config: Config) -> WaitReason | None:
        """Why tasks of low priority wait at this moment."""
        if config.memory_pressure is None and config.cpu_pressure is None:
            return None
        now = self._now()
        if now >= self._next:
            self._next = now + FRESH
            self._values = (self._read("memory"), self._read("cpu"))
        return reason_for(*self._values, config)

    def _read(self, name: str) -> float | None:
        try:
            return some((self._directory / name).read_text())
        except (OSError, UnicodeDecodeError):
            return None
