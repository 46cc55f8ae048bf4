"""The JSON-RPC door: the sockets that systemd passed, who may connect, and what answers on each.

    async with RpcDoor(manager, hub, sockets) as door:
        door.open()          # last of all: callers have been waiting in the sockets' queues meanwhile

aiohttp is imported with the first request that needs it; a stream of events does not.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from contextlib import AsyncExitStack, suppress
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from aiosd.rpc.endpoint import Endpoint
from aiosd.rpc.eventstream import EventConnections, first_bytes, plain_request
from aiosd.rpc.limits import Allowance, Limits, Shares, Timing
from aiosd.rpc.lines import LinesDoor
from aiosd.rpc.peer import Peer, PeerGoneError
from aiosd.rpc.stream_request import EventStreams
from aiosd.rpc.subscriptions import Subscriptions

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from aiosd.model.event import Event
    from aiosd.rpc.endpoint import Core
    from aiosd.rpc.eventstream import PlainRequest
    from aiosd.rpc.http import HttpDoor

ACCEPT_AT_ONCE = 32
"""Connections that are accepted before others get their turn."""
ACCEPT_PAUSE = 1.0
"""Seconds without accepting after the process ran out of descriptors."""
HTTP = "aiosd.rpc.http"
"""The module that speaks it."""
FAREWELL = 1.0
"""Seconds that the last words of streams have at the door's end."""
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

_log = logging.getLogger(__name__)


class Speech(StrEnum):
    """What is spoken on a socket: its FileDescriptorName= in aiosd.socket."""

    HTTP = "http"
    LINES = "lines"


class EventSource(Protocol):
    """Where committed events come from (core/events.py)."""

    def listen(self, callback: Callable[[Sequence[Event]], None]) -> Callable[[], None]:
        """Call back with every batch, on the loop, in order; returns what ends it."""
        ...


class RpcDoor:
    """The service on its Unix sockets; an async context manager."""

    def __init__(
        self,
        core: Core,
        events: EventSource,
        sockets: Mapping[Speech, socket.socket],
        *,
        limits: Limits | None = None,
        timing: Timing | None = None,
        subscriptions: Subscriptions | None = None,
        allowance: Callable[[], Allowance] = Allowance,
    ) -> None:
        """`sockets` listen already and are the door's to close. `allowance`: asked each time, so a reload counts."""
        self._core = core
        self._events = events
        self._sockets = dict(sockets)
        self._shares = Shares(limits or Limits())
        self._timing = timing or Timing()
        self._allowance = allowance
        self.subscriptions = Subscriptions() if subscriptions is None else subscriptions
        self._endpoint = Endpoint(core, self.subscriptions, self._shares)
        self._lines = LinesDoor(self._endpoint, self.subscriptions, self._shares, allowance)
        self._streams = EventStreams(core, self.subscriptions, self._shares, self._timing, allowance)
        self._event_connections = EventConnections(self._streams, allowance)
        self._streaming: set[asyncio.Task[None]] = set()
        self._http: asyncio.Task[HttpDoor] | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._is_shut = False
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Hear events, and take up the subscriptions that were kept; callers still wait."""
        self._stack.callback(self._close_sockets)
        await self.subscriptions.restore()
        self._stack.callback(self._events.listen(self.subscriptions.on_events))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take no more callers, end the streams, cancel what is being answered."""
        self.shut()
        self.subscriptions.close()
        if self._streaming:
            await asyncio.wait(self._streaming, timeout=FAREWELL)
        if self._http is not None:
            with suppress(Exception):
                await (await self._http).__aexit__(None, None, None)
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self.subscriptions.settled()
        await self._stack.aclose()

    def open(self) -> None:
        """Take callers from now on."""
        for speech, listening in self._sockets.items():
            listening.setblocking(False)  # noqa: FBT003 - no keyword
            self._watch(speech, listening)

    def shut(self) -> None:
        """Take no more callers: they wait in the sockets' queues for the next daemon."""
        self._is_shut = True
        for listening in self._sockets.values():
            asyncio.get_running_loop().remove_reader(listening)

    def _watch(self, speech: Speech, listening: socket.socket) -> None:
        if listening.fileno() >= 0 and not self._is_shut:
            asyncio.get_running_loop().add_reader(listening, self._accept, speech, listening)

    def _close_sockets(self) -> None:
        for listening in self._sockets.values():
            listening.close()

    def _accept(self, speech: Speech, listening: socket.socket) -> None:
        for _ in range(ACCEPT_AT_ONCE):
            try:
                accepted, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                _log.warning("No connection can be accepted: %s", error)
                loop = asyncio.get_running_loop()
                loop.remove_reader(listening)
                loop.call_later(ACCEPT_PAUSE, self._watch, speech, listening)
                return
            self._admit(speech, accepted)

    def _admit(self, speech: Speech, accepted: socket.socket) -> None:
        """Serve it, unless its process is gone already or its user has enough connections."""
        accepted.setblocking(False)  # noqa: FBT003 - no keyword
        try:
            peer = Peer.of(accepted)
        except PeerGoneError:
            accepted.close()
            return
        except OSError as error:
            _log.warning("A caller cannot be told: %s", error)
            accepted.close()
            return
        if not self._shares.admits(peer.uid):
            with peer:
                accepted.close()
            return
        task = asyncio.create_task(self._serve(speech, accepted, peer))
        self._connections.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._connections.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("A connection failed unexpectedly", exc_info=error)

    async def _serve(self, speech: Speech, accepted: socket.socket, peer: Peer) -> None:
        with accepted, peer, self._shares.connection(peer.uid):  # a transport that took the socket is gone by the end
            if speech is Speech.LINES:
                await self._lines.serve(accepted, peer)
                return
            try:
                sent = await first_bytes(accepted, self._timing.first_request)
            except (OSError, TimeoutError):
                return
            asked = plain_request(sent)
            if asked is None:
                await (await self._http_door()).serve(accepted, peer)
            else:
                await self._stream(accepted, peer, asked)

    async def _stream(self, accepted: socket.socket, peer: Peer, asked: PlainRequest) -> None:
        task = asyncio.create_task(self._event_connections.serve(accepted, peer, asked))
        self._streaming.add(task)
        task.add_done_callback(self._streaming.discard)
        try:
            await task
        finally:
            task.cancel()

    async def _http_door(self) -> HttpDoor:
        """What speaks HTTP, made for the first that needs it."""
        if self._http is None:
            self._http = asyncio.create_task(self._make_http_door())
        return await asyncio.shield(self._http)

    async def _make_http_door(self) -> HttpDoor:
        await asyncio.to_thread(import_module, HTTP)
        from aiosd.rpc.http import HttpDoor

        door = HttpDoor(self._endpoint, self._streams, self._shares, self._timing, self._allowance)
        return await door.__aenter__()
