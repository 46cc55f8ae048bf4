"""What the bus hears of events: nothing private in the open, everything to who subscribed, in order, once."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from aiosd.bus.connection import BusCallError, SystemBus, Variant
from aiosd.bus.signals import Coalescer
from aiosd.core.operations import APPROVAL, MANAGER, TASK, Reply
from aiosd.model.event import Event, Kind, Source, StateChange
from aiosd.model.ids import event_id, event_sequence
from aiosd.model.subscription import Subscription, granted
from tests.bus.fake_core import PRIVATE, TASK_ID, FakeCore, manager_call, served
from tests.bus.running import run_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aiosd.auth.caller import Caller
    from aiosd.bus.connection import Signal
    from aiosd.bus.message import BusValue
    from aiosd.model.jsontext import JsonObject, JsonValue
    from aiosd.model.secrettext import SecretText
    from tests.bus.conftest import PrivateBus

PATH = "/org/aios/TaskManager/task/" + TASK_ID.replace("-", "_")
OTHER_ID = "task-1000-other"
UID = 0
"""The test's own user; see `own`."""


def event(number: int, kind: Kind, payload: JsonObject | None = None, *, task_id: str = TASK_ID, uid: int = UID,
          change: StateChange | None = None, kind_of_change: str = "task.started") -> Event:  # fmt: skip
    return Event(number, task_id, None, uid, Source.SYSTEM, kind_of_change, kind, 0, payload or {}, change)


def status(number: int, old: str | None, new: str, phase: str = "running", *, uid: int = UID) -> Event:
    return event(number, Kind.STATUS, {"reason": PRIVATE}, change=StateChange(old, new, phase), uid=uid)


def progress(number: int, percent: int) -> Event:
    return event(number, Kind.PROGRESS, {"percent": percent})


class Ear:
    """Everything of the daemon's that reached one connection."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, tuple[BusValue, ...]]] = []
        self.arrived = asyncio.Condition()

    def __call__(self, signal: Signal) -> None:
        if signal.interface.startswith("org.freedesktop.DBus") and signal.member != "PropertiesChanged":
            return
        self.heard.append((signal.member, signal.body))

    def named(self, member: str) -> list[tuple[BusValue, ...]]:
        return [body for name, body in self.heard if name == member]

    def events(self) -> list[tuple[BusValue, ...]]:
        return [(body[0], body[1]) for body in self.named("Event")]


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[SystemBus, Ear]]:
    """A connection that asks the bus for every signal there is."""
    async with SystemBus() as client:
        ear = Ear()
        client.on_signal(ear)
        await client.add_match("type='signal'")
        yield client, ear


async def settle(*clients: SystemBus) -> None:
    """Everything sent before has arrived: the bus keeps the order of one sender's messages."""
    for client in clients:
        await client.call(manager_call("GetStatus"))


def test_broadcasts_carry_ids_uid_and_state_only(private_bus: PrivateBus) -> None:
    async def scenario() -> list[tuple[str, tuple[BusValue, ...]]]:
        core = FakeCore()
        async with served(core) as (_, door), listening() as (client, ear):
            core.publish(
                status(1, None, "pending", "queued", uid=1000),
                status(2, "pending", "working", uid=1000),
                event(3, Kind.LOG, {"message": PRIVATE}),
                event(4, Kind.RESULT, {"result": PRIVATE}),
                status(5, "working", "completed", "completed", uid=1000),
                event(6, Kind.STATUS, {"priority": PRIVATE}),
                event(7, Kind.TIMELINE, kind_of_change="task.removed", uid=1000),
            )
            door.capabilities_changed()
            door.state_changed("draining")
            await settle(client)
        return ear.heard

    heard = run_for(10, scenario())
    run = ["Attempt", "StartedAt", "EndedAt", "Unit", "ControlGroup", "Reason"]
    working = {"Status": Variant("s", "working"), "Phase": Variant("s", "running")}
    completed = {"Status": Variant("s", "completed"), "Phase": Variant("s", "completed")}
    assert heard == [
        ("TaskNew", (TASK_ID, PATH, 1000, "pending")),
        ("StateChanged", (TASK_ID, PATH, 1000, "pending", "working", "running")),
        ("PropertiesChanged", (TASK, working, run)),
        ("StateChanged", (TASK_ID, PATH, 1000, "working", "completed", "completed")),
        ("PropertiesChanged", (TASK, completed, [*run, "Result", "Error"])),
        ("PropertiesChanged", (TASK, {}, ["Priority", "Metadata"])),
        ("TaskRemoved", (TASK_ID, PATH, 1000)),
        ("CapabilitiesChanged", ()),
        ("PropertiesChanged", (MANAGER, {"State": Variant("s", "draining")}, [])),
    ]
    assert PRIVATE not in repr(heard)


