"""Times as people write and read them: `90`, `5min`, `1h 30min` (systemd.time(7)), and back."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime

_UNITS_MS = {
    "ms": 1, "msec": 1,
    "s": 1000, "sec": 1000, "second": 1000, "seconds": 1000, "": 1000,
    "m": 60_000, "min": 60_000, "minute": 60_000, "minutes": 60_000,
    "h": 3_600_000, "hr": 3_600_000, "hour": 3_600_000, "hours": 3_600_000,
    "d": 86_400_000, "day": 86_400_000, "days": 86_400_000,
    "w": 604_800_000, "week": 604_800_000, "weeks": 604_800_000,
}  # fmt: skip
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*")


def parse_ms(text: str) -> int:
    """A duration in milliseconds; a number alone is seconds. ValueError when it is none."""
    position, total = 0, 0.0
    while position < len(text):
        part = _PART.match(text, position)
        if part is None or part[2] not in _UNITS_MS:
            raise ValueError(f"{text!r} is not a duration such as 90, 5min or 1h 30min")
        total += float(part[1]) * _UNITS_MS[part[2]]
        position = part.end()
    if not text.strip():
        raise ValueError("an empty text is not a duration")
    return round(total)


_STEPS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def duration(seconds: float) -> str:
    """At most two units: `1h 30min`, `12s`, `350ms`."""
    if seconds < 10:
        return f"{seconds:.2g}s" if seconds >= 1 else f"{round(max(seconds, 0) * 1000)}ms"
    left, words = round(seconds), []
    for size, unit in _STEPS:
        count, left = divmod(left, size)
        if count:
            words.append(f"{count}{unit}")
    return " ".join(words[:2])


def ago(microseconds: int) -> str:
    """How long ago a moment (µs since the epoch) was: `2min ago`; a dash for none."""
    if not microseconds:
        return "-"
    passed = time.time() - microseconds / 1e6
    return "now" if passed < 1 else f"{duration(passed).split(' ')[0]} ago"


def moment(text: str) -> str:
    """An RFC 3339 time as local time, as systemctl shows it; the text itself when it is not one."""
    try:
        return datetime.fromisoformat(text).astimezone().strftime("%a %Y-%m-%d %H:%M:%S %Z")
    except ValueError:
        return text


def parse_moment(text: str, *, from_now: bool = False) -> int:
    """A time in microseconds since the epoch: RFC 3339, a local `2026-01-31 12:00`, or a duration before now (with
    `from_now` after it)."""
    try:
        if from_now:
            return round((time.time() + parse_ms(text) / 1000) * 1e6)
        return round((time.time() - parse_ms(text.removesuffix("ago").strip()) / 1000) * 1e6)
    except ValueError:
        pass
    try:
        value = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is neither a time such as 2026-01-31 12:00 nor a duration such as 2h") from None
    return round(value.astimezone(UTC).timestamp() * 1e6)
