"""`task.create` and `task.retry`: from a request to a durably stored task, or to a refusal that stored nothing.

In order: the capability exists, arguments and limits fit it, the caller may (polkit), and then, in the transaction and
so with everything as it is at that moment, the queue has room and the dependencies exist.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aiosd.auth.approvals import connection_of
from aiosd.auth.policy import Action
from aiosd.core import approving, changes, clock, links
from aiosd.core.approving import Waits
from aiosd.core.consent import Wish, settle
from aiosd.core.executors import WORKERS
from aiosd.core.settings import MAX_DOCUMENT_BYTES, MAX_TOGETHER_BYTES
from aiosd.errors import AiosError, ErrorKind
from aiosd.manifest import argv, schema
from aiosd.model import jsontext
from aiosd.model.event import Source
from aiosd.model.ids import Prefix, new_id
from aiosd.model.later import dataclass
from aiosd.model.status import Phase, Priority, Status
from aiosd.model.task import Task
from aiosd.store import dependencies, tasks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiosd.auth.caller import Caller
    from aiosd.core.authorization import Authorizer
    from aiosd.core.consent import Consent, Consents
    from aiosd.core.registry import Registry
    from aiosd.core.settings import Settings
    from aiosd.model import wire
    from aiosd.model.jsontext import JsonObject
    from aiosd.model.manifest import Capability, Limits
    from aiosd.store.database import Database, Transaction


MAX_PLANNED = 20_000
"""Planned tasks of one user that nobody has taken yet."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A task ready to be stored, and what it waits for."""

    task: Task
    depends_on: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Prepared:
    """A task that may be stored, and by what right."""

    draft: Draft
    consent: Consent