def test_that_an_approval_waits_is_told_by_ids_only(private_bus: PrivateBus) -> None:
    async def scenario() -> list[tuple[str, tuple[BusValue, ...]]]:
        core = FakeCore()
        async with served(core), listening() as (client, ear):
            about: JsonObject = {"approval_id": "apr-1", "summary": PRIVATE}
            core.publish(
                event(1, Kind.AUTH_REQUIRED, about, kind_of_change="approval.requested", uid=1000),
                event(2, Kind.TIMELINE, about, kind_of_change="approval.rejected", uid=1000),
            )
            await settle(client)
        return ear.heard

    path = "/org/aios/TaskManager/approval/apr_1"
    assert run_for(10, scenario()) == [
        ("ApprovalRequested", ("apr-1", path, TASK_ID, 1000)),
        ("ApprovalResolved", ("apr-1", path, "rejected")),
        ("PropertiesChanged", (APPROVAL, {"Status": Variant("s", "rejected")}, ["Decision"])),
    ]


def test_events_go_to_the_subscriber_and_to_nobody_else(private_bus: PrivateBus) -> None:
    async def scenario() -> None:
        core = FakeCore()
        async with served(core), listening() as (follower, ear), listening() as (spy, spied):
            call = manager_call("Subscribe", "sasa{sv}", TASK_ID, ["log", "status"], {})
            identifier = (await follower.call(call)).text()
            core.publish(
                event(1, Kind.LOG, {"message": PRIVATE}),
                event(2, Kind.LOG, {"message": "another task"}, task_id=OTHER_ID),
                event(3, Kind.LOG, {"message": "another user's"}, uid=1234),
                event(4, Kind.ARTIFACT, {"id": "art-1"}),
                status(5, "working", "completed"),
            )
            await settle(follower, spy)
            assert ear.events() == [(identifier, event_id(1)), (identifier, event_id(5))]
            assert ear.named("Event")[0][2] == "task.log"
            assert json.loads(str(ear.named("Event")[0][3])) == {"task_id": TASK_ID, "message": PRIVATE}
            assert spied.named("Event") == []
            assert PRIVATE not in repr(spied.heard)

    run_for(10, scenario())


def test_a_subscription_ends_by_its_owner_or_with_it(private_bus: PrivateBus) -> None:
    async def scenario() -> None:
        core = FakeCore()
        async with served(core) as (client, door), listening() as (follower, ear):
            subscribe = manager_call("Subscribe", "sasa{sv}", "", [], {})
            identifier = (await follower.call(subscribe)).text()
            with pytest.raises(BusCallError) as caught:
                await client.call(manager_call("Unsubscribe", "s", identifier))
            assert caught.value.name == "org.aios.TaskManager.Error.SubscriptionNotFound"
            assert len(door.subscriptions) == 1
            await follower.call(manager_call("Unsubscribe", "s", identifier))
            assert len(door.subscriptions) == 0
            core.publish(event(1, Kind.LOG))
            await settle(follower)
            assert ear.named("Event") == []
            async with listening() as (leaver, _):
                await leaver.call(subscribe)
                assert len(door.subscriptions) == 1
            left = door.peers
            while len(left) > 2:  # noqa: ASYNC110 - the bus tells the daemon, nobody tells the test
                await asyncio.sleep(0.01)
            assert len(door.subscriptions) == 0

    run_for(10, scenario())


def test_nothing_is_missed_and_nothing_repeated_while_a_subscription_is_made(private_bus: PrivateBus) -> None:
    async def scenario() -> None:
        gate = asyncio.Event()
        body: JsonObject = {
            "subscription_id": "sub-1", "task_id": "", "uid": UID, "events": [],
            "missed_events": [{"id": event_id(4), "event": "task.log", "data": {}}],
            "last_event_id": event_id(4), "more": False,
        }  # fmt: skip
        core = FakeCore(gates={"task.resubscribe": gate}, answers={"task.resubscribe": Reply(body)})
        async with served(core), listening() as (follower, ear):
            call = manager_call("Resubscribe", "ssa{sv}", "", event_id(3), {})
            asking = asyncio.create_task(follower.call(call))
            await core.entered.get()
            core.publish(event(4, Kind.LOG))  # the core's answer has it
            core.publish(event(5, Kind.LOG))  # committed after the core read, before the door knows
            gate.set()
            answer = await asking
            core.publish(event(6, Kind.LOG))
            await settle(follower)
        missed = answer.body[1]
        assert isinstance(missed, list)
        assert [row[0] for row in missed] == [event_id(4)]
        assert [number for _, number in ear.events()] == [event_id(5), event_id(6)]

    run_for(10, scenario())


