"""Where a JSON Schema has its keywords: a property may be called `pattern`, and a constant may look like a schema.

`keywords` finds every use of a keyword as a keyword; `anchored` is a schema whose patterns mean in Python what they
mean in JSON Schema.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonObject, JsonValue

Path = tuple[str, ...]

_NAMES = frozenset({"properties", "patternProperties", "$defs", "dependentSchemas", "dependentRequired"})
"""Keywords whose members are named by the author."""

_DATA = frozenset({"const", "enum", "default", "examples"})
"""Keywords whose value is no schema."""


def keywords(schema: JsonValue, path: Path = ()) -> Iterator[tuple[Path, str, JsonValue]]:
    """Every use of a keyword as a keyword: place, keyword, value. Data and the names of members are none."""
    if isinstance(schema, list):
        for index, item in enumerate(schema):
            yield from keywords(item, (*path, str(index)))
    if not isinstance(schema, Mapping):
        return
    for keyword, value in schema.items():
        here = (*path, keyword)
        yield here, keyword, value
        if keyword in _NAMES and isinstance(value, Mapping):
            for name, inner in value.items():
                yield from keywords(inner, (*here, name))
        elif keyword not in _DATA:
            yield from keywords(value, here)


def anchored(schema: JsonObject) -> JsonObject:
    """The schema with every pattern's `$` meaning the end of the text, as ECMA-262 has it.

    Python's `$` also matches before a newline at the end, so `^[a-z]+$` would take a text with a newline in it.
    """
    return {keyword: _anchored_value(keyword, value) for keyword, value in schema.items()}


def _anchored_value(keyword: str, value: JsonValue) -> JsonValue:
    if keyword == "pattern" and isinstance(value, str):
        return strict_end(value)
    if keyword in _NAMES and isinstance(value, Mapping):
        rename = strict_end if keyword == "patternProperties" else str
        return {rename(name): _anchored_schema(inner) for name, inner in value.items()}
    return value if keyword in _DATA else _anchored_schema(value)


def _anchored_schema(value: JsonValue) -> JsonValue:
    if isinstance(value, list):
        return [_anchored_schema(item) for item in value]
    return anchored(value) if isinstance(value, Mapping) else value


def strict_end(pattern: str) -> str:
    r"""`pattern` with `\Z` for each `$` that is an anchor: not escaped, not in a character class."""
    out = []
    in_class = escaped = False
    for char in pattern:
        if escaped:
            escaped = False
        elif char == "\\":
            escaped = True
        elif in_class:
            in_class = char != "]"
        elif char == "[":
            in_class = True
        elif char == "$":
            out.append(r"\Z")
            continue
        out.append(char)
    return "".join(out)