class Creation:
    """Makes tasks."""

    def __init__(
        self,
        database: Database,
        registry: Registry,
        authorizer: Authorizer,
        settings: Settings,
        consents: Consents,
    ) -> None:
        """Keeps what it asks."""
        self._database = database
        self._registry = registry
        self._authorizer = authorizer
        self._settings = settings
        self._consents = consents

    async def create(self, caller: Caller, request: wire.TaskCreate) -> Task:
        """Store a new task for this caller. Raises AiosError, and then nothing was stored."""
        self._settings.stops.refuse(caller.uid)
        capability = self._registry.require(request.capability_id)
        self._check_request(capability, request)
        earlier = await self._earlier(caller, request)
        if earlier is not None:
            return earlier
        prepared = await self._prepare(caller, capability, request)
        return await self._database.write(lambda transaction: self._store(transaction, prepared, request))

    async def prepare(self, caller: Caller, request: wire.TaskCreate) -> Prepared:
        """The same up to the transaction: for who stores several tasks in one, with `store`. Raises AiosError."""
        capability = self._registry.require(request.capability_id)
        self._check_request(capability, request)
        return await self._prepare(caller, capability, request)

    async def _prepare(self, caller: Caller, capability: Capability, request: wire.TaskCreate) -> Prepared:
        draft = self._draft(caller, capability, request)
        options = request.options
        wish = Wish(capability, request.arguments, options.session_id, _some(options.parent_task_id))
        return Prepared(draft, await self._authorize(caller, wish, options.priority, defer=options.may_defer))

    def store(self, transaction: Transaction, draft: Draft, consent: Consent) -> Task:
        """Store what was prepared. Raises AiosError, and then the whole transaction is to be given up."""
        return self._insert(transaction, draft, consent)

    def _record(self, transaction: Transaction, task: Task) -> Task:
        capability = self._registry.find(task.capability_id)
        schema = None if capability is None else capability.input_schema
        return changes.record_new(transaction, task, source=Source.USER, actor=f"uid:{task.uid}", schema=schema)

    def store_planned(self, transaction: Transaction, draft: Draft) -> Task:
        """Store a task that nobody can run yet. Raises AiosError, and then the whole transaction is to be given up."""
        task = draft.task
        if task.uid != 0 and tasks.planned_of(transaction, task.uid) >= MAX_PLANNED:
            raise AiosError(ErrorKind.QUEUE_FULL, f"{MAX_PLANNED} tasks of this user are planned already")
        task = links.checked(transaction, task, draft.depends_on)
        stored = self._record(transaction, task)
        dependencies.add(transaction, stored.sequence, draft.depends_on)
        return stored

    async def retry(self, caller: Caller, old: Task, request: wire.TaskRetry) -> Task:
        """Store a new task like `old`, which must be final. Same checks as for a new request."""
        self._settings.stops.refuse(caller.uid)
        if not old.status.is_final:
            raise AiosError(
                ErrorKind.INVALID_STATE, f"only a finished task can be run again; this one is {old.status}",
                field="task_id", reason="not-final",
            )  # fmt: skip
        if old.capability_id == WORKERS:
            planned = _like(_planned_blank(caller, old), old, _task_id(caller, request.handle_token))
            return await self._database.write(
                lambda transaction: self.store_planned(transaction, _under(transaction, planned, old))
            )
        capability = self._registry.require(old.capability_id)
        refuse_problems(capability, old.arguments)
        refuse_unfit(capability, old.arguments)
        wish = Wish(capability, old.arguments, old.session_id, (old.id, *_some(old.parent_id)))
        consent = await self._authorize(caller, wish, None, defer=False)
        task = _like(self._blank(caller, capability), old, _task_id(caller, request.handle_token))
        task = replace(task, timeout_ms=_shorter(capability.timeout_ms, old.timeout_ms))
        return await self._database.write(
            lambda transaction: self._insert(transaction, _under(transaction, task, old), consent)
        )

    def _check_request(self, capability: Capability, request: wire.TaskCreate) -> None:
        together = len("[,]")
        for name, value in (("arguments", request.arguments), ("metadata", request.metadata)):
            try:
                jsontext.check_value(value)
            except jsontext.JsonTextError as error:
                raise AiosError(ErrorKind.INVALID_PARAMS, str(error), field=name) from None
            size = len(jsontext.dump(value).encode())
            if size > MAX_DOCUMENT_BYTES:
                raise AiosError(ErrorKind.INVALID_PARAMS, f"longer than {MAX_DOCUMENT_BYTES} bytes", field=name)
            together += size
        if together > MAX_TOGETHER_BYTES:
            raise AiosError(
                ErrorKind.INVALID_PARAMS, f"longer than {MAX_TOGETHER_BYTES} bytes together with arguments",
                field="metadata",
            )  # fmt: skip
        refuse_problems(capability, request.arguments)
        refuse_unfit(capability, request.arguments)
        if request.options.limits is not None:
            refuse_looser(capability.limits, request.options.limits)

    async def _earlier(self, caller: Caller, request: wire.TaskCreate) -> Task | None:
        """The task that the same caller made with the same idempotency key; the same request answers the same."""
        key = request.options.idempotency_key
        if key is None:
            return None
        earlier = await self._database.read(lambda db: tasks.by_idempotency_key(db, caller.uid, key))
        return None if earlier is None else same_request(earlier, request)

    async def _authorize(self, caller: Caller, wish: Wish, priority: str | None, *, defer: bool) -> Consent:
        consent = await self._consents.obtain(caller, wish, defer=defer)
        if priority == Priority.URGENT.wire:
            await self._authorizer.require(caller, Action.PRIORITY_URGENT, wish.details)
        self._check_unchanged(wish.capability)
        return consent

    def _check_unchanged(self, capability: Capability) -> None:
        """What was allowed is what will run: an answer about an older manifest is stale."""
        if self._registry.find(capability.id) != capability:
            raise AiosError(
                ErrorKind.PERMISSION_DENIED, "the capability changed while permission was asked",
                reason="stale-authorization", field="capability_id",
            )  # fmt: skip

    def _blank(self, caller: Caller, capability: Capability) -> Task:
        moment = clock.now()
        return Task(
            id="", uid=caller.uid, capability_id=capability.id, title=capability.title, level=capability.level,
            status=Status.PENDING, phase=Phase.QUEUED, priority=Priority(self._settings.current.default_task_priority),
            created_at=moment, updated_at=moment, creator={"uid": caller.uid, "subject": connection_of(caller.subject)},
            timeout_ms=capability.timeout_ms or _milliseconds(self._settings.current.task_timeout),
            retry_max=capability.retry.max_attempts, retry_delay_ms=capability.retry.delay_ms,
            estimated_ms=capability.estimated_duration_ms,
        )  # fmt: skip

    def _draft(self, caller: Caller, capability: Capability, request: wire.TaskCreate) -> Draft:
        options = request.options
        blank = self._blank(caller, capability)
        not_before = _moment(options.not_before)
        task = blank.having({
            "id": _task_id(caller, options.handle_token),
            "title": options.title or capability.title,
            "priority": blank.priority if options.priority is None else Priority.from_name(options.priority),
            "phase": Phase.WAITING if options.depends_on or not_before else Phase.QUEUED,
            "arguments": request.arguments,
            "metadata": request.metadata,
            "timeout_ms": _shorter(blank.timeout_ms, options.timeout_ms),
            "retry_max": blank.retry_max if options.retry is None else options.retry.max_attempts,
            "retry_delay_ms": blank.retry_delay_ms if options.retry is None else options.retry.delay_ms,
            "not_before": not_before,
            "idempotency_key": options.idempotency_key,
            "parent_id": options.parent_task_id,
            "session_id": options.session_id,
            "execution_mode": options.execution_mode or "independent",
            "risk_level": options.risk_level,
            "kind": options.kind,
            "goal": options.goal,
            "constraints": tuple(options.constraints),
            "shared_context": tuple(dict.fromkeys(options.shared_context_refs)),
            "handoff": options.handoff_expected,
            "limits": None if options.limits is None else options.limits.model_dump(exclude_none=True),
        })  # fmt: skip
        return Draft(task, tuple(dict.fromkeys(options.depends_on)))

    def _store(self, transaction: Transaction, prepared: Prepared, request: wire.TaskCreate) -> Task:
        draft = prepared.draft
        key = draft.task.idempotency_key
        if key is not None:
            earlier = tasks.by_idempotency_key(transaction, draft.task.uid, key)
            if earlier is not None:
                return same_request(earlier, request)
        return self._insert(transaction, draft, prepared.consent)

    def _insert(self, transaction: Transaction, draft: Draft, consent: Consent) -> Task:
        waits = Waits.of(self._settings.current)
        task = approving.prepared(draft.task, consent, waits)
        approving.refuse_more(transaction, task, self._settings.current.max_unauthorized_per_user)
        room = self._settings.current.max_queue_size
        if tasks.queued(transaction) >= room:
            raise AiosError(ErrorKind.QUEUE_FULL, f"{room} tasks are waiting already", data={"max_queue_size": room})
        share = self._settings.current.queue_share
        if share is not None and task.uid != 0 and tasks.waiting_of(transaction, task.uid) >= share:
            raise AiosError(
                ErrorKind.QUEUE_FULL,
                f"{share} tasks of this user are waiting already",
                data={"max_queued_per_user": share},
            )
        if tasks.get(transaction, task.id) is not None:
            raise AiosError(ErrorKind.INVALID_PARAMS, "a task of that name exists", field="options.handle_token")
        task = links.checked(transaction, task, draft.depends_on)
        self._settings.stops.refuse(task.uid)
        stored = self._record(transaction, task)
        dependencies.add(transaction, stored.sequence, draft.depends_on)
        settle(transaction, consent, stored)
        return approving.announce(transaction, stored, consent, waits)


