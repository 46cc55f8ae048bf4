"""Large answers one after the other: the bus takes them as quickly as it reads, and beyond a bound on what waits for it
(`connection.MAX_QUEUED_BYTES`) the connection would end, and the daemon with it.

A small answer never waits. A large one waits for its turn, which comes when the bus has taken what was before it; of
one user only so much waits, and whoever wants more is refused.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from aiosd.errors import AiosError, ErrorKind

if TYPE_CHECKING:
    from aiosd.bus.connection import SystemBus
    from aiosd.bus.dispatch import Outcome
    from aiosd.bus.message import BusValue

SMALL = 64 * 1024
"""Characters of an answer that never waits."""
ROOM = 8 * 1024 * 1024
"""Bytes that may wait for the bus when a large answer is added."""
HELD = 32 * 1024 * 1024
"""Characters of one user's answers that wait for their turn."""
WITHIN = 10.0
"""Seconds in which a turn has to come."""


class Turns:
    """Who may be answered next."""

    def __init__(self, bus: SystemBus) -> None:
        """`bus`: takes the answers."""
        self._bus = bus
        self._turn = asyncio.Lock()
        self._held: Counter[int] = Counter()

    async def wait(self, uid: int, outcome: Outcome) -> None:
        """Return when the outcome may be sent, which then has to follow without a pause. Raises AiosError."""
        size = size_of(outcome.body)
        if size <= SMALL:
            return
        if outcome.afterwards is not None:  # what follows it must not be kept waiting: it would miss something
            if self._bus.backlog()[0] > ROOM:
                raise _too_much()
            return
        if uid != 0 and self._held[uid] + size > HELD and self._held[uid]:
            raise _too_much()
        self._held[uid] += size
        try:
            async with self._turn:
                if self._bus.backlog()[0] > ROOM:
                    await self._bus.flush(WITHIN)
                if self._bus.backlog()[0] > ROOM:
                    raise _too_much()
        finally:
            self._held[uid] -= size
            if not self._held[uid]:
                del self._held[uid]


def _too_much() -> AiosError:
    return AiosError(ErrorKind.RATE_LIMITED, "too much waits for the bus to be read", reason="unread")


def size_of(value: BusValue) -> int:
    """Characters of all texts in a body."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        return sum(len(key) + size_of(inner) for key, inner in value.items())
    if isinstance(value, list | tuple):
        return sum(map(size_of, value))
    return size_of(value.value) if hasattr(value, "value") else 8
