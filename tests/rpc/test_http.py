"""POST /rpc: the JSON-RPC 2.0 specification by its own examples, HTTP's faults as HTTP, and who the caller is."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from aiosd.auth.caller import ProcessSubject
from aiosd.core.shares import CallLimits
from aiosd.errors import AiosError, ErrorKind
from aiosd.rpc.limits import Limits, Timing
from aiosd.rpc.server import RpcDoor, Speech
from tests.rpc.serving import Http, Json, door, listening
from tests.rpc.standin import StandIn, as_user
from tests.unit.core.rig import PLAIN, core, eventually, play

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

GET: Json = {"jsonrpc": "2.0", "method": "aios/task.get", "params": {"task_id": "task-1"}, "id": 1}
GOT: Json = {"operation": "task.get", "uid": os.geteuid()}


def ok(identifier: object) -> Json:
    return {"jsonrpc": "2.0", "id": identifier, "result": GOT}


def bad(code: int, identifier: object = None) -> Json:
    return {"jsonrpc": "2.0", "id": identifier, "error": code}


def without(call: Json, *keys: str, **instead: object) -> Json:
    return {key: value for key, value in {**call, **instead}.items() if key not in keys}


CONFORMANCE: list[tuple[str, str | object, object]] = [
    # (what, the request, the answer: a value, or None for nothing)
    ("an id that is a text", {**GET, "id": "1"}, ok("1")),
    ("an id that is a number", {**GET, "id": 7}, ok(7)),
    ("an id with a fraction", {**GET, "id": 1.5}, ok(1.5)),
    ("an id that is null is an id", {**GET, "id": None}, ok(None)),
    ("members that nobody knows are ignored", {**GET, "trace": 1}, ok(1)),
    ("a notification", without(GET, "id"), None),
    ("a notification that fails", without(GET, "id", method="foobar"), None),
    ("a notification with params by position", without(GET, "id", params=[1]), None),
    ("a method that is not there", {"jsonrpc": "2.0", "method": "foobar", "id": "1"}, bad(-32601, "1")),
    ("an operation that only D-Bus has", {**GET, "method": "aios/task.open_log"}, bad(-32601, 1)),
    ("a name of the core's own", {**GET, "method": "task.get"}, bad(-32601, 1)),
    ("params by position", {**GET, "params": ["task-1"]}, bad(-32602, 1)),
    ("params that are missing", without(GET, "params"), bad(-32602, 1)),
    ("params of the wrong type", {**GET, "params": {"task_id": 1}}, bad(-32602, 1)),
    ("invalid JSON", '{"jsonrpc": "2.0", "method": "foobar, "params": "bar", "baz]', bad(-32700)),
    ("nothing", "", bad(-32700)),
    ("NaN", '{"jsonrpc": "2.0", "method": "a", "id": NaN}', bad(-32700)),
    ("the same key twice", '{"jsonrpc": "2.0", "jsonrpc": "2.0", "method": "a", "id": 1}', bad(-32700)),
    ("nested too deeply", "[" * 2000, bad(-32700)),
    ("an invalid request object", {"jsonrpc": "2.0", "method": 1, "params": "bar"}, bad(-32600)),
    ("another version", {**GET, "jsonrpc": "1.0"}, bad(-32600, 1)),
    ("no version", without(GET, "jsonrpc"), bad(-32600, 1)),
    ("params that are a text", {**GET, "params": "bar"}, bad(-32600, 1)),
    ("an id that is an object", {**GET, "id": {}}, bad(-32600)),
    ("an id that is true", {**GET, "id": True}, bad(-32600)),
    ("a text", "hello", bad(-32700)),
    ("a number", "1", bad(-32600)),
    (
        "a batch, invalid JSON",
        '[{"jsonrpc": "2.0", "method": "sum", "params": [1,2,4], "id": "1"},{"jsonrpc": "2.0", "method"]',
        bad(-32700),
    ),
    ("an empty batch", [], bad(-32600)),
    ("an invalid batch that is not empty", [1], [bad(-32600)]),
    ("an invalid batch", [1, 2, 3], [bad(-32600), bad(-32600), bad(-32600)]),
    (
        "a batch of everything",
        [
            GET,
            without(GET, "id"),
            {"foo": "boo"},
            {"jsonrpc": "2.0", "method": "foo.get", "id": "5"},
            {**GET, "id": "9"},
        ],
        [ok(1), bad(-32600), bad(-32601, "5"), ok("9")],
    ),
    ("a batch of notifications", [without(GET, "id"), without(GET, "id")], None),
    ("a batch that is too large", [GET] * 101, bad(-32600)),
    ("the largest batch", [GET] * 100, [ok(1)] * 100),
]


def shortened(answer: object) -> object:
    """Answers with the error's code in place of the error."""
    if isinstance(answer, list):
        return [shortened(one) for one in answer]
    assert isinstance(answer, dict)
    if "error" in answer:
        assert answer["error"].keys() == {"code", "message", "data"}
        assert answer["error"]["data"]["error_id"].startswith("AIOS-")
        return {**answer, "error": answer["error"]["code"]}
    return answer


