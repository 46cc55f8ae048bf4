"""The workers that are there: when each was heard of last, what each is to know, and who is lost.

A heartbeat changes memory only; what they come to is stored now and then, all in one transaction. Leases run on the
monotonic clock, which stands still while the machine sleeps: a worker that slept with it has not been silent. Lost is
who says nothing for a whole lease, and at once whoever's descriptor closes. What a worker is to do is not sent, it is
shown: a heartbeat's answer lists all that it has now, and what is not in the list has been taken away from it.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from contextlib import suppress
from dataclasses import field, replace
from typing import TYPE_CHECKING

from aiosd.core import assigning, assignments, clock, worker_views
from aiosd.core.assigning import Found, Offer
from aiosd.core.durable import write_durably
from aiosd.model import jsontext
from aiosd.model.event import Source
from aiosd.model.later import dataclass
from aiosd.model.status import Reason
from aiosd.model.worker import WorkerStatus
from aiosd.store import workers
from aiosd.store.database import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aiosd.core.settings import Settings
    from aiosd.model.event import Event
    from aiosd.model.jsontext import JsonObject, JsonValue
    from aiosd.model.worker import Worker, WorkerKey
    from aiosd.store.database import Database, Transaction

STORED_EVERY = 30.0
"""Seconds after which heartbeats that changed nothing are stored."""
TOLD_EVERY = 5.0
"""Seconds between two events (`worker.heartbeat`) of changes that workers tell."""
AFTER_ERROR = 1.0

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Present:
    """A worker that is there. `lease_end`: of the loop's clock. `version`: counts the changes of what it is to know;
    `read`: with which of them that was read.
    `told`: what its last event said. `listening`: heartbeats of it that wait for news, which is a sign of life."""

    worker: Worker
    lease_end: float
    heard_at: int
    status: WorkerStatus
    load: float = 0.0
    current_task_id: str | None = None
    told: tuple[WorkerStatus, str | None] | None = None
    gone: bool = False
    listening: int = 0
    version: int = 1
    read: int = 0
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    tag: str = ""
    wanted: list[JsonValue] = field(default_factory=list)
    tasks: set[str] = field(default_factory=set)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    descriptor: int | None = None


class Crew:
    """All of them. Everything but what is passed to the store happens on the loop."""

    def __init__(self, database: Database, settings: Settings, boot_id: str) -> None:
        """Nobody is there before `recover`."""
        self._database = database
        self._settings = settings
        self._boot_id = boot_id
        self.present: dict[WorkerKey, Present] = {}
        self.room_made: Callable[[], None] = lambda: None
        self._holders: dict[str, WorkerKey] = {}
        self._dirty: set[WorkerKey] = set()
        self._store_at: float | None = None
        self._wakeup = asyncio.Event()
        self._losing: set[asyncio.Task[None]] = set()

    # -- who is there

    async def recover(self) -> None:
        """After a restart: who may still be there gets a lease to say so, what others had is taken back."""
        found = await self._database.read(workers.living)
        decided = [(worker, assigning.recover(worker, self._boot_id)) for worker in found]
        kept = {worker.key: worker for worker, plan in decided if plan.found is Found.KEEP}
        for worker, plan in decided:
            if plan.found is Found.LOST:
                reason = plan.reason or Reason.WORKER_LOST
                await self._write_off(worker, reason, "the machine was restarted")
        for worker in kept.values():
            self.enroll(worker, None)
        for assignment in await self._database.read(workers.open_assignments):
            self.given(assignment.task_id, assignment.worker)

    def enroll(self, worker: Worker, descriptor: int | None) -> Present:
        """It is there from now on. `descriptor`: a pipe whose other end it holds; ours from now on."""
        self.drop(worker.key)
        member = Present(
            worker, lease_end=self._lease_end(), heard_at=clock.now(), status=worker.status, load=worker.load,
            current_task_id=worker.current_task_id, descriptor=descriptor,
        )  # fmt: skip
        self.present[worker.key] = member
        if descriptor is not None:
            asyncio.get_running_loop().add_reader(descriptor, self._hung_up, member)
        self._wakeup.set()
        self.room_made()
        return member

    def drop(self, key: WorkerKey) -> None:
        """It is not there any more; who waits for news for it is told."""
        member = self.present.pop(key, None)
        if member is None:
            return
        member.gone = True
        member.changed.set()
        self._dirty.discard(key)
        for task_id in member.tasks:
            self._holders.pop(task_id, None)
        self._let_go(member)

    def _let_go(self, member: Present) -> None:
        if member.descriptor is not None:
            asyncio.get_running_loop().remove_reader(member.descriptor)
            os.close(member.descriptor)
            member.descriptor = None

    def close(self) -> None:
        """Let go of all descriptors: the daemon ends, the workers do not."""
        for member in self.present.values():
            self._let_go(member)

    def count_of(self, uid: int) -> int:
        """How many of a user's are there."""
        return sum(key[0] == uid for key in self.present)

    def _lease_end(self) -> float:
        return asyncio.get_running_loop().time() + self._settings.current.worker_lease

    def _hung_up(self, member: Present) -> None:
        """The other end was closed. (Or written to, which it is not there for.)"""
        if member.descriptor is not None:
            asyncio.get_running_loop().remove_reader(member.descriptor)
            task = asyncio.create_task(self._lose(member, "it closed its liveness descriptor, or ended"))
            self._losing.add(task)
            task.add_done_callback(self._losing.discard)

    # -- what they say

    def heartbeat(self, member: Present, status: WorkerStatus, task_id: str | None, load: float) -> None:
        """It is there, and this is what it does."""
        had_room = member.status is WorkerStatus.IDLE
        member.status, member.current_task_id, member.load = status, task_id, load
        self.renew(member)
        self._dirty.add(member.worker.key)
        within = STORED_EVERY if member.told == (status, task_id) else TOLD_EVERY
        due = asyncio.get_running_loop().time() + within
        if self._store_at is None or due < self._store_at:
            self._store_at = due
            self._wakeup.set()
        if status is WorkerStatus.IDLE and not had_room:
            self.room_made()

    def renew(self, member: Present) -> None:
        """Whatever it says shows that it is there."""
        member.lease_end = self._lease_end()
        member.heard_at = clock.now()

    def heard(self, events: Sequence[Event]) -> None:
        """An event listener: a task that a worker has is another one now."""
        for event in events:
            key = None if event.task_id is None else self._holders.get(event.task_id)
            if key is not None:
                self.outdated(key)

    def given(self, task_id: str, key: WorkerKey) -> None:
        """A worker got a task."""
        member = self.present.get(key)
        if member is not None:
            self._holders[task_id] = key
            member.tasks.add(task_id)
            self.outdated(key)

    def outdated(self, key: WorkerKey) -> None:
        """What that worker is to know has changed."""
        member = self.present.get(key)
        if member is not None:
            member.version += 1
            member.changed.set()

    def set_capabilities(self, member: Present, found: tuple[str, ...]) -> None:
        """It can do other things than before."""
        member.worker = replace(member.worker, capabilities=found)
        self.room_made()

    async def news(self, member: Present, *, whole: bool = False) -> tuple[str, list[JsonValue]]:
        """What a worker is to know, and the tag that tells it from others. `whole`: each with its request."""
        # One after another: what was read last, and nothing older, is what it has.
        async with member.reading:
            return await self._read_news(member, whole=whole)

    async def _read_news(self, member: Present, *, whole: bool) -> tuple[str, list[JsonValue]]:
        version = member.version
        if not whole and member.read == version:
            return member.tag, member.wanted
        key = member.worker.key
        held = await self._database.read(lambda db: worker_views.wanted(db, key))
        member.read = version
        for task_id in member.tasks - held.keys():
            self._holders.pop(task_id, None)
        member.tasks = set(held)
        self._holders.update(dict.fromkeys(held, key))
        everything: list[JsonValue] = [*held.values()]
        member.tag = _tag([worker_views.in_short(one, always=True) for one in held.values()])
        member.wanted = [worker_views.in_short(one) for one in held.values()]
        return member.tag, everything if whole else member.wanted

    def offers(self) -> list[Offer]:
        """All of them as the assigner sees them; what they have it knows."""
        return [
            Offer(
                key, frozenset(one.worker.capabilities), one.worker.serves, one.status, one.worker.capacity, 0,
                one.load, one.worker.sequence,
            )
            for key, one in self.present.items()
        ]  # fmt: skip

    # -- who is not there any more

    async def run(self) -> None:
        """Store what heartbeats come to, and take back what silent workers have. For ever."""
        try:
            while True:
                self._wakeup.clear()
                try:
                    await self._store_if_due()
                except StoreError as error:
                    _log.warning("Heartbeats are stored later: %s", error)
                    self._store_at = asyncio.get_running_loop().time() + AFTER_ERROR
                now = asyncio.get_running_loop().time()
                for member in [one for one in self.present.values() if one.lease_end <= now]:
                    if member.listening:
                        self.renew(member)
                        continue
                    await self._lose(member, f"it was not heard of for {self._settings.current.worker_lease:g} s")
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(self._next()):
                        await self._wakeup.wait()
        finally:
            self.close()

    def _next(self) -> float | None:
        ends = [member.lease_end for member in self.present.values()]
        if self._store_at is not None:
            ends.append(self._store_at)
        return min(ends, default=None)

    async def _store_if_due(self) -> None:
        if self._store_at is None or asyncio.get_running_loop().time() < self._store_at:
            return
        members = [self.present[key] for key in self._dirty if key in self.present]
        self._dirty, self._store_at = set(), None
        rows = [(one.worker.key, one.status, one.current_task_id, one.load, one.heard_at) for one in members]
        tell = [one for one in members if one.told != (one.status, one.current_task_id)]
        said = [(one.worker, heartbeat_view(one)) for one in tell]

        def store(transaction: Transaction) -> None:
            workers.store_heartbeats(transaction, rows)
            for worker, shown in said:
                assignments.tell_of_worker(transaction, worker, "worker.heartbeat", shown)

        try:
            await self._database.write(store)
        except StoreError:
            self._dirty |= {one.worker.key for one in members}
            raise
        for one in tell:
            one.told = (one.status, one.current_task_id)

    async def _lose(self, member: Present, detail: str) -> None:
        """A worker is gone: its row, its event, and its tasks for others, in one transaction."""
        if self.present.get(member.worker.key) is not member:
            return
        self.drop(member.worker.key)
        await self._write_off(member.worker, Reason.WORKER_LOST, detail)

    async def _write_off(self, worker: Worker, reason: Reason, detail: str) -> None:
        _log.info("Worker %s of uid %d is lost: %s", worker.id, worker.uid, detail)

        def write(transaction: Transaction) -> None:
            current = workers.get(transaction, worker.key)
            if current is None or current.registration != worker.registration or current.ended_at is not None:
                return  # it has registered again meanwhile
            part(transaction, worker, reason, detail, "worker.lost")

        await write_durably(self._database, write)


