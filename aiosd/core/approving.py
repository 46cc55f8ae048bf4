"""An approval's life in the store: asked for when its task is stored, decided once, void when its request has changed.

A task that waits is `auth_required` and its `auth_request` says for what. Once nothing is missing the `auth_request` is
gone, and the scheduler takes the task as it takes a pending one: seed 000's table has no way back to `pending`.
All functions run in the writer thread.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aiosd.auth.approvals import connection_of, request_hash
from aiosd.core import changes, clock, program_approvals, run_states
from aiosd.core.outcome import Verdict, failure
from aiosd.errors import AiosError, ErrorKind
from aiosd.model.approval import RUN, Approval, ApprovalAction, ApprovalStatus
from aiosd.model.audit import AuditKind
from aiosd.model.event import Kind, Source
from aiosd.model.ids import Prefix, new_id
from aiosd.model.later import dataclass
from aiosd.model.redact import redacted
from aiosd.model.status import Level, Phase, Reason, Status
from aiosd.store import approvals, candidates, tasks

if TYPE_CHECKING:
    from aiosd.auth.caller import Caller
    from aiosd.config import Config
    from aiosd.core.consent import Consent
    from aiosd.core.delays import Delays
    from aiosd.model.jsontext import JsonObject, JsonValue
    from aiosd.model.manifest import Capability
    from aiosd.model.task import Task
    from aiosd.store.database import Transaction
    from aiosd.store.tasks import Executor

POLKIT = "polkit"
"""`auth_request.type` of what waits until a person is asked; for an approval it is APPROVAL (design: protocol)."""
SPARED = "root-command"
"""`creator.approval` of a task for which the administrator asks no approval (root_command_without_approval)."""


@dataclass(frozen=True, slots=True)
class Waits:
    """How long it is waited, in microseconds: for a person's authentication, for an approval."""

    authentication: int
    approval: int

    @classmethod
    def of(cls, config: Config) -> Waits:
        """As configured."""
        return cls(round(config.auth_timeout * clock.MICROSECONDS), round(config.approval_timeout * clock.MICROSECONDS))


def refuse_more(db: Executor, task: Task, most: int) -> None:
    """Raise QUEUE_FULL when this user has enough tasks that wait for somebody's word before they start."""
    waiting = candidates.unauthorized_of(db, task.uid)
    if task.status is Status.AUTH_REQUIRED and waiting >= most:
        raise AiosError(
            ErrorKind.QUEUE_FULL, f"{waiting} tasks of yours wait for an authentication or an approval already",
            reason="unauthorized", data={"max_unauthorized_per_user": most},
        )  # fmt: skip


def prepared(task: Task, consent: Consent, waits: Waits) -> Task:
    """The task as it is to be stored: waiting for what is missing, or as it was. Pure."""
    told = spared(consent)
    creator: JsonObject = {**task.creator, **told}
    if not (consent.deferred or consent.needs_approval):
        return replace(task, creator=creator) if told else task
    phase = Phase.WAITING_AUTH if consent.deferred else Phase.WAITING_APPROVAL
    request = _polkit_request(consent, task.created_at + waits.authentication) if consent.deferred else None
    return replace(task, creator=creator, status=Status.AUTH_REQUIRED, phase=phase, auth_request=request)


def spared(consent: Consent) -> JsonObject:
    """What a task's `creator` says of a critical task that needs no approval."""
    critical = consent.wish.capability.level is Level.CRITICAL
    return {"approval": SPARED} if critical and not consent.needs_approval and not consent.deferred else {}


def _polkit_request(consent: Consent, expires_at: int) -> JsonObject:
    return {"type": POLKIT, "action": consent.wish.action.value, "expires_at": clock.rfc3339(expires_at)}


def announce(transaction: Transaction, task: Task, consent: Consent, waits: Waits) -> Task:
    """Say what a task that was just stored waits for; an approval is asked for here."""
    if consent.deferred and task.auth_request is not None:
        _blocked(transaction, task)
        return task
    return request(transaction, task, consent, waits) if consent.needs_approval else task


def _blocked(transaction: Transaction, task: Task) -> None:
    """Seed 000's `task.auth_required`."""
    told: JsonObject = {"status": Status.AUTH_REQUIRED.value, "auth_request": task.auth_request}
    changes.emit(transaction, task, Kind.AUTH_REQUIRED, "task.blocked", told, source=Source.SYSTEM)


