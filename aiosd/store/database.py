"""The database as the rest of the daemon sees it: `write` and `read`, awaited, and a hook after each commit.

`async with Database.open(path) as database:` — then `await database.write(fn)` runs `fn(Transaction)` in the writer
thread and returns after the commit; `await database.read(fn)` runs `fn(sqlite3.Connection)` on a snapshot. The event
loop never waits for the disk. Both kinds of function must be plain functions of the database: no I/O, no waiting.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, TypeVar, cast

from aiosd.store.errors import StoreError, StoreFailure
from aiosd.store.files import SUSPECT, beside
from aiosd.store.glances import Glances
from aiosd.store.opening import Opened, OpenReport, open_store
from aiosd.store.reader import QueuedRead, Readers, ReadJob
from aiosd.store.writer import Follow, Job, Queued, Seal, Transaction, Writer

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncIterator, Callable, Hashable, Sequence
    from pathlib import Path

T = TypeVar("T")

MAX_QUEUED = 10_000
"""Writes, and reads, that may wait at a time; beyond it the caller is refused (`StoreFailure.BUSY`)."""

READERS = 2

ANSWER_HOLDS = 60.0
"""Seconds for which an answer stands for a store that is asked nothing else (`Database.health`)."""

_log = logging.getLogger(__name__)

__all__ = ["MAX_QUEUED", "Database", "OpenReport", "StoreError", "StoreFailure", "Transaction", "microseconds"]


def microseconds() -> int:
    """The present, in microseconds since the epoch: the one unit of time in the store."""
    return time.time_ns() // 1000


class Database:
    """One open database, owned by one event loop. Made by `open`."""

    def __init__(self, opened: Opened, path: Path, *, max_queued: int = MAX_QUEUED, seal: Seal | None = None) -> None:
        """Takes over what `open_store` opened; use `open`."""
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._opened = opened
        self._path = path
        self.damaged = asyncio.Event()
        self._max_queued = max_queued
        self._writes = 0
        self._reads = 0
        self._asked = 0
        self._proof = (-1, 0.0)
        self._closing = False
        self._listeners: list[Callable[[Sequence[object]], None]] = []
        self._write_listeners: list[Callable[[], None]] = []
        self._glances = Glances()
        self._readers = Readers(opened.readers, loop, self._read_settled)
        self._writer = None if opened.writer is None else Writer(opened.writer, loop, self._write_settled, seal)

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        path: Path,
        *,
        now: Callable[[], int] = microseconds,
        readers: int = READERS,
        max_queued: int = MAX_QUEUED,
        seal: Seal | None = None,
    ) -> AsyncIterator[Database]:
        """Open, check, migrate and in the end close the database at `path`. See `report` for what was met.

        `now`: microseconds since the epoch, for the names of copies. `seal`: called around every commit. Raises
        StoreError: `BUSY` when another process has it open, `READ_ONLY`, `FULL` or `IO` when the file system does not
        let us. A broken file is no error: it is moved aside.
        """
        opened = await asyncio.to_thread(open_store, path, now=now, readers=readers)
        database = cls(opened, path, max_queued=max_queued, seal=seal)
        database._start()
        try:
            yield database
        finally:
            await database.close()

    @property
    def report(self) -> OpenReport:
        """What opening met: migrations, copies, damage."""
        return self._opened.report

    @property
    def read_only_reason(self) -> str | None:
        """Why nothing can be written (a newer program's database), or None when it can."""
        return self._opened.report.read_only_reason

    def on_commit(self, listener: Callable[[Sequence[object]], None]) -> Callable[[], None]:
        """Call `listener` on the loop after each commit that emitted something; returns what ends that.

        It gets what the committed functions emitted, in commit order. The futures of that commit are resolved and their
        waiters have run once before, so a reply that is sent at once goes out before the signals.
        """
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def on_write(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` on the loop after each write that changed a row; returns what ends that.

        Who asked for the write is told afterwards. One that was undone may count as one that changed something.
        """
        self._write_listeners.append(listener)
        return lambda: self._write_listeners.remove(listener)

    def follow(self, follow: Follow | None) -> None:
        """Ask `follow`, in the writer thread, before each commit that emits something: it may add work of its own.

        It is given what is emitted, and answers with a job that runs in the same transaction, in its own savepoint, and
        is settled on the loop after the others and before `on_commit` listeners. None: nobody.
        """
        if self._writer is not None:
            self._writer.follow = follow

    async def write(self, function: Callable[[Transaction], T]) -> T:
        """Run `function` in the writer thread; return its result when it is on disk.

        An exception of `function` undoes what it did and is raised here. Cancelling the caller does not undo the write:
        it happens, once. Raises StoreError when the store cannot take it; then nothing of it is written.
        """
        if self._writes >= self._max_queued:
            raise StoreError(StoreFailure.BUSY)
        future: asyncio.Future[T] = self._loop.create_future()
        self._submit(Job(function, future))
        self._asked += 1
        self._glances.changed()
        return await self._answered(future)

    def _submit(self, job: Queued) -> None:
        if self._writer is None:
            raise StoreError(StoreFailure.READ_ONLY, self.read_only_reason or "")
        if self._closing:
            raise StoreError(StoreFailure.BUSY, "the store is closing")
        self._writes += 1
        self._writer.submit(job)

    async def read(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Run `function` on a snapshot in a reader thread. It sees every write that was answered before.

        Raises what `function` raises, and StoreError when the store fails or has too much to do.
        """
        if self._reads >= self._max_queued:
            raise StoreError(StoreFailure.BUSY)
        self._asked += 1
        return await self._submit_read(function)

    async def glance(self, key: Hashable, function: Callable[[sqlite3.Connection], T]) -> T:
        """As `read`, but what was read under this key since the last write is answered again, without a thread.

        `key` must name all that `function` depends on besides the database, and nobody may change the answer. It is for
        what reads a few rows.
        """
        kept = self._glances.get(key)
        if kept is not None:
            return cast("T", kept)
        before = self._glances.generation
        if self._reads >= self._max_queued:
            raise StoreError(StoreFailure.BUSY)
        self._asked += 1
        answer = await self._submit_read(function, brief=True)
        if self._writes == 0 and before == self._glances.generation:
            self._glances.keep(key, answer)
        return answer

    async def _submit_read(self, function: Callable[[sqlite3.Connection], T], *, brief: bool = False) -> T:
        if self._closing:
            raise StoreError(StoreFailure.BUSY, "the store is closing")
        future: asyncio.Future[T] = self._loop.create_future()
        self._reads += 1
        self._readers.submit(ReadJob(function, future, brief=brief))
        return await self._answered(future)

    async def _answered(self, future: asyncio.Future[T]) -> T:
        """What a thread answers. Damage is noted beside the file, so that the next start looks at all of it."""
        try:
            return await future
        except StoreError as error:
            if error.failure is StoreFailure.CORRUPT and not self.damaged.is_set():
                _log.error("The database is damaged: %s", error.__cause__ or error)
                with suppress(OSError):  # a tiny file, once in a life
                    beside(self._path, SUSPECT).touch(0o600)
                self.damaged.set()
            raise

    async def health(self, *, within: float) -> None:
        """Pass a trivial question through the writer and a reader (for the watchdog). `within`: seconds.

        As long as the store is asked nothing else an answer stands for a minute: threads that wait for work do not
        cease to, and waking them costs more than all else that an idle daemon does. Raises StoreError: `BUSY` when
        there is no answer in time, otherwise what the disk says.
        """
        asked = self._asked
        if self._proof[0] == asked and self._loop.time() < self._proof[1]:
            return
        try:
            async with asyncio.timeout(within):
                if self._writer is not None:
                    future: asyncio.Future[bool] = self._loop.create_future()
                    self._submit(Job(lambda transaction: bool(transaction.execute("SELECT 1").fetchone()), future))
                    await self._answered(future)
                await self._submit_read(lambda connection: connection.execute("SELECT 1").fetchone() is not None)
        except TimeoutError:
            raise StoreError(StoreFailure.BUSY, f"the store did not answer within {within} s") from None
        self._proof = (asked, self._loop.time() + ANSWER_HOLDS)

    async def close(self) -> None:
        """Refuse new work, finish what is queued, checkpoint and close. Harmless when repeated."""
        if self._closing:
            return
        self._closing = True
        try:
            # Readers first: an open snapshot would keep the last checkpoint from emptying the log.
            await self._readers.stop()
        finally:
            if self._writer is not None:
                await self._writer.stop()
            self._opened.release()

    def _start(self) -> None:
        self._readers.start()
        if self._writer is not None:
            self._writer.start()

    def _write_settled(self, jobs: list[Queued], items: list[object], changed: bool) -> None:  # noqa: FBT001  as it came
        self._writes -= len(jobs)
        if changed:
            self._glances.changed()
            for listener in tuple(self._write_listeners):
                listener()
        for job in jobs:
            job.settle()
        if items:
            # After the waiters, whose turns `settle` has just put into the loop's queue.
            self._loop.call_soon(self._publish, items)

    def _read_settled(self, job: QueuedRead) -> None:
        self._reads -= 1
        job.settle()

    def _publish(self, items: Sequence[object]) -> None:
        for listener in tuple(self._listeners):
            try:
                listener(items)
            except Exception:  # noqa: BLE001 - one listener's mistake must not keep the others from their events
                _log.exception("A commit listener failed")
