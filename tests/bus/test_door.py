"""The D-Bus door on a real bus, with a core that a test lays out: who asks what is seen, and what is answered."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest
from dbus_fast import Message, MessageFlag

from aiosd.auth.caller import BusSubject
from aiosd.bus.connection import BusCallError, Call, SystemBus, Variant
from aiosd.bus.door import BusDoor, NameTakenError
from aiosd.bus.interfaces import default_directory, load
from aiosd.bus.paths import BUS_NAME, MANAGER_PATH, approval_path, task_path
from aiosd.bus.peers import Limits, Peer
from aiosd.bus.subscriptions import Subscriptions
from aiosd.core.operations import APPROVAL, MANAGER, TASK, Reply
from aiosd.core.shares import CallLimits
from aiosd.errors import AiosError, ErrorKind
from aiosd.model.subscription import granted
from tests.bus.cases import CASES, NO_OPTIONS, PATH
from tests.bus.fake_core import OTHERS_ID, PRIVATE, TASK_BODY, TASK_ID, FakeCore, manager_call, served, task_call
from tests.bus.permission_cases import APPROVAL_BODY, APPROVAL_ID, PERMISSION_CASES
from tests.bus.running import run_for
from tests.bus.worker_cases import WORKER_CASES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aiosd.bus.message import BusValue
    from aiosd.model.jsontext import JsonObject
    from aiosd.model.subscription import Subscription
    from tests.bus.conftest import PrivateBus


def same(value: object) -> object:
    """A body with lists for structs: dbus-fast gives tuples since 3, lists before."""
    if isinstance(value, list | tuple):
        return [same(item) for item in value]
    return Variant(value.signature, same(value.value)) if isinstance(value, Variant) else value


def tell(client: SystemBus, call: Call) -> None:
    """Send a call that wants no reply; no part of the product does."""
    flags = MessageFlag.NO_REPLY_EXPECTED
    client._send(
        Message(destination=call.destination, path=call.path, interface=call.interface, member=call.member, flags=flags)
    )


@pytest.mark.parametrize("case", [*CASES, *PERMISSION_CASES, *WORKER_CASES], ids=lambda case: case[1])
def test_arguments_become_parameters_and_bodies_become_replies(
    private_bus: PrivateBus, case: tuple[Call, str, JsonObject, JsonObject, tuple[BusValue, ...]]
) -> None:
    call, operation, params, body, expected = case

    async def scenario() -> None:
        core = FakeCore(answers={operation: Reply(body)})
        async with served(core) as (client, _):
            answer = await client.call(call)
            caller_name = client.unique_name
        ((name, caller, given),) = core.calls
        assert (name, given) == (operation, params)
        assert (caller.uid, caller.subject) == (os.getuid(), BusSubject(caller_name))
        assert same(answer.body) == same(expected)

    run_for(10, scenario())


def _element(xml: str, interface: str) -> str:
    """The interface of an XML text, without comments and spaces, so that two can be compared."""
    root = ElementTree.fromstring(xml)  # noqa: S314 - our own daemon's
    (element,) = [one for one in root.iter("interface") if one.get("name") == interface]
    return ElementTree.canonicalize(ElementTree.tostring(element, encoding="unicode"), strip_text=True)


@pytest.mark.parametrize(("path", "interface"), [(MANAGER_PATH, MANAGER), (PATH, TASK)])
def test_introspection_is_the_xml_file(private_bus: PrivateBus, path: str, interface: str) -> None:
    async def scenario() -> str:
        async with served(FakeCore()) as (client, _):
            call = Call(BUS_NAME, path, "org.freedesktop.DBus.Introspectable", "Introspect")
            return (await client.call(call)).text()

    told = run_for(10, scenario())
    assert _element(told, interface) == _element((default_directory() / f"{interface}.xml").read_text(), interface)
    names = [one.get("name") for one in ElementTree.fromstring(told).iter("interface")]  # noqa: S314
    standard = ["Peer", "Introspectable", "Properties"]
    assert names == [*(f"org.freedesktop.DBus.{name}" for name in standard), interface]


def test_tools_can_walk_down_to_the_manager(private_bus: PrivateBus) -> None:
    async def scenario() -> list[list[str | None]]:
        found = []
        async with served(FakeCore()) as (client, _):
            for path in ("/", "/org", "/org/aios", MANAGER_PATH, f"{MANAGER_PATH}/task"):
                call = Call(BUS_NAME, path, "org.freedesktop.DBus.Introspectable", "Introspect")
                root = ElementTree.fromstring((await client.call(call)).text())  # noqa: S314
                found.append([node.get("name") for node in root.findall("node")])
        return found

    assert run_for(10, scenario()) == [["org"], ["aios"], ["TaskManager"], ["task"], []]


def test_properties_of_manager_and_task(private_bus: PrivateBus) -> None:
    async def scenario() -> tuple[BusValue, BusValue, BusValue]:
        async with served(FakeCore()) as (client, _):
            get = Call(BUS_NAME, PATH, "org.freedesktop.DBus.Properties", "Get", "ss", (TASK, "Progress"))
            return (
                (await client.call(_all(MANAGER_PATH, MANAGER))).body[0],
                (await client.call(_all(PATH, TASK))).body[0],
                (await client.call(get)).body[0],
            )

    manager, task, progress = run_for(10, scenario())
    assert isinstance(manager, dict)
    assert isinstance(task, dict)
    assert {name: value.value for name, value in manager.items()} == {
        "Version": "0.1.0", "ProtocolVersion": "2.0.0", "State": "running", "MaxConcurrentTasks": 10,
        "MaxTasksPerTool": 3, "MaxQueueSize": 100, "TasksRunning": 2, "TasksQueued": 3,
    }  # fmt: skip
    assert {name: same(value.value) for name, value in task.items()} == {
        "Id": TASK_ID, "CapabilityId": "org.example.search", "Title": "Search", "Uid": 1000, "Level": "low",
        "CreatedAt": 1767607200000000, "Status": "working", "Phase": "running", "Priority": "normal", "Attempt": 1,
        "StartedAt": 1767607201500000, "EndedAt": 0, "Unit": "aios-task-1.scope", "ControlGroup": "/aios.slice/x",
        "Progress": [40, "reading"], "Reason": "", "Arguments": json.dumps(TASK_BODY["arguments"]).replace(": ", ":"),
        "Metadata": "{}", "Result": "", "Error": "", "ParentTaskId": "", "SessionId": "", "RetryOf": "",
    }  # fmt: skip
    assert same(progress) == Variant("(is)", [40, "reading"])
    interfaces = load()
    types = {key: one.type for name in (MANAGER, TASK) for key, one in interfaces[name].properties.items()}
    assert {name: value.signature for name, value in (manager | task).items()} == types


def test_an_approval_is_an_object_for_who_may_see_it(private_bus: PrivateBus) -> None:
    async def scenario() -> BusValue:
        core = FakeCore(answers={"approval.get": Reply(APPROVAL_BODY)})
        async with served(core) as (client, _):
            found = (await client.call(_all(approval_path(APPROVAL_ID), APPROVAL))).body[0]
            del core.answers["approval.get"]
            core.errors["approval.get"] = AiosError(ErrorKind.APPROVAL_NOT_FOUND)
            name, _ = await _error(client, _all(approval_path(APPROVAL_ID), APPROVAL))
            assert name == "org.freedesktop.DBus.Error.UnknownObject"
            return found

    found = run_for(10, scenario())
    assert isinstance(found, dict)
    assert {name: value.value for name, value in found.items()} == {
        "Id": APPROVAL_ID, "TaskId": TASK_ID, "SessionId": "", "Uid": 1000, "Kind": "run",
        "CapabilityId": "system.power.reboot", "Summary": "Reboot", "RiskLevel": "critical",
        "Arguments": '{"delay":5}', "RequestHash": "0" * 64, "CreatedAt": 1767607200000000,
        "ExpiresAt": 1767607800000000, "Status": "pending", "Decision": "",
    }  # fmt: skip


def _all(path: str, interface: str) -> Call:
    return Call(BUS_NAME, path, "org.freedesktop.DBus.Properties", "GetAll", "s", (interface,))


async def _error(client: SystemBus, call: Call) -> tuple[str, str]:
    with pytest.raises(BusCallError) as caught:
        await client.call(call)
    return caught.value.name, caught.value.message


def test_a_task_that_may_not_be_seen_is_answered_like_one_that_is_not_there(private_bus: PrivateBus) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can become another user")

    async def scenario() -> None:
        absent_id = "task-01jdxg3v7m9q2w4e6r8t0y1abe"
        core = FakeCore()
        async with served(core) as (root, _):
            async with as_user(65534) as client:
                assert (await root.call(_all(task_path(OTHERS_ID), TASK))).body
                for member in ("GetAll", "Introspect"):
                    hidden = await _error(client, _look(member, OTHERS_ID))
                    assert hidden == await _error(client, _look(member, absent_id))
                    assert hidden[0] == "org.freedesktop.DBus.Error.UnknownObject"
                assert core.calls[-1][1].uid == 65534

    run_for(10, scenario())


@asynccontextmanager
async def as_user(uid: int) -> AsyncIterator[SystemBus]:
    """A connection of another user; needs root."""
    async with AsyncExitStack() as stack:
        os.setresuid(uid, uid, 0)
        try:
            client = await stack.enter_async_context(SystemBus())
        finally:
            os.setresuid(0, 0, 0)
        yield client


def _look(member: str, task_id: str) -> Call:
    if member == "GetAll":
        return _all(task_path(task_id), TASK)
    return Call(BUS_NAME, task_path(task_id), "org.freedesktop.DBus.Introspectable", "Introspect")


def test_refusals_of_the_core_keep_their_name_text_and_data(private_bus: PrivateBus) -> None:
    refusal = AiosError(ErrorKind.INVALID_STATE, "a paused task cannot be paused", field="task_id", reason="paused")

    async def scenario() -> BusCallError:
        async with served(FakeCore(errors={"task.pause": refusal})) as (client, _):
            with pytest.raises(BusCallError) as caught:
                await client.call(task_call("Pause", "a{sv}", NO_OPTIONS))
            return caught.value

    error = run_for(10, scenario())
    assert error.name == "org.aios.TaskManager.Error.InvalidTaskState"
    assert error.message == "Invalid task state: task_id: a paused task cannot be paused"
    assert json.loads(str(error.body[1])) == {
        "error_id": "AIOS-INVALID-STATE", "details": "a paused task cannot be paused", "field": "task_id",
        "reason": "paused",
    }  # fmt: skip


def test_an_unexpected_failure_is_logged_and_not_told(
    private_bus: PrivateBus, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> tuple[str, str]:
        async with served(FakeCore(errors={"task.pause": RuntimeError(PRIVATE)})) as (client, _):
            found = await _error(client, task_call("Pause", "a{sv}", NO_OPTIONS))
            await client.call(manager_call("GetStatus"))
            return found

    name, message = run_for(10, scenario())
    assert (name, message) == ("org.aios.TaskManager.Error.Internal", "Internal error")
    assert f"RuntimeError: {PRIVATE}" in caplog.text


@pytest.mark.parametrize("interactive", [False, True])
def test_the_callers_leave_to_be_asked_is_passed_on(private_bus: PrivateBus, *, interactive: bool) -> None:
    async def scenario() -> bool:
        core = FakeCore()
        async with served(core) as (client, _):
            await client.call(Call(BUS_NAME, MANAGER_PATH, MANAGER, "GetStatus", allow_interactive=interactive))
        return core.calls[0][1].interactive

    assert run_for(10, scenario()) is interactive


def test_who_leaves_no_longer_waits(private_bus: PrivateBus) -> None:
    async def scenario() -> None:
        core = FakeCore(gates={"task.wait": asyncio.Event()})
        async with served(core) as (client, door):
            async with SystemBus() as leaver:
                waiting = [asyncio.create_task(leaver.call(task_call("Wait", "a{sv}", NO_OPTIONS))) for _ in range(3)]
                for _ in waiting:
                    await core.entered.get()
                await client.call(manager_call("GetStatus"))
                assert len(door.peers) == 2
                for call in waiting:
                    call.cancel()
            assert [await core.cancelled.get() for _ in waiting] == ["task.wait"] * 3
            assert len(door.peers) == 1

    run_for(10, scenario())


def test_one_connection_cannot_take_all_places(private_bus: PrivateBus) -> None:
    async def scenario() -> None:
        gate = asyncio.Event()
        core = FakeCore(gates={"task.wait": gate}, answers={"task.wait": Reply({"status": "completed"})})
        async with served(core, Limits(per_peer=4)) as (client, _), SystemBus() as other:
            waiting = [asyncio.create_task(client.call(task_call("Wait", "a{sv}", NO_OPTIONS))) for _ in range(4)]
            for _ in waiting:
                await core.entered.get()
            name, _ = await _error(client, task_call("Wait", "a{sv}", NO_OPTIONS))
            assert name == "org.aios.TaskManager.Error.RateLimited"
            await other.call(manager_call("GetStatus"))
            gate.set()
            assert [answer.text() for answer in await asyncio.gather(*waiting)] == ["completed"] * 4
            await client.call(manager_call("GetStatus"))

    run_for(10, scenario())


def test_an_answer_too_large_for_the_bus_is_refused_and_costs_nobody_the_connection(private_bus: PrivateBus) -> None:
    """The system bus ends the connection of who sends more than 32 MiB: any user could have ended the daemon."""

    async def scenario() -> None:
        core = FakeCore(answers={"task.get": Reply({**TASK_BODY, "metadata": {"note": "x" * (33 << 20)}})})
        async with served(core) as (client, _):
            read = Call(BUS_NAME, PATH, "org.freedesktop.DBus.Properties", "GetAll", "s", (TASK,))
            for call in (manager_call("GetTask", "sa{sv}", TASK_ID, NO_OPTIONS), read):
                with pytest.raises(BusCallError) as caught:
                    await client.call(call)
                assert caught.value.name == "org.aios.TaskManager.Error.ResourceBusy"
                data = json.loads(str(caught.value.body[1]))
                assert data["reason"] == "too-large"
                assert data["size"] > 33 << 20
            await client.call(manager_call("GetStatus"))

    run_for(60, scenario())


def test_a_call_too_large_for_the_bus_is_not_sent(private_bus: PrivateBus) -> None:
    async def scenario() -> None:
        async with served(FakeCore()) as (client, _):
            with pytest.raises(BusCallError, match="too large"):
                await client.call(manager_call("CreateTask", "ssa{sv}", "a.b", "x" * (17 << 20), NO_OPTIONS))
            await client.call(manager_call("GetStatus"))

    run_for(30, scenario())


def test_one_user_hears_an_event_so_many_times_whatever_connections_it_has() -> None:
    """An event is sent once for each subscription, so many connections must not make many of them."""
    sent: list[tuple[str, str]] = []
    table = Subscriptions(lambda peer, subscription, _: sent.append((peer, subscription.id)), lambda: 3)
    made: list[Subscription] = []
    for number in range(3):
        for task_id in ("", "task-1"):
            one = granted({"subscription_id": f"sub-{number}{task_id}", "task_id": task_id, "uid": 1000, "events": []})
            table.check_room(f":1.{number}")
            table.check_followers(1000, one)
            table.start(f":1.{number}", 1000, one, ())
            made.append(one)
    for one in made[:2]:
        with pytest.raises(AiosError) as met:
            table.check_followers(1000, one)
        assert met.value.kind is ErrorKind.RATE_LIMITED
        table.check_followers(1001, one)
        table.check_followers(0, one)
    table.check_followers(1000, granted({"subscription_id": "s", "task_id": "task-2", "uid": 1000, "events": []}))
    table.peer_left(":1.0")
    for one in made[:2]:
        table.check_followers(1000, one)


def test_a_burst_of_one_user_s_calls_keeps_nobody_else_out(private_bus: PrivateBus) -> None:
    """Of connections whose user is known only that user's limits count; of others, how many of them there are."""

    async def scenario() -> None:
        async with served(FakeCore(), Limits(calls=CallLimits(total=5))) as (client, door), SystemBus() as other:
            await client.call(manager_call("GetStatus"))
            gate = asyncio.Event()

            async def work(peer: Peer) -> None:
                await door.peers.uid(peer)
                await gate.wait()

            for _ in range(20):
                door.peers.run(client.unique_name, work)
            await other.call(manager_call("GetStatus"))
            for number in range(5):
                door.peers.run(f":9.{number}", work)
            with pytest.raises(AiosError) as met:
                door.peers.run(":9.5", work)
            assert met.value.kind is ErrorKind.RATE_LIMITED
            door.peers.run(other.unique_name, work)
            gate.set()

    run_for(30, scenario())


