"""The scheduler: wakes when something changed (coalesced) or at its safety scan, and starts what may start.

One pass is one transaction: it reads who waits and who runs, asks the pure `admission.choose`, and makes the run rows
of those that start. What it started is handed to the supervision after the commit. Seed 002's contract: a wake-up for
speed, the scan every `schedule_interval` as the net under it."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from aiosd.core import approving, clock, run_states
from aiosd.core.admission import Admission, AdmissionLimits, Candidate, Dependency, Running, WaitReason, choose
from aiosd.core.delays import Delays
from aiosd.core.outcome import Ending, failure, judge
from aiosd.core.pressure import Pressure
from aiosd.errors import AiosError
from aiosd.model.status import Phase, Reason, Status
from aiosd.store import candidates, dependencies, tasks
from aiosd.store.database import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aiosd.core.executors import Executors
    from aiosd.core.registry import Registry
    from aiosd.core.settings import Settings
    from aiosd.model.event import Event
    from aiosd.model.task import Task
    from aiosd.store.database import Database, Transaction
    from aiosd.store.tasks import Executor

_log = logging.getLogger(__name__)

RETRY_AFTER_STORE_ERROR = 1.0
"""Seconds before the next pass when the store refused one."""

_OF_NO_CONSEQUENCE = frozenset({Phase.ASSIGNED.value, Phase.RUNNING.value})
"""A task that starts or goes on gives nobody a place."""


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
        self._database = database
        self._registry = registry
        self._settings = settings
        self._executors = executors
        self._pressure = Pressure() if pressure is None else pressure
        self._wakeup = asyncio.Event()
        self._waiting: dict[str, str] = {}
        self._delays = Delays()
        self._next_at: int | None = None
        self._full = False
        self.draining = False

    def wake(self) -> None:
        """Look again soon; many calls before the next pass are one."""
        self._wakeup.set()

    def drain(self, draining: bool) -> None:  # noqa: FBT001  it is what it is called
        """Start nothing more, or start tasks again."""
        self.draining = draining
        self.wake()

    def heard(self, events: Sequence[Event]) -> None:
        """An event listener: a task that is new, that ends or waits again can let somebody start."""
        for event in events:
            change = event.change
            if event.type == "task.retry":
                self.wake()
            if change is None or change.phase in _OF_NO_CONSEQUENCE:
                continue
            if self._full and change.old is None and change.phase == Phase.QUEUED and event.task_id is not None:
                self._waiting[event.task_id] = WaitReason.CONCURRENCY_LIMIT.value
            else:
                self.wake()

    def waiting_for(self, task_id: str) -> str | None:
        """Why a waiting task was not started in the last pass."""
        return self._waiting.get(task_id)

    async def run(self) -> None:
        """Pass after pass, for ever."""
        woken = False
        while True:
            self._wakeup.clear()
            try:
                await self.scan(woken=woken)
            except StoreError:
                _log.exception("A scheduling pass could not be stored")
                await asyncio.sleep(RETRY_AFTER_STORE_ERROR)
            try:
                async with asyncio.timeout(self._delay()):
                    await self._wakeup.wait()
                woken = True
            except TimeoutError:
                woken = False

    def _delay(self) -> float:
        """Seconds until the next pass: the scan's interval, or less when a task's time comes before."""
        interval = self._settings.current.schedule_interval
        if self._next_at is None:
            return interval
        return min(interval, max(0.0, (self._next_at - clock.now()) / clock.MICROSECONDS))

    async def scan(self, *, woken: bool = False) -> None:
        """One pass. Nothing is written when nobody waits. `woken`: somebody probably does, so it is not asked first."""
        self._next_at = None
        if self.draining:
            waiting = await self._database.read(candidates.waiting)
            self._waiting = {one.id: WaitReason.DRAINING.value for one in waiting}
            return
        if not (woken or await self._database.glance("anybody waits", candidates.anybody_waits)):
            self._waiting = {}
            return
        for begin in await self._database.write(self._admit):
            begin()

    def _admit(self, transaction: Transaction) -> list[Callable[[], None]]:
        decision = self._decide(transaction)
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
        self._waiting = {task_id: reason.value for task_id, reason in decision.waiting.items()}
        self._next_at = decision.next_wakeup
        return launches

    def _started(self, transaction: Transaction, task: Task) -> Callable[[], None] | None:
        """Hand an admitted task to who carries it out; without anybody it fails, with the registry's own error."""
        try:
            executor = self._executors.get(task.capability_id)
        except AiosError as error:
            verdict = failure(error.kind, Reason.CAPABILITY_MISSING, error.text, {"capability_id": task.capability_id})
            run_states.end(transaction, task, verdict)
            return None
        return executor.start(transaction, task)

    def _decide(self, db: Executor) -> Admission:
        depends = dependencies.of_pending(db)
        rows = candidates.waiting(db)
        # Who is stopped takes no place from others.
        stopped = {one.id: WaitReason.EMERGENCY_STOP for one in rows if self._settings.stops.covers(one.uid)}
        self._delays.forget_all_but({one.id for one in rows})
        pending = [
            Candidate(
                id=one.id, sequence=one.sequence, priority=one.priority, capability_id=one.capability_id,
                concurrency=self._concurrency(one.capability_id), not_before=one.not_before,
                retry_at=None if one.retry_at is None else self._delays.now_as(one.id, one.retry_at),
                dependencies=tuple(
                    Dependency(other, Status(status)) for other, status in depends.get(one.sequence, ())
                ),
            )
            for one in rows
            if one.id not in stopped
        ]  # fmt: skip
        current = self._settings.current
        limits = AdmissionLimits(
            current.max_concurrent_tasks, current.max_tasks_per_tool, self._pressure.reason(current)
        )  # fmt: skip
        running = [Running(task_id, capability_id) for task_id, capability_id in candidates.holding(db)]
        decision = choose(pending, running, limits, clock.now())
        decision = replace(decision, waiting={**decision.waiting, **stopped})
        self._full = len(running) + len(decision.start) >= limits.max_concurrent
        return decision

    def _concurrency(self, capability_id: str) -> int | None:
        capability = self._registry.find(capability_id)
        return None if capability is None else capability.concurrency
