"""What a daemon leaves that dies in the middle of a pause: a program that is held and a task that is not paused.

It may have died between freezing the scope and storing that, or between storing that the task goes on and thawing it.
Nothing tells, so every run that is taken up is let go once. That is a word with the launcher and systemd for each, and
no hurry: first those are served who wait for the daemon to be back.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from aiosd.core.calm import CALM
from aiosd.model.status import Status
from aiosd.run.client import LauncherError
from aiosd.store import tasks
from aiosd.store.database import StoreError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from aiosd.core.watch import Watch
    from aiosd.store.database import Database

until_calm = asyncio.sleep


@asynccontextmanager
async def let_go_later(
    database: Database, watch: Watch, thaw: Callable[[Watch], Awaitable[None]]
) -> AsyncIterator[None]:  # fmt: skip
    """Inside of it, once it is calm, the program of a run from before goes on. `thaw`: raises LauncherError."""
    if watch.frozen:  # paused before it was taken up, and stored as that
        yield
        return
    waiting = asyncio.create_task(_let_go(database, watch, thaw))
    try:
        yield
    finally:
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def _let_go(database: Database, watch: Watch, thaw: Callable[[Watch], Awaitable[None]]) -> None:
    await until_calm(CALM)
    async with watch.holding:
        paused = watch.frozen
        with suppress(StoreError):
            task = await database.read(lambda db: tasks.get(db, watch.task_id))
            paused = task is None or task.status is Status.PAUSED
        if paused:  # by somebody who came meanwhile
            return
        with suppress(LauncherError):
            await thaw(watch)
        await watch.send("resume")
