"""Approvals that a running program asks for: it says what it is about to do, and a person says yes or no.

The task waits as `auth_required` (`waiting_approval`) and works on with the answer, whatever that is: what a no means,
its program decides (decisions.md). The answer takes a question's way to the program: it is kept in the place of the
question until the shim has it (`run_states.undelivered`), so it survives a crash and is given once.

What cannot be shown to a person as it is, is answered with no at once: a program that waits must not wait for ever.
All functions but `request` run in the writer thread.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from aiosd.auth.approvals import asked_hash
from aiosd.core import changes, clock
from aiosd.core.progress import clean_text
from aiosd.model.approval import RUN, Approval, ApprovalAction, ApprovalStatus
from aiosd.model.audit import AuditKind
from aiosd.model.event import Kind, Source
from aiosd.model.ids import Prefix, new_id
from aiosd.model.status import Level, Phase, Status
from aiosd.store import approvals

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonObject, JsonValue
    from aiosd.model.task import Task
    from aiosd.store.database import Transaction

APPROVAL = "approval"
"""`auth_request.type` of what waits for an approval."""
LONGEST_WAIT = 600 * clock.MICROSECONDS
"""How long an approval is waited for where nothing is configured."""
EXPIRED, INVALID = "timeout", "invalid"
"""`decision` in an answer that no person gave."""

_KIND = re.compile(r"[a-z][a-z0-9_.-]{0,63}")
_MAX_SUMMARY = 2000
_LEVELS = frozenset(level.wire for level in Level)


def request(payload: JsonObject, interaction: JsonValue, longest: int) -> JsonObject:
    """A program's request as it is kept. `invalid` in it says why nobody can be asked. Pure.

    An unknown risk is the highest. `longest`: microseconds; the program may wait less.
    """
    given = payload.get("approval")
    said = given if isinstance(given, Mapping) else {}
    kind, summary, risk = said.get("kind"), said.get("summary"), said.get("risk_level", Level.MEDIUM.wire)
    limit = payload.get("timeout_ms")
    wait = longest
    if isinstance(limit, int) and not isinstance(limit, bool) and limit > 0:
        wait = min(longest, limit * 1000)
    kept: dict[str, JsonValue] = {"type": APPROVAL, "interaction": interaction, "wait_usec": wait}
    if not isinstance(kind, str) or kind == RUN or not _KIND.fullmatch(kind):
        return {**kept, "invalid": "an approval's kind is a word of its own, like dangerous_command"}
    if not isinstance(summary, str) or len(summary) > _MAX_SUMMARY:
        return {**kept, "invalid": f"an approval says in at most {_MAX_SUMMARY} characters what is about to be done"}
    shown = clean_text(summary, _MAX_SUMMARY)
    if not shown or not shown.strip():
        return {**kept, "invalid": "an approval says what is about to be done"}
    level = risk if isinstance(risk, str) and risk in _LEVELS else Level.CRITICAL.wire
    return {**kept, "kind": kind, "summary": shown, "risk_level": level}


def ask(transaction: Transaction, task: Task, asked: JsonObject) -> Task:
    """A working task asks: answered here when that is known already, else it waits from now on."""
    if "invalid" in asked:
        return _refuse(transaction, task, asked)
    approval = _row(task, asked)
    for older in approvals.of_task(transaction, task.id):  # of an attempt that has ended
        approvals.settle(transaction, older.id, ApprovalStatus.WITHDRAWN, clock.now())
    approvals.insert(transaction, approval)
    shown: JsonObject = {**auth_request(approval), "interaction": asked["interaction"]}
    details: JsonObject = {
        "approval_id": approval.id, "capability_id": task.capability_id, "request_hash": approval.request_hash,
        "kind": approval.kind, "summary": approval.summary, "risk_level": approval.risk_level,
        "requester": approval.requester,
    }  # fmt: skip
    changes.audit(transaction, task, AuditKind.APPROVAL_REQUESTED, f"task:{task.id}", details)
    before = _given_before(transaction, approval)
    if before is not None:
        return _as_before(transaction, task, approval, before, shown)
    after = changes.enter(
        transaction, task, Status.AUTH_REQUIRED, phase=Phase.WAITING_APPROVAL, by="worker", source=Source.WORKER,
        reason=approval.summary, history_metadata={"type": APPROVAL, "approval_id": approval.id},
        also={"auth_request": shown},
    )  # fmt: skip
    blocked: JsonObject = {"status": Status.AUTH_REQUIRED.value, "auth_request": shown}
    changes.emit(transaction, after, Kind.AUTH_REQUIRED, "task.blocked", blocked, source=Source.WORKER)
    told: JsonObject = {**shown, **asked_for(approval)}
    changes.emit(transaction, after, Kind.TIMELINE, "approval.requested", told, source=Source.WORKER)
    return after


def auth_request(approval: Approval) -> JsonObject:
    """What a task that waits for this approval says of it."""
    return {
        "type": APPROVAL, "approval_id": approval.id, "kind": approval.kind, "summary": approval.summary,
        "risk_level": approval.risk_level, "expires_at": clock.rfc3339(approval.expires_at),
    }  # fmt: skip


def asked_for(approval: Approval) -> JsonObject:
    """Seed 003's approval request, which is what `approval.requested` tells; `approval_id`, as in its answers."""
    request: dict[str, JsonValue] = {
        "id": approval.id, "approval_id": approval.id, "task_id": approval.task_id, "kind": approval.kind,
        "summary": approval.summary, "risk_level": approval.risk_level, "status": approval.status.value,
    }  # fmt: skip
    return request if approval.session_id is None else {**request, "session_id": approval.session_id}


