"""How much at once: connections, calls and text of one user, and of all together. Root is always let in."""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import field
from typing import TYPE_CHECKING

from aiosd.core.shares import CallLimits, CallShares, one_less
from aiosd.errors import AiosError, ErrorKind
from aiosd.model.later import dataclass

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class Limits:
    """Connections and calls in progress."""

    calls: CallLimits = field(default_factory=CallLimits)
    connections_per_user: int = 256
    bytes_per_connection: int = 512 * 1024
    """That an HTTP client sends ahead of the request that is being answered: one message with all that is round it."""
    bytes_per_user: int = 16 * 1024 * 1024
    """The same on all connections of a user; and so much text of theirs is being answered at a time."""
    unread_per_user: int = 64 * 1024 * 1024
    """Bytes of answers that wait in this process until the user's clients read them; larger ones are refused then."""
    connections: int = 4096


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds. `first_request`: from connecting to the head of a request; `body`: to read its body; `keep_alive`:
    between two requests; `heartbeat`: silence of an event stream."""

    first_request: float = 10.0
    body: float = 30.0
    keep_alive: float = 75.0
    heartbeat: float = 15.0


@dataclass(frozen=True, slots=True)
class Allowance:
    """What the administrator sets, as it is now (aiosd.conf(5)).

    `events` may wait for one subscriber, and one of them so many seconds (`event_timeout`) for a client that takes
    nothing; then the client is left. `calls_per_connection`: in progress.
    """

    events: int = 10_000
    event_timeout: float = 300.0
    calls_per_connection: int = 64


class Shares:
    """What is in use."""

    def __init__(self, limits: Limits) -> None:
        """Nothing is in use."""
        self.limits = limits
        self.calls = CallShares(lambda: limits.calls)
        self._connections: Counter[int] = Counter()
        self._bytes: Counter[int] = Counter()
        self._transports: dict[int, set[asyncio.WriteTransport]] = {}

    def hold(self, uid: int, size: int) -> bool:
        """Whether so many bytes more that wait to be understood have a place; then they have it."""
        if uid != 0 and self._bytes[uid] + size > self.limits.bytes_per_user:
            return False
        self._bytes[uid] += size
        return True

    def release(self, uid: int, size: int) -> None:
        """They have been understood, or are gone."""
        self._bytes[uid] -= size
        if not self._bytes[uid]:
            del self._bytes[uid]

    @contextlib.contextmanager
    def writes(self, uid: int, transport: asyncio.WriteTransport) -> Iterator[None]:
        """What waits in `transport` is the user's to read, while this lasts."""
        mine = self._transports.setdefault(uid, set())
        mine.add(transport)
        try:
            yield
        finally:
            mine.discard(transport)
            if not mine:
                self._transports.pop(uid, None)

    def require_room(self, uid: int, size: int) -> None:
        """Raises AiosError (RateLimited) when the user's clients have left too much unread for an answer of so many
        bytes."""
        unread = sum(one.get_write_buffer_size() for one in self._transports.get(uid, ()))
        if unread + size > self.limits.unread_per_user:
            detail = f"{unread} bytes of answers to your user have not been read yet"
            raise AiosError(ErrorKind.RATE_LIMITED, detail, reason="unread", data={"size": size})

    def admits(self, uid: int) -> bool:
        """Whether there is a place for one more connection of that user."""
        limits = self.limits
        return uid == 0 or (
            self._connections[uid] < limits.connections_per_user and self._connections.total() < limits.connections
        )

    @contextlib.contextmanager
    def connection(self, uid: int) -> Iterator[None]:
        """The place of a connection, after `admits`."""
        self._connections[uid] += 1
        try:
            yield
        finally:
            one_less(self._connections, uid)
