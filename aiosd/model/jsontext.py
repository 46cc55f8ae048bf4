"""JSON as strangers send it, made safe: bounded size, depth and numbers, no NaN, no duplicate keys, no surrogates.

`JsonValue` and `JsonObject` are the types used for free-form data everywhere; `parse_object` is the one way text
becomes such a value, `canonical` the one way a value becomes text that two parties must agree on (hashes, idempotency).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from itertools import accumulate
from typing import TypeAlias

JsonValue: TypeAlias = "Mapping[str, JsonValue] | list[JsonValue] | str | int | float | bool | None"
JsonObject: TypeAlias = "Mapping[str, JsonValue]"

MAX_TEXT_BYTES = 256 * 1024
"""Largest JSON text taken from a caller, in bytes of UTF-8."""

MAX_DEPTH = 32
"""Deepest nesting of objects and arrays taken from a caller."""

MAX_INTEGER = 2**53 - 1
"""Largest magnitude of an integer that every JSON implementation keeps exactly (RFC 8259, section 6)."""


class JsonTextError(ValueError):
    """The text is not JSON that we take; `str()` says why in words, without quoting the text."""


def _object(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    result: dict[str, JsonValue] = {}
    for key, value in pairs:
        if key in result:
            raise JsonTextError("an object has the same key twice")
        result[key] = value
    return result


def _constant(name: str) -> JsonValue:
    raise JsonTextError(f"{name} is not a JSON number")


def _integer(digits: str) -> int:
    if len(digits) > 17 or abs(int(digits)) > MAX_INTEGER:
        raise JsonTextError("a number is too large")
    return int(digits)


def _float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise JsonTextError("a number is too large")
    return value


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_constant=_constant, parse_int=_integer, parse_float=_float, strict=True
)

_NOT_STRUCTURE = re.compile(r'(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[^"\[\]{}]+)+', re.DOTALL)
"""All but the brackets outside strings; no character is looked at twice."""

_STEP = {"[": 1, "{": 1, "]": -1, "}": -1}


def _check_depth(text: str) -> bool:
    """Refuse what is nested too deep before a scanner recurses into it: how deep one can differs between Pythons.

    True when it is plain that the text is flat enough; otherwise the value has to be looked at.
    """
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return True
    brackets = _NOT_STRUCTURE.sub("", text)
    if max(accumulate(map(_STEP.__getitem__, brackets)), default=0) > MAX_DEPTH + 1:
        raise JsonTextError(f"nested deeper than {MAX_DEPTH} levels")
    return False


def check_value(value: JsonValue, *, depth: int = MAX_DEPTH) -> None:
    """Refuse a value that is nested deeper than `depth`, or holds a lone surrogate or a NUL (raises JsonTextError)."""
    if depth < 0:
        raise JsonTextError(f"nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, str):
        _check_string(value)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            _check_string(key)
            check_value(item, depth=depth - 1)
    elif isinstance(value, list):
        for item in value:
            check_value(item, depth=depth - 1)
    elif isinstance(value, bool) or value is None:
        return
    elif isinstance(value, int) and abs(value) > MAX_INTEGER:
        raise JsonTextError("a number is too large")
    elif isinstance(value, float) and not math.isfinite(value):
        raise JsonTextError("a number is not finite")


def _check_string(text: str) -> None:
    if "\0" in text:
        raise JsonTextError("a string holds a NUL character")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise JsonTextError("a string holds half of a surrogate pair") from None


def parse_value(text: str | bytes, *, limit: int = MAX_TEXT_BYTES) -> JsonValue:
    """Text to value. Raises JsonTextError when it is too large, too deep, or not JSON (RFC 8259)."""
    raw = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    if len(raw) > limit:
        raise JsonTextError(f"longer than {limit} bytes")
    try:
        decoded = raw.decode("utf-8", "strict")
        flat = _check_depth(decoded)
        value: JsonValue = _DECODER.decode(decoded)
    except UnicodeDecodeError:
        raise JsonTextError("not UTF-8") from None
    except json.JSONDecodeError as error:
        raise JsonTextError(f"not JSON: {error.msg} at character {error.pos}") from None
    # Numbers were checked as they were read; a NUL or half a surrogate pair comes only from an escape.
    if not flat or "\\u" in decoded:
        check_value(value)
    return value


def parse_object(text: str | bytes, *, limit: int = MAX_TEXT_BYTES) -> JsonObject:
    """As `parse_value`, but the text must be one object; an empty text is the empty object."""
    if not text:
        return {}
    value = parse_value(text, limit=limit)
    if not isinstance(value, Mapping):
        raise JsonTextError("must be a JSON object")
    return value


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)

_CANONICAL = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"), allow_nan=False, sort_keys=True)


class Settled(dict[str, "JsonValue"]):
    """An object that nobody changes any more: its text is made once, however often it is sent."""

    __slots__ = ("_text",)
    _text: str

    @property
    def text(self) -> str:
        """It as `dump` has it."""
        try:
            return self._text
        except AttributeError:
            self._text = _ENCODER.encode(self)
            return self._text


def dump(value: JsonValue) -> str:
    """Value to compact text, characters as they are."""
    if type(value) is dict and not value:  # half of all that is stored
        return "{}"
    return value.text if isinstance(value, Settled) else _ENCODER.encode(value)


def canonical(value: JsonValue) -> str:
    """Value to the one text both sides of a hash agree on: sorted keys, no spaces, ASCII."""
    return _CANONICAL.encode(value)
