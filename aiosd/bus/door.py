"""The D-Bus door: everything that serves org.aios.TaskManager on one connection, put together.

    async with SystemBus() as bus, BusDoor(bus, manager, hub) as door:
        await door.open()          # last of all: from here on callers get through

The door talks to the core by `Core.invoke` and hears it by `EventSource.listen`; it knows neither store nor scheduler.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from aiosd.bus.connection import Variant
from aiosd.bus.dispatch import Dispatcher
from aiosd.bus.interfaces import load
from aiosd.bus.paths import BUS_NAME
from aiosd.bus.peers import Limits, Peers
from aiosd.bus.signals import Broadcaster, send_event
from aiosd.bus.stall import leave_a_bus_that_takes_nothing
from aiosd.bus.subscriptions import Subscriptions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from aiosd.bus.connection import SystemBus
    from aiosd.bus.dispatch import Core
    from aiosd.bus.interfaces import Interface
    from aiosd.model.event import Event

MACHINE_ID = Path("/etc/machine-id")


class EventSource(Protocol):
    """Where committed events come from (core/events.py)."""

    def listen(self, callback: Callable[[Sequence[Event]], None]) -> Callable[[], None]:
        """Call back with every batch, on the loop, in order; returns what ends it."""
        ...


class NameTakenError(Exception):
    """Another process owns the bus name."""


class BusDoor:
    """The service on the bus; an async context manager. Leaving it ends what callers wait for."""

    def __init__(
        self,
        bus: SystemBus,
        core: Core,
        events: EventSource,
        *,
        limits: Callable[[], Limits] = Limits,
        interfaces: Mapping[str, Interface] | None = None,
    ) -> None:
        """`bus` is connected. `limits`: asked each time, so that a reload counts. `interfaces`: of dbus/*.xml, read
        from where they are installed when not given."""
        self._bus = bus
        self._core = core
        self._events = events
        self._interfaces = interfaces
        self.peers = Peers(bus, limits)
        self.subscriptions = Subscriptions(
            lambda peer, subscription, event: send_event(bus, peer, subscription, event),
            lambda: limits().subscriptions_per_peer,
        )
        self.peers.on_left(self.subscriptions.peer_left)
        self._broadcaster = Broadcaster(bus, self.subscriptions)

    async def __aenter__(self) -> Self:
        """Serve on the unique name, and pass events on."""
        interfaces = await asyncio.to_thread(load) if self._interfaces is None else self._interfaces
        machine_id = await asyncio.to_thread(_machine_id)
        await self.peers.start()
        dispatcher = Dispatcher(self._bus, self._core, self.peers, self.subscriptions, interfaces, machine_id)
        self._bus.serve(dispatcher.handle)
        self._stop_listening = self._events.listen(self._broadcaster.on_events)
        self._stall = asyncio.create_task(leave_a_bus_that_takes_nothing(self._bus))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop hearing events, cancel what is being answered, send what is held back."""
        self._stop_listening()
        self._stall.cancel()
        await asyncio.gather(self._stall, return_exceptions=True)
        await self.peers.stop()
        self._broadcaster.stop()

    async def open(self) -> None:
        """Own the bus name. Raises NameTakenError when somebody else does."""
        if not await self._bus.request_name(BUS_NAME):
            raise NameTakenError(f"{BUS_NAME} is owned by another process")

    def capabilities_changed(self) -> None:
        """Tell everyone that the installed capabilities differ from before."""
        self._broadcaster.capabilities_changed()

    def state_changed(self, state: str) -> None:
        """Tell everyone the manager's new State."""
        self._broadcaster.manager_changed({"State": Variant("s", state)})

    def limits_changed(self, *, concurrent: int, per_tool: int, queue: int) -> None:
        """Tell everyone the new limits, in tasks."""
        self._broadcaster.manager_changed(
            {
                "MaxConcurrentTasks": Variant("u", concurrent),
                "MaxTasksPerTool": Variant("u", per_tool),
                "MaxQueueSize": Variant("u", queue),
            }
        )


def _machine_id() -> str:
    """machine-id(5); "" where there is none."""
    try:
        return MACHINE_ID.read_text("ascii").strip()
    except OSError:
        return ""
