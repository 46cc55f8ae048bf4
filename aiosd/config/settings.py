"""Every setting, once: section, kind with bounds, default, and what it means.

`Config` is the table: parser, warnings and man page are made from its fields. A value that a request or a manifest may
only tighten says so here.
"""

from __future__ import annotations

from dataclasses import field, fields
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from aiosd.config.kinds import AlwaysYes, Boolean, Consent, Kind, OrNone, Percent, Share, Size, Span, Whole
from aiosd.model.later import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")

_KEY = "setting"
_DAY = 86_400.0
_MIB = 1 << 20
_GIB = 1 << 30


class Section(StrEnum):
    """The sections of the file."""

    SCHEDULER = "Scheduler"
    STORE = "Store"
    LIMITS = "Limits"
    WEBHOOKS = "Webhooks"
    PERMISSIONS = "Permissions"


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table. `default` is shown, the value itself is the field's."""

    name: str
    section: Section
    kind: Kind[object]
    default: object
    help: str

    @property
    def default_text(self) -> str:
        """The default as it would stand in the file."""
        return self.kind.show(self.default)


def setting(default: T, section: Section, kind: Kind[T], help_: str) -> T:
    """A field of `Config` with its row of the table."""
    return field(default=default, metadata={_KEY: (section, kind, help_)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The configuration in force. Times in seconds, sizes in bytes; None where there is no limit."""

    max_concurrent_tasks: int = setting(
        10, Section.SCHEDULER, Whole(1, 10_000), "Tasks that run at a time, of all users together."
    )
    max_tasks_per_tool: int = setting(
        3,
        Section.SCHEDULER,
        Whole(1, 10_000),
        "Tasks of one capability that run at a time. A manifest's *concurrency* may only tighten it.",
    )
    max_queue_size: int = setting(
        100,
        Section.SCHEDULER,
        Whole(1, 1_000_000),
        "Tasks that wait to be started. When there are as many, a new one is refused with `QueueFull` and not stored.",
    )
    schedule_interval: float = setting(
        1.0,
        Section.SCHEDULER,
        Span(0.1, 3600),
        "How long after a change the queue is looked at once more. A safety net: whatever changes the queue has it "
        "looked at at once. While a task waits for the machine to be less busy, also how often it is looked at.",
    )
    task_timeout: float | None = setting(
        None,
        Section.SCHEDULER,
        OrNone(Span(0.001, 366 * _DAY)),
        "Time limit of a task for which neither the request nor the manifest says one.",
    )
    memory_pressure: int | None = setting(
        60,
        Section.SCHEDULER,
        OrNone(Whole(1, 100)),
        "Percent of the last ten seconds in which some process waited for memory (/proc/pressure/memory). From there "
        "on tasks of low priority wait and say so; others start.",
    )
    cpu_pressure: int | None = setting(
        95,
        Section.SCHEDULER,
        OrNone(Whole(1, 100)),
        "The same for CPU time (/proc/pressure/cpu), which is short on every machine that is put to full use and does "
        "no harm: so tasks of low priority do not wait for its end, but start one at a time, when no other task runs.",
    )
    default_task_priority: int = setting(
        1,
        Section.SCHEDULER,
        Whole(0, 3),
        "Priority of a task that asks for none: 0 is low, 1 normal, 2 high, 3 urgent.",
    )
    suppress_completion_signal: bool = setting(
        default=False,
        section=Section.SCHEDULER,
        kind=Boolean(),
        help_="Whether `all_tasks_processed`, which tells a session that none of its tasks is pending or working any "
        "more, is left out.",
    )
    event_queue_size: int = setting(
        10_000,
        Section.SCHEDULER,
        Whole(100, 1_000_000),
        "Events that may wait for one JSON-RPC subscriber. One that falls further behind is told which it has lost, "
        "and may have them from the store. On D-Bus the bus keeps the queue.",
    )
    event_timeout: float = setting(
        300.0,
        Section.SCHEDULER,
        Span(100, _DAY),
        "How long one event may wait for a JSON-RPC client that takes none before that client is disconnected.",
    )
    stream_first_frame_timeout: float | None = setting(
        30.0,
        Section.SCHEDULER,
        OrNone(Span(0.1, _DAY)),
        "How long a program that speaks the chunk protocol, as its manifest says, may take until its first chunk. Then "
        "it is stopped, and its task fails with reason `first-frame-timeout`.",
    )
    worker_lease: float = setting(
        60.0,
        Section.SCHEDULER,
        Span(1, 3600),
        "How long a worker may stay silent. Then what it has is taken from it and given to another one; so is what it "
        "was offered and did not accept in that time.",
    )
    stop_timeout: float = setting(
        5.0,
        Section.SCHEDULER,
        Span(0.1, 600),
        "How long the daemon waits for what is under way when it is stopped. Tasks run on and are found again.",
    )
    stop_tasks_on_stop: bool = setting(
        default=False,
        section=Section.SCHEDULER,
        kind=Boolean(),
        help_="Whether stopping the daemon cancels the running tasks, with their grace and within *stop_timeout*. "
        "A restart stops it, too.",
    )
    enable_task_persistence: bool = setting(
        default=True,
        section=Section.SCHEDULER,
        kind=AlwaysYes("every task is stored before it is answered"),
        help_="Known from other schedulers and accepted; tasks are always stored.",
    )
    retention_days: int | None = setting(
        30,
        Section.STORE,
        OrNone(Whole(1, 36_500)),
        "Days after its end that a task is kept, with its history, events, artifacts and logs. As long an archived "
        "session is, with its messages and plan. What an unfinished task depends on is kept until that has ended, too.",
    )
    retention_tasks: int | None = setting(
        100_000,
        Section.STORE,
        OrNone(Whole(100, 10_000_000)),
        "Finished tasks that are kept; beyond it the ones that ended first are removed.",
    )
    audit_retention_days: int | None = setting(
        365, Section.STORE, OrNone(Whole(1, 36_500)), "Days that the audit trail is kept."
    )
    log_max_bytes: int = setting(
        16 * _MIB,
        Section.STORE,
        Size(4096, 64 * _GIB),
        "How much of a program's standard output, and as much of its standard error, is kept of each run. The rest is "
        "counted and dropped. A manifest may only tighten it.",
    )
    artifact_max_bytes: int = setting(
        64 * _MIB, Section.STORE, Size(4096, 64 * _GIB), "Largest file that a task can hand over as an artifact."
    )
    artifact_quota_bytes: int = setting(
        1 * _GIB,
        Section.STORE,
        Size(4096, 1024 * _GIB),
        "All artifacts of one user together. One more is refused; the task is told and runs on.",
    )
    session_quota_bytes: int = setting(
        1 * _GIB,
        Section.STORE,
        Size(4096, 1024 * _GIB),
        "What one user other than root may keep in sessions: messages, diffs of plans, metadata, with the events that "
        "tell of them, and what workers report about the user's tasks. Beyond it more is refused (`RateLimited`); "
        "sessions can still be closed and tasks end. It goes down as old events, and archived sessions, are removed.",
    )
    calls_per_second: int = setting(
        100,
        Section.LIMITS,
        Whole(1, 100_000),
        "Calls a second that one user may make for long. Root has no such limit.",
    )
    calls_burst: int = setting(
        1000,
        Section.LIMITS,
        Whole(1, 1_000_000),
        "Calls that one user may make at once before *calls_per_second* counts.",
    )
    creates_per_second: int = setting(
        20,
        Section.LIMITS,
        Whole(1, 100_000),
        "Tasks a second that one user may create for long. Root has no such limit.",
    )
    creates_burst: int = setting(
        200,
        Section.LIMITS,
        Whole(1, 1_000_000),
        "Tasks that one user may create at once before *creates_per_second* counts.",
    )
    max_calls_per_sender: int = setting(
        64,
        Section.LIMITS,
        Whole(1, 10_000),
        "Calls that one connection may have in progress. Waiting for a task counts; more are refused.",
    )
    max_queued_per_user: int | Percent | None = setting(
        Percent(50),
        Section.LIMITS,
        OrNone(Share(1_000_000)),
        "Of *max_queue_size*, how much one user other than root may use: so that nobody fills the queue alone. On a "
        "machine with one user it may be *infinity*.",
    )
    max_subscriptions_per_user: int = setting(
        64,
        Section.LIMITS,
        Whole(1, 100_000),
        "Subscriptions that one user may have open over JSON-RPC. Over D-Bus: that one connection may have, and all of "
        "a user's connections together to the same task, or to more than one task. Root has no limit but that for one "
        "D-Bus connection.",
    )
    max_webhooks_per_user: int = setting(
        32, Section.LIMITS, Whole(0, 100_000), "Webhooks that one user may have registered."
    )
    max_workers_per_user: int = setting(
        64, Section.LIMITS, Whole(0, 10_000), "Workers that one user other than root may have registered."
    )
    allow_private_addresses: bool = setting(
        default=False,
        section=Section.WEBHOOKS,
        kind=Boolean(),
        help_="Whether webhooks may go to loopback, link-local, private and multicast addresses. Whoever may register "
        "one could then reach services that are meant for this machine or network only. It also allows *http://*.",
    )
    delivery_timeout: float = setting(
        10.0, Section.WEBHOOKS, Span(0.1, 600), "How long one delivery may take, connection included."
    )
    first_use_low: str = setting(
        "persistent",
        Section.PERMISSIONS,
        Consent(),
        "How long a person's consent to a capability of level low is kept as a grant when they were asked at its first "
        "use. *once* keeps nothing: they are asked each time. `aiosctl grant list` shows grants, `revoke` ends them.",
    )
    first_use_medium: str = setting(
        "timed:28800", Section.PERMISSIONS, Consent(), "The same for level medium. Eight hours are a working day."
    )
    grant_medium_ahead: bool = setting(
        default=False,
        section=Section.PERMISSIONS,
        kind=Boolean(),
        help_="Whether people may grant capabilities of level medium before their first use, too "
        "(`aiosctl grant add`). Level low they always may; high and critical nobody can.",
    )
    approval_timeout: float = setting(
        600.0,
        Section.PERMISSIONS,
        Span(1, 7 * _DAY),
        "How long an approval that a critical task waits for can be given. Then the task fails.",
    )
    auth_timeout: float = setting(
        600.0,
        Section.PERMISSIONS,
        Span(1, 7 * _DAY),
        "How long a task that was stored before its person could be asked waits for their authentication. Then it "
        "fails.",
    )
    max_unauthorized_per_user: int = setting(
        32,
        Section.PERMISSIONS,
        Whole(1, 10_000),
        "Tasks of one user that may wait for an authentication or an approval. One more is refused.",
    )

    @property
    def queue_share(self) -> int | None:
        """Tasks of one user that may wait; None without a limit."""
        share = self.max_queued_per_user
        return share.of(self.max_queue_size) if isinstance(share, Percent) else share


def settings() -> Iterator[Setting]:
    """The table, in the order of the man page."""
    for column in fields(Config):
        section, kind, help_ = column.metadata[_KEY]
        yield Setting(column.name, section, kind, column.default, help_)