def request(transaction: Transaction, task: Task, consent: Consent, waits: Waits) -> Task:
    """Ask for the approval that this task waits for."""
    capability, moment = consent.wish.capability, clock.now()
    approval = Approval(
        id=new_id(Prefix.APPROVAL), uid=task.uid, kind=RUN, capability_id=capability.id, task_id=task.id,
        session_id=task.session_id, request_hash=request_hash(capability, task.arguments, task.uid),
        requester=connection_of(consent.caller.subject), summary=task.title, risk_level=capability.level.wire,
        created_at=moment, expires_at=moment + waits.approval,
    )  # fmt: skip
    approvals.insert(transaction, approval)
    shown = program_approvals.auth_request(approval)
    tasks.update(transaction, task.id, {"auth_request": shown})
    after = replace(task, auth_request=shown)
    _blocked(transaction, after)
    told = program_approvals.asked_for(approval)
    changes.emit(transaction, after, Kind.TIMELINE, "approval.requested", told, source=Source.MANAGER)
    details: JsonObject = {
        "approval_id": approval.id, "capability_id": capability.id, "request_hash": approval.request_hash,
        "arguments": redacted(task.arguments, capability.input_schema), "requester": approval.requester,
    }  # fmt: skip
    changes.audit(transaction, after, AuditKind.APPROVAL_REQUESTED, f"uid:{task.uid}", details)
    return after


@dataclass(frozen=True, slots=True)
class Response:
    """A person's word. `seen`: the hash of what they were shown, when their client says it."""

    action: ApprovalAction
    caller: Caller
    seen: str | None = None
    note: str | None = None


def respond(
    transaction: Transaction, approval_id: str, given: Response, capability: Capability | None, delays: Delays
) -> Approval:
    """Decide, when everything is still as it was. `capability`: as it is installed now. Raises AiosError.

    `delays`: those of `expire`.
    """
    approval = approvals.get(transaction, approval_id)
    if approval is None:
        raise not_found()
    task = None if approval.task_id is None else tasks.get(transaction, approval.task_id)
    _refuse_settled(approval, task, delays)
    if task is None or given.seen not in (None, approval.request_hash):
        raise stale("it is not what you were shown")
    if given.action.approves and bound_now(approval, task, capability) != approval.request_hash:
        raise stale("what it was asked for has changed since")
    status = ApprovalStatus.APPROVED if given.action.approves else ApprovalStatus.REJECTED
    _settle(transaction, approval, task, status, given)
    if approval.by_program:
        program_approvals.conclude(
            transaction, task, given.action.value, approved=given.action.approves, by=f"uid:{given.caller.uid}"
        )
    elif given.action.approves:
        also: JsonObject = {"auth_request": None}
        payload: JsonObject = {"approval_id": approval.id}
        changes.set_phase(transaction, task, task.phase, boss_type="approval.approved", also=also, payload=payload)
    else:
        shown: JsonObject = {"approval_id": approval.id}
        changes.emit(transaction, task, Kind.TIMELINE, "approval.rejected", shown, source=Source.USER)
        tasks.update(transaction, task.id, {"cancel_reason": "approval-rejected"})
        rejected = replace(task, cancel_reason="approval-rejected")
        run_states.end(transaction, rejected, Verdict(Status.CANCELED, Reason.CANCELED))
    after = approvals.get(transaction, approval_id)
    return approval if after is None else after


def _settle(
    transaction: Transaction, approval: Approval, task: Task, status: ApprovalStatus, given: Response | None
) -> None:
    by = None if given is None else given.caller.uid
    action = None if given is None else given.action
    note = None if given is None else given.note
    approvals.settle(transaction, approval.id, status, clock.now(), decision=action, by=by, note=note)
    details: dict[str, JsonValue] = {
        "approval_id": approval.id, "status": status.value, "request_hash": approval.request_hash,
        "decision": None if action is None else action.value, "note": note,
        "responder": None if given is None else connection_of(given.caller.subject),
    }  # fmt: skip
    actor = "system" if by is None else f"uid:{by}"
    changes.audit(transaction, task, AuditKind.APPROVAL_ANSWERED, actor, details)


def _refuse_settled(approval: Approval, task: Task | None, delays: Delays) -> None:
    status = approval.status
    if status is ApprovalStatus.PENDING and delays.left(approval.id, approval.expires_at) <= 0:
        status = ApprovalStatus.EXPIRED
    if status is ApprovalStatus.PENDING and (task is None or task.status is not Status.AUTH_REQUIRED):
        status = ApprovalStatus.WITHDRAWN
    if status is not ApprovalStatus.PENDING:
        raise AiosError(
            ErrorKind.INVALID_STATE, f"the approval is {status} already", reason=status.value,
            data={"approval_id": approval.id},
        )  # fmt: skip


