"""JSON-RPC line by line: answers, events as notifications, order, and clients that leave or do not read."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiosd.rpc.limits import Allowance
from tests.rpc.serving import Json, door
from tests.rpc.standin import TASK, StandIn
from tests.unit.core.rig import core, eventually, play

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@dataclass
class Line:
    """A client of a few lines."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @classmethod
    @asynccontextmanager
    async def connect(cls, path: Path) -> AsyncIterator[Line]:
        reader, writer = await asyncio.open_unix_connection(path, limit=1 << 22)
        try:
            yield cls(reader, writer)
        finally:
            writer.close()

    def send(self, method: str, params: Json | None = None, identifier: int | None = 1) -> None:
        call: Json = {"jsonrpc": "2.0", "method": method, "params": params or {}}
        if identifier is not None:
            call["id"] = identifier
        self.writer.write(json.dumps(call).encode() + b"\n")

    async def receive(self) -> Json:
        answer: Json = json.loads(await self.reader.readuntil())
        assert answer.pop("jsonrpc") == "2.0"
        return answer

    async def call(self, method: str, params: Json | None = None) -> Json:
        self.send(method, params)
        return await self.receive()


def test_answers_come_as_they_are_ready(place: Path) -> None:
    async def scenario() -> None:
        stand_in = StandIn(gates={"task.wait": asyncio.Event()})
        async with door(place, stand_in, stand_in) as (paths, _), Line.connect(paths.lines) as line:
            line.send("aios/task.wait", {"task_id": TASK}, 1)
            line.send("aios/initialized", identifier=None)
            line.send("aios/task.get", {"task_id": TASK}, 2)
            assert (await line.receive())["id"] == 2
            stand_in.gates["task.wait"].set()
            assert (await line.receive())["id"] == 1

    play(scenario())


def test_a_batch_is_one_line_and_an_empty_one_is_nothing(place: Path) -> None:
    async def scenario() -> None:
        stand_in = StandIn()
        async with door(place, stand_in, stand_in) as (paths, _), Line.connect(paths.lines) as line:
            get = {"jsonrpc": "2.0", "id": 1, "method": "aios/task.get", "params": {"task_id": TASK}}
            line.writer.write(b"\n  \r\n" + json.dumps([get, get]).encode() + b"\r\n")
            assert [one["id"] for one in json.loads(await line.reader.readuntil())] == [1, 1]

    play(scenario())


def test_events_follow_the_answer_that_grants_them(place: Path) -> None:
    async def scenario() -> None:
        async with core(place) as aios, door(place, aios.manager, aios.hub) as (paths, _):
            async with Line.connect(paths.lines) as line:
                line.send("aios/task.subscribe", {"events": ["status"]}, 1)
                line.send("aios/task.create", {"capability_id": "test.plain.run", "options": {"async": True}}, 2)
                granted = await line.receive()
                subscription = granted["result"]["subscription_id"]
                seen: list[Json] = []
                while not seen or seen[-1]["params"]["event"] != "task.result":
                    told = await line.receive()
                    if told.get("id") != 2:
                        assert told["method"] == "aios/event"
                        assert told["params"].keys() == {"subscription_id", "event", "id", "data"}
                        assert told["params"]["subscription_id"] == subscription
                        seen.append(told)
                ids = [one["params"]["id"] for one in seen]
                assert ids == sorted(set(ids))
                assert seen[0]["params"]["data"]["status"] == "pending"
                # what was missed comes in the answer, then what happens
                again = (await line.call("aios/task.resubscribe", {"last_event_id": ids[0], "events": ["status"]}))[
                    "result"
                ]
                assert [one["id"] for one in again["missed_events"]] == ids[1:]

    play(scenario())


def test_what_happens_while_a_subscription_is_made_is_told_after_its_answer(place: Path) -> None:
    async def scenario() -> None:
        stand_in = StandIn(gates={"task.subscribe": asyncio.Event()})
        async with door(place, stand_in, stand_in) as (paths, _), Line.connect(paths.lines) as line:
            line.send("aios/task.subscribe", {"task_id": TASK})
            await stand_in.entered.get()
            stand_in.happen(2)
            stand_in.gates["task.subscribe"].set()
            assert "result" in await line.receive()
            stand_in.happen(1)
            told = [(await line.receive())["params"]["id"] for _ in range(3)]
            assert told == [f"evt-{number:016d}" for number in (1, 2, 3)]

    play(scenario())


def test_more_than_one_answer_takes_is_asked_for_again(place: Path) -> None:
    async def scenario() -> None:
        stand_in = StandIn()
        stand_in.happen(5)
        async with door(place, stand_in, stand_in) as (paths, _), Line.connect(paths.lines) as line:
            last, heard = f"evt-{0:016d}", []
            while True:
                asked = {"task_id": TASK, "last_event_id": last, "limit": 2}
                answer = (await line.call("aios/task.resubscribe", asked))["result"]
                heard += [one["id"] for one in answer["missed_events"]]
                last = answer["last_event_id"]
                if not answer["more"]:
                    break
                assert "subscription_id" not in answer
            stand_in.happen(1)
            heard.append((await line.receive())["params"]["id"])
            assert heard == [f"evt-{number:016d}" for number in range(1, 7)]

    play(scenario())