def refuse_problems(capability: Capability, arguments: JsonObject) -> None:
    """Raise INVALID_PARAMS for the first argument that the capability's schema forbids."""
    problems = schema.validate(capability.input_schema, arguments)
    if problems:
        first = problems[0]
        raise AiosError(
            ErrorKind.INVALID_PARAMS, first.message, field=f"arguments{first.path}",
            data={"problems": [str(problem) for problem in problems[:10]]},
        )  # fmt: skip


def refuse_unfit(capability: Capability, arguments: JsonObject) -> None:
    """Raise INVALID_PARAMS for what cannot become an argument of the program."""
    try:
        argv.argv_values(capability, arguments)
    except ValueError as error:
        raise AiosError(ErrorKind.INVALID_PARAMS, str(error), field="arguments") from None


def refuse_looser(installed: Limits, asked: wire.LimitOptions) -> None:
    """Raise INVALID_PARAMS when a limit is wider than the capability's own."""
    ceilings: Mapping[str, int | None] = {
        "memory_max": installed.memory_max,
        "memory_high": installed.memory_high,
        "cpu_quota_percent": installed.cpu_quota_percent,
        "tasks_max": installed.tasks_max,
        "io_weight": installed.io_weight,
        "cpu_weight": installed.cpu_weight,
    }
    for name, ceiling in ceilings.items():
        wanted: int | None = getattr(asked, name)
        if wanted is not None and ceiling is not None and wanted > ceiling:
            raise AiosError(
                ErrorKind.INVALID_PARAMS, f"may only be tighter than the capability's {ceiling}",
                field=f"options.limits.{name}",
            )  # fmt: skip


