"""Which requests are served without aiohttp: those that clients of event streams send, and none besides."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiosd.errors import AiosError, ErrorKind
from aiosd.rpc.eventstream import MAX_HEAD, plain_request
from tests.rig import host
from tests.rpc.serving import EventStream, Http, door
from tests.rpc.standin import TASK, StandIn
from tests.unit.core.rig import play

if TYPE_CHECKING:
    from pathlib import Path

HOST = b"Host: localhost\r\n"
PLAIN = {
    "our own client": b"GET /events?task_id=task-1&events=log%2Cstatus HTTP/1.1\r\nHost: localhost\r\n"
    b"Accept-Encoding: identity\r\nAccept: text/event-stream\r\nLast-Event-ID: evt-0000000000000001\r\n\r\n",
    "a library": b"GET /events?all_users=1 HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n",
    "curl": b"GET /events HTTP/1.1\r\nHost: localhost\r\nUser-Agent: curl/8.14.1\r\nAccept: */*\r\n\r\n",
}
OTHERS = {
    "another path": b"GET /event HTTP/1.1\r\n" + HOST + b"\r\n",
    "another method": b"POST /events HTTP/1.1\r\n" + HOST + b"\r\n",
    "another version": b"GET /events HTTP/1.0\r\n" + HOST + b"\r\n",
    "no host": b"GET /events HTTP/1.1\r\n\r\n",
    "two hosts": b"GET /events HTTP/1.1\r\n" + HOST + HOST + b"\r\n",
    "not all of it": b"GET /events HTTP/1.1\r\n" + HOST,
    "more than that": b"GET /events HTTP/1.1\r\n" + HOST + b"\r\nGET / HTTP/1.1\r\n",
    "a body": b"GET /events HTTP/1.1\r\n" + HOST + b"Content-Length: 1\r\n\r\n",
    "chunks": b"GET /events HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n",
    "an upgrade": b"GET /events HTTP/1.1\r\n" + HOST + b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n",
    "a web page": b"GET /events HTTP/1.1\r\n" + HOST + b"Origin: https://example.org\r\n\r\n",
    "a folded header": b"GET /events HTTP/1.1\r\n" + HOST + b"Accept: a\r\n b\r\n\r\n",
    "a bare line feed": b"GET /events HTTP/1.1\nHost: localhost\r\n\r\n",
    "a space before the colon": b"GET /events HTTP/1.1\r\nHost : localhost\r\n\r\n",
    "a null byte": b"GET /events HTTP/1.1\r\nHost: local\0host\r\n\r\n",
    "beyond ASCII": "GET /events HTTP/1.1\r\nHost: löcalhost\r\n\r\n".encode(),
    "a coded query": b"GET /events?task_id=%74ask HTTP/1.1\r\n" + HOST + b"\r\n",
    "a word twice": b"GET /events?task_id=a&task_id=b HTTP/1.1\r\n" + HOST + b"\r\n",
    "a long session": b"GET /events HTTP/1.1\r\n" + HOST + b"AIOS-Session-Id: " + b"x" * 129 + b"\r\n\r\n",
    "a fragment": b"GET /events#x HTTP/1.1\r\n" + HOST + b"\r\n",
    "a whole address": b"GET http://localhost/events HTTP/1.1\r\n" + HOST + b"\r\n",
    "nothing": b"",
}


@pytest.mark.parametrize("name", PLAIN)
def test_what_clients_send_is_plain(name: str) -> None:
    found = plain_request(PLAIN[name])
    assert found is not None
    assert found.size == len(PLAIN[name])


def test_its_words_are_understood() -> None:
    found = plain_request(PLAIN["our own client"])
    assert found is not None
    assert found.query == {"task_id": "task-1", "events": "log,status"}
    assert found.headers["last-event-id"] == "evt-0000000000000001"


@pytest.mark.parametrize("name", OTHERS)
def test_everything_else_is_for_the_whole_server(name: str) -> None:
    assert plain_request(OTHERS[name]) is None


@given(
    text=st.sampled_from(sorted(PLAIN.values())), place=st.integers(0, 160), gone=st.integers(0, 8),
    put=st.one_of(st.binary(max_size=6), st.sampled_from((b"\r\n", b"\r", b"\n", b":", b" ", b"%0d", b"\t"))),
)  # fmt: skip
def test_what_was_changed_is_none_or_has_one_meaning(text: bytes, place: int, gone: int, put: bytes) -> None:
    changed = text[:place] + put + text[place + gone :]
    found = plain_request(changed)
    if found is not None:
        head = changed[: found.size]
        assert head == changed
        assert head.count(b"\r\n\r\n") == 1
        assert head.isascii()
        assert not set(head) & {0, 9, 11, 12, 127}
        assert head.count(b"\r") == head.count(b"\n") == head.count(b"\r\n")
        assert head.startswith(b"GET /events")


def test_a_head_that_is_longer_than_what_is_looked_at_is_none() -> None:
    long = PLAIN["curl"].replace(b"curl", b"c" * 100 + b"\r\nAccept-Language: " + b"a" * 100)
    assert plain_request(long) is not None
    assert plain_request((long * 40)[:MAX_HEAD]) is None


def test_a_request_that_comes_in_pieces_is_served_all_the_same(place: Path) -> None:
    async def scenario() -> None:
        stand_in = StandIn()
        async with door(place, stand_in, stand_in) as (paths, _), Http.connect(paths.http) as http:
            text = f"GET /events?task_id={TASK} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
            http.writer.write(text[:20])
            await asyncio.sleep(0.05)
            http.writer.write(text[20:])
            assert (await http.head()).status == 200
            stream = EventStream(http)
            stand_in.happen(1)
            assert [one.id for one in await stream.take(1)] == ["evt-0000000000000001"]

    play(scenario())


def test_a_fault_of_ours_shows_nothing_but_that_there_was_one(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        stand_in = StandIn(errors={"task.subscribe": RuntimeError("the secret")})
        async with door(place, stand_in, stand_in) as (paths, _), Http.connect(paths.http) as http:
            http.send("GET", "/events")
            answer = await http.answer()
            assert (answer.status, answer.json["error"]["data"]["error_id"]) == (500, "AIOS-INTERNAL")
            assert await http.reader.read() == b""
        assert caplog.text.count("RuntimeError: the secret") == 1

    play(scenario())


@pytest.mark.parametrize("first", ["", "POST /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"])
def test_who_asks_as_the_daemon_ends_is_hung_up_on_and_comes_back(place: Path, first: str) -> None:
    """A refusal would be the end for an EventSource. On a connection of aiohttp's, too."""

    async def scenario() -> None:
        stand_in = StandIn(errors={"task.subscribe": AiosError(ErrorKind.SHUTTING_DOWN)})
        async with door(place, stand_in, stand_in) as (paths, _), Http.connect(paths.http) as http:
            if first:
                http.writer.write(first.encode())
                assert (await http.answer()).status == 404
            http.send("GET", "/events")
            assert await http.reader.read() == b""

    play(scenario())


def test_a_stream_needs_no_aiohttp(place: Path) -> None:
    """In a process of its own, where nobody else has imported it."""
    script = f"""
import asyncio, sys
from pathlib import Path
from tests.rpc.serving import EventStream, door
from tests.rpc.standin import TASK, StandIn

async def main():
    stand_in = StandIn()
    async with door(Path({str(place)!r}), stand_in, stand_in) as (paths, _):
        async with EventStream.open(paths.http, "task_id=" + TASK) as stream:
            stand_in.happen(1)
            print(len(await stream.take(1)), "aiohttp" in sys.modules)

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=host.CHECKOUT, capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.split() == ["1", "False"]
