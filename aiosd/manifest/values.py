"""How one TOML value of a manifest becomes a value of the model: sizes, percentages, time spans, texts, lists.

Each function takes what `tomllib` gives and raises ValueError with a sentence for the manifest's author.
"""

from __future__ import annotations

import posixpath
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import TypeVar

from aiosd.model.jsontext import JsonObject, JsonTextError, check_value
from aiosd.model.manifest import Identity, Pausable
from aiosd.model.status import Level

MAX_TITLE = 128
MAX_DESCRIPTION = 2048
MAX_ID = 128
MAX_ARGV = 64
MAX_ARGUMENT = 4096
MAX_PATHS = 32
MAX_SPAN_MS = 366 * 24 * 3600 * 1000
"""The longest time span taken, in milliseconds: a leap year."""

ID_PATTERN = re.compile(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)+")
_USER_PATTERN = re.compile(r"[a-z_][a-z0-9_-]{0,30}")
_SIZE_PATTERN = re.compile(r"([0-9]{1,15})([KMGT]?)")
_SIZE_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_PERCENT_PATTERN = re.compile(r"([0-9]{1,6})%")
_SPAN_PATTERN = re.compile(r"\s*([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*([a-z]*)")
_SPAN_UNITS_MS: dict[str, float] = {
    **dict.fromkeys(("ms", "msec"), 1),
    **dict.fromkeys(("", "s", "sec", "second", "seconds"), 1000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hr", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
    **dict.fromkeys(("w", "week", "weeks"), 7 * 86_400_000),
}

_FORBIDDEN_CATEGORIES = frozenset({"Cc", "Cs", "Zl", "Zp"})
_DIRECTION_MARKS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""They can make a dialog show another text than the one that is there (CVE-2021-42574), so no text may hold them."""

Enumeration = TypeVar("Enumeration", bound=StrEnum)


def is_clean(text: str) -> bool:
    """Whether `text` holds neither control characters nor marks that reorder what is shown."""
    return not any(unicodedata.category(char) in _FORBIDDEN_CATEGORIES or char in _DIRECTION_MARKS for char in text)


def string(value: object) -> str:
    """Any TOML string."""
    if not isinstance(value, str):
        raise ValueError("must be a string")
    return value


def identifier(value: object) -> str:
    """A capability id: dotted, lower case."""
    text = string(value)
    if len(text) > MAX_ID or ID_PATTERN.fullmatch(text) is None:
        raise ValueError(f"must look like 'area.thing.verb' (a-z, 0-9, _ and dots, at most {MAX_ID} characters)")
    return text


def title(value: object) -> str:
    """One line, as it is shown in lists and in authorisation dialogs."""
    return _text(string(value), MAX_TITLE)


def description(value: object) -> str:
    """Sentences; line breaks and indentation of a multi-line TOML string become single spaces."""
    return _text(re.sub(r"[ \t\r\n]+", " ", string(value)).strip(), MAX_DESCRIPTION)


def _text(text: str, limit: int) -> str:
    if not text.strip():
        raise ValueError("must not be empty")
    if len(text) > limit:
        raise ValueError(f"must have at most {limit} characters")
    if not is_clean(text):
        raise ValueError("must not hold control characters")
    return text


def level(value: object) -> Level:
    """One of the five levels by name."""
    for item in Level:
        if item.wire == value:
            return item
    raise ValueError(_one_of(item.wire for item in Level))


def choice(kind: type[Enumeration]) -> Callable[[object], Enumeration]:
    """A parser for the members of an enumeration, by their values."""

    def parse(value: object) -> Enumeration:
        try:
            return kind(string(value))
        except ValueError:
            raise ValueError(_one_of(item.value for item in kind)) from None

    return parse


def _one_of(words: Iterable[str]) -> str:
    return "must be one of " + ", ".join(f'"{word}"' for word in words)


def pausable(value: object) -> Pausable:
    """False, "freeze" or "cooperative"."""
    if value is False:
        return Pausable.NO
    if value in (Pausable.FREEZE.value, Pausable.COOPERATIVE.value):
        return Pausable(string(value))
    raise ValueError('must be false, "freeze" or "cooperative"')


def user(value: object) -> tuple[Identity, str | None]:
    """An identity: "dynamic", "caller", or the name of a user."""
    text = string(value)
    if text == Identity.DYNAMIC.value:
        return Identity.DYNAMIC, None
    if text == Identity.CALLER.value:
        return Identity.CALLER, None
    if _USER_PATTERN.fullmatch(text) is None:
        raise ValueError('must be "dynamic", "caller" or the name of a system user')
    return Identity.NAMED, text


def boolean(value: object) -> bool:
    """True or false, nothing that is merely like it."""
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def integer(lowest: int, highest: int) -> Callable[[object], int]:
    """A parser for whole numbers in a range, both ends included."""

    def parse(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
            raise ValueError(f"must be a whole number from {lowest} to {highest}")
        return value

    return parse


def size(value: object) -> int:
    """Bytes: a whole number, or a string with K, M, G or T to the base 1024 (systemd.resource-control(5))."""
    if isinstance(value, int) and not isinstance(value, bool):
        amount = value
    else:
        found = _SIZE_PATTERN.fullmatch(value) if isinstance(value, str) else None
        if found is None:
            raise ValueError('must be a size such as "256M" or 268435456')
        amount = int(found[1]) * _SIZE_UNITS[found[2]]
    if not 4096 <= amount < 1 << 53:
        raise ValueError("must be at least 4K and less than 8192T")
    return amount


def cpu_quota(value: object) -> int:
    """Percent of one CPU, written with the sign as systemd does: "20%"."""
    found = _PERCENT_PATTERN.fullmatch(value) if isinstance(value, str) else None
    if found is None or int(found[1]) == 0:
        raise ValueError('must be a percentage of one CPU such as "20%" (more than one CPU: "200%")')
    return int(found[1])


def time_span(value: object) -> int:
    """Milliseconds: whole or fractional seconds, or a string such as "5s" or "2min 30s" (systemd.time(7))."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        total = value * 1000.0
    elif isinstance(value, str) and value.strip():
        total = _span(value.strip())
    else:
        raise ValueError('must be a time span such as "5s", "2min 30s" or "500ms"')
    if not 1 <= total <= MAX_SPAN_MS:
        raise ValueError("must be at least 1ms and at most 366 days")
    return round(total)


def _span(text: str) -> float:
    total, position = 0.0, 0
    while position < len(text):
        found = _SPAN_PATTERN.match(text, position)
        if found is None or found[2] not in _SPAN_UNITS_MS:
            raise ValueError('must be a time span such as "5s", "2min 30s" or "500ms"')
        total += float(found[1]) * _SPAN_UNITS_MS[found[2]]
        position = found.end()
    return total


def argv(value: object) -> tuple[str, ...]:
    """The program and its arguments; `argv.py` says what `{name}` means in it."""
    items = _strings(value, MAX_ARGV)
    if not items:
        raise ValueError("must name a program")
    if any(len(item) > MAX_ARGUMENT or "\0" in item for item in items):
        raise ValueError(f"an element must have at most {MAX_ARGUMENT} characters and no NUL")
    _absolute(items[0])
    return items


def paths(value: object) -> tuple[str, ...]:
    """Absolute paths in normal form; "/" is one (`levels.py` says who may have it)."""
    items = _strings(value, MAX_PATHS)
    for item in items:
        _absolute(item)
    return items


def _absolute(path: str) -> None:
    normal = posixpath.normpath(path)
    if not path.startswith("/") or path.startswith("//") or path != normal or not is_clean(path):
        raise ValueError(f"must be an absolute path without '.', '..', double or trailing slashes: {path[:80]!r}")


def _strings(value: object, limit: int) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError("must be a list of strings")
    if len(value) > limit:
        raise ValueError(f"must have at most {limit} elements")
    return tuple(value)


def table(value: object) -> JsonObject:
    """A TOML table that is also a JSON object: no dates, no infinities."""
    if not isinstance(value, Mapping):
        raise ValueError("must be a table")
    _only_json(value)
    try:
        check_value(value)
    except JsonTextError as error:
        raise ValueError(str(error)) from None
    return value


def _only_json(value: object) -> None:
    if isinstance(value, Mapping):
        for item in value.values():
            _only_json(item)
    elif isinstance(value, list):
        for item in value:
            _only_json(item)
    elif not isinstance(value, str | int | float | bool):
        raise ValueError("must hold no dates or times: JSON has none")
