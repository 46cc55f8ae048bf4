"""`GET /events` without aiohttp: the one request of which there may be many after a restart, all at once.

Whoever follows events asks in the same few words: a request line, some headers, no body, on a connection of its own.
`plain_request` recognises these and nothing else, in what the client has sent and nobody has read yet; all other
requests, well-formed or not, are for the server in http.py, which sees them from their first byte. So nothing here has
to refuse a request, and who follows events need not wait until aiohttp is imported, a fifth of a start.

The connection is the stream's alone and is closed with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import socket
from typing import TYPE_CHECKING

from aiosd.errors import AiosError, ErrorKind
from aiosd.model.jsontext import dump
from aiosd.model.later import dataclass
from aiosd.rpc.endpoint import Session
from aiosd.rpc.stream_request import STATUS, WRITE_BUFFER
from aiosd.rpc.subscriptions import Owner

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aiosd.rpc.limits import Allowance
    from aiosd.rpc.peer import Peer
    from aiosd.rpc.stream_request import EventStreams

MAX_HEAD = 4096
"""Bytes of a head that are looked at."""
MAX_VALUE = 128
"""Characters of a header."""
_REQUEST_LINE = re.compile(r"GET /events(?:\?([A-Za-z0-9_=&.,:-]*(?:%2C[A-Za-z0-9_=&.,:-]*)*))? HTTP/1\.1", re.ASCII)
_HEADER = re.compile(r"([A-Za-z-]+): ?([\x21-\x7e]+(?: [\x21-\x7e]+)*)?", re.ASCII)
_KNOWN = frozenset(
    {
        *("host", "accept", "accept-encoding", "accept-language", "cache-control", "pragma", "user-agent"),
        *("connection", "last-event-id", "aios-session-id", "x-aios-interactive"),
    }
)
"""Headers; a request with others is not for here."""
_HEAD = (
    "HTTP/1.1 {status}\r\nCache-Control: no-store\r\nServer: aiosd\r\nX-Content-Type-Options: nosniff\r\n"
    "Content-Type: {type}\r\n{more}Connection: close\r\n\r\n"
)
_STREAM = _HEAD.format(
    status="200 OK", type="text/event-stream", more="X-Accel-Buffering: no\r\nTransfer-Encoding: chunked\r\n"
).encode()
_REASONS = {
    400: "Bad Request", 403: "Forbidden", 404: "Not Found", 429: "Too Many Requests", 500: "Internal Server Error",
}  # fmt: skip

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PlainRequest:
    """What is asked for. `size`: bytes of its head; `query` and `headers` (small names) have each name once."""

    size: int
    query: Mapping[str, str]
    headers: Mapping[str, str]


def plain_request(sent: bytes) -> PlainRequest | None:
    """The request that is all that was sent, when it is a plain one for events."""
    head, end, rest = sent.partition(b"\r\n\r\n")
    if not end or rest or not head.isascii():
        return None
    line, *lines = head.decode("ascii").split("\r\n")
    asked = _REQUEST_LINE.fullmatch(line)
    if asked is None:
        return None
    headers: dict[str, str] = {}
    for text in lines:
        found = _HEADER.fullmatch(text)
        name = "" if found is None else found[1].lower()
        if found is None or name in headers or name not in _KNOWN or len(found[2] or "") > MAX_VALUE:
            return None
        headers[name] = found[2] or ""
    query: dict[str, str] = {}
    for part in (asked[1] or "").split("&"):
        name, _, value = part.partition("=")
        if name in query:
            return None
        if part:
            query[name] = value.replace("%2C", ",")
    if "host" not in headers or headers.get("connection", "keep-alive").lower() != "keep-alive":
        return None
    return PlainRequest(len(sent), query, headers)


async def first_bytes(accepted: socket.socket, within: float) -> bytes:
    """What the client has sent so far, once there is something; it stays unread. Raises TimeoutError, OSError."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(within):
        while True:
            with contextlib.suppress(BlockingIOError):
                return accepted.recv(MAX_HEAD, socket.MSG_PEEK)
            readable = loop.create_future()
            loop.add_reader(accepted, _arrived, readable)
            try:
                await readable
            finally:
                loop.remove_reader(accepted)


