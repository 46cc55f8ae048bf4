"""The scheduler: wakes when something changed (coalesced) or at its safety scan, and starts what may start.

One pass reads who waits and who runs, asks the pure `admission.choose`, and makes the run rows of those that start. It
is part of the transaction in which a task came or made room (`follow`), or one of its own. What it started is handed to
the supervision after the commit. Seed 002's contract: a wake-up for speed, the scan every `schedule_interval` as the
net under it; it is left out while it cannot find anything (`admission.next_scan`)."""

from __future__ import annotations

import asyncio
import logging
import math
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from aiosd.core import approving, clock, run_states
from aiosd.core.admission import (
    Admission,
    AdmissionLimits,
    Candidate,
    Dependency,
    Running,
    WaitReason,
    choose,
    next_scan,
)
from aiosd.core.delays import Delays
from aiosd.core.outcome import Ending, failure, judge
from aiosd.core.pressure import Pressure
from aiosd.errors import AiosError
from aiosd.model.event import Event
from aiosd.model.later import dataclass
from aiosd.model.status import FINAL, Phase, Reason, Status
from aiosd.store import candidates, dependencies, tasks
from aiosd.store.database import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from aiosd.core.executors import Executors
    from aiosd.core.registry import Registry
    from aiosd.core.settings import Settings
    from aiosd.model.task import Task
    from aiosd.store.database import Database, Transaction
    from aiosd.store.tasks import Executor

_log = logging.getLogger(__name__)

RETRY_AFTER_STORE_ERROR = 1.0
"""Seconds before the next pass when the store refused one."""

WHOLE_PASS_WITHIN = 0.5
"""Seconds after a pass that has not looked at everybody before one that does: why the others wait may have changed."""

_OF_NO_CONSEQUENCE = frozenset({Phase.ASSIGNED.value, Phase.RUNNING.value})
"""A task that starts or goes on gives nobody a place."""


def _matters(event: Event) -> bool:
    """Whether it can let somebody start."""
    if event.type == "task.retry":
        return True
    return event.change is not None and event.change.phase not in _OF_NO_CONSEQUENCE


def _has_ended(event: Event) -> bool:
    """Whether it tells that a task has ended."""
    return event.change is not None and event.change.new in FINAL


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one pass: its number, what is to be called on the loop, why others wait, and when time makes a difference.

    `over`: who waits no more. `whole`: everybody was looked at; else what is known of those behind stands.
    """

    number: int
    launches: tuple[Callable[[], None], ...]
    waiting: dict[str, str]
    next_at: int | None
    over: tuple[str, ...] = ()
    whole: bool = True


class Pass:
    """A pass in somebody else's transaction (`store.writer.Queued`)."""

    def __init__(self, scheduler: Scheduler, seen: int, ended: tuple[str, ...] | None) -> None:
        """`seen`: the newest event before it. `ended`: tasks that have, when it is for nothing else."""
        self._scheduler = scheduler
        self._seen = seen
        self._ended = ended
        self._outcome: Outcome | None = None
        self._error: BaseException | None = None

    def run(self, transaction: Transaction) -> None:
        """In the writer thread."""
        outcome = self._scheduler.admit(transaction, hurried=self._ended is not None)
        self._outcome = replace(outcome, over=(*outcome.over, *(self._ended or ())))

    def fail(self, error: BaseException) -> None:
        """In the writer thread: nothing of it stands."""
        self._error = error

    def settle(self) -> None:
        """On the loop."""
        if self._error is None and self._outcome is not None:
            self._scheduler.passed(self._outcome, self._seen)
        else:
            _log.warning("A scheduling pass failed; it is made again: %s", self._error)
            self._scheduler.wake()


