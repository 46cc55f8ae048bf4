"""Limits of a run: the manifest's, tightened by the request, as properties of a scope (systemd.resource-control(5))."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from aiosd.model.later import dataclass
from aiosd.model.manifest import Limits

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonObject, JsonValue

_USEC_PER_PERCENT = 10_000
_STOP_RESERVE_USEC = 3_000_000


@dataclass(frozen=True, slots=True)
class Property:
    """One property of a transient unit: name, D-Bus signature, value."""

    name: str
    signature: str
    value: str | int | bool


def tighten(base: Limits, asked: JsonValue) -> Limits:
    """`base` with what `asked` (an object with the same names) makes smaller. Raises ValueError."""
    if asked is None:
        return base
    names = {field.name for field in fields(Limits)}
    if not isinstance(asked, Mapping) or not asked.keys() <= names:
        raise ValueError("limits: not an object of known limits")
    changes = {name: _smaller(getattr(base, name), name, value) for name, value in asked.items() if value is not None}
    return replace(base, **changes)


def _smaller(base: int | None, name: str, value: JsonValue) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"limits.{name}: must be a whole number above 0")
    return value if base is None else min(base, value)


def as_json(limits: Limits) -> JsonObject:
    """The limits that are set, by name."""
    return {field.name: value for field in fields(limits) if (value := getattr(limits, field.name)) is not None}


def scope_properties(limits: Limits, *, grace_ms: int, runtime_max_usec: int) -> list[Property]:
    """What systemd is to hold the scope to. `runtime_max_usec` 0: no time limit."""
    found: list[Property] = [
        Property("CollectMode", "s", "inactive-or-failed"),
        # The shim tells what was killed, and ends the rest: with the default the exit record would be lost.
        Property("OOMPolicy", "s", "continue"),
        Property("TimeoutStopUSec", "t", grace_ms * 1000 + _STOP_RESERVE_USEC),
        Property("MemoryAccounting", "b", value=True),
        Property("TasksAccounting", "b", value=True),
        Property("IOAccounting", "b", value=True),
        Property("CPUAccounting", "b", value=True),
    ]
    if limits.memory_max is not None:
        found.append(Property("MemoryMax", "t", limits.memory_max))
        found.append(Property("MemorySwapMax", "t", 0))
    numbers = {
        "MemoryHigh": limits.memory_high,
        "TasksMax": limits.tasks_max,
        "IOWeight": limits.io_weight,
        "CPUWeight": limits.cpu_weight,
        "RuntimeMaxUSec": runtime_max_usec or None,
    }
    if limits.cpu_quota_percent is not None:
        numbers["CPUQuotaPerSecUSec"] = limits.cpu_quota_percent * _USEC_PER_PERCENT
    found += [Property(name, "t", value) for name, value in numbers.items() if value is not None]
    return found