def same_request(earlier: Task, request: wire.TaskCreate) -> Task:
    """The earlier task, when it was the same request; an idempotency key cannot name two different ones."""
    same = earlier.capability_id == request.capability_id and jsontext.canonical(
        earlier.arguments
    ) == jsontext.canonical(request.arguments)
    if not same:
        raise AiosError(
            ErrorKind.INVALID_PARAMS, "this key was used for a different request", field="options.idempotency_key"
        )
    return earlier


def _task_id(caller: Caller, token: str | None) -> str:
    """A new id; with a token one that the caller can know beforehand."""
    return new_id(Prefix.TASK) if token is None else f"{Prefix.TASK}-u{caller.uid}-{token}"


def _some(value: str | None) -> tuple[str, ...]:
    return () if value is None else (value,)


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else max(1, round(seconds * 1000))


def _shorter(own: int | None, asked: int | None) -> int | None:
    """The tighter of two time limits."""
    if own is None or asked is None:
        return own if asked is None else asked
    return min(own, asked)


def _planned_blank(caller: Caller, old: Task) -> Task:
    """A task that waits for a worker, as `old` did."""
    moment = clock.now()
    return Task(
        id="", uid=caller.uid, capability_id=WORKERS, title=old.title, level=old.level, status=Status.PENDING,
        phase=Phase.PLANNING, priority=old.priority, created_at=moment, updated_at=moment,
        creator={"uid": caller.uid, "subject": connection_of(caller.subject)}, timeout_ms=old.timeout_ms,
    )  # fmt: skip


def _like(blank: Task, old: Task, task_id: str) -> Task:
    """What was asked for once, asked for again."""
    return replace(
        blank, id=task_id, title=old.title, arguments=old.arguments, metadata=old.metadata, retry_max=old.retry_max,
        retry_delay_ms=old.retry_delay_ms, limits=old.limits, session_id=old.session_id,
        execution_mode=old.execution_mode, risk_level=old.risk_level, retry_of=old.id, kind=old.kind, goal=old.goal,
        constraints=old.constraints, shared_context=links.named(old.shared_context), handoff=old.handoff,
        requires=old.requires, workspace=old.workspace, priority=min(old.priority, Priority.HIGH),
    )  # fmt: skip


def _under(transaction: Transaction, task: Task, old: Task) -> Draft:
    """Under the same parent, when that still goes on and is the caller's own."""
    parent = None if old.parent_id is None else tasks.get(transaction, old.parent_id)
    kept = parent is not None and not parent.status.is_final and parent.uid == task.uid
    return Draft(replace(task, parent_id=old.parent_id if kept else None))


def _moment(given: int | str | None) -> int | None:
    """`not_before`: microseconds since the epoch, or RFC 3339."""
    if given is None or isinstance(given, int):
        return given
    try:
        return clock.parse_rfc3339(given)
    except (ValueError, OverflowError):
        raise AiosError(
            ErrorKind.INVALID_PARAMS, "is not a time in RFC 3339, as 2026-01-05T10:00:00Z", field="options.not_before"
        ) from None
