"""What a stranger on the bus can try: pretend to be another, fill memory, speak oddly. The door goes on answering."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from dbus_fast import Message, MessageFlag, MessageType
from dbus_fast.signature import get_signature_tree

from aiosd.auth.caller import BusSubject
from aiosd.bus.connection import MAX_SIGNATURES, BusCallError, Call, Variant, plain
from aiosd.bus.paths import BUS_NAME, MANAGER_PATH
from aiosd.core.operations import MANAGER
from tests.bus.fake_core import FakeCore, manager_call, served
from tests.bus.running import run_for

if TYPE_CHECKING:
    from aiosd.bus.message import BusValue
    from tests.bus.conftest import PrivateBus


def _resident() -> int:
    """Bytes of this process in memory."""
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - procfs
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _odd_signature(number: int) -> str:
    """A different one for each number: its digits in base 6 as basic types."""
    digits = ""
    while number:
        number, digit = divmod(number, 6)
        digits += "ybnqiu"[digit]
    return f"a({digits}s)"


def test_a_sender_cannot_be_forged(private_bus: PrivateBus) -> None:
    async def scenario() -> None:
        core = FakeCore()
        async with served(core) as (client, door):
            message = Message(
                destination=BUS_NAME, path=MANAGER_PATH, interface=MANAGER, member="GetStatus",
                sender="org.freedesktop.DBus",
            )  # fmt: skip
            client._send(message)
            assert await core.entered.get() == "service.status"
            assert core.calls[0][1].subject == BusSubject(client.unique_name)
            assert len(door.peers) == 1

    run_for(10, scenario())


def test_a_forged_leaving_ends_nobody(private_bus: PrivateBus) -> None:
    """NameOwnerChanged counts from the bus only."""

    async def scenario() -> None:
        async with served(FakeCore()) as (client, door):
            await client.call(manager_call("Subscribe", "sasa{sv}", "", [], {}))
            owner = await client.call(
                Call("org.freedesktop.DBus", "/", "org.freedesktop.DBus", "GetNameOwner", "s", (BUS_NAME,))
            )
            body = (client.unique_name, client.unique_name, "")
            dbus = "org.freedesktop.DBus"
            client.send_signal("/org/freedesktop/DBus", dbus, "NameOwnerChanged", "sss", body, destination=owner.text())
            await client.call(manager_call("GetStatus"))
            assert len(door.subscriptions) == 1

    run_for(10, scenario())


def test_odd_signatures_do_not_fill_memory(private_bus: PrivateBus) -> None:
    async def scenario() -> int:
        async with served(FakeCore()) as (client, _):
            before = 0
            for number in range(1, 3501):
                signature = _odd_signature(number)
                if number == 1500:
                    before = _resident()
                with pytest.raises(BusCallError):
                    empty: list[BusValue] = []
                    await client.call(manager_call("GetStatus", signature, empty))
                assert get_signature_tree.cache_info().currsize <= MAX_SIGNATURES + 1
            return _resident() - before

    assert run_for(60, scenario()) < 8 * 1024 * 1024


ODD: list[tuple[str, tuple[BusValue, ...]]] = [
    ("v", (Variant("v", Variant("v", Variant("s", "deep"))),)),
    ("a{sv}", ({"": Variant("a{sv}", {"": Variant("as", [])})},)),
    ("ad", ([float("nan"), float("inf")],)),
    ("g", ("a{sv}",)),
    ("ay", (b"\xff" * 1000,)),
    ("a(ybnqiuxtdsogv)", ([(1, True, -1, 1, -1, 1, -1, 1, 0.5, "", "/", "", Variant("y", 0))],)),
    ("s", ("x" * 1_000_000,)),
    ("a{sv}", ({str(number): Variant("y", number) for number in range(256)},)),
]


@pytest.mark.parametrize(("signature", "body"), ODD, ids=[signature for signature, _ in ODD])
def test_odd_bodies_are_refused_and_the_door_goes_on(
    private_bus: PrivateBus, signature: str, body: tuple[BusValue, ...]
) -> None:
    async def scenario() -> str:
        async with served(FakeCore()) as (client, _):
            with pytest.raises(BusCallError) as caught:
                await client.call(manager_call("GetStatus", signature, *body))
            await client.call(manager_call("GetStatus"))
            return caught.value.name

    assert run_for(10, scenario()) == "org.freedesktop.DBus.Error.InvalidArgs"


@pytest.mark.parametrize("flags", [5, 6, 7, 0x80])
def test_unusual_flags_are_no_trouble(private_bus: PrivateBus, flags: int) -> None:
    async def scenario() -> None:
        core = FakeCore()
        async with served(core) as (client, _):
            message = Message(
                message_type=MessageType.METHOD_CALL, destination=BUS_NAME, path=MANAGER_PATH, interface=MANAGER,
                member="GetStatus", flags=MessageFlag(flags),
            )  # fmt: skip
            client._send(message)
            await core.entered.get()
            assert core.calls[0][1].interactive is bool(flags & 4)
            await client.call(manager_call("GetStatus"))

    run_for(10, scenario())


@pytest.mark.parametrize(
    ("text", "carried"),
    [("a\0b", "a\ufffdb"), ("\ud800", "\ufffd\ufffd\ufffd"), ("Grüße 🙂", "Grüße 🙂"), ("", "")],
)
def test_text_that_the_bus_cannot_carry_is_replaced(text: str, carried: str) -> None:
    assert plain(text) == carried
