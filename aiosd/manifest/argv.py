"""The argv of a run: the manifest's `exec` with its `{name}` elements filled in from validated arguments.

An element that is exactly `{name}` stands for one whole argument of the program: no splitting, no joining, no shell.
The daemon makes the values (`argv_values`), the launcher puts them in their places (`build_argv`); the launcher takes
nothing but strings for the names that the installed manifest has, so the daemon can never add an argument.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonObject, JsonValue
    from aiosd.model.manifest import Capability

_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]{0,63})\}")
MAX_VALUE_BYTES = 32 * 1024
"""Longest value of one element, in bytes of UTF-8 (the kernel's own limit is 128 KiB, execve(2))."""


def placeholder(element: str) -> str | None:
    """The name of a `{name}` element, or None when the element stands for itself."""
    found = _PLACEHOLDER.fullmatch(element)
    return None if found is None else found[1]


def placeholders(exec_: tuple[str, ...]) -> tuple[str, ...]:
    """The names that `exec` asks for, each once, in their order."""
    return tuple(dict.fromkeys(name for element in exec_ if (name := placeholder(element)) is not None))


def argv_values(capability: Capability, arguments: JsonObject) -> dict[str, str]:
    """What the launcher needs to fill in. `arguments` must have passed the input schema. Raises ValueError."""
    properties = capability.input_schema.get("properties")
    values: dict[str, str] = {}
    for name in placeholders(capability.exec):
        schema = properties.get(name) if isinstance(properties, Mapping) else None
        default = schema.get("default") if isinstance(schema, Mapping) else None
        values[name] = _as_text(name, arguments.get(name, default))
    return values


def _as_text(name: str, value: JsonValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if not isinstance(value, str):
        raise ValueError(f"{name}: has no value that can be an argument of a program")
    return _checked(name, value)


def _checked(name: str, value: str) -> str:
    if "\0" in value:
        raise ValueError(f"{name}: holds a NUL character")
    try:
        length = len(value.encode())
    except UnicodeEncodeError:
        raise ValueError(f"{name}: holds half of a surrogate pair") from None
    if length > MAX_VALUE_BYTES:
        raise ValueError(f"{name}: is longer than {MAX_VALUE_BYTES} bytes")
    return value


def build_argv(exec_: tuple[str, ...], values: Mapping[str, str]) -> list[str]:
    """The finished argv. `values` must hold exactly the names that `exec_` asks for. Raises ValueError."""
    if set(values) != set(placeholders(exec_)):
        raise ValueError("the values are not the ones that the manifest names")
    argv = []
    for element in exec_:
        name = placeholder(element)
        argv.append(element if name is None else _checked(name, values[name]))
    return argv
