"""The made parts of docs/protocol.md: every method with its parameters, every error, and real calls with their answers.

`python3 -m aiosd.rpc.reference docs/protocol.md docs/protocol.json` puts them between that page's markers. The methods
and errors are those of the tables that the daemon itself uses; the calls were recorded by running them
(tests/rpc/examples.py). A test holds the page current.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from aiosd.errors import ErrorKind
from aiosd.model.jsontext import parse_object
from aiosd.rpc.methods import METHODS
from aiosd.rpc.openrpc import schema_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aiosd.core.operations import Operation
    from aiosd.model.jsontext import JsonObject, JsonValue

MAX_FILE = 1 << 24
_BLOCK = re.compile(
    r"(<!-- (methods|errors|stream): made by aiosd\.rpc\.reference -->\n).*?(<!-- end of \2 -->)", re.DOTALL
)
_WIDTH = 118


def methods(examples: JsonObject) -> str:
    """A section for each method."""
    return "\n".join(_method(name, operation, examples) for name, operation in METHODS.items())


def _method(name: str, operation: Operation, examples: JsonObject) -> str:
    lines = [f"### {name}\n", f"{operation.summary}.{_on_the_bus(operation)}\n"]
    schema = schema_of(operation)
    rows = [_row(field, spec, schema) for field, spec in _object(schema.get("properties")).items()]
    if rows:
        lines += ["| parameter | type | |", "|---|---|---|", *rows, ""]
    for call in _list(examples.get("calls")):
        shown = _object(call)
        if _object(shown.get("request")).get("method") == name:
            title = shown.get("title")
            lines += [f"*{title}:*\n"] if title else []
            lines += ["```json", _json(shown.get("request")), "```", "```json", _json(shown.get("answer")), "```", ""]
    return "\n".join(lines)


def _on_the_bus(operation: Operation) -> str:
    return "" if operation.bus is None else f" On D-Bus: `{operation.bus.interface}.{operation.bus.member}`."


def _row(field: str, spec: JsonValue, schema: JsonObject) -> str:
    required = _list(schema.get("required"))
    shape = _object(spec)
    note = "required" if field in required else ""
    if shape.get("default") is not None:
        note = f"default `{json.dumps(shape['default'])}`"
    return f"| `{field}` | {_type(shape, schema)} | {note} |"


def _type(shape: JsonObject, schema: JsonObject) -> str:
    """A schema in a few words."""
    reference = shape.get("$ref")
    if isinstance(reference, str):
        inner = _object(_object(schema.get("$defs")).get(reference.rpartition("/")[2]))
        fields = ", ".join(f"`{name}`" for name in _object(inner.get("properties")))
        return f"object: {fields}" if fields else "object"
    choices = [choice for choice in _list(shape.get("anyOf")) if _object(choice).get("type") != "null"]
    if choices:
        return " or ".join(_type(_object(choice), schema) for choice in choices)
    if "enum" in shape:
        return ", ".join(f"`{word}`" for word in _list(shape["enum"]))
    if shape.get("type") == "array":
        return f"array of {_type(_object(shape.get('items')), schema)}"
    return str(shape.get("type", "any value")) + _bounds(shape)


def _bounds(shape: JsonObject) -> str:
    low, high, longest = shape.get("minimum"), shape.get("maximum"), shape.get("maxLength")
    if low is not None and high is not None:
        return f", {low} to {high}"
    return f", at most {longest} characters" if longest is not None else ""


def errors(_: JsonObject) -> str:
    """The table of errors."""
    rows = [
        f"| {kind.value.code} | `{kind.value.error_id}` | {kind.value.message} | `{kind.value.dbus}` |"
        for kind in ErrorKind
    ]
    return "\n".join(["| code | `data.error_id` | message | on D-Bus |", "|---|---|---|---|", *rows, ""])


def stream(examples: JsonObject) -> str:
    """The recorded event stream."""
    return f"```\n{str(examples.get('stream')).rstrip()}\n```\n"


def _json(value: JsonValue, depth: int = 0) -> str:
    """JSON for reading: what fits on a line is one."""
    flat = json.dumps(value, ensure_ascii=False)
    if len(flat) + 2 * depth <= _WIDTH or not isinstance(value, Mapping | list) or not value:
        return flat
    indent = "  " * (depth + 1)
    inner = ",\n".join(indent + item for item in _items(value, depth + 1))
    opening, closing = "{}" if isinstance(value, Mapping) else "[]"
    return f"{opening}\n{inner}\n{'  ' * depth}{closing}"


def _items(value: JsonValue, depth: int) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield f"{json.dumps(key, ensure_ascii=False)}: {_json(item, depth)}"
    elif isinstance(value, list):
        for item in value:
            yield _json(item, depth)


def _object(value: JsonValue) -> Mapping[str, JsonValue]:
    return value if isinstance(value, Mapping) else {}


def _list(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []


_MADE: Mapping[str, Callable[[JsonObject], str]] = {"methods": methods, "errors": errors, "stream": stream}


def updated(page: str, examples: JsonObject) -> str:
    """The page with its made parts made anew."""
    return _BLOCK.sub(lambda match: f"{match[1]}\n{_MADE[match[2]](examples)}\n{match[3]}", page)


def main() -> None:
    """Rewrite the page; both files are named on the command line."""
    page, examples = Path(sys.argv[1]), Path(sys.argv[2])
    recorded = parse_object(examples.read_bytes(), limit=MAX_FILE)
    page.write_text(updated(page.read_text(encoding="utf-8"), recorded), encoding="utf-8")


if __name__ == "__main__":
    main()
