"""aiosd.client against the real core: what its own page says works, also when the service goes away and comes back."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, aclosing
from typing import TYPE_CHECKING

import pytest

from aiosd.client import AsyncClient, CallError, Client, Event
from aiosd.client.messages import StreamReader
from aiosd.client.plain import ASK_AGAIN, FIRST_PAUSE, LONGEST_PAUSE
from aiosd.errors import AiosError, ErrorKind
from aiosd.rpc.server import RpcDoor, Speech
from tests.rpc.serving import door, listening
from tests.rpc.standin import TASK, StandIn
from tests.rpc.story import CAPABILITY, MANIFEST, OPTIONS, REQUESTS, RESULT, search_and_compare
from tests.unit.core.rig import core, play

if TYPE_CHECKING:
    from pathlib import Path


def tell_the_story(path: Path) -> list[Event]:
    """As a program with no loop does."""
    seen = []
    with Client(path) as aios:
        request = REQUESTS["aios/task.create"]
        task = aios.create(CAPABILITY, request["arguments"], metadata=request["metadata"])
        for event in aios.events(str(task["task_id"])):
            seen.append(event)
            if event.kind == "task.input_required":
                assert event.data["options"] == OPTIONS
                aios.provide_input(str(task["task_id"]), REQUESTS["aios/task.input"]["input"])
            if event.kind == "task.result":
                break
        assert aios.wait(str(task["task_id"]))["result"] == RESULT
        assert aios.get(str(task["task_id"]), history=True)["state_history"]
        assert aios.list({"status": ["completed"]})["total"] == 1
        with pytest.raises(CallError) as refused:
            aios.cancel(str(task["task_id"]))
        assert (refused.value.code, refused.value.error_id) == (-32107, "AIOS-TASK-COMPLETED")
    return seen


def test_the_plain_client(place: Path) -> None:
    async def scenario() -> None:
        async with core(place) as aios, door(place, aios.manager, aios.hub) as (paths, _):
            await aios.install(CAPABILITY, MANIFEST)
            aios.launcher.program = search_and_compare
            seen = await asyncio.to_thread(tell_the_story, paths.http)
            log = await aios.log(str(seen[0].data["task_id"]))
            assert [event.id for event in seen] == [event.id for event in log]

    play(scenario())


def test_the_client_for_asyncio(place: Path) -> None:
    async def scenario() -> None:
        async with core(place) as aios, door(place, aios.manager, aios.hub) as (paths, _):
            await aios.install(CAPABILITY, MANIFEST)
            aios.launcher.program = search_and_compare
            async with AsyncClient(paths.lines) as client:
                task = str((await client.create(CAPABILITY))["task_id"])
                seen = []
                async with aclosing(client.events(task, last_event_id="evt-0000000000000000")) as events:
                    async for event in events:
                        seen.append(event)
                        if event.kind == "task.input_required":
                            await client.provide_input(task, REQUESTS["aios/task.input"]["input"])
                        if event.kind == "task.result":
                            break
                assert [event.id for event in seen] == [event.id for event in await aios.log(task)]
                assert (await client.wait(task))["result"] == RESULT
                with pytest.raises(CallError):
                    await client.get("task-0")

    play(scenario())


def test_a_plain_stream_goes_on_after_the_service_was_away(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    real = time.sleep

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        real(seconds / 10)

    monkeypatch.setattr("aiosd.client.plain.time.sleep", sleep)

    async def scenario() -> None:
        stand_in = StandIn()
        heard: asyncio.Queue[Event] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def listen() -> None:
            with Client(place / "aios.sock") as client:
                for event in client.events(TASK):
                    loop.call_soon_threadsafe(heard.put_nowait, event)
                    if event.id.endswith("5"):
                        return

        async with door(place, stand_in, stand_in):
            listening = asyncio.create_task(asyncio.to_thread(listen))
            stand_in.happen(2)
            assert [(await heard.get()).id[-1] for _ in range(2)] == ["1", "2"]
        stand_in.happen(1)
        async with door(place, stand_in, stand_in):
            stand_in.happen(2)
            await listening
            assert [heard.get_nowait().id[-1] for _ in range(3)] == ["3", "4", "5"]
        # Where nobody holds the socket there are more tries: the first at once, then after longer and longer pauses.
        assert pauses[0] == 0
        assert pauses[1:] == [min(FIRST_PAUSE * 2**number, LONGEST_PAUSE) for number in range(len(pauses) - 1)]

    play(scenario())


def test_a_plain_stream_is_taken_up_at_once_however_often_the_service_is_restarted(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("aiosd.client.plain.time.sleep", pauses.append)
    path = place / "held"

    async def scenario() -> None:
        stand_in, held = StandIn(), listening(path)  # as the service manager does
        heard: asyncio.Queue[Event] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def listen() -> None:
            with Client(path) as client:
                for event in client.events(TASK):
                    loop.call_soon_threadsafe(heard.put_nowait, event)
                    if event.id.endswith("5"):
                        return

        following = asyncio.create_task(asyncio.to_thread(listen))
        for number in range(1, 6):
            async with RpcDoor(stand_in, stand_in, {Speech.HTTP: held.dup()}) as served:
                served.open()
                stand_in.happen(1)
                assert (await heard.get()).id.endswith(str(number))
        await following
        held.close()

    play(scenario())
    assert pauses == [0] * 4


def test_a_connection_that_was_closed_meanwhile_is_made_anew(place: Path) -> None:
    async def scenario() -> None:
        stand_in = StandIn()
        with Client(place / "aios.sock") as client:
            for _ in range(2):
                async with door(place, stand_in, stand_in):
                    for _ in range(2):
                        answer = await asyncio.to_thread(client.call, "aios/task.get", {"task_id": TASK})
                        assert answer["operation"] == "task.get"
            with pytest.raises(OSError):
                await asyncio.to_thread(client.call, "aios/task.get", {"task_id": TASK})

    play(scenario())


def test_a_call_that_meets_a_stopping_service_is_made_to_the_next(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("aiosd.client.plain.time.sleep", pauses.append)
    stopping = AiosError(ErrorKind.SHUTTING_DOWN, "The service is stopping", reason="shutting-down")

    async def scenario() -> None:
        stand_in = StandIn(errors={"task.get": stopping})
        async with door(place, stand_in, stand_in):
            with Client(place / "aios.sock") as client:
                with pytest.raises(CallError, match="stopping"):
                    await asyncio.to_thread(client.call, "aios/task.get", {"task_id": TASK})
                assert tuple(pauses) == ASK_AGAIN, "not for ever"
                monkeypatch.setattr("aiosd.client.plain.time.sleep", lambda _: stand_in.errors.clear())
                answer = await asyncio.to_thread(client.call, "aios/task.get", {"task_id": TASK})
                assert answer["operation"] == "task.get"

    play(scenario())


def test_who_waits_is_told_that_the_service_is_gone(place: Path) -> None:
    async def scenario() -> None:
        stand_in = StandIn(gates={"task.wait": asyncio.Event()})
        async with AsyncExitStack() as outer, AsyncExitStack() as inner:
            paths, _ = await inner.enter_async_context(door(place, stand_in, stand_in))
            client = await outer.enter_async_context(AsyncClient(paths.lines))
            waiting = asyncio.create_task(client.wait(TASK))
            await stand_in.entered.get()
            await inner.aclose()
            with pytest.raises(ConnectionResetError):
                await waiting
            with pytest.raises(ConnectionResetError):
                await client.get(TASK)

    play(scenario())


def test_a_stream_is_read_by_the_letter() -> None:
    reader = StreamReader()
    text = (
        'retry: 5\n: nothing\n\nevent: task.log\nid: evt-1\ndata: {"a":\ndata: 1}\n\n'
        "event:task.log\ndata:{}\n\nid: evt-2\n\n"
    )
    found = [event for line in text.split("\n") if (event := reader.feed(line)) is not None]
    assert found == [Event("evt-1", "task.log", {"a": 1}), Event("", "task.log", {})]
    assert reader.last_id == "evt-2"
    assert not reader.at_once
    assert reader.feed("retry: 0") is None
    assert reader.at_once
