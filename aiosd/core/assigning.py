"""Which worker gets which task, and what a restart makes of workers. Pure: the assigner asks with values.

Order: tasks come in theirs (higher priority, then older); each gets the worker that fits best. A worker fits when it is
capable of all that the task requires, works for the task's user, has room, and has not rejected this task since it
registered. Of those that fit, the one that does least comes first; of equals the one that can do fewest other things,
so that who can do more stays free for what only they can do.
"""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING

from aiosd.model.later import dataclass
from aiosd.model.status import Reason
from aiosd.model.worker import Serves, WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aiosd.model.worker import Worker, WorkerKey


@dataclass(slots=True)
class Offer:
    """A worker as it stands: what it has, of how much it can have, and what it says of its load (1.0 is full)."""

    key: WorkerKey
    capabilities: frozenset[str]
    serves: Serves = Serves.OWN
    status: WorkerStatus = WorkerStatus.IDLE
    capacity: int = 1
    taken: int = 0
    load: float = 0.0
    order: int = 0

    @property
    def has_room(self) -> bool:
        """Whether it would take another one."""
        return self.status is WorkerStatus.IDLE and self.taken < self.capacity


@dataclass(frozen=True, slots=True)
class Wanted:
    """A task that could begin. `rejected_by`: workers that are not to be asked again."""

    id: str
    uid: int
    requires: frozenset[str] = frozenset()
    rejected_by: frozenset[WorkerKey] = field(default_factory=frozenset)


@dataclass(frozen=True, slots=True)
class Pair:
    """A task and the worker that is to get it."""

    task_id: str
    worker: WorkerKey


def match(wanted: Iterable[Wanted], offers: Sequence[Offer], most: int) -> list[Pair]:
    """Who gets what, at most `most`; looks at no more tasks than it takes to fill the workers. Changes `taken`."""
    free = [offer for offer in offers if offer.has_room]
    pairs: list[Pair] = []
    if not free:
        return pairs
    for task in wanted:
        fitting = [offer for offer in free if fits(task, offer)]
        if not fitting:
            continue
        best = min(fitting, key=lambda one: (one.taken, one.load, len(one.capabilities), one.order))
        pairs.append(Pair(task.id, best.key))
        best.taken += 1
        if not best.has_room:
            free.remove(best)
        if not free or len(pairs) >= most:
            break
    return pairs


def fits(task: Wanted, offer: Offer) -> bool:
    """Whether this worker may be given this task at all."""
    mine = offer.serves is Serves.ALL or offer.key[0] == task.uid
    return mine and task.requires <= offer.capabilities and offer.key not in task.rejected_by


class Found(StrEnum):
    """What a restarted daemon does with a worker that its store has as living."""

    KEEP = "keep"
    """It has a whole lease to say that it is there: while the daemon was away it could not."""
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Recovered:
    """The decision; `reason` where it is lost."""

    found: Found
    reason: Reason | None = None


def recover(worker: Worker, boot_id: str) -> Recovered:
    """A worker is a process that speaks to this machine's sockets: it does not outlive the machine's boot, and a lease
    that began before it says nothing. One of this boot keeps its assignments until its lease is over; where it held a
    descriptor it has seen that close, and registers again with its registration."""
    if worker.boot_id != boot_id:
        return Recovered(Found.LOST, Reason.REBOOT)
    return Recovered(Found.KEEP)