@asynccontextmanager
async def connected(
    place: Path, core: StandIn | None = None, *, limits: Limits | None = None, timing: Timing | None = None
) -> AsyncIterator[tuple[Http, StandIn]]:
    """A door with a stand-in behind it, and one connection."""
    core = core or StandIn()
    async with door(place, core, core, limits=limits, timing=timing) as (paths, _), Http.connect(paths.http) as http:
        yield http, core


@pytest.mark.parametrize(
    ("request_", "expected"), [row[1:] for row in CONFORMANCE], ids=[row[0] for row in CONFORMANCE]
)
def test_json_rpc_2_0(place: Path, request_: object, expected: object) -> None:
    async def scenario() -> None:
        text = request_ if isinstance(request_, str) else json.dumps(request_)
        async with connected(place) as (http, _):
            answer = await http.post(text.encode())
            if expected is None:
                assert (answer.status, answer.body) == (204, b"")
            else:
                assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
                assert shortened(answer.json) == expected

    play(scenario())


JSON_HEADERS = {"Content-Type": "application/json"}
POST = "POST /rpc HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
LONG_NAME = {**JSON_HEADERS, "AIOS-Session-Id": "a" * 129}
FAULTS: list[tuple[str, str, str, dict[str, str], bytes, int]] = [
    ("GET of /rpc", "GET", "/rpc", {}, b"", 405),
    ("POST of /events", "POST", "/events", JSON_HEADERS, b"{}", 405),
    ("HEAD of /events", "HEAD", "/events", {}, b"", 405),
    ("OPTIONS, as a browser asks first", "OPTIONS", "/rpc", {}, b"", 405),
    ("another path", "POST", "/", JSON_HEADERS, b"{}", 404),
    ("a path that climbs", "GET", "/../events", {}, b"", 404),
    (
        "a form, as a web page can post",
        "POST",
        "/rpc",
        {"Content-Type": "application/x-www-form-urlencoded"},
        b"a",
        415,
    ),
    ("no type", "POST", "/rpc", {}, b"{}", 415),
    ("a compressed body", "POST", "/rpc", {**JSON_HEADERS, "Content-Encoding": "gzip"}, b"{}", 415),
    ("a web page", "POST", "/rpc", {**JSON_HEADERS, "Origin": "http://example.org"}, b"{}", 403),
    ("too large", "POST", "/rpc", JSON_HEADERS, b" " * (256 * 1024 + 1), 413),
    (
        "a name of a session that is too long",
        "POST",
        "/rpc",
        {**JSON_HEADERS, "AIOS-Session-Id": "a" * 129},
        b"{}",
        400,
    ),
    ("an event id that is none", "GET", "/events", {"Last-Event-ID": "evt-1"}, b"", 400),
    ("a kind of event that is none", "GET", "/events?events=everything", {}, b"", 400),
    ("a word that is mistyped", "GET", "/events?taskid=task-1", {}, b"", 400),
    ("a word that comes twice", "GET", "/events?task_id=task-1&task_id=task-2", {}, b"", 400),
    ("neither yes nor no", "GET", "/events?all_users=yes", {}, b"", 400),
    ("a subscription and more", "GET", "/events?subscription_id=sub-1&task_id=task-1", {}, b"", 400),
    ("a subscription that is not there", "GET", "/events?subscription_id=sub-1", {}, b"", 404),
]


@pytest.mark.parametrize(
    ("method", "target", "headers", "body", "status"), [row[1:] for row in FAULTS], ids=[row[0] for row in FAULTS]
)
def test_faults_of_the_transport(
    place: Path, method: str, target: str, headers: dict[str, str], body: bytes, status: int
) -> None:
    async def scenario() -> None:
        async with connected(place) as (http, core):
            http.send(method, target, headers, body)
            head = await http.head()
            assert head.status == status
            assert not [name for name in head.headers if name.startswith("access-control")]
            assert head.headers["server"] == "aiosd"
            assert head.headers["cache-control"] == "no-store"
            assert [name for name, _, _ in core.calls] == []

    play(scenario())


def test_a_client_that_waits_for_a_word_before_its_body_gets_it(place: Path) -> None:
    async def scenario() -> None:
        async with connected(place) as (http, _):
            body = json.dumps(GET).encode()
            head = f"{POST}Content-Length: {len(body)}"
            http.writer.write(f"{head}\r\nExpect: 100-continue\r\n\r\n".encode())
            assert (await http.head()).status == 100
            http.writer.write(body)
            assert (await http.answer()).json == ok(1)
            http.writer.write(f"{head[:-1]}999999\r\nExpect: 100-continue\r\n\r\n".encode())
            assert (await http.head()).status == 413  # without its body having been asked for

    play(scenario())


