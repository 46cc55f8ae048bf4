"""What strangers send: no crash, no hang, nothing left behind, and the next client is served as if nothing had been."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aiosd.rpc import jsonrpc
from aiosd.rpc.methods import METHODS
from tests.rpc.serving import Http, Sockets, door
from tests.rpc.standin import StandIn
from tests.unit.core.rig import core, eventually, play

HEADS = [
    b"POST /rpc HTTP/1.1\r\n", b"GET /events HTTP/1.1\r\n", b"Host: a\r\n", b"Content-Type: application/json\r\n",
    b"Content-Length: 5\r\n", b"Content-Length: -1\r\n", b"Content-Length: 99999999999999\r\n",
    b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: gzip, chunked\r\n", b"Expect: 100-continue\r\n",
    b"Connection: upgrade\r\nUpgrade: websocket\r\n", b"Last-Event-ID: evt-0000000000000001\r\n", b"\r\n", b"\r\n\r\n",
    b"5\r\n{    \r\n0\r\n\r\n", b"ffffffffffffffff\r\n", b"{}", b"[]", b"\x00", b"\xff\xfe", b" " * 9000,
    b"a: " + b"b" * 9000,
]  # fmt: skip
PIECES = st.lists(st.sampled_from(HEADS) | st.binary(max_size=40), max_size=12).map(b"".join)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ["task_id", "options", "filter", "pagination", "capability_id", "events", "input", "limit"]
CALLS = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0"), "method": st.sampled_from(sorted(METHODS)), "id": VALUES},
    optional={"params": VALUES | st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=4)},
)
TEXTS = st.binary(max_size=200) | (VALUES | CALLS).map(lambda value: json.dumps(value).encode())


async def provoke(paths: Sockets, data: bytes) -> None:
    """Send it to both sockets, read what comes, leave."""
    for path in (paths.http, paths.lines):
        reader, writer = await asyncio.open_unix_connection(path)
        with suppress(OSError):
            writer.write(data)
            await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()
            async with asyncio.timeout(0.5):
                while piece := await reader.read(1 << 16):
                    assert b"Traceback" not in piece
        writer.close()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=PIECES)
def test_bytes_that_are_nearly_http_or_nothing_at_all(data: bytes) -> None:
    async def scenario(place: Path) -> None:
        stand_in = StandIn()
        async with door(place, stand_in, stand_in) as (paths, served):
            with suppress(TimeoutError):
                await provoke(paths, data)
            async with Http.connect(paths.http) as http:
                assert "result" in await http.call("aios/task.get", {"task_id": "task-1"})
            await eventually(lambda: not served._connections)
            assert len(served.subscriptions) == 0

    with tempfile.TemporaryDirectory(prefix="aiosd-rpc-") as folder:
        play(scenario(Path(folder)))


@settings(max_examples=200, deadline=None)
@given(text=TEXTS)
def test_any_text_is_a_message_or_is_said_to_be_none(text: bytes) -> None:
    message = jsonrpc.parse(text)
    assert message.calls
    for call in message.calls:
        if isinstance(call, jsonrpc.Malformed):
            json.dumps(jsonrpc.failure(call.id, call.error), allow_nan=False)
        else:
            assert isinstance(call.method, str)


@settings(max_examples=15, deadline=None)
@given(batches=st.lists(st.lists(CALLS, min_size=1, max_size=20), min_size=1, max_size=3))
def test_calls_with_any_parameters_are_answered_by_the_real_core(batches: list[list[object]]) -> None:
    async def scenario(place: Path) -> None:
        async with core(place, schedule=False) as aios, door(place, aios.manager, aios.hub) as (paths, served):
            before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a count is enough
            async with Http.connect(paths.http) as http:
                for batch in batches:
                    answer = await http.post(json.dumps(batch).encode())
                    if answer.status != 204:
                        for one in answer.json if isinstance(answer.json, list) else [answer.json]:
                            assert ("result" in one) != ("error" in one)
                            assert "error" not in one or one["error"]["code"] != -32603, one
            await eventually(lambda: not served._connections)
            assert len(os.listdir("/proc/self/fd")) <= before  # noqa: PTH208 - as above

    with tempfile.TemporaryDirectory(prefix="aiosd-rpc-") as folder:
        play(scenario(Path(folder)))
