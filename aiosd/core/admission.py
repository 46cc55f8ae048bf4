"""Which tasks start now, which wait and for what. Pure: the scheduler asks with values and acts on the answer.

Order: the higher priority first, inside a priority the older task (seed 000). A task that waits for its own tool, for a
time or for another task holds nobody back; a full machine holds back everybody.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from aiosd.model.later import dataclass
from aiosd.model.status import Status

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class WaitReason(StrEnum):
    """Why a task is not started yet."""

    DEPENDENCY = "dependency"
    NOT_BEFORE = "not-before"
    RETRY_DELAY = "retry-delay"
    CAPABILITY_LIMIT = "capability-limit"
    CONCURRENCY_LIMIT = "concurrency-limit"
    EMERGENCY_STOP = "emergency-stop"
    MEMORY_PRESSURE = "memory-pressure"
    CPU_PRESSURE = "cpu-pressure"
    DRAINING = "draining"


@dataclass(frozen=True, slots=True)
class Dependency:
    """A task that another one depends on, as it is now."""

    id: str
    status: Status


class Candidate(NamedTuple):
    """A task that could start. `sequence`: order of creation. Times in microseconds since the epoch.

    `concurrency` is the capability's own limit, which may only tighten the general one.
    """

    id: str
    sequence: int
    priority: int
    capability_id: str
    concurrency: int | None = None
    not_before: int | None = None
    retry_at: int | None = None
    dependencies: tuple[Dependency, ...] = ()


@dataclass(frozen=True, slots=True)
class Running:
    """A task that holds a slot: its program runs, is frozen, or is being started or stopped."""

    id: str
    capability_id: str


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    """How many may run at a time, together and of one capability ("tool"). At least 1 each.

    `pressure`: the machine is short of something, which tasks of low priority are not to make worse.
    """

    max_concurrent: int
    max_per_capability: int
    pressure: WaitReason | None = None


LOW = 0
"""The priority that waits while the machine is short of memory, and starts one at a time while it is of CPU."""


@dataclass(frozen=True, slots=True)
class Admission:
    """The answer. Every candidate that was looked at is in exactly one of `start`, `failed` and `waiting`.

    `start`: in the order to start them. `failed`: tasks that can never start, with the dependency that ended otherwise
    than completed. `next_wakeup`: the earliest moment at which time alone makes a difference, or None. `whole`: all of
    them were looked at.
    """

    start: tuple[str, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)
    waiting: Mapping[str, WaitReason] = field(default_factory=dict)
    next_wakeup: int | None = None
    whole: bool = True


def choose(
    pending: Iterable[Candidate],
    running: Iterable[Running],
    limits: AdmissionLimits,
    now: int,
    *,
    hurried: bool = False,
) -> Admission:
    """Decide for all candidates at once. `now`: microseconds since the epoch.

    `hurried`: they come best first, and only until the machine is full: who starts is the same, and of those behind
    nothing is said.
    """
    slots = Counter(task.capability_id for task in running)
    free = limits.max_concurrent - slots.total()
    start: list[str] = []
    failed: dict[str, str] = {}
    waiting: dict[str, WaitReason] = {}
    wakeup: int | None = None
    whole = True
    for task in pending if hurried else sorted(pending, key=lambda task: (-task.priority, task.sequence)):
        if hurried and len(start) >= free:
            whole = False
            break
        broken = _broken_dependency(task)
        if broken is not None:
            failed[task.id] = broken
            continue
        reason = _not_ready(task, now)
        if reason is None and task.priority <= LOW and _holds_low(limits.pressure, slots.total()):
            reason = limits.pressure
        if reason is None and slots[task.capability_id] >= _limit(task, limits):
            reason = WaitReason.CAPABILITY_LIMIT
        elif reason is None and len(start) >= free:
            reason = WaitReason.CONCURRENCY_LIMIT
        if reason is None:
            start.append(task.id)
            slots[task.capability_id] += 1
            continue
        waiting[task.id] = reason
        if reason in (WaitReason.NOT_BEFORE, WaitReason.RETRY_DELAY):
            ready = _ready_at(task)
            wakeup = ready if wakeup is None else min(wakeup, ready)
    return Admission(tuple(start), failed, waiting, wakeup, whole)


_UNTOLD = frozenset({WaitReason.MEMORY_PRESSURE, WaitReason.CPU_PRESSURE})
"""What comes to an end without anything being written, and not at a moment that is known before."""
SLOW_SCAN = 60.0


def next_scan(waiting: Iterable[str], interval: float) -> float | None:
    """Seconds after a pass when there is one though nobody woke the scheduler: the safety scan (seed 002).

    `waiting`: the reasons (`WaitReason`) of those that the pass left waiting; `interval`: `schedule_interval`. What it
    is to find either shows in the store or ends with the pressure. So each write is followed by a scan within the
    interval (`Scheduler.written`), and as long as nothing is written, there is one in the interval only while somebody
    waits for the pressure to end; a slow one while somebody waits for anything else, whose moment has a timer; none
    (None) while nobody waits.
    """
    reasons = set(waiting)
    if not reasons:
        return None
    return interval if reasons & _UNTOLD else max(interval, SLOW_SCAN)


def _holds_low(pressure: WaitReason | None, running: int) -> bool:
    """Whether tasks of low priority wait. Memory that is short gets shorter with each that starts; processor time that
    is short is only shared, and may be short for days, so then one at a time still gets on."""
    return pressure is not None and (pressure is not WaitReason.CPU_PRESSURE or running > 0)


def _broken_dependency(task: Candidate) -> str | None:
    for dependency in task.dependencies:
        if dependency.status.is_final and dependency.status is not Status.COMPLETED:
            return dependency.id
    return None


def _not_ready(task: Candidate, now: int) -> WaitReason | None:
    if any(dependency.status is not Status.COMPLETED for dependency in task.dependencies):
        return WaitReason.DEPENDENCY
    if task.not_before is not None and task.not_before > now:
        return WaitReason.NOT_BEFORE
    if task.retry_at is not None and task.retry_at > now:
        return WaitReason.RETRY_DELAY
    return None


def _ready_at(task: Candidate) -> int:
    return max(task.not_before or 0, task.retry_at or 0)


def _limit(task: Candidate, limits: AdmissionLimits) -> int:
    if task.concurrency is None:
        return limits.max_per_capability
    return min(task.concurrency, limits.max_per_capability)
