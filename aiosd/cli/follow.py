"""A task as it runs, to its end: its events and, if wanted, its output go to a `View`; the result is the whole task.

A task outlives the daemon that reports on it, so following does too: when aiosd goes away, it is awaited and asked
again, and nothing is shown twice because the log offsets stay here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from aiosd.cli.exit_status import ExitStatus
from aiosd.cli.failure import Failure
from aiosd.cli.logs import LogPump

if TYPE_CHECKING:
    import asyncio

    from aiosd.cli.client import TaskManagerClient
    from aiosd.cli.values import TaskEvent
    from aiosd.model.jsontext import JsonObject

RESTART_TIMEOUT = 30.0
"""Seconds that a vanished daemon has to come back."""
_RESTART_PAUSE = 1.0
_SETTLED = 5.0
"""Seconds after which a wait that ended badly had reached a daemon."""


class View(Protocol):
    """Where a followed task is shown."""

    def event(self, event: TaskEvent) -> None:
        """One event of the task."""

    def task(self, task: JsonObject) -> None:
        """The whole task, at the beginning and when something was missed."""

    def output(self, stream: str, data: bytes) -> None:
        """What the program wrote."""

    def note(self, text: str) -> None:
        """Something that the person should know."""


async def until_final(client: TaskManagerClient, task_id: str, view: View | None = None) -> JsonObject:
    """The task once it is final, across restarts of the daemon."""
    import asyncio

    loop = asyncio.get_running_loop()
    gone_since: float | None = None
    while True:
        asked = loop.time()
        try:
            return await client.wait(task_id)
        except Failure as failure:
            if failure.status != ExitStatus.UNAVAILABLE:
                raise
            now = loop.time()
            if now - asked > _SETTLED:  # it had been back in between
                gone_since = None
            if gone_since is None:
                gone_since = now
                if view is not None:
                    view.note("aiosd went away; the task goes on, waiting for aiosd to come back")
            elif now - gone_since > RESTART_TIMEOUT:
                raise
            await asyncio.sleep(_RESTART_PAUSE)


async def follow(client: TaskManagerClient, task_id: str, view: View, *, output: bool) -> JsonObject:
    """Show the task until it is final. `output`: what its program writes, too."""
    import asyncio

    ended = asyncio.Event()
    async with client.events(task_id, (), view.event):
        view.task(await client.get(task_id))  # after subscribing, so that nothing falls in between
        async with asyncio.TaskGroup() as group:
            if output:
                group.create_task(_pump(client, task_id, view, ended))
            task = await until_final(client, task_id, view)
            ended.set()
    return task


async def _pump(client: TaskManagerClient, task_id: str, view: View, ended: asyncio.Event) -> None:
    await LogPump(client, task_id, view.output).run(ended)
