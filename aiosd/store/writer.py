"""The one thread that writes: what has queued up is committed together, one fsync for many callers (group commit).

Each function runs inside its own savepoint, so one that fails undoes itself only. Nobody is told of success before the
COMMIT; when that fails, all are told of the failure and the database is as it was before.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Generic, Protocol, TypeAlias, TypeVar

from aiosd.store.errors import StoreError, StoreFailure, failure_of, translated

T = TypeVar("T")
SqlValue: TypeAlias = "str | int | float | bytes | None"
Parameters: TypeAlias = Sequence[SqlValue] | Mapping[str, SqlValue]

MAX_BATCH = 256
"""Functions that share one COMMIT at most, so that the first of them does not wait for ever."""

_log = logging.getLogger(__name__)


class Transaction:
    """What a writing function works on; valid until the function returns."""

    __slots__ = ("_at_end", "_connection", "items")

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Only the writer makes these."""
        self._connection: sqlite3.Connection | None = connection
        self._at_end: dict[str, Callable[[Transaction], None]] = {}
        self.items: list[object] = []

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection, for queries that reading functions share. Never BEGIN, COMMIT or ROLLBACK on it."""
        if self._connection is None:
            raise RuntimeError("the transaction has ended")
        return self._connection

    def execute(self, sql: str, parameters: Parameters = ()) -> sqlite3.Cursor:
        """Run one statement. Raises sqlite3.Error."""
        return self.connection.execute(sql, parameters)

    def executemany(self, sql: str, rows: Iterable[Parameters]) -> sqlite3.Cursor:
        """Run one statement for each row. Raises sqlite3.Error."""
        return self.connection.executemany(sql, rows)

    def emit(self, item: object) -> None:
        """Hand `item` to the commit listeners once, and only if, this function's work is committed."""
        self.items.append(item)

    def at_end(self, key: str, work: Callable[[Transaction], None]) -> None:
        """Do `work` once all else in this transaction is done, once for each `key`: it sees what the whole comes to."""
        self._at_end[key] = work

    def complete(self) -> None:
        """Called by the writer, inside the savepoint: what was put off to the end."""
        while self._at_end:
            work = self._at_end.pop(next(iter(self._at_end)))
            work(self)

    def end(self) -> None:
        """Called by the writer: from here on the transaction cannot be used."""
        self._connection = None


class Queued(Protocol):
    """A function that waits for its turn, with the future of whoever asked."""

    def run(self, transaction: Transaction) -> None:
        """In the writer thread: do the work and keep the result."""

    def fail(self, error: BaseException) -> None:
        """In the writer thread: forget the result, keep this error."""

    def settle(self) -> None:
        """On the loop: tell whoever asked."""


class Job(Generic[T]):
    """`Queued` for a function that returns T."""

    __slots__ = ("_error", "_future", "_result", "_work")

    def __init__(self, work: Callable[[Transaction], T], future: asyncio.Future[T]) -> None:
        """`future` belongs to the loop; only `settle` touches it."""
        self._work = work
        self._future = future
        self._result: tuple[T] | None = None
        self._error: BaseException | None = None

    def run(self, transaction: Transaction) -> None:
        """Do the work."""
        self._result = (self._work(transaction),)

    def fail(self, error: BaseException) -> None:
        """Replace the result by an error."""
        self._result, self._error = None, error

    def settle(self) -> None:
        """Resolve the future; a caller that was cancelled meanwhile is not there to be told, the write stands."""
        if self._future.done():
            if self._error is not None:
                _log.warning("A write whose caller has gone failed: %s", self._error)
        elif self._result is not None:
            self._future.set_result(self._result[0])
        elif self._error is not None:
            self._future.set_exception(self._error)


class _TransactionLost(Exception):
    """The whole transaction is gone, with the work of those before in it."""

    def __init__(self, failure: StoreFailure, cause: BaseException) -> None:
        super().__init__(str(failure))
        self.failure = failure
        self.cause = cause


Settled: TypeAlias = Callable[[list[Queued], list[object], bool], None]
Follow: TypeAlias = Callable[[Sequence[object]], "Queued | None"]
"""What is to be done, in the same transaction, about what the functions in it emitted."""


class Seal(Protocol):
    """Something that belongs to every commit (`audit_seal.AuditSeal`); called in the writer thread."""

    def before_commit(self, connection: sqlite3.Connection) -> None:
        """May still write. Raises sqlite3.Error when the commit must not happen."""

    def after_commit(self) -> None:
        """What was committed stands."""

    def close(self) -> None:
        """The writer has ended."""


