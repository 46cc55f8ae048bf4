"""Rules that hold between keys of one manifest, apart from the level's own (`levels.py`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from aiosd.manifest.argv import placeholder
from aiosd.manifest.problem import Severity
from aiosd.model.manifest import Identity, Recovery

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonObject, JsonValue
    from aiosd.model.manifest import Capability

Finding = tuple[tuple[str, ...], str, Severity]
_SCALARS = frozenset({"string", "integer", "number", "boolean"})


def consistency(capability: Capability) -> Iterator[Finding]:
    """What one key says against another."""
    limits = capability.limits
    if limits.memory_high is not None and limits.memory_max is not None and limits.memory_high > limits.memory_max:
        yield ("limits", "memory_high"), "must not be more than memory_max", Severity.ERROR
    if capability.recovery is Recovery.RETRY and not capability.idempotent:
        yield ("recovery",), '"retry" needs idempotent = true: a lost run may have done its work', Severity.ERROR
    if capability.retry.max_attempts > 1 and not capability.idempotent:
        yield ("retry", "max_attempts"), "more than one attempt needs idempotent = true", Severity.ERROR
    if capability.identity is Identity.DYNAMIC and capability.read_write_paths:
        yield ("read_write_paths",), "a dynamic user owns no files outside its scratch directory", Severity.WARNING
    yield from _schemas(capability)


def _schemas(capability: Capability) -> Iterator[Finding]:
    for name, schema in (("input", capability.input_schema), ("result", capability.result_schema)):
        if schema is None:
            continue
        if schema.get("type") != "object":
            yield (name, "type"), 'must be "object"', Severity.ERROR
        if name == "input" and "additionalProperties" not in schema and "unevaluatedProperties" not in schema:
            yield (name,), "without additionalProperties = false a misspelt argument goes unnoticed", Severity.WARNING


def placeholder_problems(capability: Capability) -> Iterator[Finding]:
    """Whether every `{name}` of `exec` has a value that is one argument, always, and cannot become an option."""
    schema = capability.input_schema
    properties = schema.get("properties")
    separated = False
    for index, element in enumerate(capability.exec):
        separated = separated or (index > 0 and element == "--")
        name = placeholder(element)
        if name is None:
            if element.startswith("{") and element.endswith("}"):
                yield (
                    ("exec",),
                    f"{element[:64]!r} is not the name of an argument; it is passed as it is",
                    Severity.WARNING,
                )
            continue
        inner = properties.get(name) if isinstance(properties, Mapping) else None
        if not isinstance(inner, Mapping):
            yield ("exec",), f"{element} is not a property of [input]", Severity.ERROR
            continue
        yield from _placeholder(name, inner, schema.get("required"), separated=separated)


def _placeholder(name: str, inner: JsonObject, required: JsonValue, *, separated: bool) -> Iterator[Finding]:
    kind = inner.get("type")
    if not isinstance(kind, str) or kind not in _SCALARS:
        yield ("exec",), f"{{{name}}} must have the type string, integer, number or boolean in [input]", Severity.ERROR
    is_required = isinstance(required, list) and name in required
    if not is_required and not isinstance(inner.get("default"), str | int | float):
        yield ("exec",), f"{{{name}}} must be required in [input] or have a default there", Severity.ERROR
    if kind == "string" and not separated and not {"pattern", "enum", "const"} & set(inner):
        message = f'{{{name}}} could be taken for an option: put "--" before it, or give it a pattern'
        yield ("exec",), message, Severity.WARNING
