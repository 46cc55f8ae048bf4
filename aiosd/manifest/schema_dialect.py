"""The only module that imports jsonschema: draft 2020-12 without retrieval, format checks or quadratic rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend
from referencing import Registry

from aiosd.model.jsontext import canonical

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonObject, JsonValue


def _unique_items(
    _validator: Draft202012Validator, wanted: object, instance: object, _schema: JsonObject
) -> Iterator[ValidationError]:
    """`uniqueItems` by a set: the library compares each with each when elements cannot be sorted."""
    if not wanted or not isinstance(instance, list):
        return
    seen = set()
    for item in instance:
        text = canonical(_one_number(item))
        if text in seen:
            yield ValidationError("not unique")
            return
        seen.add(text)


def _one_number(value: JsonValue) -> JsonValue:
    """1.0 and 1 are the same JSON number (JSON Schema core, 4.2.2)."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_one_number(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _one_number(item) for key, item in value.items()}
    return value


_Dialect: type[Draft202012Validator] = extend(  # type: ignore[no-untyped-call]  # the stubs lack it
    Draft202012Validator, {"uniqueItems": _unique_items}
)


def compile_schema(schema: JsonObject) -> Draft202012Validator:
    """A validator of our dialect. Does not check `schema`.

    An empty registry fetches nothing: a reference to anything outside the schema raises.
    """
    return _Dialect(schema, registry=Registry())


def metaschema_errors(schema: JsonObject) -> Iterator[ValidationError]:
    """Where `schema` breaks the draft's own schema."""
    return Draft202012Validator(Draft202012Validator.META_SCHEMA).iter_errors(schema)
