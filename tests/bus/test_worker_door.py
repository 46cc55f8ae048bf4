"""Workers on D-Bus: their paths, and the descriptor by which the daemon knows that one is there."""

from __future__ import annotations

import os
import select
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiosd.bus.connection import Variant
from aiosd.bus.paths import Place, Target, find, worker_path
from aiosd.core.operations import Reply
from tests.bus.fake_core import FakeCore, manager_call, served
from tests.bus.running import run_for
from tests.bus.worker_cases import WORKER_ID, WORKER_PATH

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonObject
    from tests.bus.conftest import PrivateBus


@given(st.integers(0, (1 << 32) - 1), st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", fullmatch=True))
def test_a_path_names_its_worker_and_no_other(uid: int, worker_id: str) -> None:
    path = worker_path(uid, worker_id)
    assert find(path) == Target(Place.WORKER, worker_id=worker_id, worker_uid=uid)
    assert all(sign.isalnum() or sign in "_/" for sign in path)


@pytest.mark.parametrize(
    "path",
    ["/u1000/", "/u01000/w", "/u4294967296/w", "/u1000/worker_mac", "/u1000/_41", "/1000/w", "/u1000/w/x", "x",
     "/u1000/_2f", "/u1000/w_2", "/u1000/_5F"],
)  # fmt: skip
def test_other_paths_name_no_worker(path: str) -> None:
    assert find(f"/org/aios/TaskManager/worker{path}") is None


def test_folders_of_workers_are_there_for_tools_that_walk() -> None:
    for path in ("/org/aios/TaskManager/worker", "/org/aios/TaskManager/worker/u1000"):
        assert find(path) == Target(Place.WORKERS)


def test_registering_answers_with_the_descriptor_to_hold(private_bus: PrivateBus) -> None:
    async def scenario() -> None:
        held, given_away = os.pipe()
        body: JsonObject = {
            "worker_id": WORKER_ID,
            "uid": 1000,
            "registration": "0a",
            "tag": "",
            "lease_ms": 1,
            "assignments": [],
        }
        core = FakeCore(answers={"worker.register": Reply(body, (given_away,))})
        async with served(core) as (client, _):
            options = {"hostname": Variant("s", "mac-studio"), "capacity": Variant("u", 2)}
            answer = await client.call(manager_call("RegisterWorker", "sa{sv}", WORKER_ID, options))
            assert list(answer.body[:2]) == [WORKER_PATH, "0a"]
            (mine,) = answer.fds
            assert core.calls[0][2] == {
                "worker_id": WORKER_ID, "liveness": "descriptor", "hostname": "mac-studio", "capacity": 2
            }  # fmt: skip
            poll = select.poll()
            poll.register(held, select.POLLIN)
            assert poll.poll(0) == [], "the worker holds it, the door has let go of its own"
            os.close(mine)
            assert poll.poll(10_000) == [(held, select.POLLHUP)]
        os.close(held)

    run_for(30, scenario())
