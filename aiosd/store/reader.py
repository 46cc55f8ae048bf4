"""The threads that read: each has its own read-only connection and gives every function one consistent snapshot."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import sqlite3
import threading
from functools import partial
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from aiosd.store.errors import translated

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")

TOGETHER = 16
"""Brief reads that are answered together at most."""

_log = logging.getLogger(__name__)


class QueuedRead(Protocol):
    """A reading function that waits for its turn. `brief`: it reads a few rows."""

    brief: bool

    def wanted(self) -> bool:
        """Whether somebody still waits for the answer."""

    def run(self, connection: sqlite3.Connection) -> None:
        """In a reader thread: read and keep the result or the error."""

    def settle(self) -> None:
        """On the loop: tell whoever asked."""


class ReadJob(Generic[T]):
    """`QueuedRead` for a function that returns T."""

    __slots__ = ("_error", "_future", "_result", "_work", "brief")

    def __init__(
        self, work: Callable[[sqlite3.Connection], T], future: asyncio.Future[T], *, brief: bool = False
    ) -> None:
        """`future` belongs to the loop."""
        self.brief = brief
        self._work = work
        self._future = future
        self._result: tuple[T] | None = None
        self._error: BaseException | None = None

    def wanted(self) -> bool:
        """A read has no effect, so one that was cancelled is not done at all."""
        return not self._future.done()

    def run(self, connection: sqlite3.Connection) -> None:
        """Read inside one transaction, so that all statements see the same state."""
        try:
            connection.execute("BEGIN")
            self._result = (self._work(connection),)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it belongs to the caller and not to this thread
            self._error = translated(error)
        finally:
            if connection.in_transaction:
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")

    def settle(self) -> None:
        """Resolve the future."""
        if self._future.done():
            return
        if self._error is not None:
            self._future.set_exception(self._error)
        elif self._result is not None:
            self._future.set_result(self._result[0])


class Readers:
    """A few reader threads on one queue. `settled(job)` is called on the loop after each read."""

    def __init__(
        self,
        connections: Sequence[sqlite3.Connection],
        loop: asyncio.AbstractEventLoop,
        settled: Callable[[QueuedRead], None],
    ) -> None:
        """Takes over `connections`, one thread each, and closes them at the end."""
        self._loop = loop
        self._settled = settled
        self._queue: queue.SimpleQueue[QueuedRead | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._run, args=(connection,), name=f"store-reader-{number}")
            for number, connection in enumerate(connections)
        ]
        self._alive = len(self._threads)
        self._ended = loop.create_future()

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def submit(self, job: QueuedRead) -> None:
        """Queue a read. Bounding the queue is the caller's part."""
        self._queue.put(job)

    async def stop(self) -> None:
        """Answer what is queued and close the connections. Nothing may be submitted afterwards."""
        for _ in self._threads:
            self._queue.put(None)
        await asyncio.shield(self._ended)
        for thread in self._threads:
            thread.join()

    def _run(self, connection: sqlite3.Connection) -> None:
        try:
            job = self._queue.get()
            while job is not None:
                job = self._some(connection, job)
        finally:
            connection.close()
            self._on_loop(self._one_ended)

    def _some(self, connection: sqlite3.Connection, job: QueuedRead) -> QueuedRead | None:
        """Read, and answer; what follows. Brief reads that wait already are answered together: waking the loop costs
        more than one of them does."""
        done = [job]
        while True:
            if job.wanted():
                job.run(connection)
            following = self._at_hand() if job.brief and len(done) < TOGETHER else None
            if following is None or not following.brief:
                break
            done.append(following)
            job = following
        self._on_loop(partial(self._settle, done))
        return self._queue.get() if following is None else following

    def _at_hand(self) -> QueuedRead | None:
        """What waits already. The word to end stays for the next look."""
        try:
            found = self._queue.get_nowait()
        except queue.Empty:
            return None
        if found is None:
            self._queue.put(None)
        return found

    def _settle(self, done: Sequence[QueuedRead]) -> None:
        for job in done:
            self._settled(job)

    def _one_ended(self) -> None:
        self._alive -= 1
        if self._alive == 0 and not self._ended.done():
            self._ended.set_result(None)

    def _on_loop(self, call: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:
            _log.warning("The event loop ended before a read did")
