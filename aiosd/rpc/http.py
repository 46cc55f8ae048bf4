"""HTTP/1.1 on accepted connections: `POST /rpc` and `GET /events`. The only module of the door that needs aiohttp.

It is imported with the first request that is not a plain one for events (eventstream.py). Statuses are about the
transport: a message that was understood is answered 200 (204 when nobody wants an answer), whatever its answer says.
There is no CORS: what a web page sends is refused. Two paths need neither aiohttp's router nor its chain of
middlewares, which would cost more than most calls.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from aiohttp import web

from aiosd.errors import AiosError
from aiosd.model.jsontext import MAX_TEXT_BYTES, dump
from aiosd.rpc.connection import Connection
from aiosd.rpc.endpoint import Session
from aiosd.rpc.stream_request import STATUS, WRITE_BUFFER
from aiosd.rpc.subscriptions import Owner

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable, Mapping
    from typing import Self

    from aiosd.rpc.endpoint import Endpoint
    from aiosd.rpc.limits import Allowance, Shares, Timing
    from aiosd.rpc.peer import Peer
    from aiosd.rpc.stream_request import EventStreams

    Handler = Callable[[Connection, web.BaseRequest], Awaitable[web.StreamResponse]]

JSON_TYPES = frozenset({"application/json", "application/json-rpc", "application/jsonrequest"})
"""https://www.jsonrpc.org/historical/json-rpc-over-http.html"""
INTERACTIVE = "X-AIOS-Interactive"
"""Header: `1` when the person behind the caller may be asked (a polkit dialog)."""
SESSION = "AIOS-Session-Id"
"""Header: the client's name for its session, of `aios/initialize`; `aios/shutdown` ends that one's subscriptions."""
MAX_SESSION = 128

