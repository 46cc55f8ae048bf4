"""Leaving secrets out of what is recorded: by the capability's schema, and by names that secrets usually have.

The schema's word is `writeOnly` or `format: password` (JSON Schema 2020-12, OpenAPI 3.1). Names are compared word by
word, so `api_key`, `apiKey` and `API-KEY` are one, and `monkey` is none. Pure. A manifest that hides a secret in a
harmless name, without the schema's word, is not caught; docs/capabilities.md says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonObject, JsonValue

REDACTED = "[redacted]"

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_SECRET_WORDS = frozenset(
    "password passwd passphrase passcode pwd secret secrets token credential credentials authorization cookie pin otp"
    " apikey".split()
)
_SECRET_PAIRS = frozenset(
    {("api", "key"), ("access", "key"), ("private", "key"), ("secret", "key"), ("signing", "key"), ("session", "key"),
     ("pass", "word"), ("auth", "header"), ("encryption", "key"), ("client", "key")}
)  # fmt: skip
_MAX_DEPTH = 16
"""How deep a schema is followed; what is below is kept out altogether when its schema says so above."""


@lru_cache(maxsize=1024)
def is_secret_name(name: str) -> bool:
    """Whether a value of that name is usually a secret."""
    words = [word.lower() for word in _WORD.findall(name)]
    return not _SECRET_WORDS.isdisjoint(words) or not _SECRET_PAIRS.isdisjoint(pairwise(words))


def redacted(value: JsonObject, schema: JsonObject | None = None) -> dict[str, JsonValue]:
    """`value` with `[redacted]` in the place of every secret. `schema`: of the object, when there is one."""
    return _object(value, (schema,) if schema else (), schema or {}, 0)


def _object(value: JsonObject, schemas: tuple[JsonObject, ...], root: JsonObject, depth: int) -> dict[str, JsonValue]:
    result: dict[str, JsonValue] = {}
    for name, item in value.items():
        below = tuple(found for schema in schemas for found in _properties(schema, name, root)) if schemas else ()
        secret = is_secret_name(name) or any(_is_secret(schema) for schema in below)
        result[name] = REDACTED if secret else _value(item, below, root, depth + 1)
    return result


def _value(value: JsonValue, schemas: tuple[JsonObject, ...], root: JsonObject, depth: int) -> JsonValue:
    if depth > _MAX_DEPTH:
        return REDACTED
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, Mapping):
        return _object(value, schemas, root, depth)
    items = tuple(found for schema in schemas for found in _expand(schema.get("items"), root, 0))
    if any(_is_secret(schema) for schema in items):
        return REDACTED
    return [_value(item, items, root, depth + 1) for item in value]


def _is_secret(schema: JsonObject) -> bool:
    return schema.get("writeOnly") is True or schema.get("format") == "password"


def _properties(schema: JsonObject, name: str, root: JsonObject) -> list[JsonObject]:
    """The schemas that any branch of `schema` has for the property."""
    found: list[JsonObject] = []
    for branch in _expand(schema, root, 0):
        properties, extra = branch.get("properties"), branch.get("additionalProperties")
        if isinstance(properties, Mapping) and name in properties:
            found += _expand(properties[name], root, 0)
        else:
            found += _expand(extra, root, 0)
    return found


def _expand(schema: JsonValue, root: JsonObject, depth: int) -> list[JsonObject]:
    """The schema, what it refers to, and its alternatives: a secret in one of them is a secret."""
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return []
    found: list[JsonObject] = [schema]
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        found += _expand(_target(reference, root), root, depth + 1)
    for word in ("allOf", "anyOf", "oneOf"):
        branches = schema.get(word)
        for branch in branches if isinstance(branches, list) else ():
            found += _expand(branch, root, depth + 1)
    return found


def _target(reference: str, root: JsonObject) -> JsonValue:
    """What a JSON pointer of the same document names."""
    place: JsonValue = root
    for step in reference[1:].split("/")[1:]:
        place = place.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(place, Mapping) else None
    return place
