"""`key=value` words become typed JSON, by the capability's input schema.

`key=value` takes the type that the schema gives the key; a key whose type is an array takes one element a word, so it
is repeated. `key:=JSON` is taken as it is written. Whether values are allowed is the daemon's question: here is only
what type they have. Types: JSON Schema 2020-12, `type`, `enum`, `const`, `anyOf`/`oneOf`, and `$ref` inside the
schema.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from aiosd.cli.exit_status import ExitStatus
from aiosd.cli.failure import die
from aiosd.model.jsontext import JsonTextError, parse_object, parse_value

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiosd.model.jsontext import JsonObject, JsonValue

_WORD = re.compile(r"([A-Za-z_][A-Za-z0-9_.-]*)(:?=)(.*)", re.DOTALL)
_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})
_MAX_REFERENCES = 16


def needs_schema(words: Iterable[str]) -> bool:
    """Whether any word's type has to be looked up."""
    return any((match := _WORD.fullmatch(word)) is not None and match[2] == "=" for word in words)


def from_json(text: str | bytes, name: str) -> JsonObject:
    """An object given as JSON text."""
    try:
        return parse_object(text)
    except JsonTextError as error:
        die(f"{name}: {error}", status=ExitStatus.DATA)


def from_words(words: Iterable[str], schema: JsonObject) -> dict[str, JsonValue]:
    """The arguments that the words spell. `schema`: the capability's input schema, {} when it is not known."""
    result: dict[str, JsonValue] = {}
    collected: dict[str, list[JsonValue]] = {}
    for word in words:
        match = _WORD.fullmatch(word)
        if match is None:
            die(f"{word!r} is not key=value", hint="raw JSON is given as key:=JSON", status=ExitStatus.USAGE)
        key, operator, text = match.groups()
        if key in result:
            die(f"{key} is given twice", hint="only an array's key is repeated", status=ExitStatus.USAGE)
        if operator == ":=":
            result[key] = _raw(key, text)
            continue
        spec = _property(schema, key)
        items = array_items(spec, schema)
        if items is None:
            result[key] = convert(key, text, spec, schema)
        else:
            collected.setdefault(key, []).append(convert(key, text, items, schema))
    for key in collected.keys() & result.keys():
        die(f"{key} is given both as {key}= and as {key}:=", status=ExitStatus.USAGE)
    return {**result, **collected}


def _raw(key: str, text: str) -> JsonValue:
    try:
        return parse_value(text)
    except JsonTextError as error:
        die(f"{key}: {error}", hint=f"for a plain text write {key}=…", status=ExitStatus.DATA)


def _property(schema: JsonObject, key: str) -> JsonObject:
    properties = _object(resolve(schema, schema).get("properties"))
    if key in properties:
        return resolve(_object(properties[key]), schema)
    extra = schema.get("additionalProperties")
    if extra is False:
        known = ", ".join(sorted(properties)) or "none"
        die(f"{key}: there is no such argument", hint=f"there are: {known}", status=ExitStatus.USAGE)
    return resolve(_object(extra), schema)


def _object(value: object) -> JsonObject:
    return value if isinstance(value, Mapping) else {}


def resolve(spec: JsonObject, root: JsonObject) -> JsonObject:
    """The schema that `spec` is or refers to (`$ref` inside `root`)."""
    for _ in range(_MAX_REFERENCES):
        reference = spec.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#"):
            return spec
        target: JsonValue = root
        for step in reference[1:].split("/")[1:]:
            target = _object(target).get(step.replace("~1", "/").replace("~0", "~"))
        spec = _object(target)
    return {}


def alternatives(spec: JsonObject, root: JsonObject) -> list[JsonObject]:
    """What `anyOf` or `oneOf` allow; the schema itself when it has neither."""
    for word in ("anyOf", "oneOf"):
        choices = spec.get(word)
        if isinstance(choices, list):
            return [resolve(_object(choice), root) for choice in choices]
    return [spec]


def types(spec: JsonObject) -> list[str]:
    """The type names of a schema."""
    kind = spec.get("type")
    if isinstance(kind, str):
        return [kind]
    return [name for name in kind if isinstance(name, str)] if isinstance(kind, list) else []


def array_items(spec: JsonObject, root: JsonObject) -> JsonObject | None:
    """The schema of the elements when the key's values are arrays."""
    for choice in alternatives(spec, root):
        if "array" in types(choice):
            return resolve(_object(choice.get("items")), root)
    return None


def convert(key: str, text: str, spec: JsonObject, root: JsonObject) -> JsonValue:
    """The value that a text spells for a schema; dies when it spells none. `key`: for the message."""
    choices = alternatives(spec, root)
    # A text fits nearly everything, so it is tried last.
    candidates = sorted({name for choice in choices for name in types(choice)}, key=_PRECEDENCE.index)
    named = [value for choice in choices for value in listed(choice)]
    if not candidates:
        return next((value for value in named if _spelling(value) == text), text)
    for name in candidates:
        value = _typed(name, text)
        if isinstance(value, _Typed) and (not named or value.value in named or len(candidates) == 1):
            return value.value
    wanted = _ARTICLES[candidates[0]] if len(candidates) == 1 else "any of " + ", ".join(candidates)
    die(
        f"{key}: {text!r} is not {wanted}",
        hint=f"raw JSON is given as {key}:=JSON",
        status=ExitStatus.USAGE,
    )


def listed(spec: JsonObject) -> list[JsonValue]:
    """The values that `enum` or `const` name."""
    values = spec.get("enum")
    if isinstance(values, list):
        return list(values)
    return [spec["const"]] if "const" in spec else []


def _spelling(value: JsonValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else str(value)


_PRECEDENCE = ["null", "boolean", "integer", "number", "object", "array", "string"]
_ARTICLES = {
    "null": "null",
    "boolean": "a boolean (true or false)",
    "integer": "an integer",
    "number": "a number",
    "object": "a JSON object",
    "array": "a JSON array",
    "string": "a text",
}


class _Typed:
    """A value that was found, None included."""

    def __init__(self, value: JsonValue) -> None:
        self.value = value


def _typed(name: str, text: str) -> _Typed | None:
    if name == "string":
        return _Typed(text)
    if name == "boolean":
        lowered = text.lower()
        return _Typed(lowered in _TRUE) if lowered in _TRUE | _FALSE else None
    try:
        value = parse_value(text)
    except JsonTextError:
        return None
    return _Typed(value) if _IS[name](value) else None


_IS = {
    "null": lambda value: value is None,
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "object": lambda value: isinstance(value, Mapping),
    "array": lambda value: isinstance(value, list),
}
