"""What a client sends ahead of its answers is bounded, whatever it is, and whoever gets its answers keeps them."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import socket
from typing import TYPE_CHECKING

import aiohttp
import pytest
from aiohttp.web import RequestHandler

from aiosd.rpc.endpoint import MAX_ANSWER
from aiosd.rpc.limits import Limits, Shares
from tests.rpc.serving import Http, door
from tests.rpc.standin import StandIn, as_user
from tests.unit.core.rig import eventually, play

if TYPE_CHECKING:
    from pathlib import Path

POST = b"POST /rpc HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
HEADERS = b"".join(b"X-%d: %s\r\n" % (number, b"y" * 50) for number in range(1000))
MOST = 8 << 20
"""Bytes that a flood may get rid of at most, what the kernel holds included. Nothing is cut off sooner than it must."""

FLOODS = {
    "headers without end": (POST, HEADERS),
    "a header without end": (POST + b"X: ", b"y" * 65536),
    "a path without end": (b"GET /", b"y" * 65536),
    "a chunk's extension without end": (CHUNKED + b"1;x=", b"y" * 65536),
    "a chunk's size without end": (CHUNKED, b"0" * 65536),
    "trailers without end": (CHUNKED + b"0\r\n", HEADERS),
    "chunks without end": (CHUNKED, b"1\r\n \r\n" * 8000),
    "a body that nobody wants": (
        b"GET /events HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"1\r\n \r\n" * 8000,
    ),
    "another protocol": (b"GET /events HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", b"z" * 65536),
}


def call(number: int) -> bytes:
    body = json.dumps({"jsonrpc": "2.0", "id": number, "method": "aios/task.get", "params": {"task_id": "task-1"}})
    return POST + f"Content-Length: {len(body)}\r\n\r\n{body}".encode()


def flooded(path: Path, head: bytes, piece: bytes) -> int:
    """How much went away before it was cut off, or was not taken any more. Blocking."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        client.settimeout(1.0)
        sent = client.send(head)
        while sent < 2 * MOST:
            try:
                sent += client.send(piece)
            except OSError:
                break
        return sent


@pytest.mark.parametrize("what", FLOODS)
def test_a_flood_is_cut_off(place: Path, what: str) -> None:
    async def scenario() -> None:
        core = StandIn()
        async with door(place, core, core) as (paths, _):
            assert await asyncio.to_thread(flooded, paths.http, *FLOODS[what]) < MOST
            async with Http.connect(paths.http) as http:
                assert (await http.call("aios/task.get", {"task_id": "task-1"}))["result"]["operation"] == "task.get"

    play(scenario())


def test_aiohttp_still_tells_which_requests_wait(place: Path) -> None:
    """It has no public word for them. A version with another name has to be looked at before it is used."""

    async def scenario() -> None:
        core = StandIn(gates={"task.get": asyncio.Event()})
        async with door(place, core, core) as (paths, _), Http.connect(paths.http) as http:
            http.writer.write(b"".join(map(call, range(5))))
            await core.entered.get()
            handlers = [
                one for one in gc.get_objects() if isinstance(one, RequestHandler) and one.transport is not None
            ]
            assert len(handlers) == 1
            waiting = getattr(handlers[0], "_messages", None)
            assert waiting is not None, (
                f"aiohttp {aiohttp.__version__} calls the requests that wait for the one before something else than"
                " _messages: aiosd/rpc/connection.py does not bound them any more"
            )
            await eventually(lambda: len(waiting) == 4)
            core.gates["task.get"].set()
            for number in range(5):
                assert (await http.answer()).json["id"] == number

    play(scenario())


def test_requests_that_are_sent_ahead_wait_outside_and_are_all_answered_in_order(place: Path) -> None:
    async def scenario() -> None:
        core = StandIn(gates={"task.get": asyncio.Event()})
        count = 3000
        async with door(place, core, core) as (paths, _), Http.connect(paths.http) as http:
            http.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
            http.writer.write(b"".join(map(call, range(count))))  # most of it stays in this process
            await core.entered.get()
            assert http.writer.transport.get_write_buffer_size() > 100_000
            core.gates["task.get"].set()
            assert [(await http.answer()).json["id"] for _ in range(count)] == list(range(count))

    play(scenario())


def test_refusals_go_on_too_when_requests_are_sent_ahead(place: Path) -> None:
    async def scenario() -> None:
        core = StandIn()
        async with door(place, core, core) as (paths, _), Http.connect(paths.http) as http:
            count = 2000
            http.writer.write(b"GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n" * count)
            assert {(await http.answer()).status for _ in range(count)} == {404}

    play(scenario())


def test_a_user_s_batches_leave_room_for_others(place: Path) -> None:
    """Four at a time, and between their calls everybody else has a turn."""
    wait = {"jsonrpc": "2.0", "id": 1, "method": "aios/task.wait", "params": {"task_id": "task-1"}}
    get = {"jsonrpc": "2.0", "id": 2, "method": "aios/task.get", "params": {"task_id": "task-1"}}

    async def scenario() -> None:
        core = StandIn(gates={"task.wait": asyncio.Event()})
        async with door(place, core, core) as (paths, _):
            reader, writer = await asyncio.open_unix_connection(paths.lines)
            writer.write((json.dumps([wait, get]).encode() + b"\n") * 6)
            for _ in range(4):
                assert await core.entered.get() == "task.wait"
            writer.write(json.dumps(get).encode() + b"\n")
            assert json.loads(await reader.readuntil())["id"] == 2
            assert [name for name, _, _ in core.calls] == ["task.wait"] * 4 + ["task.get"]
            core.gates["task.wait"].set()
            for _ in range(6):
                assert [answer["id"] for answer in json.loads(await reader.readuntil())] == [1, 2]
            writer.close()

    play(scenario())