def test_a_connection_takes_its_subscriptions_and_calls_along(place: Path) -> None:
    async def scenario() -> None:
        stand_in = StandIn(gates={"task.wait": asyncio.Event()})
        async with door(place, stand_in, stand_in) as (paths, served):
            async with Line.connect(paths.lines) as line:
                await line.call("aios/task.subscribe", {"task_id": TASK})
                line.send("aios/task.wait", {"task_id": TASK})
                assert len(served.subscriptions) == 1
                await eventually(lambda: "task.wait" in [name for name, _, _ in stand_in.calls])
            assert await stand_in.cancelled.get() == "task.wait"
            await eventually(lambda: len(served.subscriptions) == 0)

    play(scenario())


def test_a_client_that_has_said_its_last_word_still_gets_its_answers(place: Path) -> None:
    async def scenario() -> None:
        stand_in = StandIn(gates={"task.wait": asyncio.Event()})
        async with door(place, stand_in, stand_in) as (paths, _), Line.connect(paths.lines) as line:
            line.send("aios/task.wait", {"task_id": TASK})
            line.writer.write(
                b'{"jsonrpc":"2.0","id":2,"method":"aios/task.get","params":{"task_id":"task-1"}}'
            )  # no newline
            line.writer.write_eof()
            assert (await line.receive())["id"] == 2
            stand_in.gates["task.wait"].set()
            assert (await line.receive())["id"] == 1
            assert await line.reader.read() == b""

    play(scenario())


def test_no_more_is_read_than_is_worked_on(place: Path) -> None:
    async def scenario() -> None:
        stand_in = StandIn(gates={"task.wait": asyncio.Event()})
        few = Allowance(calls_per_connection=4)
        async with door(place, stand_in, stand_in, allowance=few) as (paths, _), Line.connect(paths.lines) as line:
            for number in range(20):
                line.send("aios/task.wait", {"task_id": TASK}, number)
            await asyncio.sleep(0.1)
            assert len(stand_in.calls) == 4
            stand_in.gates["task.wait"].set()
            assert {(await line.receive())["id"] for _ in range(20)} == set(range(20))

    play(scenario())


def test_a_line_that_is_too_long_is_the_last(place: Path) -> None:
    async def scenario() -> None:
        stand_in = StandIn()
        async with door(place, stand_in, stand_in) as (paths, _), Line.connect(paths.lines) as line:
            line.writer.write(b"[" * (1 << 19))
            answer = await line.receive()
            assert answer["error"]["code"] == -32600
            assert await line.reader.read() == b""

    play(scenario())


def test_a_client_that_does_not_read_is_told_of_the_gap_or_left(place: Path) -> None:
    async def scenario() -> None:
        stand_in = StandIn()
        async with (
            door(place, stand_in, stand_in, allowance=Allowance(events=50)) as (paths, _),
            Line.connect(paths.lines) as line,
        ):
            await line.call("aios/task.subscribe", {"task_id": TASK})
            stand_in.happen(200)
            told = [(await line.receive())["params"] for _ in range(51)]
            assert [one["id"] for one in told[:50]] == [f"evt-{number:016d}" for number in range(1, 51)]
            gap = {"from": f"evt-{51:016d}", "to": f"evt-{200:016d}", "count": 150}
            assert told[50] == {"subscription_id": told[0]["subscription_id"], "event": "gap", "data": gap}
        async with door(place, stand_in, stand_in, allowance=Allowance(event_timeout=0.2)) as (paths, served):
            with socket.socket(socket.AF_UNIX) as deaf:
                deaf.connect(str(paths.lines))
                deaf.sendall(b'{"jsonrpc":"2.0","id":1,"method":"aios/task.subscribe"}\n')
                await eventually(lambda: len(served.subscriptions) == 1)
                stand_in.happen(2000, size=2000)
                await eventually(lambda: len(served.subscriptions) == 0)

    play(scenario())


def test_a_connection_says_once_that_its_person_may_be_asked(place: Path) -> None:
    async def scenario() -> None:
        stand_in = StandIn()
        async with door(place, stand_in, stand_in) as (paths, _), Line.connect(paths.lines) as line:
            await line.call("aios/task.get", {"task_id": TASK})
            await line.call("aios/initialize", {"interactive": True})
            await line.call("aios/task.get", {"task_id": TASK})
            assert [caller.interactive for _, caller, _ in stand_in.calls] == [False, False, True]

    play(scenario())


def test_a_connection_ends_only_its_own_subscriptions(place: Path) -> None:
    async def scenario() -> None:
        stand_in = StandIn()
        async with door(place, stand_in, stand_in) as (paths, served), Line.connect(paths.lines) as one:
            async with Line.connect(paths.lines) as two:
                made = (await one.call("aios/task.subscribe", {"task_id": TASK}))["result"]["subscription_id"]
                refused = await two.call("aios/task.unsubscribe", {"subscription_id": made})
                assert refused["error"]["data"]["error_id"] == "AIOS-SUBSCRIPTION-NOT-FOUND"
                assert (await two.call("aios/shutdown"))["result"]["subscriptions_ended"] == 0
            assert len(served.subscriptions) == 1
            assert (await one.call("aios/shutdown"))["result"]["subscriptions_ended"] == 1

    play(scenario())
