"""A systemd that answers as the measured one does, on a bus that is a Python object."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aiosd.bus.message import Answer, BusCallError, Call, Signal

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiosd.bus.message import BusValue

MANAGER = "org.freedesktop.systemd1.Manager"
PATH = "/org/freedesktop/systemd1"
_ESCAPED = str.maketrans({"-": "_2d", ".": "_2e"})


@dataclass(frozen=True)
class FakeVariant:
    """What `Variant` is in the library, as far as anybody looks."""

    signature: str
    value: object


def fake_variant(signature: str, value: BusValue) -> BusValue:
    made: BusValue = FakeVariant(signature, value)  # type: ignore[assignment]  # stands in for the library's class
    return made


@dataclass
class FakeSystemd:
    """`unknown`: properties that it refuses. `result`: how its jobs end. `units`: what it was told of each.

    `held`: when it makes scopes again.
    """

    unknown: frozenset[str] = frozenset()
    result: str = "done"
    units: dict[str, dict[str, object]] = field(default_factory=dict)
    calls: list[tuple[str, tuple[BusValue, ...]]] = field(default_factory=list)
    held: asyncio.Event | None = None
    _listeners: list[Callable[[Signal], None]] = field(default_factory=list)

    async def add_match(self, rule: str) -> None:
        assert rule.startswith("type='signal',sender='org.freedesktop.systemd1'")

    def on_signal(self, listener: Callable[[Signal], None]) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def emit(self, path: str, interface: str, member: str, *body: BusValue) -> None:
        for listener in self._listeners:
            listener(Signal("org.freedesktop.systemd1", path, interface, member, "", body))

    async def call(self, call: Call) -> Answer:
        await asyncio.sleep(0)
        self.calls.append((call.member, call.body))
        if call.member == "Get":
            return Answer("v", (fake_variant("s", "257 (fake)"),))
        if call.member == "ListUnitsByPatterns":
            return Answer("a", ([[unit, "", "loaded", "active"] for unit in self.units],))
        if call.member == "StartTransientUnit":
            if self.held is not None:
                await self.held.wait()
            return self._start(call)
        if call.member in ("KillUnit", "FreezeUnit", "ThawUnit"):
            unit = str(call.body[0])
            if unit not in self.units:
                raise BusCallError("org.freedesktop.systemd1.NoSuchUnit", f"Unit {unit} not loaded.")
            if call.member == "KillUnit" and call.body[2] == 9:
                asyncio.get_running_loop().call_soon(self.end, unit)
        return Answer("", ())

    def _start(self, call: Call) -> Answer:
        unit, rows = str(call.body[0]), call.body[2]
        assert isinstance(rows, list)
        properties = {str(row[0]): row[1].value for row in rows}
        for name in properties:
            if name in self.unknown:
                text = f"Cannot set property {name}, or unknown property."
                raise BusCallError("org.freedesktop.DBus.Error.PropertyReadOnly", text)
        self.units[unit] = properties
        self.emit(PATH, MANAGER, "JobRemoved", 1, f"{PATH}/job/1", unit, self.result)
        return Answer("o", (f"{PATH}/job/1",))

    def end(self, unit: str) -> None:
        """The scope ends."""
        self.units.pop(unit, None)
        self.emit(PATH, MANAGER, "UnitRemoved", unit, f"{PATH}/unit/{unit.translate(_ESCAPED)}")