def not_found() -> AiosError:
    """The one answer for an approval that is not there and for one that the caller may not see."""
    detail = "there is no such approval, or it is another user's"
    return AiosError(ErrorKind.APPROVAL_NOT_FOUND, detail, field="approval_id")


def stale(detail: str) -> AiosError:
    """An answer to something that is not so any more."""
    return AiosError(ErrorKind.PERMISSION_DENIED, detail, reason="stale-authorization", field="approval_id")


def hash_now(task: Task, capability: Capability | None) -> str:
    """What an approval of this task would be bound to; "" when its capability is gone."""
    return "" if capability is None else request_hash(capability, task.arguments, task.uid)


def bound_now(approval: Approval, task: Task, capability: Capability | None) -> str:
    """What this approval would be bound to if it were asked for now; what a program said once does not change."""
    if not approval.by_program:
        return hash_now(task, capability)
    asked = task.auth_request or {}
    settled = approval.status is not ApprovalStatus.PENDING
    return approval.request_hash if settled or asked.get("approval_id") == approval.id else ""


def why_not(db: Executor, task: Task, capability: Capability) -> str:
    """Why a task must not be started although it is its turn; "" when nothing forbids it. The last look before the act.

    It is repeated at each attempt, so a manifest that was changed in between takes its approval with it.
    """
    if capability.level > task.level:
        return f"the capability's level is {capability.level.wire} now, and {task.level.wire} is what was allowed"
    if task.level is not Level.CRITICAL or task.creator.get("approval") == SPARED:
        return ""
    wanted = hash_now(task, capability)
    found = [one for one in approvals.of_task(db, task.id) if not one.by_program]
    given = [one for one in found if one.status is ApprovalStatus.APPROVED]
    if any(one.request_hash == wanted for one in given):
        return ""
    return "its approval is void: the capability has changed since" if given else "it has no approval"


def refuse_start(transaction: Transaction, task: Task, why: str) -> Task:
    """End a task that must not start."""
    verdict = failure(ErrorKind.APPROVAL_REJECTED, Reason.PERMISSION_DENIED, why, {"task_id": task.id})
    return run_states.end(transaction, task, verdict)


def expire(transaction: Transaction, delays: Delays) -> float | None:
    """End what has waited too long, and withdraw what its task waits for no more; when to look again, in seconds."""
    following: dict[str, float] = {}
    now = clock.now()
    for approval in approvals.pending(transaction):
        task = None if approval.task_id is None else tasks.get(transaction, approval.task_id)
        if task is None or task.status is not Status.AUTH_REQUIRED:
            approvals.settle(transaction, approval.id, ApprovalStatus.WITHDRAWN, now)
        elif (left := delays.left(approval.id, approval.expires_at)) <= 0:
            _settle(transaction, approval, task, ApprovalStatus.EXPIRED, None)
            if approval.by_program:
                program_approvals.conclude(transaction, task, program_approvals.EXPIRED, approved=False, by="system")
                continue
            shown: JsonObject = {"approval_id": approval.id}
            changes.emit(transaction, task, Kind.TIMELINE, "approval.expired", shown, source=Source.SYSTEM)
            _time_out(transaction, task, "nobody approved it in time", approval.created_at, approval.expires_at)
        else:
            following[approval.id] = left
    for task in tasks.in_status(transaction, [Status.AUTH_REQUIRED]):
        at = _polkit_expiry(task)
        if at is None:
            continue
        if (left := delays.left(task.id, at)) <= 0:
            _time_out(transaction, task, "nobody authenticated for it in time", task.created_at, at)
        else:
            following[task.id] = left
    delays.forget_all_but(following)
    return min(following.values(), default=None)


def _polkit_expiry(task: Task) -> int | None:
    asked = task.auth_request
    if asked is None or asked.get("type") != POLKIT:
        return None
    return clock.parse_rfc3339(str(asked["expires_at"]))


def _time_out(transaction: Transaction, task: Task, why: str, since: int, until: int) -> None:
    """Nobody has said a word between these moments: the task fails as by any other time limit (seed 000)."""
    data: JsonObject = {  # `until` may be a text's, which has only whole milliseconds
        "task_id": task.id, "capability_id": task.capability_id, "timeout_ms": -((since - until) // 1000),
        "elapsed_ms": (clock.now() - since) // 1000,
    }  # fmt: skip
    run_states.end(transaction, task, failure(ErrorKind.TASK_TIMEOUT, Reason.AUTH_TIMEOUT, why, data))