class Writer:
    """The writer thread. `settled(jobs, items, changed)` is called on the loop after each commit or failure, in order.

    `changed`: a row may be another one now.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        loop: asyncio.AbstractEventLoop,
        settled: Settled,
        seal: Seal | None = None,
    ) -> None:
        """Takes over `connection` and closes it at the end. The thread starts with `start`."""
        self._connection = connection
        self._seal = seal
        self.follow: Follow | None = None
        self._failing: StoreFailure | None = None
        """Called in the writer thread, before each commit that emits something."""
        self._loop = loop
        self._settled = settled
        self._queue: queue.SimpleQueue[Queued | None] = queue.SimpleQueue()
        self._ending = False
        self._ended = loop.create_future()
        # Not a daemon thread: the interpreter waits for the last COMMIT.
        self._thread = threading.Thread(target=self._run, name="store-writer")

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def submit(self, job: Queued) -> None:
        """Queue a job. Bounding the queue is the caller's part."""
        self._queue.put(job)

    async def stop(self) -> None:
        """Commit what is queued, checkpoint, close the connection. Nothing may be submitted afterwards."""
        self._queue.put(None)
        await asyncio.shield(self._ended)
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._ending:
                self._work_off(deque(self._take()))
            self._finish()
        finally:
            self._connection.close()
            if self._seal is not None:
                self._seal.close()
            self._on_loop(self._tell_ended)

    def _take(self) -> list[Queued]:
        """Wait for a job and take all that is there with it."""
        batch: list[Queued] = []
        with contextlib.suppress(queue.Empty):
            job = self._queue.get()
            while job is not None:
                batch.append(job)
                if len(batch) == MAX_BATCH:
                    return batch
                job = self._queue.get_nowait()
            self._ending = True
        return batch

    def _work_off(self, waiting: deque[Queued]) -> None:
        while waiting:
            done: list[Queued] = []
            followed: list[Queued] = []
            items: list[object] = []
            before = self._connection.total_changes
            try:
                self._transact(waiting, done, followed, items)
                self._works()
            except _TransactionLost as lost:
                self._fails(lost)
                items.clear()
                for job in (*done, *followed):
                    error = StoreError(lost.failure)
                    error.__cause__ = lost.cause
                    job.fail(error)
            changed = self._connection.total_changes != before
            self._on_loop(partial(self._tell, done, followed, items, changed))

    def _fails(self, lost: _TransactionLost) -> None:
        """Told when it begins, not at each try: callers hear it each time."""
        if self._failing is not lost.failure:
            _log.error("A transaction was lost (%s): %s", lost.failure, lost.cause)
        self._failing = lost.failure

    def _works(self) -> None:
        if self._failing is not None:
            _log.warning("The store can be written again")
            self._failing = None

    def _tell(self, done: list[Queued], followed: list[Queued], items: list[object], changed: bool) -> None:  # noqa: FBT001  as it came
        self._settled(done, items, changed)
        for job in followed:
            job.settle()

    def _transact(
        self, waiting: deque[Queued], done: list[Queued], followed: list[Queued], items: list[object]
    ) -> None:
        """Move jobs from `waiting` to `done` in one transaction. Raises _TransactionLost when none of it stands."""
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            done.extend(waiting)
            waiting.clear()
            raise _TransactionLost(failure_of(error) or StoreFailure.IO, error) from error
        while waiting:
            job = waiting.popleft()
            done.append(job)
            self._one(job, items)
        follow = self.follow  # once: the loop may take it away at any moment
        more = follow(items) if items and follow is not None else None
        if more is not None:
            followed.append(more)
            self._one(more, items)
        try:
            if self._seal is not None:
                self._seal.before_commit(self._connection)
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            raise _TransactionLost(failure_of(error) or StoreFailure.IO, error) from error
        if self._seal is not None:
            self._seal.after_commit()

    def _one(self, job: Queued, items: list[object]) -> None:
        """Run one job inside its savepoint."""
        transaction = Transaction(self._connection)
        try:
            self._connection.execute("SAVEPOINT job")
            job.run(transaction)
            transaction.complete()
            self._connection.execute("RELEASE job")
        except BaseException as error:  # noqa: BLE001 - whatever it is, it belongs to the caller and not to this thread
            self._undo(error)
            job.fail(translated(error))
        else:
            items.extend(transaction.items)
        finally:
            transaction.end()

    def _undo(self, error: BaseException) -> None:
        """Undo one job. SQLite may have rolled back everything by itself (https://sqlite.org/lang_transaction.html)."""
        try:
            self._connection.execute("ROLLBACK TO job")
            self._connection.execute("RELEASE job")
        except sqlite3.Error:
            self._roll_back()
            raise _TransactionLost(failure_of(error) or StoreFailure.IO, error) from error

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")

    def _finish(self) -> None:
        try:
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error as error:
            _log.warning("The last checkpoint failed, the next start does it: %s", error)

    def _tell_ended(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)

    def _on_loop(self, call: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:
            _log.warning("The event loop ended before the store; what was written is committed")
