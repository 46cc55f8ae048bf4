"""Consent under attack, from bus to store: callers that leave, a polkit that hangs or says yes to all, a flood."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from aiosd.auth.polkit import PolkitAuthority
from aiosd.bus.authority import BusPolkit
from aiosd.bus.connection import BusCallError, Call, SystemBus
from aiosd.bus.door import BusDoor
from aiosd.bus.interfaces import load
from aiosd.bus.paths import BUS_NAME, approval_path
from aiosd.core.operations import APPROVAL
from aiosd.core.prompts import MAX_QUEUED
from tests.bus.fake_core import manager_call
from tests.bus.fake_polkit import FakePolkit, Mood, fake_polkit
from tests.bus.running import run_for
from tests.bus.test_door import as_user
from tests.unit.core.rig import OPEN, core, eventually, manifest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aiosd.bus.message import Answer, BusValue
    from tests.bus.conftest import PrivateBus
    from tests.unit.core.rig import Core

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")

ALICE, BOB = 65534, 1
"""Two users that every system has: dbus-daemon wants to know them."""
HIGH, CRITICAL = "test.high.run", "test.critical.run"
NOTHING: dict[str, BusValue] = {}


@asynccontextmanager
async def daemon(root: Path, *, decide_seconds: float = 5.0) -> AsyncIterator[tuple[Core, FakePolkit]]:
    """The core behind its D-Bus door, with a polkit that can be told what to do."""
    async with (
        core(root) as aios,
        fake_polkit() as polkit,
        SystemBus() as bus,
        BusDoor(bus, aios.manager, aios.hub, interfaces=load()) as door,
    ):
        authority = PolkitAuthority(BusPolkit(bus), decide_seconds=decide_seconds)
        aios.authority.check = authority.check  # type: ignore[method-assign]  # the rig's stands in for polkit
        for name, level in ((HIGH, "high"), (CRITICAL, "critical")):
            await aios.install(name, manifest(name, OPEN, level=level))
        polkit.mood, polkit.person = Mood.CHALLENGE, Mood.HANG
        await door.open()
        yield aios, polkit
        await authority.close()


async def create(client: SystemBus, capability: str = HIGH, *, interactive: bool = True) -> Answer:
    call = manager_call("CreateTask", "ssa{sv}", capability, "{}", NOTHING)
    return await client.call(Call(call.destination, call.path, call.interface, call.member, call.signature, call.body,
                                  allow_interactive=interactive))  # fmt: skip


async def refused(work: asyncio.Task[Answer]) -> str:
    with pytest.raises(BusCallError) as caught:
        await work
    return str(json.loads(str(caught.value.body[1])).get("reason"))


def test_a_caller_that_leaves_takes_the_dialog_along(private_bus: PrivateBus, tmp_path: Path) -> None:
    """The next one in the queue gets its turn, and nothing of the first is stored."""

    async def scenario() -> None:
        async with daemon(tmp_path) as (aios, polkit), as_user(ALICE) as second:
            async with as_user(ALICE) as first:
                leaving = asyncio.create_task(create(first))
                await eventually(lambda: len(polkit.open) == 1)
                (dialog,) = polkit.open
                staying = asyncio.create_task(create(second))
            with pytest.raises(BusCallError):
                await leaving
            assert await asyncio.wait_for(polkit.cancelled.get(), 30) == dialog
            await eventually(lambda: len(polkit.open) == 1 and dialog not in polkit.open)
            assert await aios.count("tasks") == 0
            staying.cancel()
            await asyncio.gather(staying, return_exceptions=True)

    run_for(20, scenario())


def test_a_polkit_that_hangs_allows_nothing(private_bus: PrivateBus, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with daemon(tmp_path, decide_seconds=0.3) as (aios, polkit), as_user(ALICE) as client:
            polkit.mood = Mood.HANG
            assert await refused(asyncio.create_task(create(client))) == "authority-unavailable"
            assert await aios.count("tasks") == 0

    run_for(20, scenario())


def test_a_flood_of_questions_is_one_dialog(private_bus: PrivateBus, tmp_path: Path) -> None:
    """From several connections of one user: one is asked, some wait, the rest are refused. Others are not held up."""

    async def scenario() -> None:
        async with daemon(tmp_path) as (aios, polkit), AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(as_user(ALICE)) for _ in range(3)]
            flood = [asyncio.create_task(create(clients[number % 3])) for number in range(40)]
            await eventually(lambda: sum(one.done() for one in flood) == 40 - MAX_QUEUED)
            assert len(polkit.open) == 1
            for one in flood:
                if one.done():
                    assert await refused(one) == "prompts"
            other = await stack.enter_async_context(as_user(BOB))
            asking = asyncio.create_task(create(other))
            await eventually(lambda: len(polkit.open) == 2)
            await stack.aclose()
            await asyncio.gather(asking, *flood, return_exceptions=True)
            await eventually(lambda: not polkit.open)
            assert await aios.count("tasks") == 0

    run_for(30, scenario())


def test_a_yes_to_everything_leaves_the_second_act(private_bus: PrivateBus, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with daemon(tmp_path) as (aios, polkit), as_user(ALICE) as client, as_user(ALICE) as other:
            polkit.mood = polkit.person = Mood.YES
            task_id = (await create(client, CRITICAL)).text()
            asked = (await aios.task(task_id)).auth_request
            assert asked is not None
            path = approval_path(str(asked["approval_id"]))
            respond = Call(BUS_NAME, path, APPROVAL, "Respond", "sa{sv}", ("approve", NOTHING))
            assert await refused(asyncio.create_task(client.call(respond))) == "same-connection"
            assert await aios.count("runs") == 0
            assert (await other.call(respond)).text() == "approved"
            await aios.until(task_id, "completed")

    run_for(20, scenario())


def test_an_answer_that_comes_after_the_cancel_is_void(private_bus: PrivateBus, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with daemon(tmp_path) as (aios, polkit), as_user(ALICE) as client, as_user(BOB) as other:
            polkit.person = Mood.YES
            task_id = (await create(client, CRITICAL)).text()
            asked = (await aios.task(task_id)).auth_request
            assert asked is not None
            path = approval_path(str(asked["approval_id"]))
            polkit.delay = 0.4
            respond = Call(BUS_NAME, path, APPROVAL, "Respond", "sa{sv}", ("approve", NOTHING), allow_interactive=True)
            answering = asyncio.create_task(other.call(respond))
            await eventually(lambda: bool(polkit.open))
            label = task_id.replace("-", "_")
            cancel = Call(BUS_NAME, f"/org/aios/TaskManager/task/{label}", "org.aios.TaskManager1.Task", "Cancel",
                          "sa{sv}", ("", NOTHING))  # fmt: skip
            await client.call(cancel)
            assert await refused(answering) == "withdrawn"
            assert await aios.count("runs") == 0

    run_for(20, scenario())
