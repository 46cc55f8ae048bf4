"""Seed 000's story as it is told over HTTP to the real core."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from tests.rpc.serving import Http, Json, door
from tests.rpc.story import CAPABILITY, MANIFEST, REQUESTS, search_and_compare
from tests.unit.core.rig import Core, core

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from tests.unit.core.fakelauncher import FakeRun


@asynccontextmanager
async def told(place: Path, program: Callable[[FakeRun], Awaitable[None]] = search_and_compare) -> AsyncIterator[Told]:
    """The story's capability, installed, and a client."""
    async with core(place) as aios, door(place, aios.manager, aios.hub) as (paths, _):
        await aios.install(CAPABILITY, MANIFEST)
        aios.launcher.program = program
        async with Http.connect(paths.http) as http:
            yield Told(aios, http, paths.http)


class Told:
    """The story as it is being told: `task_id` once it is created."""

    def __init__(self, aios: Core, http: Http, path: Path) -> None:
        self.aios, self.http, self.path, self.task_id = aios, http, path, ""

    async def ask(self, method: str, **instead: object) -> Json:
        """The document's request, with the ids that there really are; the result."""
        params = {**REQUESTS[method], **instead}
        if "task_id" in params:
            params["task_id"] = self.task_id
        answer = await self.http.call(method, params)
        assert answer.keys() == {"jsonrpc", "id", "result"}, answer
        result: Json = answer["result"]
        return result

    async def create(self) -> Json:
        created = await self.ask("aios/task.create")
        self.task_id = created["task_id"]
        return created

    async def finish(self) -> None:
        """Create, answer the question, wait for the end."""
        await self.create()
        await self.aios.until(self.task_id, "input_required")
        await self.ask("aios/task.input")
        await self.aios.ended(self.task_id)


async def slow(run: FakeRun) -> None:
    """A program in the middle of its work."""
    await run.go()
    progress: Json = {"percent": 45, "message": "正在搜索淘宝...", "current_step": 2, "total_steps": 4}
    run.say("processing", {"progress": progress})
    await run.hear("cancel")
    run.end(0, stopped_by="cancel")
