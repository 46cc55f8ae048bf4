"""Seed 003's story through D-Bus and JSON-RPC, on a real bus, in front of the real core: one timeline as the result."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from aiosd.bus.connection import BusCallError, Call, SystemBus, Variant
from aiosd.bus.door import BusDoor
from aiosd.bus.interfaces import load
from aiosd.bus.paths import BUS_NAME, session_path, task_path
from aiosd.core.operations import SESSION, TASK
from tests.bus.fake_core import manager_call
from tests.bus.running import run_for
from tests.rpc.serving import EventStream, Http, door
from tests.unit.core.rig import ROOT, Core, core, eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aiosd.bus.connection import Signal
    from aiosd.bus.message import BusValue
    from tests.bus.conftest import PrivateBus

PLAN = {
    "tasks": [
        {"ref": "cache", "title": "cache", "kind": "implementation"},
        {"title": "ui", "kind": "implementation"},
        {"title": "api", "kind": "implementation", "parent_task_id": "cache"},
    ]
}


@asynccontextmanager
async def daemon(root: Path) -> AsyncIterator[tuple[Core, SystemBus]]:
    """A core with the D-Bus door in front of it, and a client of that."""
    async with (
        core(root) as aios,
        SystemBus() as bus,
        BusDoor(bus, aios.manager, aios.hub, interfaces=load()) as served,
        SystemBus() as client,
    ):
        await served.open()
        yield aios, client


def session_call(session: str, member: str, signature: str = "", *body: BusValue) -> Call:
    return Call(BUS_NAME, session_path(session), SESSION, member, signature, body)


def events_of(signals: list[Signal]) -> list[Signal]:
    """The Event signals among them."""
    return [one for one in signals if one.member == "Event"]


async def told_by(http: Http, method: str, params: dict[str, object]) -> dict[str, Any]:
    """The result of a JSON-RPC call."""
    found = (await http.call(method, params))["result"]
    assert isinstance(found, dict)
    return found


async def asked(client: SystemBus, call: Call) -> dict[str, object]:
    """The JSON object that a call answers."""
    found = json.loads((await client.call(call)).text())
    assert isinstance(found, dict)
    return found


def test_one_story_through_both_doors_is_one_timeline(private_bus: PrivateBus, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with daemon(tmp_path) as (aios, client), door(tmp_path, aios.manager, aios.hub) as (paths, _):
            signals: list[Signal] = []
            client.on_signal(signals.append)
            options: BusValue = {"objective": Variant("s", "find the cause")}
            made = await client.call(manager_call("CreateSession", "sa{sv}", "Login", options))
            session = str(made.body[0])
            assert made.body[1] == session_path(session)
            followed = await client.call(
                manager_call("SubscribeFeed", "ssa{sv}", "session_feed", session,
                             {"last_event_id": Variant("s", f"evt-{0:016d}")})
            )  # fmt: skip
            assert [row[1] for row in followed.body[1]] == ["session.created"]  # type: ignore[union-attr, index]  # rows
            plan = await asked(client, session_call(session, "CreatePlan", "sa{sv}", json.dumps(PLAN), {}))
            tasks = {row["title"]: row["task_id"] for row in plan["tasks"]}  # type: ignore[attr-defined]  # rows
            async with Http.connect(paths.http) as http:
                diff = {
                    "cancel_tasks": [tasks["cache"]],
                    "pause_tasks": [tasks["ui"]],
                    "create_tasks": [{"title": "x"}],
                }
                said = await told_by(http, "aios/message.add", {
                    "session_id": session, "role": "user", "content": "other", "objective_change": True, "diff": diff
                })  # fmt: skip
                named: BusValue = {"diff_id": Variant("s", said["proposed"]["diff_id"])}
                changed = await asked(client, session_call(session, "ApplyDiff", "usa{sv}", 1, "", named))
                assert changed["version"] == 2
                told = (await told_by(http, "aios/session.timeline", {"session_id": session}))["events"]
            whole = await asked(client, session_call(session, "GetTimeline", "a{sv}", {}))
            assert whole["events"] == told
            types = [event["type"] for event in told]
            assert types == [
                "session.created", *["task.created"] * 3, "plan.created", "session.message.added",
                "session.objective.updated", "plan.diff.generated", "task.created", "task.cancelled", "task.cancelled",
                "task.paused", "plan.updated",
            ]  # fmt: skip
            await eventually(lambda: len(events_of(signals)) >= len(told) - 1)
            heard = events_of(signals)
            assert [json.loads(str(one.body[3])) for one in heard] == told[1:], "the feed is the timeline"
            assert [one.body[2] for one in heard] == types[1:]
            tree = await asked(client, session_call(session, "GetTaskTree", "a{sv}", {}))
            shown = [(row["title"], row["depth"], row["status"]) for row in tree["tasks"]]  # type: ignore[attr-defined]
            assert shown == [
                ("cache", 0, "canceled"), ("api", 1, "canceled"), ("ui", 0, "pending"), ("x", 0, "pending"),
            ]  # fmt: skip
            one = Call(BUS_NAME, task_path(tasks["cache"]), TASK, "GetTree", "a{sv}", ({},))
            assert len((await asked(client, one))["tasks"]) == 2  # type: ignore[arg-type]

    run_for(30, scenario())


def test_a_session_is_an_object_for_who_may_see_it(private_bus: PrivateBus, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with daemon(tmp_path) as (_, client):
            made = await client.call(manager_call("CreateSession", "sa{sv}", "Login", {}))
            session = str(made.body[0])
            properties = "org.freedesktop.DBus.Properties"
            call = Call(BUS_NAME, session_path(session), properties, "GetAll", "s", (SESSION,))
            (found,) = (await client.call(call)).body
            assert isinstance(found, dict)
            shown = {name: value.value for name, value in found.items() if name != "CreatedAt"}
            assert shown == {
                "Id": session, "Uid": ROOT.uid, "Title": "Login", "Status": "active", "ActiveObjective": "",
            }  # fmt: skip
            for missing in ("ps-none", "ps-01jdxg3v7m9q2w4e6r8t0y1abc"):
                gone = Call(BUS_NAME, session_path(missing), properties, "GetAll", "s", (SESSION,))
                with pytest.raises(BusCallError) as refused:
                    await client.call(gone)
                assert refused.value.name == "org.freedesktop.DBus.Error.UnknownObject"
                with pytest.raises(BusCallError) as refused:
                    await client.call(session_call(missing, "Archive", "a{sv}", {}))
                assert refused.value.name == "org.aios.TaskManager.Error.SessionNotFound"
            rows, cursor = (await client.call(manager_call("ListSessions", "a{sv}", {}))).body
            assert isinstance(rows, list)
            assert [row[:4] for row in map(tuple, rows)] == [(session, session_path(session), "Login", "active")]
            assert cursor == ""

    run_for(20, scenario())


def test_a_long_message_is_taken_and_a_longer_one_refused(private_bus: PrivateBus, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with daemon(tmp_path) as (_, client):
            session = str((await client.call(manager_call("CreateSession", "sa{sv}", "", {}))).body[0])
            text = "line\n" * 12_000
            added = await asked(client, session_call(session, "AddMessage", "ssa{sv}", "user", text, {}))
            assert added["content"] == text
            with pytest.raises(BusCallError) as refused:
                await client.call(session_call(session, "AddMessage", "ssa{sv}", "user", "x" * 70_000, {}))
            assert refused.value.name == "org.aios.TaskManager.Error.InvalidParams"

    run_for(20, scenario())


def test_an_event_stream_follows_a_session(private_bus: PrivateBus, tmp_path: Path) -> None:
    """JSON-RPC: the subscription is made by a call, and an event stream takes it up, whole and without a gap."""

    async def scenario() -> None:
        async with daemon(tmp_path) as (aios, _), door(tmp_path, aios.manager, aios.hub) as (paths, _):
            session = str((await aios.invoke("session.create", {"title": "x"}, ROOT))["session_id"])
            async with Http.connect(paths.http) as http:
                granted = await told_by(http, "aios/feed.subscribe", {"feed": "session_feed", "id": session})
                for number in range(3):
                    await http.call("aios/message.add", {"session_id": session, "role": "user", "content": f"{number}"})
                query = f"subscription_id={granted['subscription_id']}"
                async with EventStream.open(paths.http, query) as stream:
                    first = await stream.take(3)
                    await http.call("aios/message.add", {"session_id": session, "role": "user", "content": "3"})
                    events = [*first, *await stream.take(1)]
                assert [event.json["payload"]["content"] for event in events] == list("0123")
                assert {event.json["type"] for event in events} == {"session.message.added"}
                assert {event.type for event in events} == {"session.message.added"}
                async with EventStream.open(
                    paths.http, f"feed=session_feed&id={session}&last_event_id={events[0].id}"
                ) as again:
                    assert [event.json for event in await again.take(3)] == [event.json for event in events[1:]]

    run_for(20, scenario())
