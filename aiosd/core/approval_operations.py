"""Handlers of `approval.*`: what waits for a second word, what exactly it would do, and that word."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiosd.auth.approvals import is_own
from aiosd.auth.decision import Decision
from aiosd.auth.policy import Action
from aiosd.core import approving, clock, views
from aiosd.core.approving import Response, not_found
from aiosd.core.authorization import refusal
from aiosd.core.operations import Reply
from aiosd.errors import AiosError, ErrorKind
from aiosd.model.approval import Approval, ApprovalAction
from aiosd.model.status import Level
from aiosd.store import approvals, tasks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from aiosd.auth.caller import Caller
    from aiosd.core.authorization import Authorizer
    from aiosd.core.delays import Delays
    from aiosd.core.registry import Registry
    from aiosd.model import wire_permissions as wire
    from aiosd.model.jsontext import JsonValue
    from aiosd.model.manifest import Capability
    from aiosd.model.task import Task
    from aiosd.store.database import Database


class ApprovalOperations:
    """Approvals as callers handle them."""

    def __init__(self, database: Database, registry: Registry, authorizer: Authorizer, delays: Delays) -> None:
        """Keeps what it calls. `delays`: how long an answer is waited for (`Lapse.delays`)."""
        self._delays = delays
        self._database = database
        self._registry = registry
        self._authorizer = authorizer

    def handlers(self) -> Mapping[str, Callable[..., Awaitable[Reply]]]:
        """By operation name."""
        return {
            "approval.list": self.list_approvals,
            "approval.get": self.get,
            "approval.respond": self.respond,
        }

    async def list_approvals(self, caller: Caller, params: wire.ApprovalList) -> Reply:
        """The caller's approvals, or everybody's for who may see them."""
        uid: int | None = caller.uid
        if params.all_users:
            await self._authorizer.require(caller, Action.VIEW_OTHERS, {"list": "approvals"})
            uid = None
        found = await self._database.read(
            lambda db: approvals.listed(
                db, uid, pending=not params.decided, task_id=params.task_id, session_id=params.session_id
            )
        )
        return Reply({"approvals": [row(approval) for approval in found]})

    async def get(self, caller: Caller, params: wire.ApprovalRef) -> Reply:
        """One approval, with all that would run."""
        approval = await self._find(params.approval_id)
        if approval.uid != caller.uid:
            details = {"approval": approval.id, "owner": str(approval.uid)}
            if await self._authorizer.decide(caller, Action.VIEW_OTHERS, details) is not Decision.ALLOWED:
                raise not_found()
        return Reply(await self._whole(approval))

    async def respond(self, caller: Caller, params: wire.ApprovalRespond) -> Reply:
        """Approve or reject. Who takes their own request back needs nobody's leave."""
        approval = await self._find(params.approval_id)
        action = ApprovalAction(params.action)
        if action.approves:
            await self._authorizer.require_person(caller, Action.APPROVE)
        if action.approves or approval.uid != caller.uid:
            await self._authorize(caller, approval)
        if action is ApprovalAction.APPROVE_FOR_SESSION:
            _check_for_session(approval)
        given = Response(action, caller, params.request_hash, params.note)
        after = await self._database.write(
            lambda tx: approving.respond(
                tx, approval.id, given, self._registry.find(approval.capability_id), self._delays
            )
        )
        return Reply(row(after))

    async def _authorize(self, caller: Caller, approval: Approval) -> None:
        """The action `approve`. From the connection that asked, only a person who authenticates now can answer."""
        details = {
            "approval": approval.id, "capability": approval.capability_id, "title": approval.summary,
            "task": approval.task_id or "", "owner": str(approval.uid), "level": approval.risk_level,
        }  # fmt: skip
        own = is_own(approval.requester, approval.uid, caller)
        if caller.is_root:
            if own:
                raise _same_connection()
            return
        decision = await self._authorizer.look(caller, Action.APPROVE, details)
        if own and decision is Decision.ALLOWED:
            raise _same_connection()
        if decision is Decision.CHALLENGE and caller.interactive:
            decision = (await self._authorizer.ask_person(caller, Action.APPROVE, details)).decision
        if decision is not Decision.ALLOWED:
            raise refusal(Action.APPROVE, decision)

    async def _find(self, approval_id: str) -> Approval:
        found = await self._database.read(lambda db: approvals.get(db, approval_id))
        if found is None:
            raise not_found()
        return found

    async def _whole(self, approval: Approval) -> dict[str, JsonValue]:
        task_id = approval.task_id
        task = None if task_id is None else await self._database.read(lambda db: tasks.get(db, task_id))
        capability = self._registry.find(approval.capability_id)
        body: dict[str, JsonValue] = {**row(approval), "request_hash": approval.request_hash}
        body["requester"] = approval.requester
        if task is not None:
            body.update(_of_task(task))
            body["void"] = approving.bound_now(approval, task, capability) != approval.request_hash
        if capability is not None:
            body.update(_of_capability(capability))
        return body


def _check_for_session(approval: Approval) -> None:
    """Raise INVALID_PARAMS for what is approved each time, and where there is no session."""
    if not approval.by_program or approval.risk_level == Level.CRITICAL.wire:
        detail = f"level {approval.risk_level} is approved each time"
        raise AiosError(ErrorKind.INVALID_PARAMS, detail, field="action", reason="each-time")
    if approval.session_id is None:
        detail = "its task is in no session"
        raise AiosError(ErrorKind.INVALID_PARAMS, detail, field="action", reason="no-session")


def _same_connection() -> AiosError:
    return AiosError(
        ErrorKind.PERMISSION_DENIED, "the connection that asked cannot approve: it takes a second, independent act",
        reason="same-connection", field="approval_id", data={"permission_required": Action.APPROVE.value},
    )  # fmt: skip


def _of_task(task: Task) -> dict[str, JsonValue]:
    """What was asked for, by whom, and in their words why."""
    shown: dict[str, JsonValue] = {
        "title": task.title, "arguments": task.arguments, "metadata": task.metadata, "task_status": task.status.value,
    }  # fmt: skip
    if task.limits is not None:
        shown["requested_limits"] = task.limits
    if task.timeout_ms is not None:
        shown["timeout_ms"] = task.timeout_ms
    return shown


def _of_capability(capability: Capability) -> dict[str, JsonValue]:
    """What would run, as whom and within which limits: the manifest as it is now."""
    view = views.capability_view(capability)
    names = ("description", "exec", "user", "network", "home", "read_write_paths", "limits", "source")
    return {"capability_title": capability.title, **{name: view[name] for name in names}}


def row(approval: Approval) -> dict[str, JsonValue]:
    """Seed 003's approval, and ours beyond it."""
    shown: dict[str, JsonValue] = {
        "id": approval.id, "kind": approval.kind, "summary": approval.summary, "risk_level": approval.risk_level,
        "status": approval.status.value, "uid": approval.uid, "capability_id": approval.capability_id,
        "created_at": clock.rfc3339(approval.created_at), "expires_at": clock.rfc3339(approval.expires_at),
    }  # fmt: skip
    others: dict[str, JsonValue] = {
        "session_id": approval.session_id, "task_id": approval.task_id, "decided_by": approval.decided_by,
        "decision": None if approval.decision is None else approval.decision.value, "note": approval.note,
        "decided_at": None if approval.decided_at is None else clock.rfc3339(approval.decided_at),
    }  # fmt: skip
    shown.update({name: value for name, value in others.items() if value is not None})
    return shown
