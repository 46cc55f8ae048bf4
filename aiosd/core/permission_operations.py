"""Handlers of `permission.*`: ask for a grant, list grants, revoke one, explain what would happen to a request."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from aiosd.auth.decision import Decision
from aiosd.auth.grants import HIGHEST, check_constraints, parse_term
from aiosd.auth.policy import RUN_ACTIONS, Action
from aiosd.core import clock
from aiosd.core.authorization import refusal, task_not_found
from aiosd.core.consent import Wish, audit_view
from aiosd.core.operations import Reply
from aiosd.errors import AiosError, ErrorKind
from aiosd.model.audit import AuditKind
from aiosd.model.grant import Grant, Scope
from aiosd.model.ids import Prefix, new_id
from aiosd.model.status import Level
from aiosd.store import grants, tasks
from aiosd.store.audit import append_audit

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from aiosd.auth.caller import Caller
    from aiosd.core.authorization import Authorizer
    from aiosd.core.consent import Consents
    from aiosd.core.registry import Registry
    from aiosd.core.settings import Settings
    from aiosd.model import wire_permissions as wire
    from aiosd.model.jsontext import JsonValue
    from aiosd.store.database import Database, Transaction

MAX_GRANTS = 500
"""Valid grants that one user may have."""


class PermissionOperations:
    """Grants as callers handle them."""

    def __init__(
        self, database: Database, registry: Registry, authorizer: Authorizer, consents: Consents, settings: Settings
    ) -> None:  # fmt: skip
        """Keeps what it calls."""
        self._database = database
        self._registry = registry
        self._authorizer = authorizer
        self._consents = consents
        self._settings = settings

    def handlers(self) -> Mapping[str, Callable[..., Awaitable[Reply]]]:
        """By operation name."""
        return {
            "permission.request": self.request,
            "permission.list": self.list_grants,
            "permission.revoke": self.revoke,
            "permission.explain": self.explain,
        }

    async def request(self, caller: Caller, params: wire.PermissionRequest) -> Reply:
        """Have the person asked now for what they would be asked at the next use."""
        level = self._level(params.capability_id)
        await self._authorizer.require_person(caller)
        await self._check(caller, params)
        await self._have_asked(caller, params.capability_id, level)
        if self._level(params.capability_id) != level:
            raise AiosError(
                ErrorKind.PERMISSION_DENIED, "the capabilities changed while permission was asked",
                reason="stale-authorization", field="capability_id",
            )  # fmt: skip
        grant = self._grant(caller, params, level)
        await self._database.write(lambda tx: _store(tx, grant))
        return Reply(view(grant))

    async def list_grants(self, caller: Caller, params: wire.PermissionList) -> Reply:
        """The caller's grants, or everybody's for who may see them."""
        uid: int | None = caller.uid
        if params.all_users:
            await self._authorizer.require(caller, Action.VIEW_OTHERS, {"list": "grants"})
            uid = None
        now = clock.now()
        found = await self._database.read(lambda db: grants.listed(db, uid, now, ended=params.ended))
        return Reply({"grants": [view(grant) for grant in found]})

    async def revoke(self, caller: Caller, params: wire.PermissionRevoke) -> Reply:
        """End a grant: the next use asks again."""
        grant = await self._database.read(lambda db: grants.get(db, params.grant_id))
        if grant is None:
            raise _not_found()
        if grant.uid != caller.uid:
            details = {"grant": grant.id, "owner": str(grant.uid)}
            if await self._authorizer.decide(caller, Action.CONTROL_OTHERS, details) is not Decision.ALLOWED:
                raise _not_found()
        after = await self._database.write(lambda tx: _revoke(tx, grant.id, caller))
        return Reply(view(after))

    async def explain(self, caller: Caller, params: wire.PermissionExplain) -> Reply:
        """What would happen to a request, and why."""
        capability = self._registry.require(params.capability_id)
        uid = caller.uid if params.uid is None else params.uid
        if uid != caller.uid:
            await self._authorizer.require(caller, Action.VIEW_OTHERS, {"explain": capability.id, "owner": str(uid)})
        ruling = await self._consents.look(caller, uid, Wish(capability, params.arguments, params.session_id))
        because: list[JsonValue] = list(ruling.because)
        body: dict[str, JsonValue] = {
            "capability_id": capability.id, "uid": uid, "level": capability.level.wire, "outcome": ruling.way.value,
            "action": RUN_ACTIONS[capability.level].value, "needs_approval": ruling.needs_approval,
            "audited": ruling.audited, "because": because,
        }  # fmt: skip
        if ruling.grant is not None:
            body["grant_id"] = ruling.grant.id
        return Reply(body)

    def _level(self, pattern: str) -> Level:
        """The level that a person is asked for: the highest that a grant for this may have. Raises AiosError."""
        found = [one for one in self._registry.all() if fnmatchcase(one.id, pattern)]
        if not found:
            raise AiosError(
                ErrorKind.CAPABILITY_NOT_FOUND, "no installed capability has such an id", field="capability_id"
            )
        levels = [one.level for one in found if one.level <= HIGHEST]
        if not levels:
            raise AiosError(
                ErrorKind.PERMISSION_DENIED, "nothing is granted ahead at levels high and critical",
                reason="never-granted", field="capability_id",
            )  # fmt: skip
        level = max(levels)
        if level is Level.MEDIUM and not self._settings.current.grant_medium_ahead:
            raise AiosError(
                ErrorKind.PERMISSION_DENIED, "level medium is not granted before its first use (grant_medium_ahead)",
                reason="not-ahead", field="capability_id",
            )  # fmt: skip
        return level

    async def _check(self, caller: Caller, params: wire.PermissionRequest) -> None:
        try:
            parse_term(params.scope)
        except ValueError as error:
            raise AiosError(ErrorKind.INVALID_PARAMS, str(error), field="scope") from None
        try:
            check_constraints(params.arguments)
        except ValueError as error:
            raise AiosError(ErrorKind.INVALID_PARAMS, str(error), field="arguments") from None
        if params.scope == Scope.SESSION and params.session_id is None:
            raise AiosError(ErrorKind.INVALID_PARAMS, "is needed for this scope", field="session_id")
        if params.scope == Scope.TASK:
            task_id = params.task_id
            if task_id is None:
                raise AiosError(ErrorKind.INVALID_PARAMS, "is needed for this scope", field="task_id")
            task = await self._database.read(lambda db: tasks.get(db, task_id))
            if task is None or task.uid != caller.uid:
                raise task_not_found()

    async def _have_asked(self, caller: Caller, pattern: str, level: Level) -> None:
        """Return when a person has said yes. That polkit lets the caller through unasked is nobody's consent."""
        if caller.is_root:
            return
        action = RUN_ACTIONS[level]
        details = {"capability": pattern, "title": f"{pattern}, from now on", "level": level.wire}
        decision = await self._authorizer.look(caller, action, details)
        if decision is Decision.ALLOWED:
            raise AiosError(
                ErrorKind.INVALID_STATE, "polkit allows this to you without asking: there is nothing to grant",
                reason="nobody-asked", field="capability_id",
            )  # fmt: skip
        if decision is Decision.CHALLENGE and caller.interactive:
            decision = (await self._authorizer.ask_person(caller, action, details)).decision
        if decision is not Decision.ALLOWED:
            raise refusal(action, decision)

    def _grant(self, caller: Caller, params: wire.PermissionRequest, level: Level) -> Grant:
        term, moment = parse_term(params.scope), clock.now()
        return Grant(
            id=new_id(Prefix.GRANT), uid=caller.uid, capability=params.capability_id, level=level, scope=term.scope,
            granted_by=caller.uid, created_at=moment, constraints=params.arguments,
            task_id=params.task_id if term.scope is Scope.TASK else None,
            session_id=params.session_id if term.scope is Scope.SESSION else None, expires_at=term.expires_at(moment),
        )  # fmt: skip


