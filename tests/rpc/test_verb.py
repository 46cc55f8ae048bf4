"""`aiosctl rpc` against the door."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from aiosd.cli.main import run
from tests.rpc.serving import door
from tests.rpc.standin import TASK, StandIn
from tests.unit.core.rig import core, play

if TYPE_CHECKING:
    from pathlib import Path


def test_it_calls_and_prints(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def scenario() -> None:
        async with core(place, schedule=False) as aios, door(place, aios.manager, aios.hub) as (paths, _):
            task = await aios.create()
            where = f"--socket={paths.http}"
            for method in ("task.get", "aios/task.get"):
                words = ["rpc", where, "--json", method, json.dumps({"task_id": task})]
                assert await asyncio.to_thread(run, words) == 0
                assert json.loads(capsys.readouterr().out)["task_id"] == task
            assert await asyncio.to_thread(run, ["rpc", where, "rpc.discover"]) == 0
            assert json.loads(capsys.readouterr().out)["openrpc"]

    play(scenario())


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["task.get", "{}"], 64, "task_id"),
        (["task.get", "{"], 65, "JSON"),
        (["task.nothing"], 64, "Method not found"),
        (["task.get", json.dumps({"task_id": TASK})], 66, "Task not found"),
        (["--socket=/nonexistent", "task.list"], 69, "cannot be reached"),
    ],
)
def test_what_goes_wrong(
    place: Path, capsys: pytest.CaptureFixture[str], words: list[str], status: int, said: str
) -> None:
    async def scenario() -> None:
        async with core(place, schedule=False) as aios, door(place, aios.manager, aios.hub) as (paths, _):
            assert await asyncio.to_thread(run, ["rpc", f"--socket={paths.http}", *words]) == status
            assert said in capsys.readouterr().err

    play(scenario())


def test_it_says_whether_a_person_may_be_asked(place: Path) -> None:
    async def scenario() -> None:
        stand_in = StandIn()
        async with door(place, stand_in, stand_in) as (paths, _):
            for more in ([], ["--no-ask-password"]):
                words = ["rpc", f"--socket={paths.http}", *more, "task.get", json.dumps({"task_id": TASK})]
                assert await asyncio.to_thread(run, words) == 0
            assert [caller.interactive for _, caller, _ in stand_in.calls] == [True, False]

    play(scenario())
