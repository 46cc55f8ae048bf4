"""The clocks: wall time for what is stored and shown, boot time for what is waited for (clock_gettime(2))."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path

MICROSECONDS = 1_000_000
LATEST = 253_402_300_799_999_999
"""The last moment that RFC 3339 can name, 9999-12-31T23:59:59.999999Z, in microseconds since the epoch."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RFC3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)


def now() -> int:
    """Microseconds since the epoch."""
    return time.time_ns() // 1000


def boottime() -> float:
    """Seconds since boot, sleep included: waits measured on it survive a suspend and a change of the wall clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def monotonic() -> float:
    """Seconds of the clock that stands still while the machine sleeps; the event loop's timers go by it."""
    return time.monotonic()


def boot_id() -> str:
    """The kernel's id of this boot (random(4))."""
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


def rfc3339(moment: int) -> str:
    """Microseconds since the epoch as RFC 3339, UTC, milliseconds."""
    return f"{_second(moment // MICROSECONDS)}.{moment % MICROSECONDS // 1000:03d}Z"


@lru_cache(maxsize=64)
def _second(seconds: int) -> str:
    """Kept, since most that is told happened a moment ago. isoformat, not strftime: it is a fifth of the time."""
    return datetime.fromtimestamp(seconds, tz=UTC).isoformat()[:19]


def parse_rfc3339(text: str) -> int:
    """RFC 3339 to microseconds since the epoch.

    Raises ValueError for what is none, for a time without an offset and for one that cannot be shown again.
    """
    if _RFC3339.fullmatch(text) is None:
        raise ValueError("not a time as in 2026-01-05T10:00:00Z")
    moment = (datetime.fromisoformat(text) - _EPOCH) // timedelta(microseconds=1)
    if not 0 <= moment <= LATEST:
        raise ValueError("before 1970 or after 9999")
    return moment
