"""May this capability run for this caller, and what is left to be done before it does? Asked before a task is stored.

`Consents.obtain` looks at the administrator's policy, at polkit, at the person's grants, and has the person asked where
that is what is missing; `auth/ruling.py` says what follows from what. `settle` writes down, in the transaction that
stores the task, what was used and what was consented to; a grant that is gone by then refuses the task.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING

from aiosd.auth.decision import Decision
from aiosd.auth.grants import HIGHEST, Term, Wanted, best, parse_term
from aiosd.auth.policy import RUN_ACTIONS
from aiosd.auth.ruling import Case, Ruling, Way, rule
from aiosd.core import changes, clock
from aiosd.core.authorization import refusal
from aiosd.errors import AiosError, ErrorKind
from aiosd.model.audit import AuditKind
from aiosd.model.grant import Grant, Scope
from aiosd.model.ids import Prefix, new_id
from aiosd.model.later import dataclass
from aiosd.model.status import Level
from aiosd.store import grants
from aiosd.store.audit import append_audit

if TYPE_CHECKING:
    from aiosd.auth.caller import Caller
    from aiosd.auth.ceiling import Policy
    from aiosd.auth.policy import Action
    from aiosd.core.authorization import Authorizer
    from aiosd.core.policies import PolicyStore
    from aiosd.core.settings import Settings
    from aiosd.model.jsontext import JsonObject
    from aiosd.model.manifest import Capability
    from aiosd.model.task import Task
    from aiosd.store.database import Database, Transaction


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to run, as far as permission goes. `tasks`: its parent, the task that it repeats, itself."""

    capability: Capability
    arguments: JsonObject = field(default_factory=dict)
    session_id: str | None = None
    tasks: tuple[str, ...] = ()

    @property
    def action(self) -> Action:
        """polkit's action for its level."""
        return RUN_ACTIONS[self.capability.level]

    @property
    def details(self) -> dict[str, str]:
        """What polkit's dialog and rules see."""
        capability = self.capability
        return {"capability": capability.id, "title": capability.title, "level": capability.level.wire}

    def wanted(self, uid: int) -> Wanted:
        """As grants see it."""
        return Wanted(uid, self.capability.id, self.capability.level, self.arguments, self.session_id, self.tasks)


@dataclass(frozen=True, slots=True)
class Consent:
    """The outcome. `person`: somebody was asked and said yes. `deferred`: somebody has yet to be asked.

    `term`: how long a first consent is kept.
    """

    caller: Caller
    wish: Wish
    ruling: Ruling
    term: Term
    person: bool = False
    deferred: bool = False

    @property
    def needs_approval(self) -> bool:
        """Whether a second, independent act is missing before it may start."""
        return self.ruling.needs_approval