def test_a_log_travels_as_a_descriptor_and_none_is_left_open(private_bus: PrivateBus) -> None:
    async def scenario() -> None:
        core = FakeCore()
        async with served(core) as (client, _):
            await client.call(manager_call("GetStatus"))
            before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - counts, and opens nothing else
            for _ in range(20):
                read, write = os.pipe()
                os.write(write, b"line\n")
                os.close(write)
                core.answers["task.open_log"] = Reply({"size": 5}, (read,))
                answer = await client.call(task_call("OpenLog", "sa{sv}", "stdout", NO_OPTIONS))
                (received,) = answer.fds
                assert os.read(received, 10) == b"line\n"
                os.close(received)
            assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208

    run_for(10, scenario())


def test_descriptors_that_strangers_send_are_closed(private_bus: PrivateBus) -> None:
    async def scenario() -> None:
        async with served(FakeCore()) as (client, _):
            await client.call(manager_call("GetStatus"))
            with open("/dev/null", "rb") as null:  # noqa: PTH123, ASYNC230 - a descriptor to send
                before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
                for member in ("GetStatus", "NoSuchMethod"):
                    for _ in range(50):
                        fds = (null.fileno(),) * 4
                        call = Call(BUS_NAME, MANAGER_PATH, MANAGER, member, "hhhh", (0, 1, 2, 3), fds)
                        await _error(client, call)
                assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208

    run_for(20, scenario())


