"""A served door for the tests: real sockets, the real core (or a stand-in), and clients that know nothing of ours."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aiosd.rpc.limits import Allowance
from aiosd.rpc.server import RpcDoor, Speech

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path
    from typing import Self

    from aiosd.rpc.endpoint import Core
    from aiosd.rpc.limits import Limits, Timing
    from aiosd.rpc.server import EventSource
    from aiosd.rpc.subscriptions import Subscriptions

Json = dict[str, Any]
"""JSON as a test reads it."""


@dataclass(frozen=True)
class Sockets:
    """Where the door listens."""

    http: Path
    lines: Path


def listening(path: Path) -> socket.socket:
    """A listening socket, as systemd passes it."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.bind(str(path))
    path.chmod(0o666)
    made.listen(2048)
    return made


@asynccontextmanager
async def door(
    directory: Path, core: Core, events: EventSource, *, limits: Limits | None = None, timing: Timing | None = None,
    subscriptions: Subscriptions | None = None, allowance: Allowance | None = None,
) -> AsyncIterator[tuple[Sockets, RpcDoor]]:  # fmt: skip
    """The door in front of `core`."""
    paths = Sockets(directory / "aios.sock", directory / "aios-lines.sock")
    for path in (paths.http, paths.lines):
        path.unlink(missing_ok=True)
    sockets = {Speech.HTTP: listening(paths.http), Speech.LINES: listening(paths.lines)}
    async with RpcDoor(
        core, events, sockets, limits=limits, timing=timing, subscriptions=subscriptions,
        allowance=lambda: allowance or Allowance(),
    ) as served:  # fmt: skip
        served.open()
        yield paths, served


@dataclass
class Answer:
    """An HTTP answer, read by this file's own few lines."""

    status: int
    headers: dict[str, str]
    body: bytes = b""

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


@dataclass
class Http:
    """One connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @classmethod
    @asynccontextmanager
    async def connect(cls, path: Path) -> AsyncIterator[Http]:
        reader, writer = await asyncio.open_unix_connection(path, limit=1 << 22)
        try:
            yield cls(reader, writer)
        finally:
            writer.close()

    def send(self, method: str, target: str, headers: dict[str, str] | None = None, body: bytes = b"") -> None:
        lines = [f"{method} {target} HTTP/1.1", "Host: localhost"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        if body or method == "POST":
            lines.append(f"Content-Length: {len(body)}")
        self.writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    async def head(self) -> Answer:
        """Status and headers."""
        first, *rest = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in rest if line)
        return Answer(int(first.split()[1]), {name.lower(): value for name, value in headers.items()})

    async def answer(self) -> Answer:
        """All of an answer."""
        answer = await self.head()
        if "chunked" in answer.headers.get("transfer-encoding", ""):
            answer.body = await self.chunked()
        else:
            answer.body = await self.reader.readexactly(int(answer.headers.get("content-length", "0")))
        return answer

    async def chunk(self) -> bytes:
        """The next piece of a chunked body (RFC 9112, 7.1); empty at its end."""
        size = int((await self.reader.readuntil(b"\r\n")).split(b";")[0], 16)
        piece = await self.reader.readexactly(size)
        await self.reader.readexactly(2)
        return piece

    async def chunked(self) -> bytes:
        """All of a chunked body that is left."""
        body = b""
        while piece := await self.chunk():
            body += piece
        return body

    async def post(self, body: bytes, **headers: str) -> Answer:
        """POST /rpc."""
        self.send("POST", "/rpc", {"Content-Type": "application/json", **headers}, body)
        return await self.answer()

    async def call(self, method: str, params: Json | None = None, **headers: str) -> Any:
        """The whole answer object of one call."""
        call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}
        return (await self.post(json.dumps(call).encode(), **headers)).json


@dataclass
class Event:
    """A server-sent event."""

    type: str = "message"
    id: str = ""
    data: str = ""

    @property
    def json(self) -> Any:
        """The data as JSON."""
        return json.loads(self.data)


@dataclass
class EventParser:
    """Reads an event stream by the letter of the HTML standard, 9.2.6."""

    last_id: str = ""
    retry: int | None = None
    comments: int = 0
    _text: str = ""
    _type: str = ""
    _data: list[str] = field(default_factory=list)
    _has_data: bool = False

    def feed(self, data: bytes) -> list[Event]:
        """The events that end in this piece."""
        self._text += data.decode()
        found: list[Event] = []
        while "\n" in self._text:
            line, self._text = self._text.split("\n", 1)
            line = line.removesuffix("\r")
            if not line:
                if self._has_data:
                    found.append(Event(self._type or "message", self.last_id, "\n".join(self._data)))
                self._type, self._data, self._has_data = "", [], False
            elif line.startswith(":"):
                self.comments += 1
            else:
                self._field(*line.partition(":")[::2])
        return found

    def _field(self, name: str, value: str) -> None:
        value = value.removeprefix(" ")
        if name == "event":
            self._type = value
        elif name == "data":
            self._data.append(value)
            self._has_data = True
        elif name == "id" and "\0" not in value:
            self.last_id = value
        elif name == "retry" and value.isdigit():
            self.retry = int(value)


@dataclass
class EventStream:
    """GET /events."""

    http: Http
    parser: EventParser = field(default_factory=EventParser)
    _waiting: list[Event] = field(default_factory=list)

    @classmethod
    @asynccontextmanager
    async def open(cls, path: Path, query: str, **headers: str) -> AsyncIterator[EventStream]:
        async with Http.connect(path) as http:
            http.send("GET", f"/events?{query}", headers)
            head = await http.head()
            assert (head.status, head.headers["content-type"]) == (200, "text/event-stream")
            yield cls(http)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        """The next event; those that came with it are kept."""
        while not self._waiting:
            piece = await self.http.chunk()
            if not piece:
                raise StopAsyncIteration
            self._waiting += self.parser.feed(piece)
        return self._waiting.pop(0)

    async def take(self, count: int) -> list[Event]:
        """The next so many."""
        return [await anext(self) for _ in range(count)]