def _store(transaction: Transaction, grant: Grant) -> None:
    if len(grants.valid_of(transaction, grant.uid, grant.created_at)) >= MAX_GRANTS:
        raise AiosError(ErrorKind.RATE_LIMITED, f"there are {MAX_GRANTS} grants already", reason="grants")
    grants.insert(transaction, grant)
    append_audit(
        transaction, time=grant.created_at, uid=grant.uid, actor=f"uid:{grant.granted_by}",
        kind=AuditKind.PERMISSION_GRANTED, task_id=None, details={**audit_view(grant), "by": "request"},
    )  # fmt: skip


def _revoke(transaction: Transaction, identifier: str, caller: Caller) -> Grant:
    moment = clock.now()
    revoked = grants.revoke(transaction, identifier, moment)
    grant = grants.get(transaction, identifier)
    if grant is None:
        raise _not_found()
    if revoked:
        append_audit(
            transaction, time=moment, uid=grant.uid, actor=f"uid:{caller.uid}", kind=AuditKind.PERMISSION_REVOKED,
            task_id=None, details=audit_view(grant),
        )  # fmt: skip
    return grant


def _not_found() -> AiosError:
    detail = "there is no such grant, or it is another user's"
    return AiosError(ErrorKind.GRANT_NOT_FOUND, detail, field="grant_id")


def view(grant: Grant) -> dict[str, JsonValue]:
    """A grant as callers see it."""
    shown: dict[str, JsonValue] = {
        "grant_id": grant.id, "uid": grant.uid, "capability_id": grant.capability, "level": grant.level.wire,
        "scope": grant.scope.value, "arguments": grant.constraints, "granted_by": grant.granted_by,
        "created_at": clock.rfc3339(grant.created_at), "used_count": grant.used_count,
    }  # fmt: skip
    for name, moment in (
        ("expires_at", grant.expires_at), ("revoked_at", grant.revoked_at), ("last_used_at", grant.last_used_at)
    ):  # fmt: skip
        if moment is not None:
            shown[name] = clock.rfc3339(moment)
    bound = {"task_id": grant.task_id, "session_id": grant.session_id}
    return {**shown, **{name: other for name, other in bound.items() if other is not None}}
