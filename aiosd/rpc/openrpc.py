"""The OpenRPC document (https://spec.open-rpc.org): every method with the schema of its parameters, and every error."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from aiosd.core.protocol_operations import SUPPORTED_VERSIONS
from aiosd.errors import ErrorKind
from aiosd.model.jsontext import Settled
from aiosd.model.wire import Wire
from aiosd.rpc.methods import METHODS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiosd.core.operations import Operation
    from aiosd.model.jsontext import JsonObject, JsonValue

OPENRPC_VERSION = "1.3.2"


@cache
def document() -> JsonObject:
    """All of it, made when it is first asked for, and its text with it."""
    schemas: dict[str, JsonValue] = {}
    methods: list[JsonValue] = [_method(name, operation, schemas) for name, operation in sorted(METHODS.items())]
    whole: dict[str, JsonValue] = {
        "openrpc": OPENRPC_VERSION,
        "info": {
            "title": "AIOS task manager",
            "version": SUPPORTED_VERSIONS[0],
            "license": {"name": "LGPL-2.1-or-later"},
        },
        "methods": methods,
        "components": {"schemas": schemas, "errors": {kind.value.dbus: _error(kind) for kind in ErrorKind}},
    }
    return Settled(whole)


def _method(name: str, operation: Operation, schemas: dict[str, JsonValue]) -> JsonObject:
    schema = schema_of(operation)
    schemas.update(_object(schema.get("$defs")))
    required = schema.get("required")
    return {
        "name": name,
        "summary": operation.summary,
        "paramStructure": "by-name",
        "params": [
            {"name": field, "required": isinstance(required, list) and field in required, "schema": spec}
            for field, spec in _object(schema.get("properties")).items()
        ],
        "result": {"name": "result", "schema": {"type": "object"}},
        "errors": [{"$ref": f"#/components/errors/{kind.value.dbus}"} for kind in ErrorKind],
    }


def schema_of(operation: Operation) -> JsonObject:
    """The JSON schema of an operation's parameters; what they share is in `components`."""
    made = operation.params.model_json_schema(by_alias=True, ref_template="#/components/schemas/{model}")
    for name, field in operation.params.model_fields.items():
        default = field.get_default(call_default_factory=True)
        if isinstance(default, Wire):  # made by a factory, which pydantic does not show
            made["properties"][field.alias or name]["default"] = default.model_dump(mode="json", by_alias=True)
    return made


def _object(value: JsonValue) -> Mapping[str, JsonValue]:
    return value if isinstance(value, dict) else {}


def _error(kind: ErrorKind) -> JsonObject:
    spec = kind.value
    return {"code": spec.code, "message": spec.message, "data": {"error_id": spec.error_id}}
