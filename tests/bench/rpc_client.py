"""Clients that cost next to nothing, so that what is measured is the server: protocols on raw bytes.

An answer is read as far as its length; an event stream's bytes are kept with the moment they came, and are read when
everything has come.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import ExitStack
    from pathlib import Path

_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
_FRAME_END = b"}\n\n"
_NUMBER = re.compile(rb'"n":(\d+)')


def request(body: bytes) -> bytes:
    """A POST of /rpc."""
    head = f"POST /rpc HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


class Asker(asyncio.Protocol):
    """Sends the next request when the last was answered, until the time is over. `took`: milliseconds of each."""

    def __init__(self, requests: Iterator[bytes], end: float, took: list[float]) -> None:
        self._requests = requests
        self._end = end
        self._took = took
        self._buffer = b""
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport
        self._next()

    def _next(self) -> None:
        self._begin = time.monotonic()
        if self._begin < self._end:
            self._transport.write(next(self._requests))
        elif not self.done.done():
            self.done.set_result(None)
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, body = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        length = _LENGTH.search(head)
        if not head.startswith(b"HTTP/1.1 200") or length is None:
            self.done.set_exception(AssertionError(head.decode()))
            self._transport.close()
        elif len(body) >= int(length[1]):
            self._buffer = b""
            self._took.append((time.monotonic() - self._begin) * 1000)
            self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(exc or ConnectionResetError("the server closed the connection"))


async def load(path: Path, requests: Sequence[bytes], seconds: float, connections: int) -> list[float]:
    """Milliseconds of each request on so many connections, that take the requests in turn."""
    turns, took = itertools.cycle(requests), list[float]()
    end = time.monotonic() + seconds
    loop = asyncio.get_running_loop()
    made = [
        (await loop.create_unix_connection(lambda: Asker(turns, end, took), str(path)))[1] for _ in range(connections)
    ]
    await asyncio.gather(*(one.done for one in made))
    return took


class Follower(asyncio.Protocol):
    """An event stream. `begun`: its head has come; `complete`: so many events have come."""

    def __init__(self, query: str, count: int) -> None:
        loop = asyncio.get_running_loop()
        self._query = query
        self._count = count
        self._seen = 0
        self._tail = b""
        self._pieces: list[tuple[float, bytes]] = []
        self.begun: asyncio.Future[None] = loop.create_future()
        self.complete: asyncio.Future[None] = loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self.transport = transport
        transport.write(f"GET /events?{self._query} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())

    def data_received(self, data: bytes) -> None:
        self._pieces.append((time.monotonic(), data))
        if not self.begun.done():
            self.begun.set_result(None)
        text = self._tail + data
        self._seen += text.count(_FRAME_END)
        self._tail = text[-2:]  # shorter than a frame's end: none is counted twice
        if self._seen >= self._count and not self.complete.done():
            self.complete.set_result(None)

    def arrivals(self) -> dict[int, float]:
        """When each event was there, by its number."""
        found: dict[int, float] = {}
        buffer = b""
        for moment, data in self._pieces:
            *frames, buffer = (buffer + data).split(_FRAME_END)
            for frame in frames:
                number = _NUMBER.search(frame)
                assert number is not None, frame
                found[int(number[1])] = moment
        return found


async def followers(stack: ExitStack, path: Path, query: str, clients: int, count: int) -> list[Follower]:
    """Open streams that hear events from now on; closed with the stack."""
    loop = asyncio.get_running_loop()
    made = []
    for _ in range(clients):
        _, one = await loop.create_unix_connection(lambda: Follower(query, count), str(path))
        stack.callback(one.transport.close)
        made.append(one)
    await asyncio.gather(*(one.begun for one in made))
    return made