class Consents:
    """Decides about requests to run something."""

    def __init__(
        self, database: Database, authorizer: Authorizer, policies: PolicyStore, settings: Settings
    ) -> None:  # fmt: skip
        """Keeps what it asks."""
        self._database = database
        self._authorizer = authorizer
        self._policies = policies
        self._settings = settings

    async def obtain(self, caller: Caller, wish: Wish, *, defer: bool = False) -> Consent:
        """The consent; AiosError when refused. `defer`: when nobody can be asked now, say so instead of refusing."""
        policy = await self._policies.of(caller.uid)
        case = Case(wish.capability.id, wish.capability.level, caller.is_root, policy)
        ruling = rule(case)
        if ruling.way is Way.ASK:
            case = await self._with_polkit(caller, wish, case)
            ruling = rule(case)
        if ruling.way is Way.REFUSE:
            raise await self._refused(caller, wish, ruling, case.polkit)
        if ruling.way is Way.ALLOW:
            return self._consent(caller, wish, ruling)
        consent = await self._ask(caller, wish, case, ruling, defer=defer)
        return await self._still(caller, consent, policy)

    async def look(self, caller: Caller, uid: int, wish: Wish) -> Ruling:
        """What would happen to a request of this user. polkit's own word is known only for the caller itself."""
        case = Case(wish.capability.id, wish.capability.level, uid == 0, await self._policies.of(uid))
        if uid == caller.uid and not caller.is_root:
            case = await self._with_polkit(caller, wish, case)
        else:
            case = replace(case, grant=await self._grant(wish.wanted(uid)))
        return rule(case)

    async def _with_polkit(self, caller: Caller, wish: Wish, case: Case) -> Case:
        """The case with polkit's word, and with the grant that would answer where polkit wants to ask."""
        said = await self._authorizer.look(caller, wish.action, wish.details)
        grant = await self._grant(wish.wanted(caller.uid)) if said is Decision.CHALLENGE else None
        return replace(case, polkit=said, grant=grant)

    async def _grant(self, wanted: Wanted) -> Grant | None:
        if wanted.level > HIGHEST:
            return None
        now = clock.now()
        return best(await self._database.read(lambda db: grants.valid_of(db, wanted.uid, now)), wanted, now)

    async def _ask(self, caller: Caller, wish: Wish, case: Case, ruling: Ruling, *, defer: bool) -> Consent:
        decision: Decision = Decision.CHALLENGE
        found: Grant | None = None
        made: Grant | None = None

        async def granted_meanwhile() -> bool:
            """The same question may have been answered while this one waited for its turn."""
            nonlocal found
            found = await self._grant(wish.wanted(caller.uid))
            return found is not None

        async def keep() -> None:
            nonlocal made
            made = await self._keep(caller, wish, case.policy)

        if caller.interactive:
            answer = await self._authorizer.ask_person(
                caller, wish.action, wish.details, unless=granted_meanwhile, then=keep
            )
            decision = answer.decision
            if decision is Decision.ALLOWED:
                if not answer.person:
                    return self._consent(caller, wish, rule(replace(case, grant=found)))
                return self._consent(caller, wish, replace(ruling, grant=made), person=True)
        if decision is Decision.CHALLENGE and defer:
            return self._consent(caller, wish, ruling, deferred=True)
        raise await self._refused(caller, wish, ruling, decision)

    async def _keep(self, caller: Caller, wish: Wish, policy: Policy) -> Grant | None:
        """The grant of a first consent, stored before the same person is asked anything else; None: nothing is kept.

        It is for this capability with any arguments. A task's consent is kept with its task (`settle`); a session's is
        for the project session, and without one there is nothing to bind it to.
        """
        term = self._term(wish.capability.level)
        unbound = term.scope is Scope.SESSION and wish.session_id is None
        if wish.capability.level > HIGHEST or term.scope in (Scope.ONCE, Scope.TASK) or unbound:
            return None
        if await self._policies.of(caller.uid) != policy:
            return None
        grant = first_grant(caller.uid, wish, term, clock.now())
        await self._database.write(lambda tx: _insert(tx, grant))
        return grant

    async def _still(self, caller: Caller, consent: Consent, before: Policy) -> Consent:
        """The files may have been read again while a person thought."""
        policy = await self._policies.of(caller.uid)
        if policy != before:
            capability = consent.wish.capability
            ruling = rule(Case(capability.id, capability.level, caller.is_root, policy))
            if ruling.way is Way.REFUSE:
                raise await self._refused(caller, consent.wish, ruling, None)
            return replace(consent, ruling=replace(ruling, grant=consent.ruling.grant))
        return consent

    async def _refused(self, caller: Caller, wish: Wish, ruling: Ruling, said: Decision | None) -> AiosError:
        """The error; that it was refused is recorded first."""
        details: JsonObject = {
            "capability_id": wish.capability.id, "level": wish.capability.level.wire, "action": wish.action.value,
            "polkit": None if said is None else said.value, "because": ruling.because[-1],
        }  # fmt: skip
        moment = clock.now()
        if wish.capability.level >= Level.LOW or ruling.reason == "policy":
            await self._database.write(
                lambda tx: append_audit(
                    tx,
                    time=moment,
                    uid=caller.uid,
                    actor=f"uid:{caller.uid}",
                    kind=AuditKind.PERMISSION_DENIED,
                    task_id=None,
                    details=details,
                )
            )
        if ruling.reason == "policy":
            return AiosError(
                ErrorKind.PERMISSION_DENIED, ruling.because[-1].rstrip("."), reason="policy", field="capability_id",
                data={"permission_required": wish.action.value},
            )  # fmt: skip
        return refusal(wish.action, said or Decision.DENIED)

    def _consent(
        self, caller: Caller, wish: Wish, ruling: Ruling, *, person: bool = False, deferred: bool = False
    ) -> Consent:
        term = self._term(wish.capability.level)
        return Consent(caller, wish, ruling, term, person=person, deferred=deferred)

    def _term(self, level: Level) -> Term:
        """How long a first consent is kept."""
        current = self._settings.current
        return parse_term(current.first_use_low if level <= Level.LOW else current.first_use_medium)


def settle(transaction: Transaction, consent: Consent, task: Task) -> None:
    """Write down what let this (stored) task be: the grant used, the grant made, the answer given.

    Raises AiosError when the grant was revoked or used up since.
    """
    ruling, moment = consent.ruling, clock.now()
    if ruling.grant is not None:
        if not grants.use(transaction, ruling.grant.id, moment):
            raise AiosError(
                ErrorKind.PERMISSION_DENIED, "the grant ended while it was to be used", reason="stale-authorization"
            )
        used: JsonObject = {"grant_id": ruling.grant.id, "capability_id": task.capability_id}
        changes.audit(transaction, task, AuditKind.PERMISSION_USED, f"uid:{task.uid}", used)
    if consent.person and consent.term.scope is Scope.TASK and Level.LOW <= task.level <= HIGHEST:
        _insert(transaction, first_grant(task.uid, consent.wish, consent.term, moment, task_id=task.id))
    if ruling.audited:
        details: JsonObject = {
            "capability_id": task.capability_id, "level": task.level.wire, "action": consent.wish.action.value,
            "decision": "deferred" if consent.deferred else "allowed", "person": consent.person,
            "because": list(ruling.because[1:]),
        }  # fmt: skip
        changes.audit(transaction, task, AuditKind.PERMISSION_ANSWERED, f"uid:{task.uid}", details)


def first_grant(uid: int, wish: Wish, term: Term, moment: int, *, task_id: str | None = None) -> Grant:
    """The grant that a person's first consent makes."""
    return Grant(
        id=new_id(Prefix.GRANT), uid=uid, capability=wish.capability.id, level=wish.capability.level, scope=term.scope,
        granted_by=uid, created_at=moment, expires_at=term.expires_at(moment), task_id=task_id,
        session_id=wish.session_id if term.scope is Scope.SESSION else None,
    )  # fmt: skip


def _insert(transaction: Transaction, grant: Grant) -> None:
    grants.insert(transaction, grant)
    append_audit(
        transaction, time=grant.created_at, uid=grant.uid, actor=f"uid:{grant.granted_by}",
        kind=AuditKind.PERMISSION_GRANTED, task_id=grant.task_id, details={**audit_view(grant), "by": "first use"},
    )  # fmt: skip


def audit_view(grant: Grant) -> dict[str, str | int | JsonObject | None]:
    """A grant in an audit row."""
    return {
        "grant_id": grant.id, "capability_id": grant.capability, "level": grant.level.wire, "scope": grant.scope.value,
        "arguments": grant.constraints, "expires_at": grant.expires_at, "uid": grant.uid,
    }  # fmt: skip
