"""The words of the contract: status, phase, priority, level, reason (spelled as in seeds 000 and 003)."""

from __future__ import annotations

from enum import IntEnum, StrEnum


class Status(StrEnum):
    """The eight states of seed 000."""

    PENDING = "pending"
    WORKING = "working"
    PAUSED = "paused"
    INPUT_REQUIRED = "input_required"
    AUTH_REQUIRED = "auth_required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"

    @property
    def is_final(self) -> bool:
        """Whether nothing leaves this state."""
        return self in FINAL

    @property
    def is_waiting(self) -> bool:
        """Whether the task waits for a person or another outside condition."""
        return self in WAITING


A2A = {
    Status.PENDING: "submitted",
    Status.WORKING: "working",
    Status.INPUT_REQUIRED: "input-required",
    Status.AUTH_REQUIRED: "auth-required",
    Status.COMPLETED: "completed",
    Status.FAILED: "failed",
    Status.CANCELED: "canceled",
}
"""What the A2A protocol calls each (seed 000); `paused` it does not know."""

FINAL = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELED})
WAITING = frozenset({Status.PAUSED, Status.INPUT_REQUIRED, Status.AUTH_REQUIRED})


class Phase(StrEnum):
    """The detail inside a status; a final status is its own phase."""

    PLANNING = "planning"
    WAITING = "waiting"
    QUEUED = "queued"
    ASSIGNED = "assigned"
    RUNNING = "running"
    RETRY_WAIT = "retry_wait"
    PAUSED = "paused"
    WAITING_INPUT = "waiting_input"
    BLOCKED = "blocked"
    WAITING_AUTH = "waiting_auth"
    WAITING_APPROVAL = "waiting_approval"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"


PHASES: dict[Status, frozenset[Phase]] = {
    Status.PENDING: frozenset({Phase.PLANNING, Phase.WAITING, Phase.QUEUED, Phase.ASSIGNED}),
    Status.WORKING: frozenset({Phase.RUNNING, Phase.RETRY_WAIT}),
    Status.PAUSED: frozenset({Phase.PAUSED}),
    Status.INPUT_REQUIRED: frozenset({Phase.WAITING_INPUT, Phase.BLOCKED}),
    Status.AUTH_REQUIRED: frozenset({Phase.WAITING_AUTH, Phase.WAITING_APPROVAL}),
    Status.COMPLETED: frozenset({Phase.COMPLETED}),
    Status.FAILED: frozenset({Phase.FAILED}),
    Status.CANCELED: frozenset({Phase.CANCELED}),
}
"""Which phases a status has (design: protocol)."""


class Priority(IntEnum):
    """Order of admission; higher starts first, equal ones in order of creation (seed 000)."""

    LOW = 0
    NORMAL = 1
    HIGH = 2
    URGENT = 3

    @classmethod
    def from_name(cls, name: str) -> Priority:
        """The priority of that wire name; KeyError when there is none."""
        return cls[name.upper()]

    @property
    def wire(self) -> str:
        """The name on the wire."""
        return self.name.lower()


class Level(IntEnum):
    """The five permission levels, weakest first."""

    PUBLIC = 0
    LOW = 1
    MEDIUM = 2
    HIGH = 3
    CRITICAL = 4

    @classmethod
    def from_name(cls, name: str) -> Level:
        """The level of that wire name; KeyError when there is none."""
        return cls[name.upper()]

    @property
    def wire(self) -> str:
        """The name on the wire and in polkit's action ids."""
        return self.name.lower()


class Actor(StrEnum):
    """Who wants a transition: a caller, or the system itself (timeouts, OOM, lost runs)."""

    USER = "user"
    SYSTEM = "system"


class Reason(StrEnum):
    """Why a task or a run ended or waits: machine-readable, stable."""

    EXIT_STATUS = "exit-status"
    SIGNAL = "signal"
    OOM_KILL = "oom-kill"
    SANDBOX = "sandbox"
    TIMEOUT = "timeout"
    LOST = "lost"
    REBOOT = "reboot"
    SUPERVISOR_DIED = "supervisor-died"
    LAUNCH = "launch"
    PROTOCOL = "protocol"
    REPORTED = "reported"
    INVALID_RESULT = "invalid-result"
    CANCELED = "canceled"
    USER_REQUEST = "user_request"
    PARENT_CANCELED = "parent-canceled"
    DEPENDENCY_FAILED = "dependency-failed"
    CAPABILITY_MISSING = "capability-missing"
    PERMISSION_DENIED = "permission-denied"
    RESULT = "result"
    AUTH_TIMEOUT = "auth-timeout"
    INPUT_TIMEOUT = "input-timeout"
    FIRST_FRAME_TIMEOUT = "first-frame-timeout"
    WORKER_LOST = "worker-lost"


RETRYABLE = frozenset(
    {
        Reason.REBOOT,
        Reason.LOST,
        Reason.SUPERVISOR_DIED,
        Reason.LAUNCH,
        Reason.WORKER_LOST,
        Reason.FIRST_FRAME_TIMEOUT,
    }
)
"""Failures that are the system's and not the task's: retried while attempts remain (seed 003)."""
