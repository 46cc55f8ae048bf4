"""Whether a schema is plainly one: the everyday keywords, each with a value that the draft's own schema takes.

Most capabilities have such a schema. For those the library need not be asked whether the schema is in order, and so it
is not imported when the daemon starts (`schema.py`). What is not plain is not wrong: then the library judges.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonValue

MOST_NESTED = 16
"""Levels; what is deeper is left to the library."""

_ONE = frozenset({"items", "additionalProperties", "propertyNames", "contains", "not"})
_SEVERAL = frozenset({"prefixItems", "anyOf", "allOf", "oneOf"})
_TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})


def is_plain(schema: JsonValue, depth: int = 0, *, in_defs: bool = False) -> bool:
    """Whether nothing can be wrong with it, if its references lead somewhere. False says nothing.

    A reference is plain when it leads to a definition, and definitions have none themselves: so none leads in a circle.
    """
    if isinstance(schema, bool):
        return True
    if not isinstance(schema, Mapping) or depth > MOST_NESTED:
        return False
    return all(_in_order(keyword, value, depth, in_defs) for keyword, value in schema.items())


def _in_order(keyword: str, value: JsonValue, depth: int, in_defs: bool) -> bool:  # noqa: FBT001 - passed on
    if keyword in _ONE:
        return is_plain(value, depth + 1, in_defs=in_defs)
    if keyword in _SEVERAL:
        inner = list(value) if isinstance(value, list) else []
        return bool(inner) and all(is_plain(one, depth + 1, in_defs=in_defs) for one in inner)
    if keyword in ("properties", "$defs"):
        within = in_defs or keyword == "$defs"
        return isinstance(value, Mapping) and all(is_plain(one, depth + 1, in_defs=within) for one in value.values())
    if keyword == "$ref":
        return not in_defs and isinstance(value, str) and value.startswith("#/$defs/") and value.count("/") == 2
    rule = _RULES.get(keyword)
    return rule is not None and rule(value)


def _is_type(value: JsonValue) -> bool:
    if isinstance(value, list):
        return bool(value) and _distinct(value) and all(one in _TYPES for one in value)
    return value in _TYPES if isinstance(value, str) else False


def _distinct(value: JsonValue) -> bool:
    """A list of strings, none twice."""
    if not isinstance(value, list):
        return False
    texts = [one for one in value if isinstance(one, str)]
    return len(texts) == len(value) == len(set(texts))


def _any(_: JsonValue) -> bool:
    return True


def _list(value: JsonValue) -> bool:
    return isinstance(value, list)


def _text(value: JsonValue) -> bool:
    return isinstance(value, str)


def _flag(value: JsonValue) -> bool:
    return isinstance(value, bool)


def _number(value: JsonValue) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _count(value: JsonValue) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


_RULES: Mapping[str, Callable[[JsonValue], bool]] = {
    "type": _is_type, "required": _distinct, "enum": _list, "const": _any, "default": _any, "examples": _list,
    "title": _text, "description": _text, "$comment": _text, "format": _text, "pattern": _text,
    "minimum": _number, "maximum": _number, "exclusiveMinimum": _number, "exclusiveMaximum": _number,
    "minLength": _count, "maxLength": _count, "minItems": _count, "maxItems": _count, "minProperties": _count,
    "maxProperties": _count, "uniqueItems": _flag, "deprecated": _flag, "readOnly": _flag, "writeOnly": _flag,
}  # fmt: skip
"""Draft 2020-12, vocabularies core, applicator, validation, meta-data. That a pattern is one is looked at elsewhere."""