def test_a_body_of_unknown_length_has_the_same_limit(place: Path) -> None:
    async def scenario() -> None:
        async with connected(place) as (http, _):
            head = f"{POST}Transfer-Encoding: chunked\r\n\r\n".encode()
            body = json.dumps(GET).encode()
            http.writer.write(head + b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n")
            assert (await http.answer()).json == ok(1)
            http.writer.write(head + b"10000\r\n" + b" " * 0x10000 + b"\r\n")
            for _ in range(4):
                http.writer.write(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
            assert (await http.head()).status == 413

    play(scenario())


@pytest.mark.parametrize(
    "text", [b"hello\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"POST /rpc HTTP/1.1\r\nContent-Length: x\r\n\r\n"]
)
def test_what_is_not_http_is_refused_and_cut_off(place: Path, text: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with connected(place) as (http, _):
            http.writer.write(text)
            assert (await http.head()).status == 400
            rest = await http.reader.read()
            assert b"Traceback" not in rest
        assert not caplog.records  # nobody may fill the journal

    play(scenario())


def test_a_fault_of_ours_shows_nothing_but_that_there_was_one(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        core = StandIn(errors={"task.get": RuntimeError("the secret"), "task.subscribe": RuntimeError("the secret")})
        async with connected(place, core) as (http, _):
            error = (await http.call("aios/task.get", {"task_id": "task-1"}))["error"]
            assert error == {"code": -32603, "message": "Internal error", "data": {"error_id": "AIOS-INTERNAL"}}
            http.send("GET", "/events")
            answer = await http.answer()
            assert (answer.status, answer.body) == (500, b"internal error\n")
        assert caplog.text.count("RuntimeError: the secret") == 2

    play(scenario())


@pytest.mark.parametrize("kind", ErrorKind, ids=lambda kind: kind.name)
def test_every_error_is_told_as_the_table_has_it(place: Path, kind: ErrorKind) -> None:
    async def scenario() -> None:
        error = AiosError(kind, "in words", field="task_id", reason="because", data={"more": 1})
        async with connected(place, StandIn(errors={"task.get": error})) as (http, _):
            told = (await http.call("aios/task.get", {"task_id": "task-1"}))["error"]
            assert told["code"] == kind.value.code
            assert told["message"].startswith(kind.value.message)
            said = {"details": "in words", "field": "task_id", "reason": "because", "more": 1}
            assert told["data"] == {"error_id": kind.value.error_id, **said}

    play(scenario())


def test_the_caller_is_who_the_kernel_says(place: Path) -> None:
    async def scenario() -> None:
        core = StandIn()
        async with door(place, core, core) as (paths, _):
            with as_user(4711):
                async with Http.connect(paths.http) as http:
                    pass_for = {"X-Remote-User": "root", "Authorization": "Basic cm9vdDpyb290", "X-AIOS-Uid": "0"}
                    await http.call("aios/task.get", {"task_id": "task-1", "uid": 0}, **pass_for)
        (_, caller, _) = core.calls[0]
        assert caller.uid == 4711
        assert isinstance(caller.subject, ProcessSubject)
        assert (caller.subject.uid, caller.subject.pid) == (4711, os.getpid())
        assert caller.subject.pidfd is not None
        assert caller.subject.start_time == _own_start_time()

    play(scenario())


def _own_start_time() -> int:
    with open("/proc/self/stat") as file:  # noqa: PTH123 - read before anything else happens
        return int(file.read().rpartition(")")[2].split()[19])


def test_a_person_is_asked_only_when_the_caller_says_so(place: Path) -> None:
    async def scenario() -> None:
        async with connected(place) as (http, core):
            await http.call("aios/task.get", {"task_id": "task-1"})
            await http.call("aios/task.get", {"task_id": "task-1"}, **{"X-AIOS-Interactive": "1"})
            await http.call("aios/task.get", {"task_id": "task-1"}, **{"X-AIOS-Interactive": "0"})
            await http.call("aios/initialize", {"interactive": True})
            await http.call("aios/task.get", {"task_id": "task-1"})
            assert [caller.interactive for _, caller, _ in core.calls] == [False, True, False, False, False]

    play(scenario())


def test_a_client_that_leaves_takes_its_call_back(place: Path) -> None:
    async def scenario() -> None:
        core = StandIn(gates={"task.wait": asyncio.Event()})
        async with door(place, core, core) as (paths, served):
            async with Http.connect(paths.http) as http:
                body = {**GET, "method": "aios/task.wait"}
                http.send("POST", "/rpc", JSON_HEADERS, json.dumps(body).encode())
                assert await core.entered.get() == "task.wait"
            assert await core.cancelled.get() == "task.wait"
            await eventually(lambda: not served._connections)

    play(scenario())


def test_slow_clients_are_not_waited_for(place: Path) -> None:
    timing = Timing(first_request=0.1, body=0.1)

    async def scenario() -> None:
        async with connected(place, timing=timing) as (http, _):
            assert await http.reader.read() == b""  # never said a word
        async with connected(place, timing=timing) as (http, _):
            http.writer.write(
                b"POST /rpc HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"
            )
            assert (await http.head()).status == 408

    play(scenario())


def test_a_user_has_so_many_connections_and_calls(place: Path) -> None:
    limits = Limits(connections_per_user=2, calls=CallLimits(per_user=1))

    async def scenario() -> None:
        core = StandIn(gates={"task.wait": asyncio.Event()})
        async with door(place, core, core, limits=limits) as (paths, _):
            with as_user(4711):
                one = await asyncio.open_unix_connection(paths.http)
                two = await asyncio.open_unix_connection(paths.http)
                three = await asyncio.open_unix_connection(paths.http)
            assert await three[0].read() == b""
            first, second = Http(*one), Http(*two)
            waiting = asyncio.create_task(first.call("aios/task.wait", {"task_id": "task-1"}))
            assert await core.entered.get() == "task.wait"
            error = (await second.call("aios/task.get", {"task_id": "task-1"}))["error"]
            assert error["data"]["error_id"] == "AIOS-RATE-LIMITED"
            async with Http.connect(paths.http) as root:
                assert "result" in await root.call("aios/task.get", {"task_id": "task-1"})
            core.gates["task.wait"].set()
            assert "result" in await waiting
            for _, writer in (one, two, three):
                writer.close()

    play(scenario())


def test_who_waits_for_everything_can_still_do_something_about_it(place: Path) -> None:
    """Calls that only wait take no place of those that are worked on, and have a limit of their own."""
    limits = Limits(calls=CallLimits(per_user=1, total=1, waiting_per_user=2, waiting=2))

    async def scenario() -> None:
        async with (
            core(place, schedule=False) as aios,
            door(place, aios.manager, aios.hub, limits=limits) as (paths, _),
        ):
            tasks = [await aios.create() for _ in range(2)]

            async def call(method: str, **params: object) -> Json:
                async with Http.connect(paths.http) as http:
                    answer: Json = await http.call(f"aios/{method}", params)
                    return answer

            async def patiently(*busy: str, method: str, **params: object) -> Json:
                """Again while the answer says one of these; an answer may be here before the place of its call is."""
                while True:
                    answer = await call(method, **params)
                    if not any(word in json.dumps(answer.get("error")) for word in ("being answered", *busy)):
                        return answer
                    await asyncio.sleep(0.02)

            full = "2 calls of your user are waiting"

            async def both_wait() -> None:
                """Until there is no place for a third, not even for a moment."""
                while True:
                    answer = await patiently(method="task.wait", task_id=tasks[0], timeout_ms=1)
                    if "error" in answer and answer["error"]["data"]["details"] == full:
                        return
                    await asyncio.sleep(0.02)

            # What the first call imports may be in a home that the user below cannot read.
            assert "result" in await call("task.get", task_id=tasks[0])
            with as_user(1000):
                waiting = [asyncio.create_task(patiently(full, method="task.wait", task_id=task)) for task in tasks]
                await both_wait()
                refused = await patiently(method="task.create", capability_id=PLAIN)
                assert refused["error"]["data"]["details"] == full
                assert await aios.count("tasks") == 2, "one that nobody could wait for was not made"
                for task in tasks:
                    assert (await patiently(method="task.cancel", task_id=task))["result"]["status"] == "canceled"
                assert {(await one)["result"]["status"] for one in waiting} == {"canceled"}
                assert (await patiently(method="task.wait", task_id=tasks[0]))["result"]["status"] == "canceled"

    play(scenario())


def test_callers_wait_in_the_queue_of_the_socket_until_the_door_opens(place: Path) -> None:
    async def scenario() -> None:
        core = StandIn()
        sock = listening(place / "s")
        again = sock.dup()
        async with Http.connect(place / "s") as early:
            waiting = asyncio.create_task(early.call("aios/task.get", {"task_id": "task-1"}))
            async with RpcDoor(core, core, {Speech.HTTP: sock}) as served:
                await asyncio.sleep(0.05)
                assert not core.calls
                served.open()
                assert "result" in await waiting
        async with Http.connect(place / "s") as between:
            waiting = asyncio.create_task(between.call("aios/task.get", {"task_id": "task-1"}))
            async with RpcDoor(core, core, {Speech.HTTP: again}) as served:
                served.open()
                assert "result" in await waiting

    play(scenario())
