"""Retention: what is finished is kept for a time, then removed in small steps, the store's rows last.

First the run directories go (through the launcher, whose they are), then the rows in one transaction with the event
that tells of it. A crash in between leaves a finished task without its logs, which the next round removes.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from aiosd.core import changes, clock
from aiosd.core.artifacts import BlobError
from aiosd.core.supervision import ABSENT
from aiosd.model.event import Kind, Source
from aiosd.run.client import LauncherError, LauncherErrorCode
from aiosd.store import artifacts, grants, retention, tasks
from aiosd.store.database import StoreError

if TYPE_CHECKING:
    import sqlite3

    from aiosd.core.artifacts import BlobStore
    from aiosd.core.settings import Settings
    from aiosd.run.client import LauncherClient
    from aiosd.store.database import Database, Transaction

ROUND = 3600.0
"""Seconds between rounds."""

STEP = 50
"""Tasks removed at a time."""

EVENTS_STEP = 1000

PAUSE = 0.05
"""Seconds between steps: others come first."""

DAY = 86_400 * clock.MICROSECONDS
BLOB_AGE = 3600 * clock.MICROSECONDS
"""How long content without an artifact is left alone: its artifact may be in a transaction that is under way."""

_log = logging.getLogger(__name__)


class Retention:
    """Removes what is old enough."""

    def __init__(self, database: Database, launcher: LauncherClient, settings: Settings, blobs: BlobStore) -> None:
        """Keeps what it calls."""
        self._database = database
        self._launcher = launcher
        self._settings = settings
        self._blobs = blobs
        self._kept: set[str] = set()
        """Tasks that could not be removed in this round."""

    async def run(self) -> None:
        """Round after round, for ever."""
        while True:
            await asyncio.sleep(ROUND)
            try:
                await self.sweep()
            except (StoreError, LauncherError) as error:
                _log.warning("Old tasks could not be removed: %s", error)

    async def sweep(self) -> int:
        """One round; how many tasks were removed. Raises StoreError and LauncherError."""
        removed = 0
        self._kept.clear()
        while chosen := await self._database.read(self._old_tasks):
            removed += await self._remove(chosen)
            await asyncio.sleep(PAUSE)
        await self._sweep_sessions()
        await self._sweep_events()
        await self._sweep_blobs()
        return removed

    def _old_tasks(self, db: sqlite3.Connection) -> list[str]:
        config = self._settings.current
        chosen: list[str] = []
        if config.retention_days is not None:
            chosen = retention.ended_before(db, clock.now() - config.retention_days * DAY, STEP, self._kept)
        if not chosen and config.retention_tasks is not None:
            chosen = retention.beyond(db, config.retention_tasks, STEP, self._kept)
        return chosen

    async def _remove(self, task_ids: list[str]) -> int:
        """Those of them whose runs can be removed; how many. One whose supervisor hangs on does not keep the others."""
        for task_id, run_id in await self._database.read(lambda db: retention.runs_of(db, task_ids)):
            try:
                await self._launcher.remove(run_id)
            except LauncherError as error:
                if error.code in ABSENT:
                    raise
                if error.code is not LauncherErrorCode.GONE:
                    _log.warning("%s of %s is kept until the next round: %s", run_id, task_id, error)
                    self._kept.add(task_id)
        going = [task_id for task_id in task_ids if task_id not in self._kept]
        return await self._database.write(lambda transaction: _remove_rows(transaction, going))

    async def _sweep_sessions(self) -> None:
        """Archived ones, when their tasks are gone and as much time has passed."""
        days = self._settings.current.retention_days
        if days is None:
            return
        before = clock.now() - days * DAY
        while chosen := await self._database.read(lambda db: retention.archived_before(db, before, STEP)):
            for session_id in chosen:  # one at a time: a long conversation goes with it
                await self._database.write(partial(retention.remove_session, session_id=session_id))
                await asyncio.sleep(PAUSE)

    async def _sweep_events(self) -> None:
        days = self._settings.current.retention_days
        if days is None:
            return
        before = clock.now() - days * DAY
        removed = EVENTS_STEP
        while removed == EVENTS_STEP:
            removed = await self._database.write(partial(retention.remove_events, before=before, limit=EVENTS_STEP))
            await asyncio.sleep(PAUSE)
        await self._database.write(partial(grants.forget_ended, before=before, limit=EVENTS_STEP))

    async def _sweep_blobs(self) -> None:
        before = clock.now() - BLOB_AGE
        found = await self._database.read(lambda db: retention.unreferenced_blobs(db, before, 1000))
        strays = await asyncio.to_thread(self._blobs.older, before / clock.MICROSECONDS)
        for begin in range(0, len(strays), 1000):  # content that no row is of: a crash came between
            some = strays[begin : begin + 1000]
            found += await self._database.read(partial(artifacts.without_row, digests=some))
        for sha256 in found:
            with suppress(BlobError):  # a file that is none of ours
                await self._blobs.remove(
                    sha256, partial(self._database.write, partial(artifacts.forget, sha256=sha256))
                )


def _remove_rows(transaction: Transaction, task_ids: list[str]) -> int:
    """Those of them that nothing needs any more; somebody may have come to depend on one meanwhile."""
    going = [tasks.get(transaction, one) for one in retention.not_needed(transaction, task_ids)]
    found = [task for task in going if task is not None]
    retention.remove_tasks(transaction, [task.id for task in found])
    for task in found:
        changes.emit(transaction, task, Kind.TIMELINE, "task.removed", {"task_id": task.id}, source=Source.SYSTEM)
    return len(found)
