"""Event streams: exactly what was asked for, once, in order, whoever drops when; and slow readers, who are told."""

from __future__ import annotations

import asyncio
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from aiosd.model.event import Event as Committed
from aiosd.model.event import Kind, Source
from aiosd.rpc.limits import Allowance, Timing
from aiosd.rpc.subscriptions import Subscriptions
from aiosd.store import journal
from tests.rpc.serving import Event, EventStream, Http, door
from tests.rpc.standin import TASK, StandIn, as_user, event
from tests.unit.core.rig import Core, core, eventually, play

if TYPE_CHECKING:
    from aiosd.store.database import Transaction


def ids(events: list[Event]) -> list[int]:
    return [int(one.id.removeprefix("evt-")) for one in events]


async def commit(aios: Core, count: int) -> None:
    """So many progress events, in one transaction, as the core writes them."""
    made = Committed(0, TASK, None, 0, Source.WORKER, "task.progress", Kind.PROGRESS, 0, {"progress": {"percent": 1}})

    def write(transaction: Transaction) -> None:
        for _ in range(count):
            journal.append_event(transaction, made)

    await aios.database.write(write)


@settings(max_examples=40, deadline=None)
@given(
    batches=st.lists(st.integers(1, 4), min_size=1, max_size=8),
    drops=st.lists(st.integers(0, 6), max_size=6),
    way=st.sampled_from(["query", "header"]),
)
def test_a_client_that_drops_anywhere_misses_nothing_and_hears_nothing_twice(
    batches: list[int], drops: list[int], way: str
) -> None:
    """`batches`: commits while the client reads; `drops`: after how many events each connection ends."""
    total = sum(batches)

    async def scenario(place: Path) -> None:
        async with core(place, schedule=False) as aios, door(place, aios.manager, aios.hub) as (paths, served):
            heard: list[int] = []

            async def happen() -> None:
                for size in batches:
                    await commit(aios, size)

            writing = asyncio.create_task(happen())
            for drop in [*drops, total]:
                last = f"evt-{heard[-1] if heard else 0:016d}"
                query, headers = (f"&last_event_id={last}", {}) if way == "query" else ("", {"Last-Event-ID": last})
                async with EventStream.open(paths.http, f"events=progress{query}", **headers) as stream:
                    heard += ids(await stream.take(min(drop, total - len(heard))))
            await writing
            assert heard == list(range(1, total + 1))
            await eventually(lambda: len(served.subscriptions) == 0)

    with tempfile.TemporaryDirectory(prefix="aiosd-rpc-") as folder:
        play(scenario(Path(folder)))


@settings(max_examples=30, deadline=None)
@given(steps=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=6))
def test_a_subscription_goes_on_where_its_last_stream_stopped(steps: list[tuple[int, int]]) -> None:
    """Each step: so many events happen while nobody listens, then so many while somebody does, who then leaves."""

    async def scenario(place: Path) -> None:
        stand_in = StandIn()
        async with door(place, stand_in, stand_in) as (paths, served), Http.connect(paths.http) as http:
            made = (await http.call("aios/task.subscribe", {"task_id": TASK}))["result"]["subscription_id"]
            heard: list[int] = []
            for alone, together in steps:
                stand_in.happen(alone)
                async with EventStream.open(paths.http, f"subscription_id={made}") as stream:
                    stand_in.happen(together)
                    heard += ids(await stream.take(alone + together))
                await eventually(lambda: served.subscriptions.find(0, made).feed is None)
            assert heard == list(range(1, len(stand_in.log) + 1))

    with tempfile.TemporaryDirectory(prefix="aiosd-rpc-") as folder:
        play(scenario(Path(folder)))