def test_a_call_that_wants_no_reply_is_done_and_gets_none(private_bus: PrivateBus) -> None:
    async def scenario() -> None:
        core = FakeCore()
        async with served(core) as (client, _):
            tell(client, manager_call("GetStatus"))
            assert await core.entered.get() == "service.status"
            tell(client, manager_call("NoSuchMethod"))
            await client.call(manager_call("GetStatus"))

    run_for(10, scenario())


def test_the_name_is_owned_by_one_process_only(private_bus: PrivateBus) -> None:
    async def scenario() -> None:
        async with served(FakeCore()), SystemBus() as bus:
            second = FakeCore()
            async with BusDoor(bus, second, second, interfaces=load()) as door:
                with pytest.raises(NameTakenError):
                    await door.open()

    run_for(10, scenario())


def test_the_end_of_the_bus_is_noticed(private_bus: PrivateBus) -> None:
    async def scenario() -> None:
        core = FakeCore(gates={"task.wait": asyncio.Event()})
        async with SystemBus() as bus, BusDoor(bus, core, core, interfaces=load()) as door, SystemBus() as client:
            await door.open()
            waiting = asyncio.create_task(client.call(task_call("Wait", "a{sv}", NO_OPTIONS)))
            await core.entered.get()
            private_bus.process.kill()
            await bus.closed.wait()
            with pytest.raises(BusCallError) as caught:
                await waiting
            assert caught.value.name == "org.freedesktop.DBus.Error.Disconnected"

    run_for(10, scenario())
