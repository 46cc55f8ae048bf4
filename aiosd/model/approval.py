"""An approval: a second word, of a person, on exactly one request. The value; its rules are in `auth/approvals.py`."""

from __future__ import annotations

from enum import StrEnum

from aiosd.model.later import dataclass

RUN = "run"
"""Kind of an approval of running a capability; every other kind is a word of the program that asked."""


class ApprovalStatus(StrEnum):
    """What became of it; `withdrawn`: its task ended first."""

    PENDING = "pending"
    APPROVED = "approved"
    REJECTED = "rejected"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"


class ApprovalAction(StrEnum):
    """Answers to an approval (seed 003)."""

    APPROVE = "approve"
    REJECT = "reject"
    APPROVE_ONCE = "approve_once"
    APPROVE_FOR_SESSION = "approve_for_session"

    @property
    def approves(self) -> bool:
        """Whether it is a yes."""
        return self is not ApprovalAction.REJECT


@dataclass(frozen=True, slots=True)
class Approval:
    """One row of `approvals`. Times in µs since the epoch.

    `request_hash`: of what is approved (`auth.approvals.request_hash`). `requester`: the connection that asked, in
    `auth.caller`'s words. `decided_by`: a uid.
    """

    id: str
    uid: int
    kind: str
    capability_id: str
    request_hash: str
    requester: str
    created_at: int
    expires_at: int
    task_id: str | None = None
    session_id: str | None = None
    summary: str = ""
    risk_level: str = "medium"
    status: ApprovalStatus = ApprovalStatus.PENDING
    decision: ApprovalAction | None = None
    decided_by: int | None = None
    decided_at: int | None = None
    note: str | None = None

    @property
    def by_program(self) -> bool:
        """Whether a running program asked for it, about something that it is about to do."""
        return self.kind != RUN
