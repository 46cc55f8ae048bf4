"""The kinds of values a setting can have: how text becomes one, and how the man page shows it.

Spellings are those of systemd.syntax(7) and systemd.time(7): `5min 20s`, `64M`, `yes`, `infinity`.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Generic, TypeVar

from aiosd.model.later import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_TRUE = frozenset({"1", "yes", "y", "true", "t", "on"})
_FALSE = frozenset({"0", "no", "n", "false", "f", "off"})
_NO_LIMIT = frozenset({"infinity", "none"})
_DIGITS = re.compile(r"[0-9]{1,18}", re.ASCII)
_SIZE = re.compile(r"([0-9]{1,18})([KMGT]?)", re.ASCII)
_SPAN = re.compile(r"\s*([0-9]{1,12}(?:\.[0-9]{1,9})?)\s*([a-z]*)", re.ASCII)
_SIZE_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SPAN_UNITS: dict[str, float] = {
    **dict.fromkeys(("us", "usec"), 1e-6),
    **dict.fromkeys(("ms", "msec"), 1e-3),
    **dict.fromkeys(("", "s", "sec", "second", "seconds"), 1),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60),
    **dict.fromkeys(("h", "hr", "hour", "hours"), 3600),
    **dict.fromkeys(("d", "day", "days"), 86_400),
    **dict.fromkeys(("w", "week", "weeks"), 604_800),
}


class Kind(ABC, Generic[T]):
    """What values a setting takes."""

    @abstractmethod
    def parse(self, text: str) -> T:
        """The value of `text`. Raises ValueError with a sentence for whoever wrote the file."""

    @abstractmethod
    def show(self, value: T) -> str:
        """`value` as it would stand in the file."""

    @property
    @abstractmethod
    def words(self) -> str:
        """The kind and its bounds, for the man page."""


@dataclass(frozen=True, slots=True)
class Whole(Kind[int]):
    """A whole number."""

    minimum: int
    maximum: int

    def parse(self, text: str) -> int:
        """Decimal digits only."""
        if _DIGITS.fullmatch(text) is None:
            raise ValueError("must be a whole number")
        return _within(int(text), self.minimum, self.maximum, str)

    def show(self, value: int) -> str:
        """Digits."""
        return str(value)

    @property
    def words(self) -> str:
        """The bounds."""
        return f"a whole number, {self.minimum} to {self.maximum}"


@dataclass(frozen=True, slots=True)
class Percent:
    """A part of something else, as *TasksMax=* takes one (systemd.resource-control(5))."""

    value: int

    def of(self, whole: int) -> int:
        """That part, rounded down, but never nothing."""
        return max(1, whole * self.value // 100)


@dataclass(frozen=True, slots=True)
class Share(Kind[int | Percent]):
    """A whole number, or percent of another setting."""

    maximum: int

    def parse(self, text: str) -> int | Percent:
        """Digits; with `%` a part."""
        if text.endswith("%"):
            return Percent(Whole(1, 100).parse(text[:-1]))
        return Whole(1, self.maximum).parse(text)

    def show(self, value: int | Percent) -> str:
        """As it would stand in the file."""
        return f"{value.value}%" if isinstance(value, Percent) else str(value)

    @property
    def words(self) -> str:
        """The bounds of both."""
        return f"a whole number, 1 to {self.maximum}, or 1% to 100%"


@dataclass(frozen=True, slots=True)
class Span(Kind[float]):
    """A time span, in seconds."""

    minimum: float
    maximum: float

    def parse(self, text: str) -> float:
        """A number of seconds, or numbers with units that add up."""
        return _within(_span(text), self.minimum, self.maximum, _show_span)

    def show(self, value: float) -> str:
        """In the largest unit that keeps it whole."""
        return _show_span(value)

    @property
    def words(self) -> str:
        """The bounds."""
        return f"a time span, {_show_span(self.minimum)} to {_show_span(self.maximum)}; seconds without a unit"


@dataclass(frozen=True, slots=True)
class Size(Kind[int]):
    """A number of bytes."""

    minimum: int
    maximum: int

    def parse(self, text: str) -> int:
        """Digits with K, M, G or T to the base of 1024."""
        found = _SIZE.fullmatch(text)
        if found is None:
            raise ValueError("must be a size in bytes, with K, M, G or T to the base of 1024")
        return _within(int(found[1]) * _SIZE_UNITS[found[2]], self.minimum, self.maximum, _show_size)

    def show(self, value: int) -> str:
        """In the largest unit that keeps it whole."""
        return _show_size(value)

    @property
    def words(self) -> str:
        """The bounds."""
        return f"a size in bytes, {_show_size(self.minimum)} to {_show_size(self.maximum)}"


@dataclass(frozen=True, slots=True)
class Boolean(Kind[bool]):
    """Yes or no."""

    def parse(self, text: str) -> bool:
        """As systemd spells them."""
        word = text.lower()
        if word in _TRUE:
            return True
        if word in _FALSE:
            return False
        raise ValueError("must be yes or no")

    def show(self, value: bool) -> str:  # noqa: FBT001 - the value is what is shown
        """`yes` or `no`."""
        return "yes" if value else "no"

    @property
    def words(self) -> str:
        """The kind."""
        return "a boolean"


@dataclass(frozen=True, slots=True)
class Consent(Kind[str]):
    """How long a person's first consent is kept: a scope of a grant."""

    def parse(self, text: str) -> str:
        """A time span becomes `timed:<seconds>`, as grants spell it."""
        if text in ("once", "task", "session", "persistent"):
            return text
        try:
            seconds = _within(int(_span(text)), 1, _LONGEST_CONSENT, _show_span)
        except ValueError:
            raise ValueError("must be once, task, session, persistent or a time span from 1s to 366d") from None
        return f"timed:{seconds}"

    def show(self, value: str) -> str:
        """As it would stand in the file."""
        return _show_span(int(value.removeprefix("timed:"))) if value.startswith("timed:") else value

    @property
    def words(self) -> str:
        """The choices."""
        return "once, task, session, persistent, or a time span"