def part(transaction: Transaction, worker: Worker, reason: Reason, detail: str, boss_type: str) -> None:
    """A worker leaves: its tasks are for others, its row says why. In the writer thread."""
    for assignment in workers.open_of_worker(transaction, worker.key):
        assignments.lose(transaction, assignment, reason, detail)
    workers.end(transaction, worker.key, detail, clock.now())
    shown: JsonObject = {"reason": reason.value, "message": detail}
    source = Source.WORKER if boss_type == "worker.unregistered" else Source.SYSTEM
    assignments.tell_of_worker(transaction, worker, boss_type, shown, source=source)


def heartbeat_view(member: Present) -> JsonObject:
    """Seed 003's heartbeat."""
    return {
        "status": member.status.value, "current_task_id": member.current_task_id, "load": member.load,
        "timestamp": clock.rfc3339(member.heard_at),
    }  # fmt: skip


def current(member: Present) -> Worker:
    """The worker as it is now, not as it was stored last."""
    return replace(
        member.worker, status=member.status, current_task_id=member.current_task_id, load=member.load,
        heartbeat_at=member.heard_at,
    )  # fmt: skip


def _tag(shown: Sequence[JsonValue]) -> str:
    return hashlib.sha256(jsontext.dump(list(shown)).encode()).hexdigest()[:16]
