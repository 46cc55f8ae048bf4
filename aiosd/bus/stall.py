"""A bus that takes nothing any more is left, so that a new connection can begin with it.

dbus-daemon stops reading from a service once 127 MiB of its messages have not been read by whoever they are for
(dbus-daemon(1), max_incoming_bytes). So a client that asks for much and reads nothing makes a service silent for
everybody, for as long as it likes. What was sent counts no longer when the connection has ended: the daemon starts
afresh, as it does whenever it loses the bus, and tasks run on.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiosd.bus.connection import SystemBus

WITHIN = 30.0
"""Seconds in which the bus takes something of what waits for it."""

_log = logging.getLogger(__name__)


async def leave_a_bus_that_takes_nothing(bus: SystemBus, within: float = WITHIN) -> None:
    """Watch `bus`, for ever or until it is left. `within` in seconds."""
    while True:
        _, before = bus.backlog()
        await asyncio.sleep(within)
        waiting, taken = bus.backlog()
        if waiting and taken == before:
            _log.error("The bus has taken nothing for %g s, and %d bytes wait for it: starting afresh", within, waiting)
            bus.give_up()
            return