def _row(task: Task, asked: JsonObject) -> Approval:
    moment = clock.now()
    kind, summary, risk = str(asked["kind"]), str(asked["summary"]), str(asked["risk_level"])
    wait = asked.get("wait_usec")
    requester = f"{task.creator.get('subject') or ''}{asked.get('worker') or ''}"
    return Approval(
        id=new_id(Prefix.APPROVAL), uid=task.uid, kind=kind, capability_id=task.capability_id, task_id=task.id,
        session_id=task.session_id, request_hash=asked_hash(task.capability_id, task.uid, kind, summary, risk),
        requester=requester, summary=summary, risk_level=risk, created_at=moment,
        expires_at=moment + (wait if isinstance(wait, int) else LONGEST_WAIT),
    )  # fmt: skip


def _given_before(transaction: Transaction, approval: Approval) -> Approval | None:
    """The answer that covers it: given for the session, to the same words of the same capability. None for critical."""
    if approval.session_id is None or approval.risk_level == Level.CRITICAL.wire:
        return None
    return approvals.for_session(transaction, approval.session_id, approval.request_hash)


def _as_before(transaction: Transaction, task: Task, approval: Approval, before: Approval, shown: JsonObject) -> Task:
    note = f"as {before.id}, which is for the session"
    approvals.settle(
        transaction, approval.id, ApprovalStatus.APPROVED, clock.now(), decision=ApprovalAction.APPROVE_ONCE,
        by=before.decided_by, note=note,
    )  # fmt: skip
    details: JsonObject = {
        "approval_id": approval.id, "status": ApprovalStatus.APPROVED.value, "request_hash": approval.request_hash,
        "decision": ApprovalAction.APPROVE_FOR_SESSION.value, "note": note, "responder": None,
    }  # fmt: skip
    changes.audit(transaction, task, AuditKind.APPROVAL_ANSWERED, "system", details)
    asked: JsonObject = {**shown, **asked_for(approval)}
    changes.emit(transaction, task, Kind.TIMELINE, "approval.requested", asked, source=Source.WORKER)
    answer = _answer(shown, ApprovalAction.APPROVE_FOR_SESSION.value, approved=True)
    told: JsonObject = {"approval_id": approval.id, "covered_by": before.id}
    changes.emit(transaction, task, Kind.TIMELINE, "approval.approved", told, source=Source.SYSTEM)
    return changes.set_phase(transaction, task, task.phase, also={"question": answer})


def _refuse(transaction: Transaction, task: Task, asked: JsonObject) -> Task:
    told: JsonObject = {"reason": INVALID, "message": asked["invalid"]}
    changes.emit(transaction, task, Kind.TIMELINE, "approval.rejected", told, source=Source.SYSTEM)
    answer = _answer(asked, INVALID, approved=False)
    return changes.set_phase(transaction, task, task.phase, also={"question": answer})


def conclude(transaction: Transaction, task: Task, decision: str, *, approved: bool, by: str) -> Task:
    """The task that waits works on, with this answer on its way to its program. The row is settled already."""
    asked = task.auth_request or {}
    source = Source.SYSTEM if by == "system" else Source.USER
    event = "approval.approved" if approved else "approval.expired" if decision == EXPIRED else "approval.rejected"
    changes.emit(transaction, task, Kind.TIMELINE, event, {"approval_id": asked.get("approval_id")}, source=source)
    answer = _answer(asked, decision, approved=approved)
    return changes.enter(
        transaction, task, Status.WORKING, by=by, source=source, reason=event.replace(".", "-"),
        also={"question": answer, "auth_request": None},
    )  # fmt: skip


def _answer(asked: JsonObject, decision: str, *, approved: bool) -> JsonObject:
    """As `control.provide_input` keeps an answer. `delivery`: by which the shim takes it once."""
    given: JsonObject = {"approved": approved, "decision": decision}
    return {
        "interaction": asked.get("interaction", 0), "answer": given, "delivery": f"approval-{os.urandom(8).hex()}"
    }  # fmt: skip
