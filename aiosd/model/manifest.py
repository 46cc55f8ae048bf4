"""What a capability is, its manifest read and the defaults of its level filled in (aios.capability(5))."""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING

from aiosd.model.later import dataclass
from aiosd.model.status import Level

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonObject

MIB = 1024 * 1024


class Identity(StrEnum):
    """As whom the program runs; `NAMED` (a user of the manifest's choice) only at levels high and critical."""

    DYNAMIC = "dynamic"
    CALLER = "caller"
    NAMED = "named"


class Network(StrEnum):
    """Which network the program sees; ordered from nothing to everything.

    `NETLINK`: the host's network namespace seen, not used: a seccomp filter leaves only NETLINK_ROUTE sockets (and
    socket pairs), so the program can read interfaces, addresses and routes but reach nobody, not even an abstract Unix
    socket.
    """

    NONE = "none"
    NETLINK = "netlink"
    HOST = "host"


class HomeView(StrEnum):
    """What the program sees of /home."""

    NONE = "none"
    READ_ONLY = "read-only"
    READ_WRITE = "read-write"


class Pausable(StrEnum):
    """How a task of this capability is paused."""

    NO = "no"
    FREEZE = "freeze"
    COOPERATIVE = "cooperative"


class Protocol(StrEnum):
    """What a program says: nothing that we count on, or chunks (docs/architecture.md), the first of them soon."""

    PLAIN = "plain"
    CHUNKS = "chunks"


class Recovery(StrEnum):
    """What becomes of a run that was lost (reboot, supervisor died)."""

    RETRY = "retry"
    FAIL = "fail"
    ASK = "ask"


class OnFailure(StrEnum):
    """What follows the last failed attempt: the task fails, or it is escalated to a person (`blocked`)."""

    FAIL = "fail"
    ESCALATE = "escalate"


@dataclass(frozen=True, slots=True)
class Limits:
    """cgroup limits of a scope; None: no limit. Bytes, percent of one CPU, counts (systemd.resource-control(5))."""

    memory_max: int | None = None
    memory_high: int | None = None
    cpu_quota_percent: int | None = None
    tasks_max: int | None = None
    io_weight: int | None = None
    cpu_weight: int | None = None
    open_files: int | None = None
    scratch_max: int | None = None
    log_max: int | None = None


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a failing task is tried, the first time included, and how long is waited in between (ms)."""

    max_attempts: int = 1
    delay_ms: int = 1000


@dataclass(frozen=True, slots=True)
class Capability:
    """An installed capability. Durations in milliseconds."""

    id: str
    title: str
    description: str
    level: Level
    exec: tuple[str, ...]
    identity: Identity
    user: str | None
    network: Network
    home: HomeView
    read_write_paths: tuple[str, ...]
    limits: Limits
    input_schema: JsonObject
    result_schema: JsonObject | None = None
    concurrency: int | None = None
    pausable: Pausable = Pausable.FREEZE
    cancelable: bool = True
    cancel_grace_ms: int = 5000
    recovery: Recovery = Recovery.FAIL
    idempotent: bool = False
    timeout_ms: int | None = None
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    on_failure: OnFailure = OnFailure.FAIL
    estimated_duration_ms: int | None = None
    source: str = ""
    protocol: Protocol = Protocol.PLAIN


@dataclass(frozen=True, slots=True)
class LevelDefaults:
    """One row of the design's table "what a level allows the process itself"."""

    identity: Identity
    home: HomeView
    network: Network
    limits: Limits


LEVEL_DEFAULTS: dict[Level, LevelDefaults] = {
    Level.PUBLIC: LevelDefaults(
        Identity.DYNAMIC,
        HomeView.NONE,
        Network.NONE,
        Limits(
            memory_max=256 * MIB,
            cpu_quota_percent=20,
            tasks_max=16,
            open_files=1024,
            scratch_max=64 * MIB,
            log_max=16 * MIB,
        ),
    ),
    Level.LOW: LevelDefaults(
        Identity.CALLER,
        HomeView.READ_ONLY,
        Network.NONE,
        Limits(
            memory_max=512 * MIB,
            cpu_quota_percent=50,
            tasks_max=64,
            open_files=1024,
            scratch_max=256 * MIB,
            log_max=64 * MIB,
        ),
    ),
    Level.MEDIUM: LevelDefaults(
        Identity.CALLER,
        HomeView.READ_WRITE,
        Network.HOST,
        Limits(
            memory_max=1024 * MIB,
            cpu_quota_percent=100,
            tasks_max=128,
            open_files=4096,
            scratch_max=1024 * MIB,
            log_max=64 * MIB,
        ),
    ),
    Level.HIGH: LevelDefaults(
        Identity.CALLER,
        HomeView.READ_WRITE,
        Network.HOST,
        Limits(
            memory_max=2048 * MIB,
            cpu_quota_percent=200,
            tasks_max=512,
            open_files=4096,
            scratch_max=2048 * MIB,
            log_max=64 * MIB,
        ),
    ),
    Level.CRITICAL: LevelDefaults(Identity.NAMED, HomeView.READ_WRITE, Network.HOST, Limits(log_max=64 * MIB)),
}
