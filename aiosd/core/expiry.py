"""Questions and authentications that nobody answers in time end their task (`input-timeout`, `auth-timeout`).

The moment is stored with the question (`expires_at`), so it holds across restarts; while the daemon runs it is waited
for on the boot clock, which a change of the wall clock does not move.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from aiosd.core import clock, run_states
from aiosd.core.authentication import is_programs
from aiosd.core.delays import Delays
from aiosd.core.outcome import failure
from aiosd.errors import ErrorKind
from aiosd.model.status import Reason, Status
from aiosd.run.client import LauncherError
from aiosd.store import tasks
from aiosd.store.database import StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiosd.core.supervision import Supervision
    from aiosd.model.event import Event
    from aiosd.model.jsontext import JsonObject
    from aiosd.model.task import Task
    from aiosd.store.database import Database, Transaction

STORE_RETRY = 1.0
"""Seconds before another try when the store refuses."""

_WAITING = (Status.INPUT_REQUIRED, Status.AUTH_REQUIRED)

_log = logging.getLogger(__name__)


class Expiry:
    """Watches the tasks that wait for a person with a time limit."""

    def __init__(self, database: Database, supervision: Supervision) -> None:
        """`supervision`: whose runs are stopped."""
        self._database = database
        self._supervision = supervision
        self._wakeup = asyncio.Event()
        self._delays = Delays()
        self._next_at: float | None = None

    def heard(self, events: Sequence[Event]) -> None:
        """An event listener."""
        if any(event.change is not None and event.change.new in _WAITING for event in events):
            self._wakeup.set()

    async def run(self) -> None:
        """For ever."""
        while True:
            self._wakeup.clear()
            try:
                await self._look()
            except StoreError as error:
                _log.warning("Time limits of questions cannot be seen to: %s", error)
                self._wakeup.set()
                await asyncio.sleep(STORE_RETRY)
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._next_at):
                    await self._wakeup.wait()

    @property
    def limited(self) -> int:
        """How many questions have a limit that was noted."""
        return len(self._delays)

    def look_again(self) -> None:
        """The clock was set, or the machine has slept."""
        self._wakeup.set()

    async def _look(self) -> None:
        """End the tasks whose time is over, and note when the next one's is."""
        waiting = await self._database.read(lambda db: tasks.asking(db))
        limited = [(task, moment) for task in waiting if (moment := expires_at(task)) is not None]
        self._delays.forget_all_but({task.id for task, _ in limited})
        following = []
        for task, moment in limited:
            left = self._delays.left(task.id, clock.parse_rfc3339(moment))
            if left > 0:
                following.append(left)
            else:
                await self._end(task, moment)
        self._next_at = None
        if following:
            self._next_at = asyncio.get_running_loop().time() + min(following)

    async def _end(self, task: Task, moment: str) -> None:
        ended = await self._database.write(lambda tx: _expire(tx, task.id, moment))
        watch = self._supervision.of_task(task.id)
        if ended and watch is not None:
            try:
                await self._supervision.request_stop(watch, Reason.TIMEOUT.value)
            except LauncherError as error:
                _log.warning("%s could not be stopped: %s", watch.run_id, error)


def expires_at(task: Task) -> str | None:
    """The moment (RFC 3339) at which a program's question to a person ends its task; None when there is none."""
    asked = task.question if task.status is Status.INPUT_REQUIRED else task.auth_request
    if asked is None or (task.status is Status.AUTH_REQUIRED and not is_programs(asked)):
        return None
    moment = asked.get("expires_at")
    return moment if isinstance(moment, str) else None


def _expire(transaction: Transaction, task_id: str, moment: str) -> bool:
    """End the task, unless it was answered meanwhile."""
    task = tasks.get(transaction, task_id)
    if task is None or task.status not in _WAITING or expires_at(task) != moment:
        return False
    asked = (task.question if task.status is Status.INPUT_REQUIRED else task.auth_request) or {}
    reason = Reason.INPUT_TIMEOUT if task.status is Status.INPUT_REQUIRED else Reason.AUTH_TIMEOUT
    limit = asked.get("timeout_ms")
    asked_at = clock.parse_rfc3339(moment) - (limit if isinstance(limit, int) else 0) * 1000
    data: JsonObject = {
        "capability_id": task.capability_id, "timeout_ms": limit, "elapsed_ms": (clock.now() - asked_at) // 1000
    }  # fmt: skip
    run_states.end(transaction, task, failure(ErrorKind.TASK_TIMEOUT, reason, "nobody answered in time", data))
    return True
