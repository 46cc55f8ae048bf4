"""Workers and their assignments as the store holds them (seed 003). Times are microseconds since the epoch.

A *worker* is a process of its own that carries out tasks of plans. An *assignment* gives it one attempt at one task; it
is open until `ended_at`, and once it has ended it is never open again: its id is the fencing token of the attempt.
"""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from aiosd.model.later import dataclass

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonObject

WorkerKey: TypeAlias = tuple[int, str]
"""What names a worker: its user and the id that it gave itself."""


class WorkerStatus(StrEnum):
    """What a worker says of itself. `idle`: it would take something; the others get nothing new."""

    IDLE = "idle"
    BUSY = "busy"
    DRAINING = "draining"


class Liveness(StrEnum):
    """How it is known that a worker is there, beside its heartbeats: by a descriptor that it (or the JSON-RPC door, for
    the time of its connection) holds open, or by nothing else."""

    DESCRIPTOR = "descriptor"
    HEARTBEAT = "heartbeat"


class Serves(StrEnum):
    """Whose tasks a worker takes: those of its own user, or everybody's."""

    OWN = "own"
    ALL = "all"


class AssignmentStatus(StrEnum):
    """What became of an assignment; the first two are open."""

    ASSIGNED = "assigned"
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    COMPLETED = "completed"
    FAILED = "failed"
    LOST = "lost"
    CANCELED = "canceled"


@dataclass(frozen=True, slots=True)
class Worker:
    """One row of `workers`. `registration`: names this registration, so that an earlier one of the same id is told
    apart. `capacity`: assignments at a time. `heartbeat_at`, `status`, `load` are as last stored, which is seldom."""

    id: str
    uid: int
    hostname: str
    os: str
    shell: str
    capabilities: tuple[str, ...]
    registered_at: int
    heartbeat_at: int
    registration: str
    boot_id: str
    sequence: int = 0
    status: WorkerStatus = WorkerStatus.IDLE
    current_task_id: str | None = None
    load: float = 0.0
    liveness: Liveness = Liveness.HEARTBEAT
    serves: Serves = Serves.OWN
    capacity: int = 1
    ended_at: int | None = None
    reason: str | None = None
    metadata: JsonObject = field(default_factory=dict)

    @property
    def key(self) -> WorkerKey:
        """Its name in the daemon."""
        return (self.uid, self.id)


@dataclass(frozen=True, slots=True)
class Assignment:
    """One row of `assignments`. `attempt`: the task's; it ascends, so others can order what workers did by it."""

    id: str
    task_id: str
    worker_id: str
    worker_uid: int
    attempt: int
    created_at: int
    status: AssignmentStatus = AssignmentStatus.ASSIGNED
    reason: str | None = None
    accepted_at: int | None = None
    ended_at: int | None = None

    @property
    def worker(self) -> WorkerKey:
        """Whose it is."""
        return (self.worker_uid, self.worker_id)

    @property
    def is_open(self) -> bool:
        """Whether its worker may still report."""
        return self.ended_at is None