_ALWAYS = {"Cache-Control": "no-store", "Server": "aiosd", "X-Content-Type-Options": "nosniff"}
"""Headers of every answer."""
_JSON = {**_ALWAYS, "Content-Type": "application/json"}
_STREAM = {**_ALWAYS, "Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

_log = logging.getLogger(__name__)
_strangers = logging.getLogger(f"{__name__}.strangers")
"""Where aiohttp tells, with tracebacks, of requests that are none: nobody may fill the journal with them."""
_strangers.setLevel(logging.CRITICAL + 1)


class HttpDoor:
    """Serves accepted sockets; an async context manager."""

    def __init__(
        self,
        endpoint: Endpoint,
        streams: EventStreams,
        shares: Shares,
        timing: Timing,
        allowance: Callable[[], Allowance],
    ) -> None:
        """`allowance`: what is configured now."""
        self._endpoint = endpoint
        self._streams = streams
        self._shares = shares
        self._timing = timing
        self._allowance = allowance
        self._connections: dict[asyncio.BaseTransport, Connection] = {}
        self._handlers: Mapping[str, tuple[str, Handler]] = {
            "/rpc": ("POST", self._rpc),
            "/events": ("GET", self._events),
        }
        self._server = web.Server(
            self._guarded, handler_cancellation=True, access_log=None, keepalive_timeout=timing.keep_alive,
            auto_decompress=False, logger=_strangers,
        )  # fmt: skip
        self._runner = web.ServerRunner(self._server, shutdown_timeout=1.0)

    async def __aenter__(self) -> Self:
        """Ready for connections."""
        await self._runner.setup()
        return self

    async def __aexit__(self, *_: object) -> None:
        """End every connection; what is being answered has a second."""
        await self._runner.cleanup()

    async def serve(self, accepted: socket.socket, peer: Peer) -> None:
        """One connection to its end."""
        loop = asyncio.get_running_loop()
        connection = Connection(self._server(), peer, self._shares, self._timing.first_request)
        transport, _ = await loop.connect_accepted_socket(lambda: connection, accepted)
        transport.set_write_buffer_limits(WRITE_BUFFER)
        self._connections[transport] = connection
        try:
            with self._shares.writes(peer.uid, transport):
                await connection.ended.wait()
        finally:
            del self._connections[transport]
            transport.abort()

    async def _guarded(self, request: web.BaseRequest) -> web.StreamResponse:
        """What every request must be, and that no fault of ours shows more than that there was one."""
        connection = None if request.transport is None else self._connections.get(request.transport)
        if connection is None:
            return _refused(400, "bad request")
        connection.served()
        try:
            return await self._handled(connection, request)
        finally:
            connection.answered()

    async def _handled(self, connection: Connection, request: web.BaseRequest) -> web.StreamResponse:
        if "Origin" in request.headers:
            return _refused(403, "web pages are not served")
        method, handler = self._handlers.get(request.path, ("", None))
        if handler is None:
            return _refused(404, "there are /rpc and /events")
        if request.method != method:
            return _refused(405, f"{request.path} takes {method}", Allow=method)
        with connection.peer:
            try:
                return await handler(connection, request)
            except _RefusedError as error:
                return error.response
            except ConnectionError:
                raise
            except Exception:  # noqa: BLE001 - the client learns that it failed, the journal why
                _log.exception("%s %s failed unexpectedly", request.method, request.path)
                return _refused(500, "internal error")

    async def _rpc(self, connection: Connection, request: web.BaseRequest) -> web.StreamResponse:
        """JSON-RPC."""
        if request.content_type not in JSON_TYPES:
            raise _RefusedError(415, "Content-Type is application/json")
        if request.headers.get("Content-Encoding", "identity") != "identity":
            raise _RefusedError(415, "no Content-Encoding is taken")
        text = await self._body(request)
        answer = await self._endpoint.answer(_session(connection, request), text)
        answer.sent()
        if answer.text is None:
            return web.Response(status=204, headers=_ALWAYS)
        return web.Response(body=answer.text.encode(), headers=_JSON)

    async def _body(self, request: web.BaseRequest) -> bytes:
        """All of it; who is there already costs no timer."""
        if (request.content_length or 0) > MAX_TEXT_BYTES:
            raise _RefusedError(413, f"a message has at most {MAX_TEXT_BYTES} bytes")
        content = request.content
        if content.is_eof():
            return content.read_nowait()
        text = bytearray()
        try:
            async with asyncio.timeout(self._timing.body):
                if request.headers.get("Expect", "").lower() == "100-continue":
                    await _go_on(request)
                while not content.at_eof():
                    text += await content.readany()
                    if len(text) > MAX_TEXT_BYTES:
                        raise _RefusedError(413, f"a message has at most {MAX_TEXT_BYTES} bytes")
        except TimeoutError:
            raise _RefusedError(408, "the request did not arrive in time") from None
        return bytes(text)

    async def _events(self, connection: Connection, request: web.BaseRequest) -> web.StreamResponse:
        """An event stream."""
        session = _session(connection, request)
        response = web.StreamResponse(headers=_STREAM)
        try:
            await self._streams.run(
                session, request.query.items(), request.headers.get("Last-Event-ID"),
                lambda data: self._write(request, response, data),
            )  # fmt: skip
        except ConnectionError:
            if request.transport is not None:
                request.transport.abort()  # aiohttp would answer that it is in trouble
            raise
        except AiosError as error:
            if response.prepared:
                return response
            status = STATUS.get(error.kind, 503)
            return web.Response(status=status, body=dump({"error": error.wire()}).encode(), headers=_JSON)
        with suppress(ConnectionError):
            await response.write_eof()
        return response

    async def _write(self, request: web.BaseRequest, response: web.StreamResponse, data: bytes) -> None:
        """Send; a client that takes nothing for too long is left."""
        transport = request.transport
        if response.prepared and transport is not None and _takes(transport, data):
            await response.write(data)
            return
        try:
            async with asyncio.timeout(self._allowance().event_timeout):
                if not response.prepared:
                    await response.prepare(request)
                await response.write(data)
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()
            raise ConnectionResetError("the client does not read") from None


class _RefusedError(Exception):
    """The transport's rules refuse the request; `response` says why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.response = _refused(status, why)


def _refused(status: int, why: str, **headers: str) -> web.Response:
    return web.Response(status=status, text=f"{why}\n", headers={**_ALWAYS, **headers})


def _takes(transport: asyncio.WriteTransport, data: bytes) -> bool:
    """Whether it takes that much without anybody having to wait, so without a timer: nothing waits in it yet, and what
    the kernel does not take stays below the mark above which writers wait."""
    return len(data) < WRITE_BUFFER and transport.get_write_buffer_size() == 0


def _session(connection: Connection, request: web.BaseRequest) -> Session:
    name = request.headers.get(SESSION)
    if name and (len(name) > MAX_SESSION or not name.isascii()):
        raise _RefusedError(400, f"{SESSION} is too long")
    owner = Owner(connection.peer.uid, name) if name else connection.owner
    asks = request.headers.get(INTERACTIVE) == "1"
    return Session(connection.peer.caller(interactive=True) if asks else connection.caller, owner)


async def _go_on(request: web.BaseRequest) -> None:
    """The client waits for a word before it sends the body (RFC 9110, 10.1.1)."""
    await request.writer.write(_CONTINUE)
    request.writer.output_size = 0  # of the answer, which is still to come
