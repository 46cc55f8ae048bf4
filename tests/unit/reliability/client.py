"""Somebody who uses the daemon through its deaths, as a careful program does: what was not answered is looked up."""

from __future__ import annotations

import asyncio
import itertools
import json
from contextlib import suppress
from typing import TYPE_CHECKING

from aiosd.errors import AiosError, ErrorKind
from tests.unit.core.rig import PATIENCE
from tests.unit.hooks.receiver import Receiver
from tests.unit.reliability.crashing import Dead

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiosd.model.jsontext import JsonObject
    from tests.unit.reliability.crashing import World


class Client:
    """Makes calls until they are answered. `promised`: tasks whose creation was answered."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.promised: list[str] = []
        self.receiver = Receiver()

    def delivered(self) -> list[str]:
        """Events that the webhook's receiver accepted."""
        return [json.loads(one.body)["event"] for one in self.receiver.accepted]

    def states(self) -> list[str]:
        """States among them, one that came twice in a row once."""
        found = [json.loads(one.body) for one in self.receiver.accepted]
        told = [str(one["data"]["status"]) for one in found if one["event"] == "task.status"]
        return [state for state, _ in itertools.groupby(told)]

    async def task(self, task_id: str) -> JsonObject:
        """The task as it is; AiosError when there is none."""
        while True:
            try:
                found = await self.world.call("task.get", {"task_id": task_id})
            except Dead:
                continue
            task = found.get("task", found)
            assert isinstance(task, dict)
            return task

    async def create(self, capability: str, token: str, **options: object) -> str:
        """A task of a name that we choose, so that we find it again when the answer is lost."""
        task_id = f"task-u1000-{token}"
        params: JsonObject = {
            "capability_id": capability, "arguments": {"n": 1}, "metadata": {},
            "options": {"async": True, "handle_token": token, **options},  # type: ignore[dict-item]
        }  # fmt: skip
        while True:
            try:
                answered = await self.world.call("task.create", params)
            except Dead:
                if await self._exists(task_id):
                    return task_id
                continue
            assert answered["task_id"] == task_id
            self.promised.append(task_id)
            return task_id

    async def _exists(self, task_id: str) -> bool:
        try:
            await self.task(task_id)
        except AiosError as error:
            assert error.kind is ErrorKind.TASK_NOT_FOUND, error
            return False
        return True

    async def do(self, name: str, params: JsonObject, done: Callable[[JsonObject], bool]) -> None:
        """A call that changes a task, made again after a death that left it undone. `done`: whether it was."""
        died = False
        while True:
            try:
                await self.world.call(name, params)
            except Dead:
                died = True
                if done(await self.task(str(params["task_id"]))):
                    return
                continue
            except AiosError:
                # The call that died was carried out to its end after all, between our look and our second call.
                if died and done(await self.task(str(params["task_id"]))):
                    return
                raise
            return

    async def planned(self) -> None:
        """A session with a plan of one task; found again when the answer is lost."""
        session = await self._sure("session.create", {"title": "one"}, "session.list", {}, "sessions")
        about: JsonObject = {"session_id": session["session_id"]}
        await self._sure("plan.create", {**about, "tasks": [{"title": "one"}]}, "plan.get", about, "tasks")

    async def _sure(self, name: str, params: JsonObject, look: str, about: JsonObject, key: str) -> JsonObject:
        """A call that makes something; what was made, by its answer or by looking."""
        while True:
            with suppress(Dead):
                return await self.world.call(name, params)
            with suppress(Dead, AiosError):  # what is not there yet is made by the next call
                found = (await self.world.call(look, about))[key]
                if isinstance(found, list) and found and isinstance(found[0], dict):
                    return found[0]

    async def works_elsewhere(self, result: JsonObject) -> None:
        """A worker: takes what it is offered and completes it, as often as it takes until that was heard once."""
        worker: JsonObject = {"worker_id": "worker_mac_001"}
        kept: JsonObject = {}
        while True:
            try:
                made = await self.world.call("worker.register", {**worker, **kept})
                kept = {"registration": made["registration"]}
                shown = made
                while not (offers := shown["assignments"]):
                    known: JsonObject = {"known": shown["tag"], "wait_ms": 2000}
                    shown = await self.world.call("worker.heartbeat", {**worker, **kept, **known})
                assert isinstance(offers, list)
                assert isinstance(offers[0], dict)
                about: JsonObject = {**worker, "assignment_id": offers[0]["assignment_id"]}
                await self.world.call("worker.accept", about)
                await self.world.call("worker.complete", {**about, "result": result})
            except Dead:
                if await self._ended():
                    return
            else:
                return

    async def _ended(self) -> bool:
        """Whether the task of the plan has."""
        while True:
            with suppress(Dead):
                found = (await self.world.call("task.list", {"filter": {"status": ["completed"]}}))["tasks"]
                return bool(found)

    async def begun(self, task_id: str) -> None:
        """Wait until its program has started: a task that is canceled before that need never start one."""
        async with asyncio.timeout(PATIENCE):
            while not any(run.went for run in self.world.launcher.made(task_id)):  # noqa: ASYNC110  nothing tells
                await asyncio.sleep(0.005)

    async def until(self, task_id: str, *states: str) -> JsonObject:
        """Wait until its status or phase is one of these."""
        async with asyncio.timeout(PATIENCE):
            while True:
                task = await self.task(task_id)
                if task["status"] in states or task.get("phase") in states:
                    return task
                await asyncio.sleep(0.005)
