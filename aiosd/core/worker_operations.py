"""Handlers of `worker.*`: what a worker does, and what its user sees of it.

A worker is named by its user, who is the caller, and by the id that it chose. Registering needs the action
`register-worker`; after that the registration, which only the worker was told, tells it from an earlier one of the same
name, and the assignment's id each piece of its work. Nothing of another worker is there for it.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from functools import partial
from typing import TYPE_CHECKING

from aiosd.auth.approvals import connection_of
from aiosd.auth.decision import Decision
from aiosd.auth.policy import Action
from aiosd.core import assignments, clock, crew, run_states, sessions, worker_reports, worker_views
from aiosd.core.approving import Waits
from aiosd.core.operations import Reply
from aiosd.core.run_events import Batch
from aiosd.core.shares import at_rest
from aiosd.errors import AiosError, ErrorKind
from aiosd.model.audit import AuditKind
from aiosd.model.status import Reason
from aiosd.model.worker import Liveness, Serves, Worker, WorkerStatus
from aiosd.store import workers
from aiosd.store.audit import append_audit

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from aiosd.auth.caller import Caller
    from aiosd.core.authorization import Authorizer
    from aiosd.core.crew import Crew, Present
    from aiosd.core.settings import Settings
    from aiosd.core.time_limits import TimeLimits
    from aiosd.model import wire_workers as wire
    from aiosd.model.jsontext import JsonValue
    from aiosd.model.task import Task
    from aiosd.store.database import Database, Transaction

MAX_WORKERS = 10_000
"""Workers of all users together, root's included."""


def worker_not_found() -> AiosError:
    """The one answer for a worker that is not there and for one that the caller may not see."""
    return AiosError(ErrorKind.WORKER_NOT_FOUND, "there is no such worker, or it is another user's", field="worker_id")


