"""A validation error in words that name the rule and never the value: the value may be long, or a secret."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

MAX_WORDS = 240
"""Longest sentence, in characters."""

_ARTICLES = {
    "string": "a string",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "object": "an object",
    "array": "an array",
    "null": "null",
}


def sentence(error: ValidationError) -> str:
    """What the rule that was broken asks for."""
    keyword = str(error.validator)
    say = _SAY.get(keyword)
    text = say(error) if say is not None else f"does not satisfy {keyword!r} of its schema"
    return text if len(text) <= MAX_WORDS else text[: MAX_WORDS - 1] + "…"


def _items(error: ValidationError) -> list[object]:
    """The rule's value, where the metaschema has seen to it that it is a list."""
    value = error.validator_value
    return list(value) if isinstance(value, list) else []


def _type(error: ValidationError) -> str:
    wanted = error.validator_value
    names = wanted if isinstance(wanted, list) else [wanted]
    return "must be " + " or ".join(_ARTICLES.get(str(name), str(name)) for name in names)


def _required(error: ValidationError) -> str:
    """The library reports each missing name as an error of its own; which one is only in its message's argument."""
    instance = error.instance
    present = set(instance) if isinstance(instance, Mapping) else set()
    missing = [str(name) for name in _items(error) if name not in present]
    return "lacks " + ", ".join(_quoted(name) for name in missing[:8])


def _additional(error: ValidationError) -> str:
    schema = error.schema
    known = schema.get("properties", {}) if isinstance(schema, Mapping) else {}
    instance = error.instance
    extra = [str(name) for name in instance if name not in known] if isinstance(instance, Mapping) else []
    return "does not know " + ", ".join(_quoted(name) for name in extra[:8])


def _enum(error: ValidationError) -> str:
    shown = [json.dumps(item, ensure_ascii=False)[:48] for item in _items(error)[:12]]
    return "must be one of " + ", ".join(shown)


def _quoted(name: str) -> str:
    clean = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in name[:64])
    return f"'{clean}'"


def _with_bound(text: str) -> Callable[[ValidationError], str]:
    return lambda error: text.format(str(error.validator_value)[:120])


def _count(limit: str, noun: str) -> Callable[[ValidationError], str]:
    def say(error: ValidationError) -> str:
        number = str(error.validator_value)
        return f"must have {limit} {number} {noun}{'' if number == '1' else 's'}"

    return say


_SAY: dict[str, Callable[[ValidationError], str]] = {
    "type": _type,
    "required": _required,
    "additionalProperties": _additional,
    "enum": _enum,
    "const": lambda error: "must be " + json.dumps(error.validator_value, ensure_ascii=False)[:120],
    # As its author wrote it (`schema_walk.anchored`).
    "pattern": lambda error: "must match the pattern " + str(error.validator_value).replace(r"\Z", "$")[:160],
    "minLength": _count("at least", "character"),
    "maxLength": _count("at most", "character"),
    "minimum": _with_bound("must be at least {}"),
    "maximum": _with_bound("must be at most {}"),
    "exclusiveMinimum": _with_bound("must be more than {}"),
    "exclusiveMaximum": _with_bound("must be less than {}"),
    "multipleOf": _with_bound("must be a multiple of {}"),
    "minItems": _count("at least", "element"),
    "maxItems": _count("at most", "element"),
    "uniqueItems": lambda _: "must not have the same element twice",
    "minProperties": _count("at least", "member"),
    "maxProperties": _count("at most", "member"),
    "dependentRequired": lambda _: "lacks a member that another one needs",
    "propertyNames": lambda _: "has a member with a name that is not allowed",
    "contains": lambda _: "lacks an element of the kind that is asked for",
    "not": lambda _: "is what its schema excludes",
    "anyOf": lambda _: "fits none of the alternatives",
    "oneOf": lambda _: "must fit exactly one of the alternatives",
}
