"""Takes answers to programs' approvals from the store to the programs.

They come about in three places: a person's word, a time that is over, an answer that was given for the session. All
end in an event, so this listens. It tries until the shim has the answer or the run is over; what a crash leaves is
delivered when the run is taken up again (`Supervision.deliver_answer`).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from aiosd.core import run_states
from aiosd.core.executors import WORKERS
from aiosd.store import tasks
from aiosd.store.database import StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiosd.core.supervision import Supervision
    from aiosd.model.event import Event
    from aiosd.store.database import Database

LOOK_AGAIN = 0.25
"""Seconds between two tries for a run that has no channel at the moment."""

_ANSWERED = frozenset({"approval.approved", "approval.rejected", "approval.expired"})

_log = logging.getLogger(__name__)


class ApprovalAnswers:
    """Delivers what is on its way."""

    def __init__(self, database: Database, supervision: Supervision) -> None:
        """Does nothing before `run`."""
        self._database = database
        self._supervision = supervision
        self._wakeup = asyncio.Event()
        self._waiting: set[str] = set()

    def heard(self, events: Sequence[Event]) -> None:
        """An event listener."""
        found = {event.task_id for event in events if event.type in _ANSWERED and event.task_id is not None}
        if found:
            self._waiting |= found
            self._wakeup.set()

    async def run(self) -> None:
        """For ever."""
        while True:
            self._wakeup.clear()
            for task_id in sorted(self._waiting):
                try:
                    if await self._done(task_id):
                        self._waiting.discard(task_id)
                except StoreError as error:
                    _log.warning("The answer to %s is handed over later: %s", task_id, error)
            if self._waiting:
                await asyncio.sleep(LOOK_AGAIN)
            else:
                await self._wakeup.wait()

    async def _done(self, task_id: str) -> bool:
        """Whether there is nothing (more) to hand over."""
        task = await self._database.read(lambda db: tasks.get(db, task_id))
        if task is None or task.capability_id == WORKERS or run_states.undelivered(task) is None:
            return True  # a worker comes for it
        watch = self._supervision.of_task(task_id)
        if watch is not None:
            await self._supervision.deliver_answer(watch, task)
            again = await self._database.read(lambda db: tasks.get(db, task_id))
            return again is None or run_states.undelivered(again) is None
        return False