class WorkerOperations:
    """Workers as callers handle them."""

    def __init__(
        self, database: Database, authorizer: Authorizer, settings: Settings, present: Crew, boot_id: str,
        limits: TimeLimits,
    ) -> None:  # fmt: skip
        """`present`: who is there."""
        self._limits = limits
        self._database = database
        self._authorizer = authorizer
        self._settings = settings
        self._crew = present
        self._boot_id = boot_id
        self._enlisting: set[asyncio.Task[Reply]] = set()

    def handlers(self) -> Mapping[str, Callable[..., Awaitable[Reply]]]:
        """By operation name."""
        return {
            "worker.register": self.register,
            "worker.heartbeat": self.heartbeat,
            "worker.unregister": self.unregister,
            "worker.list": self.list_workers,
            "worker.get": self.get,
            "worker.accept": self.accept,
            "worker.reject": self.reject,
            "worker.report": self.report,
            "worker.complete": self.complete,
            "worker.fail": self.fail,
        }

    async def register(self, caller: Caller, params: wire.WorkerRegister) -> Reply:
        """A worker is there. One that comes back with its registration keeps what it has."""
        worker_reports.bounded("metadata", params.metadata)
        self._check_room(caller, params.worker_id)
        details = {"worker": params.worker_id, "hostname": params.hostname, "serves": params.serves}
        await self._authorizer.require(caller, Action.REGISTER_WORKER, details)
        self._check_room(caller, params.worker_id)
        work = asyncio.create_task(self._enlist(caller, params))
        self._enlisting.add(work)
        work.add_done_callback(self._enlisting.discard)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            # Whoever asked has left. It is registered to its end; its descriptor has nobody to go to, so it is lost.
            work.add_done_callback(_close_what_it_gave)
            raise

    async def _enlist(self, caller: Caller, params: wire.WorkerRegister) -> Reply:
        """Store it, and from then on it is there."""
        worker = await self._database.write(partial(_register, caller=caller, params=params, boot_id=self._boot_id))
        held, given = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK) if worker.liveness is Liveness.DESCRIPTOR else (None, None)
        member = self._crew.enroll(worker, held)
        try:
            _, shown = await self._crew.news(member, whole=True)
        except BaseException:
            if given is not None:
                os.close(given)
            raise
        body: dict[str, JsonValue] = {
            "worker_id": worker.id, "uid": worker.uid, "registration": worker.registration,
            "lease_ms": self._lease_ms(), "tag": member.tag, "assignments": shown,
        }  # fmt: skip
        return Reply(body, () if given is None else (given,))

    def _check_room(self, caller: Caller, worker_id: str) -> None:
        if (caller.uid, worker_id) in self._crew.present:
            return
        most = self._settings.current.max_workers_per_user
        mine = not caller.is_root and self._crew.count_of(caller.uid) >= most
        if mine or len(self._crew.present) >= MAX_WORKERS:
            limit = "max_workers_per_user" if mine else "max_workers"
            raise AiosError(
                ErrorKind.RATE_LIMITED, "there are as many workers as there may be", reason="workers",
                data={"limit": limit, "max": most if mine else MAX_WORKERS},
            )  # fmt: skip

    async def heartbeat(self, caller: Caller, params: wire.WorkerHeartbeat) -> Reply:
        """The worker is there; what it is to do. May wait until that is something else than it knows."""
        member = self._member(caller, params)
        self._crew.heartbeat(member, WorkerStatus(params.status), params.current_task_id, params.load)
        if params.capabilities is not None and tuple(params.capabilities) != member.worker.capabilities:
            await self._set_capabilities(member, tuple(params.capabilities))
        if params.received:
            await self._received(member, params.received)
        tag, shown = await self._crew.news(member, whole=params.whole)
        if params.wait_ms and params.known == tag:
            tag, shown = await self._wait(member, tag, params.wait_ms / 1000, whole=params.whole)
        body: dict[str, JsonValue] = {
            "worker_id": member.worker.id, "lease_ms": self._lease_ms(), "tag": tag, "assignments": shown
        }  # fmt: skip
        return Reply(body)

    async def _wait(self, member: Present, known: str, seconds: float, *, whole: bool) -> tuple[str, list[JsonValue]]:
        """News other than `known`, or the same after that time. Waiting for them is a sign of life."""
        with at_rest():
            return await self._news(member, known, seconds, whole=whole)

    async def _news(self, member: Present, known: str, seconds: float, *, whole: bool) -> tuple[str, list[JsonValue]]:
        member.listening += 1
        try:
            async with asyncio.timeout(seconds):
                while not member.gone:
                    member.changed.clear()
                    version = member.version
                    tag, shown = await self._crew.news(member, whole=whole)
                    if tag != known:
                        return tag, shown
                    if member.version == version:  # else it has changed meanwhile, and another one took the sign
                        await member.changed.wait()
        except TimeoutError:
            pass
        finally:
            member.listening -= 1
            self._crew.renew(member)
        if member.gone:
            raise worker_not_found()
        return await self._crew.news(member, whole=whole)

    async def _set_capabilities(self, member: Present, found: tuple[str, ...]) -> None:
        worker = member.worker

        def change(transaction: Transaction) -> None:
            workers.set_capabilities(transaction, worker.key, found)
            shown: dict[str, JsonValue] = {"capabilities": list(found)}
            assignments.tell_of_worker(transaction, worker, "worker.capabilities.updated", shown)

        await self._database.write(change)
        self._crew.set_capabilities(member, found)

    async def _received(self, member: Present, deliveries: list[str]) -> None:
        """Answers to questions have arrived: they need not be shown any more."""

        def forget(transaction: Transaction) -> None:
            for assignment in workers.open_of_worker(transaction, member.worker.key):
                for delivery in deliveries:
                    run_states.delivered(transaction, assignment.task_id, delivery)

        await self._database.write(forget)
        self._crew.outdated(member.worker.key)

    async def unregister(self, caller: Caller, params: wire.WorkerRegistered) -> Reply:
        """The worker leaves; what it has goes to others."""
        member = self._member(caller, params)
        worker = member.worker
        await self._database.write(
            lambda tx: crew.part(tx, worker, Reason.WORKER_LOST, "it unregistered", "worker.unregistered")
        )
        if self._crew.present.get(worker.key) is member:
            self._crew.drop(worker.key)
        return Reply({"worker_id": worker.id})

    async def list_workers(self, caller: Caller, params: wire.WorkerList) -> Reply:
        """The caller's workers, or everybody's for who may see them."""
        uid: int | None = caller.uid
        if params.all_users:
            await self._authorizer.require(caller, Action.VIEW_OTHERS, {"list": "workers"})
            uid = None
        after = 0 if params.cursor is None else int(params.cursor)
        found, more = await self._database.read(
            lambda db: workers.page(db, uid, ended=params.ended, after=after, limit=params.limit)
        )
        body: dict[str, JsonValue] = {
            "workers": [worker_views.row(self._as_now(one)) for one in found], "has_more": more
        }  # fmt: skip
        if more:
            body["next_cursor"] = str(found[-1].sequence)
        return Reply(body)

    async def get(self, caller: Caller, params: wire.WorkerRef) -> Reply:
        """One worker with its open assignments."""
        key = (caller.uid if params.uid is None else params.uid, params.worker_id)
        found, held = await self._database.read(lambda db: (workers.get(db, key), workers.open_of_worker(db, key)))
        if found is None:
            raise worker_not_found()
        if key[0] != caller.uid:
            details = {"worker": found.id, "owner": str(found.uid)}
            if await self._authorizer.decide(caller, Action.VIEW_OTHERS, details) is not Decision.ALLOWED:
                raise worker_not_found()
        body = worker_views.row(self._as_now(found))
        body["metadata"] = found.metadata
        body["assignments"] = [worker_views.assignment_row(one) for one in held]
        return Reply(body)

    def _as_now(self, worker: Worker) -> Worker:
        member = self._crew.present.get(worker.key)
        return worker if member is None or worker.ended_at is not None else crew.current(member)

    # -- about one assignment

    async def accept(self, caller: Caller, params: wire.AssignmentRef) -> Reply:
        """Begin."""
        return await self._step(caller, params, lambda tx, key: assignments.accept(tx, key, params.assignment_id)[1])

    async def reject(self, caller: Caller, params: wire.AssignmentReject) -> Reply:
        """Do not begin; another worker is asked."""
        return await self._step(
            caller, params, lambda tx, key: assignments.reject(tx, key, params.assignment_id, params.reason)
        )

    async def report(self, caller: Caller, params: wire.WorkerReport) -> Reply:
        """Say how it goes, hand something over, or ask."""
        worker_reports.check(params)
        current = self._settings.current
        limits = Batch(
            0, 0, (), quota=current.artifact_quota_bytes, approval_wait=Waits.of(current).approval,
            worker=connection_of(caller.subject),
        )  # fmt: skip

        def apply(transaction: Transaction, key: tuple[int, str]) -> Task:
            assignment, task = assignments.accepted(transaction, key, params.assignment_id)
            sessions.require_room(transaction, task.uid, current.session_quota_bytes, "report")
            return worker_reports.apply(transaction, assignment, task, params, limits)

        return await self._step(caller, params, apply)

    async def complete(self, caller: Caller, params: wire.WorkerComplete) -> Reply:
        """It is done."""
        worker_reports.bounded("result", params.result)
        limits = Batch(0, 0, ())

        def finish(transaction: Transaction, key: tuple[int, str]) -> Task:
            assignment, task = assignments.accepted(transaction, key, params.assignment_id)
            last = params.last_report()
            if last is not None:
                worker_reports.apply(transaction, assignment, task, last, limits)
            return assignments.complete(transaction, key, params.assignment_id, params.result)

        return await self._step(caller, params, finish)

    async def fail(self, caller: Caller, params: wire.WorkerFail) -> Reply:
        """It could not be done."""
        said = params.model_dump(include={"message", "reason", "retryable", "data"}, exclude_none=True)
        worker_reports.bounded("data", params.data or {})
        return await self._step(
            caller, params, lambda tx, key: assignments.fail(tx, key, params.assignment_id, said, self._limits)
        )

    async def _step(
        self, caller: Caller, params: wire.AssignmentRef, step: Callable[[Transaction, tuple[int, str]], Task]
    ) -> Reply:
        """One step of an assignment, in one transaction; that the worker takes it shows that it is there."""
        if params.uid is not None and params.uid != caller.uid:
            raise worker_not_found()
        key = (caller.uid, params.worker_id)
        task = await self._database.write(lambda tx: step(tx, key))
        member = self._crew.present.get(key)
        if member is not None:
            self._crew.renew(member)
            # Who listens to commits hears of it after this reply; the next call of a batch may be earlier.
            self._crew.outdated(key)
        return Reply({"assignment_id": params.assignment_id, "task_id": task.id, "status": task.status.value})

    def _member(self, caller: Caller, params: wire.WorkerRegistered) -> Present:
        """The worker itself, which names its registration. Raises WORKER_NOT_FOUND."""
        if params.uid is not None and params.uid != caller.uid:
            raise worker_not_found()
        member = self._crew.present.get((caller.uid, params.worker_id))
        if member is None:
            raise worker_not_found()
        if member.worker.registration != params.registration:
            error = worker_not_found()
            error.detail, error.reason = "it has registered anew since", "superseded"
            raise error
        return member

    def _lease_ms(self) -> int:
        return round(self._settings.current.worker_lease * 1000)


