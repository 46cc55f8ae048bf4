"""JSON-RPC, a message a line, on accepted connections; events come as notifications on the same connection.

    → {"jsonrpc":"2.0","id":1,"method":"aios/task.subscribe","params":{"task_id":"task-…"}}
    ← {"jsonrpc":"2.0","id":1,"result":{"subscription_id":"sub-…","task_id":"task-…","events":[]}}
    ← {"jsonrpc":"2.0","method":"aios/event",
       "params":{"subscription_id":"sub-…","event":"task.status","id":"evt-…","data":{…}}}     (one line)

Calls are answered as they are done, several at a time. When a connection has as many in progress as it may, no more is
read from it. A subscription lives as long as its connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import select
from typing import TYPE_CHECKING

from aiosd.errors import AiosError, ErrorKind
from aiosd.model.jsontext import MAX_TEXT_BYTES, dump
from aiosd.rpc import jsonrpc
from aiosd.rpc.endpoint import Session, notification
from aiosd.rpc.feed import GAP, Feed, Gap
from aiosd.rpc.subscriptions import Owner

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from aiosd.rpc.endpoint import Endpoint
    from aiosd.rpc.limits import Allowance, Shares
    from aiosd.rpc.peer import Peer
    from aiosd.rpc.subscriptions import Subscriptions

LOOK_SECONDS = 1.0
"""How often to look whether a client is still there while nothing is read from it."""

_numbers = itertools.count(1)


class LinesDoor:
    """Serves accepted sockets."""

    def __init__(
        self,
        endpoint: Endpoint,
        subscriptions: Subscriptions,
        shares: Shares,
        allowance: Callable[[], Allowance],
    ) -> None:
        """`allowance`: what is configured now."""
        self._endpoint = endpoint
        self._subscriptions = subscriptions
        self._shares = shares
        self._allowance = allowance

    async def serve(self, accepted: socket.socket, peer: Peer) -> None:
        """One connection to its end."""
        reader, writer = await asyncio.open_unix_connection(sock=accepted, limit=MAX_TEXT_BYTES + 1)
        line = _Connection(reader, writer, self._allowance)
        session = Session(
            peer.caller(), Owner(peer.uid, f"connection-{next(_numbers)}"),
            make_feed=lambda subscription: line.feed(subscription), stays=True,
        )  # fmt: skip
        try:
            with self._shares.writes(peer.uid, writer.transport):
                await line.run(self._endpoint, session)
            writer.close()
            await writer.wait_closed()
        except OSError:
            pass  # the client is gone, which is its right
        finally:
            self._subscriptions.end_session(session.owner)
            session.let_go()
            writer.transport.abort()


class _Connection:
    """One client: reads its messages, answers them, and writes the events of its feeds."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, allowance: Callable[[], Allowance]
    ) -> None:
        """`allowance`: how much may wait for the client, and how long it may take to read."""
        self._reader = reader
        self._writer = writer
        self._allowance = allowance
        self._ready: dict[str, Feed] = {}
        self._wake = asyncio.Event()

    def feed(self, subscription_id: str) -> Feed:
        """The queue of a new subscription."""

        def on_ready() -> None:
            self._ready[subscription_id] = made
            self._wake.set()

        made = Feed(self._allowance().events, on_ready)
        return made

    async def run(self, endpoint: Endpoint, session: Session) -> None:
        """Until the client leaves or does not read."""
        events = asyncio.create_task(self._send_events())
        calls: set[asyncio.Task[None]] = set()
        try:
            while (text := await self._next()) is not None:
                await self._fewer_than(self._allowance().calls_per_connection, calls)
                task = asyncio.create_task(self._answer(endpoint, session, text))
                calls.add(task)
                task.add_done_callback(calls.discard)
            if self._reader.at_eof():
                await self._fewer_than(1, calls)  # a client that has only closed its own side still gets its answers
        finally:
            for task in (events, *calls):
                task.cancel()
            await asyncio.gather(events, *calls, return_exceptions=True)

    async def _fewer_than(self, most: int, calls: set[asyncio.Task[None]]) -> None:
        """Wait until that few are in progress. Raises ConnectionResetError when the client has left meanwhile."""
        while len(calls) >= most:
            await asyncio.wait(calls, timeout=LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if len(calls) >= most and self._is_gone():
                raise ConnectionResetError("the client has left")

    def _is_gone(self) -> bool:
        """Whether both directions are closed: poll(2) tells it from a client that has only said its last word."""
        poll = select.poll()
        poll.register(self._writer.get_extra_info("socket"), 0)
        return any(happened & select.POLLHUP for _, happened in poll.poll(0))

    async def _next(self) -> bytes | None:
        """A line that is not empty; None at the end, or after one that is too long."""
        while True:
            try:
                line = await self._reader.readuntil()
            except asyncio.IncompleteReadError as error:
                return error.partial.strip() or None
            except asyncio.LimitOverrunError:
                error_ = AiosError(ErrorKind.INVALID_REQUEST, f"a line has at most {MAX_TEXT_BYTES} bytes")
                await self._write(jsonrpc.failure(None, error_))
                return None
            except OSError:
                return None
            if line.strip():
                return line.strip()

    async def _answer(self, endpoint: Endpoint, session: Session, text: bytes) -> None:
        answer = await endpoint.answer(session, text)
        with contextlib.suppress(OSError):
            if answer.text is not None:
                self._writer.write(answer.text.encode() + b"\n")
            answer.sent()
            await self._drain()

    async def _write(self, text: str) -> None:
        with contextlib.suppress(OSError):
            self._writer.write(text.encode() + b"\n")
            await self._drain()

    async def _drain(self) -> None:
        try:
            async with asyncio.timeout(self._allowance().event_timeout):
                await self._writer.drain()
        except TimeoutError:
            self._writer.transport.abort()
            raise ConnectionResetError("the client does not read") from None

    async def _send_events(self) -> None:
        """A piece of each feed in turn, so that a busy subscription does not hold back another."""
        while True:
            await self._wake.wait()
            if not self._ready:
                self._wake.clear()
                continue
            identifier = next(iter(self._ready))
            feed = self._ready.pop(identifier)
            item = None if feed.closed else feed.take()
            if item is None:
                continue
            self._ready[identifier] = feed
            text = (
                notification(identifier, None, GAP, dump(item.data()))
                if isinstance(item, Gap)
                else notification(identifier, item.event.id, item.kind, item.text)
            )
            await self._write(text)
