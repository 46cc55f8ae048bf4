"""What is fuzzed: each target takes bytes and raises when something is wrong; what a caller may be told is not.

`json` and `secret` read a stranger's JSON, `message` JSON-RPC, `chunks` what a program says on its socket. `doors`
sends bytes to both sockets of a served door: it must answer or hang up, leave nothing open, and answer a call next.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from aiosd.model import jsontext
from aiosd.model.secrettext import SecretText, SecretTextError
from aiosd.rpc import jsonrpc
from aiosd.rpc.limits import Allowance, Timing
from aiosd.run.chunks import ChunkError, LineReader, parse_chunk
from tests.rpc.serving import Http, Sockets, door
from tests.rpc.standin import StandIn

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiosd.rpc.server import RpcDoor

LINE = 64
"""Longest line of the chunk reader here, so that short inputs reach its end."""


def read_json(data: bytes) -> None:
    """What is taken is JSON for every other reader, too, and comes back as it was."""
    try:
        value = jsontext.parse_value(data)
    except jsontext.JsonTextError:
        return
    jsontext.check_value(value)  # the reader looks only where it has to
    again = jsontext.dump(value)
    assert json.loads(data) == json.loads(again) == value
    assert jsontext.parse_value(jsontext.canonical(value)) == value


def read_secret(data: bytes) -> None:
    """A secret is read in place, and nothing of it is left."""
    buffer = bytearray(data)
    with suppress(SecretTextError), SecretText(buffer) as secret:
        for name in secret.names:
            secret.field(name).release()
    assert not any(buffer)


def read_message(data: bytes) -> None:
    """Every text is calls, or something that can be answered."""
    for call in jsonrpc.parse(data).calls:
        if isinstance(call, jsonrpc.Malformed):
            json.dumps(jsonrpc.failure(call.id, call.error), allow_nan=False)


def read_chunks(data: bytes) -> None:
    """Lines are the same however the stream is cut, bounded, and chunks or refused."""
    cut = data[0] % 17 + 1 if data else 1
    pieces, whole = LineReader(LINE), LineReader(LINE)
    lines = [line for at in range(0, len(data), cut) for line in pieces.feed(data[at : at + cut])]
    assert lines == whole.feed(data)
    assert pieces.unfinished() == whole.unfinished()
    assert all(line is None or len(line) <= LINE for line in lines)
    for line in (*lines, data):
        with suppress(ChunkError):
            chunk = parse_chunk(line)
            assert chunk.number >= 0
            json.dumps(chunk.payload, allow_nan=False)


class Doors:
    """A served door, with a loop that runs while an input is tried."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._stack = AsyncExitStack()
        self._stand_in = StandIn()
        self._paths, self._served = self._loop.run_until_complete(self._open())
        self._open_files = 0
        self._tried = 0

    async def _open(self) -> tuple[Sockets, RpcDoor]:
        place = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="aiosd-fuzz-")))
        timing, allowance = Timing(first_request=0.2, body=0.2, keep_alive=0.2), Allowance(event_timeout=0.2)
        made = door(place, self._stand_in, self._stand_in, timing=timing, allowance=allowance)
        return await self._stack.enter_async_context(made)

    def __call__(self, data: bytes) -> None:
        self._loop.run_until_complete(self._try(data))

    async def _try(self, data: bytes) -> None:
        for path in (self._paths.http, self._paths.lines):
            await self._send(path, data)
        async with asyncio.timeout(30), Http.connect(self._paths.http) as http:
            assert "result" in await http.call("aios/task.get", {"task_id": "task-1"})
        if self._served._connections:
            assert not (await asyncio.wait(self._served._connections, timeout=30))[1]
        assert len(self._served.subscriptions) == 0 or b"subscribe" in data
        self._stand_in.calls.clear()
        self._tried += 1
        if self._tried == 50:  # whatever is made once has been made
            self._open_files = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a count is enough
        elif self._tried % 50 == 0:
            assert len(os.listdir("/proc/self/fd")) <= self._open_files + 8  # noqa: PTH208 - as above

    async def _send(self, path: Path, data: bytes) -> None:
        reader, writer = await asyncio.open_unix_connection(path)
        with suppress(OSError):
            writer.write(data)
            writer.write_eof()
            async with asyncio.timeout(30):
                while piece := await reader.read(1 << 16):
                    assert b"Traceback" not in piece
                    assert b"-32603" not in piece, data
        writer.close()


HEADS = (
    b"POST /rpc HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
    b"GET /events?task_id=task-1 HTTP/1.1\r\nHost: a\r\nLast-Event-ID: evt-0000000000000001\r\n\r\n",
    b"POST /rpc HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"2\r\n{}\r\n0\r\n\r\n",
)
CALL = b'{"jsonrpc":"2.0","id":1,"method":"aios/task.get","params":{"task_id":"task-1"}}'
CHUNK = b'{"type":"processing","payload":{"progress":{"percent":5}},"index":0,"last_chunk":false}\n'
JSON = rb'{"a":[1,-2.5e3,true,null,"\u00e9\ud83d\ude00\\"]}'

TARGETS: dict[str, tuple[Callable[[], Callable[[bytes], None]], tuple[bytes, ...]]] = {
    "json": (lambda: read_json, (JSON, CALL)),
    "secret": (lambda: read_secret, (b'{"api_key":"k\\"","n":"x"}',)),
    "message": (lambda: read_message, (CALL, b"[" + CALL + b"]")),
    "chunks": (lambda: read_chunks, (CHUNK, CHUNK * 2)),
    "doors": (Doors, (*HEADS, CALL + b"\n", b"[" + CALL + b"]\n")),
}
"""By name: what makes the target, and what its first inputs are."""