def _close_what_it_gave(work: asyncio.Task[Reply]) -> None:
    if not work.cancelled() and work.exception() is None:
        for fd in work.result().fds:
            os.close(fd)


def _register(transaction: Transaction, *, caller: Caller, params: wire.WorkerRegister, boot_id: str) -> Worker:
    """The worker's row, and what follows for an earlier registration of the same id."""
    key, moment = (caller.uid, params.worker_id), clock.now()
    earlier = workers.get(transaction, key)
    living = earlier is not None and earlier.ended_at is None
    resumed = living and earlier is not None and params.registration == earlier.registration
    worker = Worker(
        id=params.worker_id, uid=caller.uid, hostname=params.hostname, os=params.os, shell=params.shell,
        capabilities=tuple(dict.fromkeys(params.capabilities)), registered_at=moment, heartbeat_at=moment,
        registration=secrets.token_hex(16), boot_id=boot_id, liveness=Liveness(params.liveness),
        serves=Serves(params.serves), capacity=params.capacity, metadata=params.metadata,
    )  # fmt: skip
    if living and earlier is not None and not resumed:
        held = workers.open_of_worker(transaction, key)
        for assignment in held:
            assignments.lose(transaction, assignment, Reason.WORKER_LOST, "its worker registered anew")
    workers.save(transaction, worker)
    shown: dict[str, JsonValue] = {
        "hostname": worker.hostname, "os": worker.os, "shell": worker.shell,
        "capabilities": list(worker.capabilities), "resumed": resumed,
    }  # fmt: skip
    assignments.tell_of_worker(transaction, worker, "worker.registered", shown)
    if living and earlier is not None and earlier.capabilities != worker.capabilities:
        changed: dict[str, JsonValue] = {"capabilities": list(worker.capabilities)}
        assignments.tell_of_worker(transaction, worker, "worker.capabilities.updated", changed)
    details: dict[str, JsonValue] = {"worker_id": worker.id, **shown, "serves": worker.serves.value}
    append_audit(
        transaction, time=moment, uid=caller.uid, actor=f"uid:{caller.uid}", kind=AuditKind.WORKER_REGISTERED,
        task_id=None, details=details,
    )  # fmt: skip
    stored = workers.get(transaction, key)
    return worker if stored is None else stored