def _arrived(readable: asyncio.Future[None]) -> None:
    if not readable.done():
        readable.set_result(None)


class EventConnections:
    """Serves connections that begin with a plain request."""

    def __init__(self, streams: EventStreams, allowance: Callable[[], Allowance]) -> None:
        """`allowance`: what is configured now."""
        self._streams = streams
        self._allowance = allowance

    async def serve(self, accepted: socket.socket, peer: Peer, asked: PlainRequest) -> None:
        """One connection to its end."""
        reader, writer = await asyncio.open_unix_connection(sock=accepted)
        writer.transport.set_write_buffer_limits(WRITE_BUFFER)
        await reader.readexactly(asked.size)
        interactive = asked.headers.get("x-aios-interactive") == "1"
        owner = Owner(peer.uid, asked.headers.get("aios-session-id", ""))
        session = Session(peer.caller(interactive=interactive), owner)
        answer = _Answer(writer, self._allowance)
        streaming = asyncio.create_task(self._stream(answer, session, asked))
        leaving = asyncio.create_task(_until_gone(reader))
        try:
            await asyncio.wait({streaming, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (streaming, leaving):
                task.cancel()
            await asyncio.gather(streaming, leaving, return_exceptions=True)
            if answer.ended:
                await answer.close()
            writer.transport.abort()

    async def _stream(self, answer: _Answer, session: Session, asked: PlainRequest) -> None:
        try:
            await self._streams.run(session, asked.query.items(), asked.headers.get("last-event-id"), answer.write)
        except AiosError as error:
            answer.refuse(STATUS.get(error.kind, 503), dump({"error": error.wire()}).encode())
        except ConnectionError:
            return  # the client is gone, or does not read
        except Exception:  # noqa: BLE001 - the client learns that it failed, the journal why
            _log.exception("GET /events failed unexpectedly")
            answer.refuse(500, dump({"error": AiosError(ErrorKind.INTERNAL).wire()}).encode())
        answer.end()


class _Answer:
    """A chunked body (RFC 9112, 7.1), begun with its first piece."""

    def __init__(self, writer: asyncio.StreamWriter, allowance: Callable[[], Allowance]) -> None:
        self._writer = writer
        self._allowance = allowance
        self._begun = False
        self.ended = False

    async def write(self, data: bytes) -> None:
        """Send; a client that takes nothing for too long is left."""
        head = b"" if self._begun else _STREAM
        self._begun = True
        self._writer.write(b"%b%x\r\n%b\r\n" % (head, len(data), data))
        if self._writer.transport.get_write_buffer_size() > WRITE_BUFFER:
            await self.flush()

    async def flush(self) -> None:
        """Until there is room again. Raises ConnectionError when the client leaves, or leaves none for too long."""
        try:
            async with asyncio.timeout(self._allowance().event_timeout):
                await self._writer.drain()
        except TimeoutError:
            raise ConnectionResetError("the client does not read") from None

    async def close(self) -> None:
        """Until the client has taken all that was sent, or leaves, or takes too long."""
        self._writer.close()
        with contextlib.suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(self._allowance().event_timeout):
                await self._writer.wait_closed()

    def refuse(self, status: int, body: bytes) -> None:
        """Say why there is no stream; one that has begun can only end."""
        if not self._begun:
            reason = _REASONS.get(status, "Service Unavailable")
            more = f"Content-Length: {len(body)}\r\n"
            head = _HEAD.format(status=f"{status} {reason}", type="application/json", more=more)
            self._writer.write(head.encode() + body)
            self.ended = True

    def end(self) -> None:
        """The end of the body, when it has one."""
        if not self.ended:
            self._writer.write(b"0\r\n\r\n" if self._begun else _STREAM + b"0\r\n\r\n")
            self.ended = True


async def _until_gone(reader: asyncio.StreamReader) -> None:
    """Until the client has closed its side; what it sends meanwhile is for nobody (RFC 9112, 9.6)."""
    with contextlib.suppress(ConnectionError):
        while await reader.read(MAX_HEAD):
            pass
