"""The clocks: wall time for what is stored and shown, boot time for what is waited for (clock_gettime(2))."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

MICROSECONDS = 1_000_000


def now() -> int:
    """Microseconds since the epoch."""
    return time.time_ns() // 1000


def boottime() -> float:
    """Seconds since boot, sleep included: waits measured on it survive a suspend and a change of the wall clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def boot_id() -> str:
    """The kernel's id of this boot (random(4))."""
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


def rfc3339(moment: int) -> str:
    """Microseconds since the epoch as RFC 3339, UTC, milliseconds."""
    stamp = datetime.fromtimestamp(moment // MICROSECONDS, tz=UTC)
    return f"{stamp:%Y-%m-%dT%H:%M:%S}.{moment % MICROSECONDS // 1000:03d}Z"


def parse_rfc3339(text: str) -> int:
    """RFC 3339 to microseconds since the epoch. Raises ValueError; a time without an offset is refused."""
    stamp = datetime.fromisoformat(text)
    if stamp.tzinfo is None:
        raise ValueError("a time needs its offset from UTC, as in 2026-01-05T10:00:00Z")
    return int(stamp.timestamp()) * MICROSECONDS + stamp.microsecond