def test_a_reader_that_is_too_slow_is_told_what_it_lost(place: Path) -> None:
    async def scenario() -> None:
        stand_in = StandIn()
        async with door(place, stand_in, stand_in, allowance=Allowance(events=100)) as (paths, _):
            async with EventStream.open(paths.http, f"task_id={TASK}") as stream:
                stand_in.happen(5000, size=2000)  # 10 MB: neither the queue nor the socket takes that
                await asyncio.sleep(0)
                stand_in.happen(1)
                heard: list[Event] = []
                async for one in stream:
                    heard.append(one)
                    if one.type == "gap" or ids([one]) == [5001]:
                        break
            gaps = [one for one in heard if one.type == "gap"]
            assert gaps
            got = {int(one.id.removeprefix("evt-")) for one in heard if one.type != "gap"}
            lost: set[int] = set()
            for gap in gaps:
                assert gap.json.keys() == {"from", "to", "count"}
                first, last = (int(gap.json[end].removeprefix("evt-")) for end in ("from", "to"))
                assert gap.json["count"] == last - first + 1
                lost |= set(range(first, last + 1))
            assert not got & lost
            assert got | lost == set(range(1, max(got | lost) + 1))
            # and what was lost is to be had
            first_gap = gaps[0].json
            before = f"evt-{int(first_gap['from'].removeprefix('evt-')) - 1:016d}"
            async with EventStream.open(paths.http, f"task_id={TASK}", **{"Last-Event-ID": before}) as stream:
                (again,) = await stream.take(1)
                assert again.id == first_gap["from"]

    play(scenario())


