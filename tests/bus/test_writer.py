"""The writer waits for a bus that does not read: everything arrives, in order, once; memory has a bound.

These hold our replacement of the library's private writer to every version of the library that we run on.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from aiosd.bus.connection import Answer, BusCallError, Call, MethodCall, Signal, SystemBus
from aiosd.bus.stall import leave_a_bus_that_takes_nothing
from tests.bus.running import run_for

if TYPE_CHECKING:
    from tests.bus.conftest import PrivateBus

PATH = "/org/aios/Test"
INTERFACE = "org.aios.Test"
LARGE = "x" * 65536


def test_a_thousand_signals_and_large_replies_survive_a_stopped_bus(private_bus: PrivateBus) -> None:
    async def scenario() -> None:
        seen: list[int] = []
        held: asyncio.Queue[MethodCall] = asyncio.Queue()
        done = asyncio.Event()

        def on_signal(signal: Signal) -> None:
            if signal.interface == INTERFACE:
                assert isinstance(signal.body[0], int)
                seen.append(signal.body[0])
                if len(seen) == 1000:
                    done.set()

        async with SystemBus() as server, SystemBus() as client:
            client.on_signal(on_signal)
            await client.add_match(f"type='signal',interface='{INTERFACE}'")
            server.serve(held.put_nowait)
            call = Call(server.unique_name, PATH, INTERFACE, "Large")
            calls = [asyncio.create_task(client.call(call)) for _ in range(50)]
            asked = [await held.get() for _ in calls]
            with private_bus.stopped():
                for number in range(1000):
                    server.send_signal(PATH, INTERFACE, "Number", "u", (number,))
                    if number % 20 == 0:
                        server.send_reply(asked[number // 20], "us", (number, LARGE))
                await asyncio.sleep(0.2)
                assert seen == []
                assert not server.closed.is_set()
            await done.wait()
            answers = await asyncio.gather(*calls)
        assert seen == list(range(1000))
        assert [answer.number() for answer in answers] == list(range(0, 1000, 20))
        assert all(answer.text(1) == LARGE for answer in answers)

    run_for(30, scenario())


def test_a_bus_that_never_reads_costs_the_connection_and_not_the_memory(private_bus: PrivateBus) -> None:
    async def scenario() -> None:
        async with SystemBus(max_queued_bytes=4 * len(LARGE)) as server:
            with private_bus.stopped():
                sent = 0
                while not server.closed.is_set() and sent < 100:
                    server.send_signal(PATH, INTERFACE, "Large", "s", (LARGE,))
                    await asyncio.sleep(0)
                    sent += 1
            assert server.closed.is_set()
            assert sent < 20
            try:
                await server.call(Call("org.freedesktop.DBus", "/", "org.freedesktop.DBus", "GetId"))
            except BusCallError as error:
                assert error.name == "org.freedesktop.DBus.Error.Disconnected"
            else:
                raise AssertionError("a call on a closed connection answered")

    run_for(20, scenario())


def test_a_bus_that_takes_nothing_for_long_is_left(private_bus: PrivateBus) -> None:
    async def scenario() -> None:
        async with SystemBus() as server:
            watch = asyncio.create_task(leave_a_bus_that_takes_nothing(server, 0.2))
            await asyncio.sleep(0.5)
            assert not watch.done(), "nothing waits for it"
            with private_bus.stopped():
                for _ in range(50):  # more than the kernel keeps
                    server.send_signal(PATH, INTERFACE, "Large", "s", (LARGE,))
                await server.closed.wait()
                await watch

    run_for(30, scenario())


def test_a_descriptor_may_be_closed_as_soon_as_it_is_sent(private_bus: PrivateBus) -> None:
    """While the bus is stopped, the reply waits; the descriptor in it is ours, not the number of a later file."""

    async def scenario() -> Answer:
        held: asyncio.Queue[MethodCall] = asyncio.Queue()
        async with SystemBus() as server, SystemBus() as client:
            server.serve(held.put_nowait)
            call = asyncio.create_task(client.call(Call(server.unique_name, PATH, INTERFACE, "Open")))
            asked = await held.get()
            read, write = os.pipe()
            with private_bus.stopped():
                for _ in range(500):
                    server.send_signal(PATH, INTERFACE, "Fill", "s", ("y" * 1000,))
                server.send_reply(asked, "h", (0,), (read,))
                os.close(read)
                os.write(write, b"through")
                os.close(write)
                await asyncio.sleep(0.05)
            return await call

    answer = run_for(20, scenario())
    (descriptor,) = answer.fds
    try:
        assert os.read(descriptor, 100) == b"through"
    finally:
        os.close(descriptor)


def test_a_connection_leaves_no_descriptor_behind(private_bus: PrivateBus) -> None:
    async def scenario() -> None:
        async with SystemBus() as first:
            before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - counts, and opens nothing else
            for _ in range(10):
                async with SystemBus() as bus:
                    assert bus.unique_name != first.unique_name
                    await bus.call(Call("org.freedesktop.DBus", "/", "org.freedesktop.DBus", "GetId"))
            assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208

    run_for(20, scenario())


def test_no_bus_is_a_connection_error(private_bus: PrivateBus) -> None:
    private_bus.kill()

    async def scenario() -> None:
        for address in (private_bus.address, "unix:path=/nonexistent/bus", "nonsense", "carrier-pigeon:x=y"):
            try:
                async with SystemBus(address):
                    raise AssertionError(f"{address} let us in")
            except ConnectionError as error:
                assert address in str(error)

    run_for(20, scenario())