_LONGEST_CONSENT = 366 * 86_400
"""Seconds."""


@dataclass(frozen=True, slots=True)
class AlwaysYes(Kind[bool]):
    """A switch of another implementation that cannot be turned off here; `why` completes "cannot be turned off: …"."""

    why: str

    def parse(self, text: str) -> bool:
        """`yes` is taken, `no` refused."""
        if not Boolean().parse(text):
            raise ValueError(f"cannot be turned off: {self.why}")
        return True

    def show(self, value: bool) -> str:  # noqa: FBT001 - the value is what is shown
        """`yes`."""
        return Boolean().show(value)

    @property
    def words(self) -> str:
        """The kind."""
        return "a boolean that can only be true"


@dataclass(frozen=True, slots=True)
class OrNone(Kind[T | None], Generic[T]):
    """Another kind, or `infinity` for no limit (None)."""

    inner: Kind[T]

    def parse(self, text: str) -> T | None:
        """`infinity`, `none`, or what the inner kind takes."""
        return None if text.lower() in _NO_LIMIT else self.inner.parse(text)

    def show(self, value: T | None) -> str:
        """`infinity` for None."""
        return "infinity" if value is None else self.inner.show(value)

    @property
    def words(self) -> str:
        """The inner kind's, and `infinity`."""
        return f"{self.inner.words}; or infinity"


Number = TypeVar("Number", int, float)


def _within(value: Number, minimum: Number, maximum: Number, show: Callable[[Number], str]) -> Number:
    if not minimum <= value <= maximum:
        raise ValueError(f"must be from {show(minimum)} to {show(maximum)}")
    return value


def _span(text: str) -> float:
    total, position = 0.0, 0
    while position < len(text):
        found = _SPAN.match(text, position)
        if found is None or found[2] not in _SPAN_UNITS:
            raise ValueError("must be a time span such as 30, 1.5s or 5min 20s")
        total += float(found[1]) * _SPAN_UNITS[found[2]]
        position = found.end()
    if not text or not math.isfinite(total):
        raise ValueError("must be a time span such as 30, 1.5s or 5min 20s")
    return total


def _show_span(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length and seconds % length == 0:
            return f"{seconds / length:g}{unit}"
    return f"{seconds:g}s" if seconds >= 1 or seconds == 0 else f"{seconds * 1000:g}ms"


def _show_size(size: int) -> str:
    for unit in ("T", "G", "M", "K"):
        if size >= _SIZE_UNITS[unit] and size % _SIZE_UNITS[unit] == 0:
            return f"{size // _SIZE_UNITS[unit]}{unit}"
    return str(size)