def test_nobody_waits_for_a_reader_that_reads_nothing(place: Path) -> None:
    async def scenario() -> None:
        stand_in = StandIn()
        async with door(place, stand_in, stand_in, allowance=Allowance(event_timeout=0.2)) as (paths, served):
            with socket.socket(socket.AF_UNIX) as deaf:
                deaf.connect(str(paths.http))
                deaf.sendall(f"GET /events?task_id={TASK} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
                await eventually(lambda: len(served.subscriptions) == 1)
                stand_in.happen(2000, size=2000)
                async with Http.connect(paths.http) as other:
                    assert "result" in await other.call("aios/task.get", {"task_id": TASK})
                await eventually(lambda: len(served.subscriptions) == 0)  # it was cut off

    play(scenario())


def test_silence_is_broken_by_comments(place: Path) -> None:
    async def scenario() -> None:
        stand_in = StandIn()
        async with door(place, stand_in, stand_in, timing=Timing(heartbeat=0.02)) as (paths, _):
            async with EventStream.open(paths.http, f"task_id={TASK}") as stream:
                asyncio.get_running_loop().call_later(0.1, stand_in.happen, 1)
                await stream.take(1)
                assert stream.parser.comments >= 2
                assert stream.parser.retry == 100

    play(scenario())


def test_whoever_takes_up_a_subscription_shuts_out_who_had_it(place: Path) -> None:
    async def scenario() -> None:
        stand_in = StandIn()
        async with door(place, stand_in, stand_in) as (paths, _), Http.connect(paths.http) as http:
            made = (await http.call("aios/task.subscribe", {"task_id": TASK}))["result"]["subscription_id"]
            async with EventStream.open(paths.http, f"subscription_id={made}") as first:
                stand_in.happen(1)
                assert ids(await first.take(1)) == [1]
                async with EventStream.open(paths.http, f"subscription_id={made}") as second:
                    assert [one async for one in first] == []  # ended, properly
                    stand_in.happen(1)
                    assert ids(await second.take(1)) == [2]

    play(scenario())


def test_a_stream_ends_with_its_subscription(place: Path) -> None:
    async def scenario() -> None:
        stand_in = StandIn()
        async with door(place, stand_in, stand_in) as (paths, _), Http.connect(paths.http) as http:
            made = (await http.call("aios/task.subscribe", {"task_id": TASK}))["result"]["subscription_id"]
            async with EventStream.open(paths.http, f"subscription_id={made}") as stream:
                await http.call("aios/task.unsubscribe", {"subscription_id": made})
                assert [one async for one in stream] == []
            http.send("GET", f"/events?subscription_id={made}")
            gone = await http.answer()
            assert (gone.status, gone.json["error"]["data"]["error_id"]) == (404, "AIOS-SUBSCRIPTION-NOT-FOUND")

    play(scenario())


def test_streams_end_properly_when_the_daemon_stops(place: Path) -> None:
    async def scenario() -> None:
        stand_in = StandIn()
        async with door(place, stand_in, stand_in) as (paths, _):
            stream = Http(*await asyncio.open_unix_connection(paths.http))
            stream.send("GET", f"/events?task_id={TASK}")
            assert (await stream.head()).status == 200
        # Its last word: who comes back need not wait, as the next daemon's socket is there already.
        assert await stream.chunked() == b"retry: 100\n\nretry: 0\n\n"
        stream.writer.close()

    play(scenario())


def test_a_subscription_that_nobody_listens_to_is_forgotten(place: Path) -> None:
    async def scenario() -> None:
        stand_in, table = StandIn(), Subscriptions(idle_seconds=0.05)
        async with door(place, stand_in, stand_in, subscriptions=table) as (paths, _), Http.connect(paths.http) as http:
            made = (await http.call("aios/task.subscribe", {"task_id": TASK}))["result"]["subscription_id"]
            async with EventStream.open(paths.http, f"subscription_id={made}"):
                await asyncio.sleep(0.15)
                assert len(table) == 1  # somebody listens
            await eventually(lambda: len(table) == 0)

    play(scenario())


def test_another_users_subscription_is_not_there(place: Path) -> None:
    async def scenario() -> None:
        stand_in = StandIn()
        async with door(place, stand_in, stand_in) as (paths, _), Http.connect(paths.http) as http:
            made = (await http.call("aios/task.subscribe", {"task_id": TASK}))["result"]["subscription_id"]
            with as_user(4711):
                connections = [await asyncio.open_unix_connection(paths.http) for _ in range(3)]
            asking, other, following = (Http(*connection) for connection in connections)
            asking.send("GET", f"/events?subscription_id={made}")
            answer = await asking.answer()
            assert (answer.status, answer.headers["connection"]) == (404, "close")
            refused = await other.call("aios/task.unsubscribe", {"subscription_id": made})
            assert refused["error"]["data"]["error_id"] == "AIOS-SUBSCRIPTION-NOT-FOUND"
            stand_in.commit(event(1), event(2, uid=4711))
            following.send("GET", f"/events?task_id={TASK}", {"Last-Event-ID": "evt-0000000000000000"})
            assert (await following.head()).status == 200
            assert ids(await EventStream(following).take(1)) == [2]
            for one in (asking, other, following):
                one.writer.close()

    play(scenario())


def test_shutdown_ends_one_session_and_leaves_others(place: Path) -> None:
    async def scenario() -> None:
        stand_in = StandIn()
        async with door(place, stand_in, stand_in) as (paths, served), Http.connect(paths.http) as http:
            mine, other = {"AIOS-Session-Id": "ps-a"}, {"AIOS-Session-Id": "ps-b"}
            for session in (mine, mine, other, {}):
                await http.call("aios/task.subscribe", {"task_id": TASK}, **session)
            ended = await http.call("aios/shutdown", {"reason": "client_exit"}, **mine)
            assert ended["result"]["subscriptions_ended"] == 2
            assert len(served.subscriptions) == 2

    play(scenario())


def test_a_user_has_so_many_subscriptions(place: Path) -> None:
    async def scenario() -> None:
        stand_in = StandIn()
        async with door(place, stand_in, stand_in, subscriptions=Subscriptions(per_user=lambda: 2)) as (paths, _):
            with as_user(4711):
                connection = await asyncio.open_unix_connection(paths.http)
            http = Http(*connection)
            for _ in range(2):
                assert "result" in await http.call("aios/task.subscribe", {"task_id": TASK})
            assert (await http.call("aios/task.subscribe", {}))["error"]["data"]["error_id"] == "AIOS-RATE-LIMITED"
            http.send("GET", f"/events?task_id={TASK}")
            assert (await http.answer()).status == 429
            http.writer.close()

    play(scenario())


def test_several_subscriptions_for_one_task_choose_their_events(place: Path) -> None:
    async def scenario() -> None:
        async with core(place, schedule=False) as aios, door(place, aios.manager, aios.hub) as (paths, _):
            start = {"Last-Event-ID": "evt-0000000000000000"}
            task = await aios.create()
            await aios.invoke("task.cancel", {"task_id": task})
            for choice, kinds in {"status": {"task.status"}, "status,result": {"task.status", "task.result"}}.items():
                async with EventStream.open(paths.http, f"task_id={task}&events={choice}", **start) as stream:
                    seen = await stream.take(2)
                    assert {one.type for one in seen} <= kinds
                    assert seen[-1].json["status"] == "canceled"

    play(scenario())


def test_an_event_id_of_the_future_is_refused(place: Path) -> None:
    async def scenario() -> None:
        async with core(place, schedule=False) as aios, door(place, aios.manager, aios.hub) as (paths, _):
            async with Http.connect(paths.http) as http:
                http.send("GET", "/events", {"Last-Event-ID": "evt-0000000000000009"})
                answer = await http.answer()
                assert (answer.status, answer.json["error"]["data"]["field"]) == (400, "last_event_id")

    play(scenario())