def test_an_answer_has_an_end_and_what_a_batch_cannot_tell_it_does_not_do(place: Path) -> None:
    discover = {"jsonrpc": "2.0", "id": 1, "method": "rpc.discover"}
    get = {"jsonrpc": "2.0", "id": 2, "method": "aios/task.get", "params": {"task_id": "task-1"}}

    async def scenario() -> None:
        core = StandIn()
        async with door(place, core, core) as (paths, _), Http.connect(paths.http) as http:
            (one,) = (await http.post(json.dumps([discover]).encode())).json
            size = len(json.dumps(one, separators=(",", ":")))
            fit = MAX_ANSWER // size + 1
            assert fit < 99, "a hundred of them are too many"
            answers = (await http.post(json.dumps([discover] * 99 + [get]).encode())).json
            told = [answer for answer in answers if "result" in answer]
            assert abs(len(told) - fit) <= 1
            assert answers[: len(told)] == told
            assert {answer["error"]["data"]["reason"] for answer in answers[len(told) :]} == {"too-large"}
            assert not core.calls

    play(scenario())


def test_who_does_not_read_its_answers_is_given_no_more_large_ones(place: Path) -> None:
    discover = b'{"jsonrpc":"2.0","id":1,"method":"rpc.discover"}\n'
    get = b'{"jsonrpc":"2.0","id":2,"method":"aios/task.get","params":{"task_id":"task-1"}}\n'

    async def scenario() -> None:
        core = StandIn()
        async with door(place, core, core, limits=Limits(unread_per_user=2 << 20)) as (paths, _):
            reader, writer = await asyncio.open_unix_connection(paths.lines, limit=1 << 22)
            writer.write((discover + get) * 60)
            await eventually(lambda: len(core.calls) >= 20)  # it has 64 in progress, and has read nothing
            answers = [json.loads(await reader.readuntil()) for _ in range(120)]
            large = [answer for answer in answers if answer["id"] == 1]
            refused = [answer["error"]["data"]["reason"] for answer in large if "error" in answer]
            assert set(refused) == {"unread"}
            assert len(refused) < 60, "what there was room for was given"
            assert all("result" in answer for answer in answers if answer["id"] == 2), "small ones always"
            writer.write(discover)
            assert "result" in json.loads(await reader.readuntil()), "once it has read, it has room again"
            writer.close()

    play(scenario())


def test_a_user_s_connections_share_what_is_taken_ahead(place: Path) -> None:
    async def scenario() -> None:
        core = StandIn()
        limits = Limits(bytes_per_user=100_000)
        async with door(place, core, core, limits=limits) as (paths, _):
            with as_user(1000):
                first, second = [await asyncio.open_unix_connection(paths.http) for _ in range(2)]
            half = POST + b"Content-Length: 90000\r\n\r\n"
            first[1].write(half + b" " * 80_000)
            second[1].write(POST + b"Content-Length: 90000\r\n\r\n" + b" " * 80_000)
            ended, _ = await asyncio.wait(
                [asyncio.create_task(one[0].read()) for one in (first, second)],
                timeout=30, return_when=asyncio.FIRST_COMPLETED,
            )  # fmt: skip
            assert len(ended) == 1  # one of them was too much
            async with Http.connect(paths.http) as http:  # root's have nothing to do with it
                assert "result" in await http.call("aios/task.get", {"task_id": "task-1"})
            for one in (first, second):
                one[1].close()

    play(scenario())


def test_messages_that_are_being_answered_are_not_too_large_together(place: Path) -> None:
    async def scenario() -> None:
        core = StandIn(gates={"task.wait": asyncio.Event()})
        async with door(place, core, core, limits=Limits(bytes_per_user=100_000)) as (paths, _):
            with as_user(1000):
                reader, writer = await asyncio.open_unix_connection(paths.lines)
            wait = {"jsonrpc": "2.0", "id": 1, "method": "aios/task.wait", "params": {"task_id": "task-1"}}
            text = json.dumps({**wait, "x": "y" * 60_000}).encode() + b"\n"
            writer.write(text)
            assert await core.entered.get() == "task.wait"
            writer.write(text)
            refused = json.loads(await reader.readline())
            assert (refused["id"], refused["error"]["data"]["error_id"]) == (None, "AIOS-RATE-LIMITED")
            core.gates["task.wait"].set()
            assert json.loads(await reader.readline())["id"] == 1
            writer.write(text)
            assert "result" in json.loads(await reader.readline())
            writer.close()

    play(scenario())


def test_what_is_held_is_given_back() -> None:
    shares = Shares(Limits(bytes_per_user=10))
    assert shares.hold(1000, 10)
    assert not shares.hold(1000, 1)
    assert shares.hold(1001, 1)
    assert shares.hold(0, 1000)
    shares.release(1000, 10)
    assert shares.hold(1000, 10)


def test_the_largest_message_has_its_place(place: Path) -> None:
    async def scenario() -> None:
        core = StandIn()
        async with door(place, core, core) as (paths, _), Http.connect(paths.http) as http:
            body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "aios/task.get", "params": {"task_id": "task-1"}})
            for _ in range(20):
                assert (await http.post(body.ljust(256 * 1024).encode())).json["result"]["uid"] == os.geteuid()

    play(scenario())
