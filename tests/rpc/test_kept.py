"""Subscriptions made by a call over HTTP outlive the daemon: what was missed comes once, and what ended is gone."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiosd.auth.decision import Decision
from aiosd.core.kept_subscriptions import KeptSubscriptions
from aiosd.model.event import Event, Kind, Source
from aiosd.rpc.subscriptions import Subscriptions
from aiosd.store import journal
from aiosd.store.errors import StoreError, StoreFailure
from tests.rpc.serving import EventStream, Http, Json, Sockets, door
from tests.rpc.standin import as_user
from tests.unit.core.fakelauncher import FakeLauncher
from tests.unit.core.rig import Core, daemon, eventually, play

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aiosd.model.jsontext import JsonObject
    from aiosd.rpc.subscriptions import Entry
    from aiosd.store.database import Transaction

TASK = "task-01jdxg3v7m9q2w4e6r8t0y1abc"
OWN: Json = {"events": ["progress"]}


@dataclass
class Life:
    """One life of the daemon, with a connection to it."""

    core: Core
    sockets: Sockets
    subscriptions: Subscriptions
    http: Http

    async def subscribe(self, params: Json | None = None, **headers: str) -> str:
        made = await self.http.call("aios/task.subscribe", OWN if params is None else params, **headers)
        return str(made["result"]["subscription_id"])

    async def commit(self, count: int) -> None:
        made = Event(0, TASK, None, 0, Source.WORKER, "task.progress", Kind.PROGRESS, 0, {"progress": {"percent": 1}})

        def write(transaction: Transaction) -> None:
            for _ in range(count):
                journal.append_event(transaction, made)

        await self.core.database.write(write)

    async def hear(self, made: str, count: int, last: int | None = None) -> list[int]:
        headers = {} if last is None else {"Last-Event-ID": f"evt-{last:016d}"}
        async with EventStream.open(self.sockets.http, f"subscription_id={made}", **headers) as stream:
            heard = [int(one.id.removeprefix("evt-")) for one in await stream.take(count)]
        await eventually(lambda: self.subscriptions.find(0, made).feed is None)
        return heard

    async def status(self, made: str) -> int:
        async with Http.connect(self.sockets.http) as http:  # which is the stream's alone, or its refusal's
            http.send("GET", f"/events?subscription_id={made}")
            return (await http.answer()).status


@asynccontextmanager
async def life(place: Path, *, per_user: int = 64, idle_seconds: float = 300.0) -> AsyncIterator[Life]:
    launcher = FakeLauncher(place / "launcher")
    async with launcher.serving(), daemon(place, launcher, schedule=False) as core:
        kept = Subscriptions(
            per_user=lambda: per_user, idle_seconds=idle_seconds, keeper=KeptSubscriptions(core.database)
        )  # fmt: skip
        async with (
            door(place, core.manager, core.hub, subscriptions=kept) as (paths, _),
            Http.connect(paths.http) as http,
        ):
            yield Life(core, paths, kept, http)


@settings(max_examples=8, deadline=None)
@given(
    lives=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=4),
)
def test_a_client_that_names_its_last_event_hears_each_once_through_any_restarts(
    lives: list[tuple[int, int, int]],
) -> None:
    """Each life: so many events before somebody listens, so many of them heard, so many after."""

    async def scenario(place: Path) -> None:
        made, heard, total = "", list[int](), 0
        for before, taken, after in lives:
            async with life(place) as now:
                if not made:
                    made = await now.subscribe()
                await now.commit(before)
                total += before
                some = min(taken, total - len(heard))
                heard += await now.hear(made, some, heard[-1] if heard else None)
                await now.commit(after)
                total += after
        async with life(place) as now:
            heard += await now.hear(made, total - len(heard), heard[-1] if heard else None)
        assert heard == list(range(1, total + 1))

    with tempfile.TemporaryDirectory(prefix="aiosd-rpc-") as folder:
        play(scenario(Path(folder)))


def test_one_that_was_never_listened_to_owes_everything_since_it_was_made(place: Path) -> None:
    async def scenario() -> None:
        async with life(place) as now:
            await now.commit(3)
            made = await now.subscribe()
            after_two = await now.http.call("aios/task.resubscribe", {**OWN, "last_event_id": f"evt-{2:016d}"})
            await now.commit(2)
        async with life(place) as now:
            await now.commit(1)
            assert await now.hear(made, 3) == [4, 5, 6]
            # The third was in the answer already.
            assert await now.hear(after_two["result"]["subscription_id"], 3) == [4, 5, 6]

    play(scenario())


def test_a_feed_outlives_the_daemon_too(place: Path) -> None:
    async def scenario() -> None:
        async with life(place) as now:
            made = (await now.http.call("aios/feed.subscribe", {"feed": "task_feed"}))["result"]["subscription_id"]
            await now.commit(1)
        async with life(place) as now:
            async with EventStream.open(now.sockets.http, f"subscription_id={made}") as stream:
                (one,) = await stream.take(1)
                assert (one.type, one.json["source"]) == ("task.progress", "worker")

    play(scenario())


@asynccontextmanager
async def connected_as(now: Life, uid: int) -> AsyncIterator[Http]:
    """A connection of that user, by the daemon that goes on as it was."""
    async with AsyncExitStack() as stack:
        with as_user(uid):
            http = await stack.enter_async_context(Http.connect(now.sockets.http))
        yield http


def test_it_is_still_its_users_alone_and_visibility_is_looked_at_again(place: Path) -> None:
    async def scenario() -> None:
        async with life(place) as now, connected_as(now, 1001) as http:
            theirs = await now.core.create()  # a task of user 1000
            followed = (await http.call("aios/task.subscribe", {"task_id": theirs}))["result"]["subscription_id"]
        async with life(place) as now:
            assert await now.status(followed) == 404  # root's own are others
            refused = await now.http.call("aios/task.unsubscribe", {"subscription_id": followed})
            assert refused["error"]["data"]["error_id"] == "AIOS-SUBSCRIPTION-NOT-FOUND"
            now.core.authority.otherwise = Decision.DENIED
            async with connected_as(now, 1001) as http:
                http.send("GET", f"/events?subscription_id={followed}")
                answer = await http.answer()
                assert (answer.status, answer.json["error"]["data"]["error_id"]) == (404, "AIOS-TASK-NOT-FOUND")

    play(scenario())


@pytest.mark.parametrize("how", ["unsubscribe", "shutdown", "time"])
def test_what_has_ended_does_not_come_back(place: Path, how: str) -> None:
    async def scenario() -> None:
        async with life(place, idle_seconds=0.05 if how == "time" else 300.0) as now:
            session = {"AIOS-Session-Id": "mine"}
            made = await now.subscribe(OWN, **session)
            if how == "unsubscribe":
                await now.http.call("aios/task.unsubscribe", {"subscription_id": made})
            elif how == "shutdown":
                ended = await now.http.call("aios/shutdown", {}, **session)
                assert ended["result"]["subscriptions_ended"] == 1
            await eventually(lambda: len(now.subscriptions) == 0)
        async with life(place) as now:
            assert len(now.subscriptions) == 0
            assert await now.status(made) == 404
            assert await now.core.count("subscriptions") == 0

    play(scenario())


@pytest.mark.parametrize("granted", ["", "{", "{}", '{"subscription_id": 1}', '{"feed": "other"}'])
def test_one_that_cannot_be_read_keeps_nobody_out(place: Path, granted: str) -> None:
    async def scenario() -> None:
        async with life(place) as now:
            spoilt, made = await now.subscribe(), await now.subscribe()
            await now.core.database.write(
                lambda transaction: (
                    transaction.execute("UPDATE subscriptions SET granted = ? WHERE id = ?", (granted, spoilt)).rowcount
                )
            )
            await now.commit(1)
        async with life(place) as now:
            assert await now.status(spoilt) == 404
            assert await now.hear(made, 1) == [1]
            await now.subscriptions.settled()
            assert await now.core.count("subscriptions") == 1

    play(scenario())


def test_one_that_nobody_takes_up_after_a_restart_lapses(place: Path) -> None:
    async def scenario() -> None:
        async with life(place) as now:
            await now.subscribe()
        async with life(place, idle_seconds=0.05) as now:
            await eventually(lambda: len(now.subscriptions) == 0)
            await now.subscriptions.settled()
            assert await now.core.count("subscriptions") == 0

    play(scenario())


def test_those_of_earlier_lives_count(place: Path) -> None:
    async def scenario() -> None:
        async with life(place, per_user=2) as now, connected_as(now, 1000) as http:
            for _ in range(2):
                assert "result" in await http.call("aios/task.subscribe", OWN)
        async with life(place, per_user=2) as now, connected_as(now, 1000) as http:
            refused = await http.call("aios/task.subscribe", OWN)
            assert refused["error"]["data"]["error_id"] == "AIOS-RATE-LIMITED"
            assert await now.core.count("subscriptions") == 2

    play(scenario())


def test_many_at_once_get_no_more_than_their_share(place: Path) -> None:
    async def scenario() -> None:
        async with life(place, per_user=3) as now:
            async with AsyncExitStack() as stack:
                made = [await stack.enter_async_context(connected_as(now, 1000)) for _ in range(12)]
                answers = await asyncio.gather(*(one.call("aios/task.subscribe", OWN) for one in made))
            assert sum("result" in answer for answer in answers) == 3
            await now.subscriptions.settled()
            assert await now.core.count("subscriptions") == 3

    play(scenario())


def test_a_client_that_leaves_while_it_subscribes_leaves_nothing(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with life(place) as now:
            gate, keep = asyncio.Event(), now.subscriptions.keep

            async def slow(entry: Entry, body: JsonObject, after: int) -> None:
                await keep(entry, body, after)
                gate.set()
                await asyncio.sleep(60)

            monkeypatch.setattr(now.subscriptions, "keep", slow)
            async with Http.connect(now.sockets.http) as http:
                body = b'{"jsonrpc":"2.0","id":1,"method":"aios/task.subscribe","params":{}}'
                http.send("POST", "/rpc", {"Content-Type": "application/json"}, body)
                await gate.wait()
                assert await now.core.count("subscriptions") == 1
            while await now.core.count("subscriptions"):  # noqa: ASYNC110  the store has no event for it
                await asyncio.sleep(0.01)
            assert len(now.subscriptions) == 0

    play(scenario())


def test_without_room_on_the_disk_it_lives_as_long_as_the_daemon(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with life(place) as now:

            async def full(_function: object) -> None:
                raise StoreError(StoreFailure.FULL)

            with monkeypatch.context() as patched:
                patched.setattr(now.core.database, "write", full)
                made = await now.subscribe()
            await now.commit(1)
            assert await now.hear(made, 1) == [1]
        async with life(place) as now:
            assert await now.status(made) == 404

    play(scenario())
