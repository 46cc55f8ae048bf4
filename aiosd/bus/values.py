"""Between D-Bus values and the JSON that operations take and answer: options in, rows and times out. Pure.

What a caller sends is bounded here before anything looks into it; a refusal names the argument or `options.<name>`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING

from aiosd.bus.connection import Variant, plain
from aiosd.core.clock import parse_rfc3339
from aiosd.errors import AiosError, ErrorKind
from aiosd.model.jsontext import MAX_TEXT_BYTES, JsonTextError, parse_object
from aiosd.model.later import dataclass

if TYPE_CHECKING:
    from aiosd.bus.message import BusValue
    from aiosd.model.jsontext import JsonObject, JsonValue

MAX_STRING = 4096
"""Longest string, in characters, of an argument that is not a JSON text."""
MAX_ITEMS = 64
"""Most entries of an array or of an options dictionary."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OPTION_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")


class Reading(Enum):
    """How an option's value becomes JSON."""

    PLAIN = "plain"
    JSON = "json"
    """A string that holds a JSON object."""
    TIME = "time"
    """Microseconds since the epoch, RFC 3339 in the parameters."""


@dataclass(frozen=True, slots=True)
class Option:
    """An entry that an options dictionary may have: its D-Bus type and its place in the operation's parameters."""

    type: str
    place: tuple[str, ...]
    reading: Reading = Reading.PLAIN


def invalid(field: str, detail: str) -> AiosError:
    """A refusal that names the argument at fault."""
    return AiosError(ErrorKind.INVALID_PARAMS, detail, field=field)


def text_argument(field: str, value: BusValue) -> str:
    """A string of bounded length."""
    if not isinstance(value, str):
        raise invalid(field, "must be a string")
    if len(value) > MAX_STRING:
        raise invalid(field, f"longer than {MAX_STRING} characters")
    return value


def text_list(field: str, value: BusValue) -> list[JsonValue]:
    """An array of strings of bounded length."""
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise invalid(field, "must be an array of strings")
    if len(value) > MAX_ITEMS:
        raise invalid(field, f"more than {MAX_ITEMS} entries")
    return [text_argument(field, item) for item in value]


def json_argument(field: str, value: BusValue) -> JsonObject:
    """A string that holds a JSON object; the empty string is the empty object."""
    if not isinstance(value, str):
        raise invalid(field, "must be a string")
    if len(value) > MAX_TEXT_BYTES:
        raise invalid(field, f"longer than {MAX_TEXT_BYTES} bytes")
    try:
        return parse_object(value)
    except JsonTextError as error:
        raise invalid(field, str(error)) from None


def time_argument(field: str, value: BusValue) -> str:
    """Microseconds since the epoch as RFC 3339 with microseconds."""
    try:
        return (_EPOCH + timedelta(microseconds=int(str(value)))).isoformat(timespec="microseconds")
    except (OverflowError, ValueError):
        raise invalid(field, "a time beyond the year 9999") from None


def _read(field: str, option: Option, value: BusValue) -> JsonValue:
    if option.reading is Reading.JSON:
        return json_argument(field, value)
    if option.reading is Reading.TIME:
        return time_argument(field, value)
    if option.type == "s":
        return text_argument(field, value)
    if option.type == "as":
        return text_list(field, value)
    if isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise invalid(field, f"must have D-Bus type {option.type!r}")


def read_options(known: Mapping[str, Option], given: BusValue, params: dict[str, JsonValue]) -> None:
    """Put the entries of an `a{sv}` where they belong in `params`; an unknown name or a wrong type is refused."""
    if not isinstance(given, Mapping):
        raise invalid("options", "must be a dictionary")
    if len(given) > MAX_ITEMS:
        raise invalid("options", f"more than {MAX_ITEMS} entries")
    for name, variant in given.items():
        option = known.get(name)
        if option is None:
            field = f"options.{name}" if _OPTION_NAME.fullmatch(name) else "options"
            raise invalid(field, "unknown option")
        field = f"options.{name}"
        if not isinstance(variant, Variant) or variant.signature != option.type:
            raise invalid(field, f"must have D-Bus type {option.type!r}")
        target = params
        for step in option.place[:-1]:
            below = target.setdefault(step, {})
            if not isinstance(below, dict):
                raise TypeError(f"{step} of {option.place} is not an object")
            target = below
        target[option.place[-1]] = _read(field, option, variant.value)


def text_of(body: JsonObject, key: str) -> str:
    """The string at `key`, "" when absent; anything else is the core's mistake (TypeError)."""
    value = body.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise TypeError(f"{key} should be a string")
    return plain(value)


def number_of(body: JsonObject, key: str) -> int:
    """The integer at `key`, 0 when absent (TypeError when it is something else)."""
    value = body.get(key)
    if value is None:
        return 0
    if not isinstance(value, int):
        raise TypeError(f"{key} should be an integer")
    return value


def real_of(body: JsonObject, key: str) -> float:
    """The number at `key`, 0.0 when absent (TypeError when it is something else)."""
    value = body.get(key)
    if value is None:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{key} should be a number")
    return float(value)


def time_of(body: JsonObject, key: str) -> int:
    """Microseconds since the epoch of the RFC 3339 time at `key`, 0 when absent."""
    text = text_of(body, key)
    return parse_rfc3339(text) if text else 0


def object_of(body: JsonObject, key: str) -> JsonObject:
    """The object at `key`, the empty one when absent."""
    value = body.get(key)
    return value if isinstance(value, Mapping) else {}


def rows_of(body: JsonObject, key: str) -> list[JsonObject]:
    """The objects of the array at `key`."""
    value = body.get(key)
    return [row for row in value if isinstance(row, Mapping)] if isinstance(value, list) else []


def percent_of(row: JsonObject) -> int:
    """Whole percent of a task's progress, -1 when unknown."""
    value = object_of(row, "progress").get("percent")
    return int(value) if isinstance(value, int | float) and 0 <= value <= 100 else -1
