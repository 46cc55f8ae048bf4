"""A task as it runs, to its end: its events and, if wanted, its output go to a `View`; the result is the whole task.

A task outlives the daemon that reports on it, so following does too: when aiosd goes away, it is awaited and asked
again, and nothing is shown twice because the log offsets stay here.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from aiosd.cli.failure import Failure
from aiosd.cli.logs import LogPump

if TYPE_CHECKING:
    import asyncio
    from contextlib import AbstractContextManager

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

    def hold(self) -> AbstractContextManager[None]:
        """Make room at the bottom of the terminal while this lasts: a person is being asked."""


class Asker(Protocol):
    """Who asks the person what the task wants to know (`asking.Questions`)."""

    def take(self, event: TaskEvent) -> bool:
        """Whether this event is seen to by the asker, so that the view says nothing about it."""

    def look(self, task: JsonObject) -> None:
        """The whole task: it may be asking already."""

    async def run(self) -> None:
        """Ask, for ever."""


class Patience:
    """How long a daemon that went away is waited for."""

    def __init__(self, view: View | None = None) -> None:
        """`view`: where the person is told."""
        self._view = view
        self._gone_since: float | None = None
        self._asked = time.monotonic()

    def asking(self) -> None:
        """Something is about to be asked that takes long."""
        self._asked = time.monotonic()

    async def after(self, failure: Failure) -> None:
        """Wait a moment before the next try; raises `failure` when it is another, or there have been enough tries.

        The first one needs no pause: whoever calls while the daemon is restarted waits on the bus or in the socket.
        """
        import asyncio

        if not failure.is_absence:
            raise failure
        now = time.monotonic()
        if now - self._asked > _SETTLED:  # it had been back in between
            self._gone_since = None
        if self._gone_since is None:
            self._gone_since = now
            if self._view is not None:
                self._view.note("aiosd went away; the task goes on, waiting for aiosd to come back")
            return
        if now - self._gone_since > RESTART_TIMEOUT:
            raise failure
        await asyncio.sleep(_RESTART_PAUSE)


async def until_final(client: TaskManagerClient, task_id: str) -> JsonObject:
    """The task once it is final, across restarts of the daemon."""
    patience = Patience()
    while True:
        patience.asking()
        try:
            return await client.wait(task_id)
        except Failure as failure:
            await patience.after(failure)


async def follow(
    client: TaskManagerClient, task_id: str, view: View, *, output: bool, asker: Asker | None = None
) -> JsonObject:
    """Show the task until it is final. `output`: what its program writes, too. `asker`: answers its questions here."""
    import asyncio

    ended = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        if output:
            group.create_task(_pump(client, task_id, view, ended))
        asking = None if asker is None else group.create_task(asker.run())
        task = await _show(client, task_id, view, asker)
        if asking is not None:
            asking.cancel()
        ended.set()
    return task


async def _show(client: TaskManagerClient, task_id: str, view: View, asker: Asker | None) -> JsonObject:
    patience = Patience(view)

    def on_event(event: TaskEvent) -> None:
        if asker is None or not asker.take(event):
            view.event(event)

    while True:
        patience.asking()
        try:
            async with client.events(task_id, (), on_event):
                now = await client.get(task_id)  # after subscribing, so that nothing falls in between
                view.task(now)
                if asker is not None:
                    asker.look(now)
                return await client.wait(task_id)
        except Failure as failure:
            await patience.after(failure)


async def _pump(client: TaskManagerClient, task_id: str, view: View, ended: asyncio.Event) -> None:
    await LogPump(client, task_id, view.output).run(ended)
