"""What would happen to a request, and why in words: one pure function that decides and explains.

`core/consent.py` acts on the ruling, `aiosctl policy explain` shows its sentences: what is explained is what is done.
Order: the administrator's ceiling, then polkit (asked by the core), and only where polkit wants a person asked: the
administrator's `auto_grant`, then the person's own grants. What is critical needs its approval whatever came before.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from aiosd.auth.decision import Decision
from aiosd.auth.grants import HIGHEST, MICROSECONDS
from aiosd.auth.policy import RUN_ACTIONS
from aiosd.model.later import dataclass
from aiosd.model.status import Level

if TYPE_CHECKING:
    from aiosd.auth.ceiling import Policy
    from aiosd.model.grant import Grant

COMMAND_RUN = "compat.command.run"
"""The administrator's general command; root may be spared its approval by the policy file."""


class Way(StrEnum):
    """What is to be done with a request."""

    REFUSE = "refuse"
    ALLOW = "allow"
    """Nobody has to be asked (any more)."""
    ASK = "ask"
    """polkit has to ask a person."""


@dataclass(frozen=True, slots=True)
class Case:
    """All that a ruling depends on. `polkit`: what it says when nobody may be asked; None when that is not known.

    `grant`: the grant that would be used, when there is one.
    """

    capability_id: str
    level: Level
    is_root: bool
    policy: Policy
    polkit: Decision | None = None
    grant: Grant | None = None


@dataclass(frozen=True, slots=True)
class Ruling:
    """`because`: sentences, in the order of the decision. `grant`: is used up by this. `reason`: of a refusal."""

    way: Way
    because: tuple[str, ...]
    needs_approval: bool = False
    audited: bool = True
    grant: Grant | None = None
    reason: str = ""


def rule(case: Case) -> Ruling:
    """Decide."""
    policy, level, action = case.policy, case.level, RUN_ACTIONS[case.level]
    said = [f"{case.capability_id} has level {level.wire}: {_LEVELS[level]}"]
    refused = forbidden(case.capability_id, level, policy)
    if refused:
        return Ruling(Way.REFUSE, (*said, refused), reason="policy")
    approval = _approval(case)
    audited = level >= Level.LOW or policy.audits(case.capability_id)
    tail = () if approval is None else (approval[1],)
    needed = approval is not None and approval[0]

    def ruling(way: Way, why: str, grant: Grant | None = None) -> Ruling:
        return Ruling(way, (*said, why, *tail), needs_approval=needed, audited=audited, grant=grant)

    if case.is_root:
        return ruling(Way.ALLOW, "Root is not asked by polkit.")
    if case.polkit is Decision.ALLOWED:
        return ruling(Way.ALLOW, f"polkit allows {action} to this caller without asking anybody.")
    if case.polkit in (Decision.DENIED, Decision.DISMISSED, Decision.UNAVAILABLE):
        why = "did not answer, which means no" if case.polkit is Decision.UNAVAILABLE else "does not allow it"
        return Ruling(Way.REFUSE, (*said, f"polkit ({action}) {why}."), reason="not-authorized")
    glob = policy.grants(case.capability_id) if level <= HIGHEST else None
    if glob is not None:
        return ruling(
            Way.ALLOW, f"polkit would ask, but the administrator's auto_grant {glob!r} answers for everybody."
        )
    if case.grant is not None and level <= HIGHEST:
        return ruling(Way.ALLOW, f"polkit would ask, but {_granted(case.grant)}", case.grant)
    who = "would ask" if case.polkit is None else "asks"
    if level <= HIGHEST:
        return ruling(Way.ASK, f"polkit {who} a person ({action}); a yes is kept as a grant, and revocable.")
    return ruling(Way.ASK, f"polkit {who} a person ({action}), each time: nothing is granted ahead at this level.")


_LEVELS = {
    Level.PUBLIC: "nobody is asked.",
    Level.LOW: "a person is asked the first time.",
    Level.MEDIUM: "a person is asked the first time.",
    Level.HIGH: "a person is asked each time.",
    Level.CRITICAL: "a person is asked each time, and a second, independent approval is needed before it starts.",
}


def forbidden(capability_id: str, level: Level, policy: Policy) -> str:
    """The sentence when the administrator's ceiling is below it; "" when it is not."""
    denied = policy.denies(capability_id)
    where = f" ({policy.source})" if policy.source else ""
    if denied is not None:
        return f"The administrator's always_deny {denied!r} forbids it{where}."
    if level > policy.max_level:
        return f"The administrator allows levels up to {policy.max_level.wire}{where}."
    return ""


def _approval(case: Case) -> tuple[bool, str] | None:
    """Whether an approval is needed, and the sentence; None below critical."""
    if case.level is not Level.CRITICAL:
        return None
    if case.is_root and case.capability_id == COMMAND_RUN and case.policy.root_command_without_approval:
        return False, "The administrator spares root the approval of it (root_command_without_approval)."
    return True, "It then waits for an approval of exactly these arguments, by 'aiosctl approve' (action approve)."


def _granted(grant: Grant) -> str:
    when = datetime.fromtimestamp(grant.created_at // MICROSECONDS, UTC)
    return f"{grant.id} ({grant.scope}, for {grant.capability}) of {when:%Y-%m-%d %H:%M} UTC is consent already."
