"""Gives tasks that wait for a worker to workers that have room; the executor of tasks that name no capability.

One pass reads who waits and who has room, asks the pure `assigning.match`, and offers what it decided in one
transaction, which looks again. A pass happens when something has changed that could matter, many changes being one,
and when a moment comes at which time alone matters: a retry's delay, an offer that nobody takes, a time limit.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from aiosd.core import assignments, clock, run_states
from aiosd.core.assigning import Wanted, fits, match
from aiosd.core.delays import Delays
from aiosd.core.executors import WORKERS
from aiosd.errors import AiosError
from aiosd.model.status import Status
from aiosd.model.worker import AssignmentStatus
from aiosd.store import planned, workers
from aiosd.store.database import StoreError

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from aiosd.core.assigning import Offer, Pair
    from aiosd.core.crew import Crew
    from aiosd.core.executors import Executors
    from aiosd.core.settings import Settings
    from aiosd.core.time_limits import TimeLimits
    from aiosd.model.event import Event
    from aiosd.model.task import Task
    from aiosd.model.worker import Assignment, WorkerKey
    from aiosd.store.database import Database, Transaction
    from aiosd.store.planned import Planned

AT_ONCE = 100
"""Tasks that one pass gives away at most; others go with the next one, which follows at once."""
LOOK_AGAIN = 60.0
"""Seconds between two passes at most while there are workers: the net under the wake-ups."""
AFTER_ERROR = 1.0

_WITHOUT_HOPE = frozenset({Status.FAILED.value, Status.CANCELED.value})

_log = logging.getLogger(__name__)


class Assigner:
    """Passes, one after another."""

    def __init__(
        self, database: Database, settings: Settings, crew: Crew, executors: Executors, draining: Callable[[], bool],
        limits: TimeLimits,
    ) -> None:  # fmt: skip
        """`draining`: whether nothing is to be started."""
        self._limits = limits
        self._database = database
        self._settings = settings
        self._crew = crew
        self._executors = executors
        self._draining = draining
        self._wakeup = asyncio.Event()
        self._ended: set[str] | None = None
        self._offered_at: dict[str, float] = {}
        self._limited: dict[str, int] = {}
        self._delays = Delays()
        self._next_moment: int | None = None
        crew.room_made = self.wake

    def start(self, transaction: Transaction, task: Task) -> Callable[[], None] | None:
        """An `Executor`: the task is one of those that the next pass finds."""
        del transaction, task
        return self.wake

    @property
    def limited(self) -> int:
        """How many tasks of workers have a time limit that was noted."""
        return len(self._limited)

    @property
    def delayed(self) -> int:
        """How many delays between two attempts were noted."""
        return len(self._delays)

    def wake(self) -> None:
        """Look again soon."""
        self._wakeup.set()

    def heard(self, events: Sequence[Event]) -> None:
        """An event listener: a task that is new, waits again or has ended can matter, when there is anybody."""
        for event in events:
            change = event.change
            if change is None or event.task_id is None:
                continue
            if change.new in _WITHOUT_HOPE and self._ended is not None:
                self._ended.add(event.task_id)
                self._wakeup.set()
            elif self._crew.present:
                self._wakeup.set()

    async def run(self) -> None:
        """For ever."""
        while True:
            self._wakeup.clear()
            try:
                await self.scan()
            except StoreError:
                _log.exception("Tasks could not be given to workers")
                await asyncio.sleep(AFTER_ERROR)
                self._wakeup.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._delay()):
                    await self._wakeup.wait()

    async def scan(self) -> None:
        """One pass."""
        await self._end_hopeless()
        await self._end_late()
        if not self._crew.present or self._draining() or not self._is_wanted():
            self._next_moment = None
            return
        anybody, open_ones, self._next_moment = await self._database.read(self._look)
        await self._take_back_unaccepted(open_ones)
        if not anybody:
            return  # most passes end here, so that what they cost does not depend on how many workers there are
        registered = {key: one.worker.registered_at for key, one in self._crew.present.items()}
        offers = self._crew.offers()
        pairs = await self._database.read(lambda db: self._choose(db, offers, registered))
        if not pairs:
            return
        given = await self._database.write(lambda tx: self._offer(tx, pairs))
        for assignment in given:
            self._crew.given(assignment.task_id, assignment.worker)
        if len(pairs) >= AT_ONCE:
            self.wake()

    def _is_wanted(self) -> bool:
        """Whether workers are the executor of tasks without a capability (now)."""
        try:
            return self._executors.get(WORKERS) is self
        except AiosError:
            return False

    def _look(self, db: sqlite3.Connection) -> tuple[bool, list[Assignment], int | None]:
        """Whether anybody could be given away, what is, and when time makes a difference. In a reader's thread."""
        timed = planned.timed(db)
        self._delays.forget_all_but({one.id for one in timed if one.retry_at is not None})
        now = clock.now()
        moments = [at for one in timed if (at := self._ready_at(one)) > now]
        anybody = next(self._ready(db), None) is not None
        return anybody, workers.open_assignments(db), min(moments, default=None)

    def _ready(self, db: sqlite3.Connection) -> Iterator[Planned]:
        """Who could be given away as far as time goes, best first."""
        now = clock.now()
        return (one for one in planned.ready(db) if self._ready_at(one) <= now)

    def _ready_at(self, task: Planned) -> int:
        """When, by the wall clock as it is now. Between two attempts there is a delay, which is time of the machine."""
        retry = 0 if task.retry_at is None else self._delays.now_as(task.id, task.retry_at)
        return max(task.not_before or 0, retry)

    def _choose(
        self, db: sqlite3.Connection, offers: Sequence[Offer], registered: Mapping[WorkerKey, int]
    ) -> list[Pair]:
        """In a reader's thread."""
        taken = Counter(one.worker for one in workers.open_assignments(db))
        for offer in offers:
            offer.taken = taken[offer.key]
        free = [one for one in offers if one.has_room]
        return match(self._wanted(db, free, registered), free, AT_ONCE)

    def _wanted(
        self, db: sqlite3.Connection, free: Sequence[Offer], registered: Mapping[WorkerKey, int]
    ) -> Iterator[Wanted]:
        """What waits, and could go to one of the free ones. Read only as far as `match` looks."""
        for task in self._ready(db) if free else ():
            wanted = Wanted(task.id, task.uid, frozenset(task.requires))
            if self._settings.stops.covers(task.uid) or not any(fits(wanted, offer) for offer in free):
                continue
            rejected = frozenset(
                (uid, worker_id)
                for uid, worker_id, moment in planned.refusals(db, task.id)
                if moment >= registered.get((uid, worker_id), 0)
            )
            yield replace(wanted, rejected_by=rejected)

    def _offer(self, transaction: Transaction, pairs: Sequence[Pair]) -> list[Assignment]:
        found = []
        for pair in pairs:
            worker = workers.get(transaction, pair.worker)
            if worker is None or worker.ended_at is not None:
                continue
            assignment = assignments.offer(transaction, pair.task_id, worker)
            if assignment is not None:
                found.append(assignment)
        return found

    async def _end_hopeless(self) -> None:
        """Tasks that depend on what did not complete; the first time all are looked at."""
        ended, self._ended = self._ended, set()
        if ended is not None and not ended:
            return
        chosen = None if ended is None else sorted(ended)
        found = await self._database.read(lambda db: planned.hopeless(db, chosen))
        if found:
            await self._database.write(partial(_for_each, run_states.fail_dependent, found))

    async def _take_back_unaccepted(self, open_ones: Sequence[Assignment]) -> None:
        """Offers that their workers did not take in a lease's time go to others."""
        now = asyncio.get_running_loop().time()
        offered = {one.id: one for one in open_ones if one.status is AssignmentStatus.ASSIGNED}
        self._offered_at = {name: self._offered_at.get(name, now) for name in offered}
        lease = self._settings.current.worker_lease
        late = [offered[name] for name, since in self._offered_at.items() if now - since >= lease]
        if late:
            await self._database.write(partial(_for_each, assignments.not_taken, [(one,) for one in late]))
            for one in late:
                self._crew.outdated(one.worker)

    async def _end_late(self) -> None:
        """Time limits of tasks that workers have; on the boot clock, as those of programs are."""
        self._limited = dict(await self._database.read(planned.deadlines))
        over = [task_id for task_id, left in self._left() if left <= 0]
        if over:
            await self._database.write(partial(_for_each, assignments.time_out, [(task_id,) for task_id in over]))

    def _left(self) -> list[tuple[str, float]]:
        """Seconds until each of these limits is over."""
        found = [(one, self._limits.left(one, deadline)) for one, deadline in self._limited.items()]
        return [(one, left / clock.MICROSECONDS) for one, left in found if left is not None]

    def _delay(self) -> float | None:
        """Seconds until the next pass; None: when somebody wakes us."""
        waits = [LOOK_AGAIN] if self._crew.present else []
        if self._next_moment is not None:
            waits.append((self._next_moment - clock.now()) / clock.MICROSECONDS)
        now = asyncio.get_running_loop().time()
        lease = self._settings.current.worker_lease
        waits += [since + lease - now for since in self._offered_at.values()]
        waits += [left for _, left in self._left()]
        return max(0.0, min(waits)) if waits else None


def _for_each(work: Callable[..., None], rows: Sequence[tuple[object, ...]], transaction: Transaction) -> None:
    """The same with each of them, in one transaction."""
    for row in rows:
        work(transaction, *row)
