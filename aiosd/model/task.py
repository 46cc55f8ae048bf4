"""A task and a run as the store holds them. Times are microseconds since the epoch; absent is None.

A *task* is what was asked for. A *run* is one attempt at it: one shim, one scope. `aiosd.store.tasks` reads and writes
these; `aiosd.core.views` shows them.
"""

from __future__ import annotations

from dataclasses import field, fields
from enum import StrEnum
from typing import TYPE_CHECKING

from aiosd.model.later import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aiosd.model.jsontext import JsonObject
    from aiosd.model.status import Level, Phase, Priority, Status


@dataclass(frozen=True)
class Task:
    """One row of `tasks`. `sequence` is the order of creation; `deadline` the moment its time limit ends it.

    `capability_id` "" is a task of a plan that nobody has taken yet. `held`: not to be started, or to be paused.
    `shared_context`: artifacts and summaries that it may read; `handoff`: its own go to those that depend on it.
    `requires`: what a worker must be capable of to get it, `workspace` where it is to work; `worker_id`: which one has
    it, or had it last.

    Without slots, because what has fifty fields is made from a row, or from another task, in a tenth of the time when
    its `__dict__` is filled at once (`of`, `having`).
    """

    id: str
    uid: int
    capability_id: str
    title: str
    level: Level
    status: Status
    phase: Phase
    priority: Priority
    created_at: int
    updated_at: int
    sequence: int = 0
    creator: JsonObject = field(default_factory=dict)
    arguments: JsonObject = field(default_factory=dict)
    metadata: JsonObject = field(default_factory=dict)
    timeout_ms: int | None = None
    retry_max: int = 1
    retry_delay_ms: int = 0
    not_before: int | None = None
    idempotency_key: str | None = None
    parent_id: str | None = None
    session_id: str | None = None
    execution_mode: str = "independent"
    risk_level: str | None = None
    limits: JsonObject | None = None
    progress: JsonObject | None = None
    summary: JsonObject | None = None
    result: JsonObject | None = None
    error: JsonObject | None = None
    question: JsonObject | None = None
    auth_request: JsonObject | None = None
    attempt: int = 0
    retry_count: int = 0
    retry_at: int | None = None
    retry_of: str | None = None
    reason: str | None = None
    cancel_reason: str | None = None
    started_at: int | None = None
    ended_at: int | None = None
    deadline: int | None = None
    estimated_ms: int | None = None
    kind: str | None = None
    goal: str | None = None
    constraints: tuple[str, ...] = ()
    shared_context: tuple[str, ...] = ()
    handoff: bool = False
    held: bool = False
    requires: tuple[str, ...] = ()
    workspace: JsonObject | None = None
    worker_id: str | None = None

    @classmethod
    def of(cls, values: Iterable[object]) -> Task:
        """The task with these values of all its fields, in their order (FIELDS)."""
        made = object.__new__(cls)
        made.__dict__.update(zip(FIELDS, values, strict=True))
        return made

    def having(self, values: Mapping[str, object]) -> Task:
        """The task with other values in some fields, as `dataclasses.replace` makes it. Raises KeyError."""
        if not values.keys() <= self.__dict__.keys():
            raise KeyError(min(values.keys() - self.__dict__.keys()))
        made = object.__new__(Task)
        made.__dict__.update(self.__dict__)
        made.__dict__.update(values)
        return made


FIELDS = tuple(one.name for one in fields(Task))
"""The fields' names, in order."""


class RunState(StrEnum):
    """Life of a run row: made before the launcher is asked, `running` before the gate opens, `ended` at the end."""

    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Run:
    """One row of `runs`. `events_offset`: how much of its event file has been applied, in bytes."""

    id: str
    task_id: str
    attempt: int
    state: RunState
    boot_id: str
    uid: int
    started_at: int
    unit: str | None = None
    control_group: str | None = None
    pid: int | None = None
    ended_at: int | None = None
    events_offset: int = 0
    limits: JsonObject | None = None
    exit: JsonObject | None = None
    reason: str | None = None