class PagingCore(FakeCore):
    """Tells two missed events a page, as the real core tells a thousand."""

    async def invoke(self, name: str, caller: Caller, params: JsonObject, secret: SecretText | None = None) -> Reply:
        if name != "task.resubscribe":
            return await super().invoke(name, caller, params, secret)
        first = (event_sequence(str(params["last_event_id"])) or 0) + 1
        missed: list[JsonValue] = [
            {"id": event_id(number), "event": "task.log", "data": {}} for number in range(first, min(first + 2, 8))
        ]
        last = min(first + 1, 7)
        return Reply(
            {
                "subscription_id": f"sub-{first}", "task_id": "", "uid": UID, "events": [], "missed_events": missed,
                "last_event_id": event_id(last), "more": last < 7,
            }
        )  # fmt: skip


def test_all_that_was_missed_comes_in_one_answer(private_bus: PrivateBus) -> None:
    async def scenario() -> None:
        core = PagingCore()
        async with served(core) as (_, door), listening() as (follower, ear):
            answer = await follower.call(manager_call("Resubscribe", "ssa{sv}", "", event_id(2), {}))
            core.publish(event(7, Kind.LOG), event(8, Kind.LOG))
            await settle(follower)
            assert len(door.subscriptions) == 1
        missed = answer.body[1]
        assert isinstance(missed, list)
        assert [row[0] for row in missed] == [event_id(number) for number in range(3, 8)]
        assert ear.events() == [(answer.text(), event_id(8))]

    run_for(10, scenario())


def test_progress_is_told_four_times_a_second_and_its_last_value_before_the_end(private_bus: PrivateBus) -> None:
    async def scenario() -> None:
        core = FakeCore()
        async with served(core), listening() as (follower, ear):
            await follower.call(manager_call("Subscribe", "sasa{sv}", "", [], {}))
            for percent in range(60):
                core.publish(progress(percent + 1, percent))
                await asyncio.sleep(0.01)
            core.publish(progress(61, 60))
            core.publish(status(62, "working", "completed"))
            await settle(follower)
            told = [json.loads(str(body[3])).get("percent") for body in ear.named("Event")]
            assert told[0] == 0
            assert told[-2:] == [60, None]
            assert len(told) <= 6
            invalidated = [body for body in ear.named("PropertiesChanged") if body[2] == ["Progress"]]
            assert len(invalidated) == len(told) - 1

    run_for(10, scenario())


def test_the_last_progress_comes_without_another_event() -> None:
    async def scenario() -> None:
        sent: list[int] = []
        coalescer = Coalescer(lambda one: sent.append(one.sequence), interval=0.02)
        for number in range(1, 6):
            coalescer.offer(TASK_ID, progress(number, number))
        assert sent == [1]
        await asyncio.sleep(0.1)
        assert sent == [1, 5]
        assert len(coalescer) == 0

    run_for(5, scenario())


def test_an_answer_without_a_scope_subscribes_to_nothing() -> None:
    with pytest.raises(KeyError):
        granted({"subscription_id": "sub-1", "task_id": "", "events": []})
    with pytest.raises(TypeError):
        granted({"subscription_id": "sub-1", "task_id": "", "uid": "0", "events": []})


@pytest.mark.parametrize(
    ("subscription", "wanted"),
    [
        (Subscription("sub-1"), True),
        (Subscription("sub-1", uid=1000), True),
        (Subscription("sub-1", uid=1001), False),
        (Subscription("sub-1", task_id=TASK_ID), True),
        (Subscription("sub-1", task_id=OTHER_ID), False),
        (Subscription("sub-1", choices=frozenset({"log"})), True),
        (Subscription("sub-1", choices=frozenset({"status"})), False),
        (Subscription("sub-1", after=6), True),
        (Subscription("sub-1", after=7), False),
    ],
)
def test_who_wants_an_event(subscription: Subscription, *, wanted: bool) -> None:
    assert subscription.wants(event(7, Kind.LOG, uid=1000)) is wanted
    assert not subscription.wants(event(7, Kind.TIMELINE, uid=1000))
