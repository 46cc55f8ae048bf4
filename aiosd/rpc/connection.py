"""One HTTP client's connection, between the transport and the protocol that speaks HTTP on it.

It knows when the connection ends and when it idles, and bounds what is taken ahead of the request that is being
answered: not every version of aiohttp bounds the number of headers, of trailers, and of requests that wait for the one
before.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiosd.rpc.subscriptions import Owner

if TYPE_CHECKING:
    from aiosd.rpc.limits import Shares
    from aiosd.rpc.peer import Peer

PIPELINED = 16
"""Requests that wait for the one before on their connection, beyond which no more is read from it."""


class Connection(asyncio.Protocol):
    """Passes on what comes, as long as it is not too much. `ended` is set at the end."""

    def __init__(self, inner: asyncio.Protocol, peer: Peer, shares: Shares, first_request_within: float) -> None:
        """`first_request_within`: seconds until the head of the first request must be there."""
        self._inner = inner
        self._within = first_request_within
        self._shares = shares
        self._ahead = 0
        self._is_held_back = False
        self.peer = peer
        self.caller = peer.caller()
        self.owner = Owner(peer.uid)
        self.ended = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the clock."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - for the type checker
        self._transport = transport
        self._deadline = asyncio.get_running_loop().call_later(self._within, transport.close)
        self._inner.connection_made(transport)

    def served(self) -> None:
        """A request has arrived; the rest of it may be what is held back."""
        self._deadline.cancel()
        self._forget_ahead()
        self._go_on()

    def answered(self) -> None:
        """Its answer is made."""
        self._go_on()

    def _go_on(self) -> None:
        """Read again when nothing waits any more."""
        if self._is_held_back and not self._waiting():
            self._is_held_back = False
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell everyone."""
        self._deadline.cancel()
        self._forget_ahead()
        self.ended.set()
        self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Pass on, as long as it is not too much."""
        uid, size = self.peer.uid, len(data)
        if self._ahead + size > self._shares.limits.bytes_per_connection or not self._shares.hold(uid, size):
            self._transport.abort()
            return
        self._ahead += size
        self._inner.data_received(data)
        if self._waiting() > PIPELINED and not self._is_held_back:
            self._is_held_back = True
            self._transport.pause_reading()

    def _waiting(self) -> int:
        """Requests that wait for the one before. aiohttp has no public word for them; a test (tests/rpc/test_floods.py)
        says when a version has another name, and then only their bytes are bounded."""
        return len(getattr(self._inner, "_messages", ()))

    def _forget_ahead(self) -> None:
        self._shares.release(self.peer.uid, self._ahead)
        self._ahead = 0

    def eof_received(self) -> bool | None:
        """Pass on."""
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        """Pass on."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Pass on."""
        self._inner.resume_writing()