class Scheduler:
    """Decides who starts; `waiting_for` tells of every other waiting task why it does not."""

    def __init__(
        self,
        database: Database,
        registry: Registry,
        settings: Settings,
        executors: Executors,
        pressure: Pressure | None = None,
    ) -> None:
        """`executors`: who carries out what is admitted."""
        self._seen = 0
        self._passes = self._applied = 0
        self._wanted = False
        self._database = database
        self._registry = registry
        self._settings = settings
        self._executors = executors
        self._pressure = Pressure() if pressure is None else pressure
        self._wakeup = asyncio.Event()
        self._waiting: dict[str, str] = {}
        self._delays = Delays()
        self._next_at: int | None = None
        self._scan_at: float | None = None
        self._full = False
        self.draining = False

    def wake(self) -> None:
        """Look again soon; many calls before the next pass are one."""
        self._wanted = True
        self._wakeup.set()

    def drain(self, draining: bool) -> None:  # noqa: FBT001  it is what it is called
        """Start nothing more, or start tasks again."""
        self.draining = draining
        self.wake()

    def heard(self, events: Sequence[Event]) -> None:
        """An event listener: a task that is new, that ends or waits again can let somebody start."""
        for event in events:
            if event.sequence <= self._seen:
                continue
            if self._only_waits(event) and event.task_id is not None:
                self._waiting[event.task_id] = WaitReason.CONCURRENCY_LIMIT.value
            elif _matters(event):
                self.wake()

    def _only_waits(self, event: Event) -> bool:
        """A task that is new while there is no place."""
        change = event.change
        return self._full and change is not None and change.old is None and change.phase == Phase.QUEUED

    def written(self) -> None:
        """Something was: the safety scan comes within its interval, whether anybody wakes us or not."""
        self._scan_by(asyncio.get_running_loop().time() + self._settings.current.schedule_interval)

    def _scan_by(self, at: float) -> None:
        """The next scan is at that time of the loop's clock, or before."""
        if self._scan_at is None or at < self._scan_at:
            self._scan_at = at
            self._wakeup.set()

    def follow(self, items: Sequence[object]) -> Pass | None:
        """In the writer thread: a pass in the transaction in which somebody came, or made room (`Database.follow`)."""
        events = [item for item in items if isinstance(item, Event)]
        if self.draining or not any(_matters(event) and not self._only_waits(event) for event in events):
            return None
        # When tasks have only ended, those who start are looked for, and no further: the queue may be long.
        ended = tuple(event.task_id for event in events if _has_ended(event) and event.task_id is not None)
        alone = all(_has_ended(event) or not _matters(event) for event in events)
        return Pass(self, max(event.sequence for event in events), ended if alone else None)

    def passed(self, outcome: Outcome, seen: int) -> None:
        """A pass is committed that saw everything up to that event."""
        self._seen = seen
        before = self._next_at
        self._apply(outcome)
        if before != self._next_at:
            self._wakeup.set()  # the time of the next one is another

    def _apply(self, outcome: Outcome) -> None:
        """On the loop. What a later pass has found stands."""
        if outcome.number > self._applied:
            self._applied = outcome.number
            if outcome.whole:
                self._waiting, self._next_at = outcome.waiting, outcome.next_at
            else:
                self._waiting.update(outcome.waiting)
                self._scan_by(asyncio.get_running_loop().time() + WHOLE_PASS_WITHIN)
        for task_id in outcome.over:
            self._waiting.pop(task_id, None)
        loop = asyncio.get_running_loop()
        for begin in outcome.launches:
            loop.call_soon(begin)  # after those whose turn it is now: who asked for the task has the answer first

    def waiting_for(self, task_id: str) -> str | None:
        """Why a waiting task was not started in the last pass."""
        return self._waiting.get(task_id)

    async def run(self) -> None:
        """Pass after pass, for ever."""
        woken = told = False
        self._database.follow(self.follow)
        unlisten = self._database.on_write(self.written)
        try:
            while True:
                self._wanted, self._scan_at = False, None
                try:
                    await self.scan(woken=woken)
                    told = False
                except StoreError as error:
                    if not told:
                        _log.error("Scheduling waits for the store: %s", error)
                        told = True
                    await asyncio.sleep(RETRY_AFTER_STORE_ERROR)
                    self.written()  # or not; who knows
                woken = await self._next_time()
        finally:
            unlisten()
            self._database.follow(None)  # who is not there cannot begin what is admitted

    async def _next_time(self) -> bool:
        """Wait until it is time for a pass; whether somebody wants it."""
        loop = asyncio.get_running_loop()
        scan = next_scan(self._waiting.values(), self._settings.current.schedule_interval)
        if scan is not None:
            self._scan_at = min(loop.time() + scan, self._scan_at or math.inf)
        while not self._wanted:
            self._wakeup.clear()
            try:
                async with asyncio.timeout_at(self._due(loop.time())):
                    await self._wakeup.wait()
            except TimeoutError:
                return False
        return True

    def _due(self, now: float) -> float | None:
        """When the next pass is, by the loop's clock; None: when somebody wakes us."""
        due = [] if self._scan_at is None else [self._scan_at]
        if self._next_at is not None:
            due.append(now + max(0.0, (self._next_at - clock.now()) / clock.MICROSECONDS))
        return min(due, default=None)

    async def scan(self, *, woken: bool = False) -> None:
        """One pass. Nothing is written when nobody waits. `woken`: somebody probably does, so it is not asked first."""
        applied = self._applied
        if self.draining:
            self._next_at = None
            waiting = await self._database.read(candidates.waiting)
            self._waiting = {one.id: WaitReason.DRAINING.value for one in waiting}
            return
        if not (woken or await self._database.glance("anybody waits", candidates.anybody_waits)):
            if applied == self._applied:  # else somebody came while we asked, and was seen to
                self._waiting, self._next_at = {}, None
            return
        self._apply(await self._database.write(self.admit))

    def admit(self, transaction: Transaction, *, hurried: bool = False) -> Outcome:
        """A pass, in the writer thread; what is to be made of it on the loop, once it is committed.

        `hurried`: it goes only as far as somebody can start.
        """
        decision = self._decide(transaction, hurried=hurried)
        for task_id, dependency in decision.failed.items():
            run_states.fail_dependent(transaction, task_id, dependency)
        launches: list[Callable[[], None]] = []
        for task_id in decision.start:
            task = tasks.get(transaction, task_id)
            if task is None:
                continue
            capability = self._registry.find(task.capability_id)
            if capability is None:
                verdict = judge(Ending(task.capability_id, lost=Reason.CAPABILITY_MISSING,
                                       lost_message="the capability is not installed any more"))  # fmt: skip
                run_states.end(transaction, task, verdict)
                continue
            forbidden = approving.why_not(transaction, task, capability)
            if forbidden:
                approving.refuse_start(transaction, task, forbidden)
                continue
            begin = self._started(transaction, task)
            if begin is not None:
                launches.append(begin)
        self._passes += 1
        waiting = {task_id: reason.value for task_id, reason in decision.waiting.items()}
        over = (*decision.start, *decision.failed)
        return Outcome(self._passes, tuple(launches), waiting, decision.next_wakeup, over, decision.whole)

    def _started(self, transaction: Transaction, task: Task) -> Callable[[], None] | None:
        """Hand an admitted task to who carries it out; without anybody it fails, with the registry's own error."""
        try:
            executor = self._executors.get(task.capability_id)
        except AiosError as error:
            verdict = failure(error.kind, Reason.CAPABILITY_MISSING, error.text, {"capability_id": task.capability_id})
            run_states.end(transaction, task, verdict)
            return None
        return executor.start(transaction, task)

    def _decide(self, db: Executor, *, hurried: bool) -> Admission:
        current = self._settings.current
        limits = AdmissionLimits(
            current.max_concurrent_tasks, current.max_tasks_per_tool, self._pressure.reason(current)
        )  # fmt: skip
        running = [Running(task_id, capability_id) for task_id, capability_id in candidates.holding(db)]
        stopped: dict[str, WaitReason] = {}
        with closing(self._candidates(db, stopped)) as pending:
            decision = choose(pending, running, limits, clock.now(), hurried=hurried)
        if decision.whole:
            self._delays.forget_all_but({*decision.waiting, *stopped})
        self._full = len(running) + len(decision.start) >= limits.max_concurrent
        return replace(decision, waiting={**decision.waiting, **stopped})

    def _candidates(self, db: Executor, stopped: dict[str, WaitReason]) -> Generator[Candidate, None, None]:
        """Who could start, best first. Who is stopped takes no place from others, and goes to `stopped`."""
        depends = dependencies.of_pending(db)
        for one in candidates.each_waiting(db):
            if self._settings.stops.covers(one.uid):
                stopped[one.id] = WaitReason.EMERGENCY_STOP
                continue
            before = depends.get(one.sequence, ())
            yield Candidate(
                id=one.id, sequence=one.sequence, priority=one.priority, capability_id=one.capability_id,
                concurrency=self._concurrency(one.capability_id), not_before=one.not_before,
                retry_at=None if one.retry_at is None else self._delays.now_as(one.id, one.retry_at),
                dependencies=tuple(Dependency(other, Status(status)) for other, status in before),
            )  # fmt: skip

    def _concurrency(self, capability_id: str) -> int | None:
        capability = self._registry.find(capability_id)
        return None if capability is None else capability.concurrency
