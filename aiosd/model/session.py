"""Sessions, threads and messages as the store holds them (seed 003). Times are microseconds since the epoch."""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING

from aiosd.model.event import Source
from aiosd.model.later import dataclass

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonObject


class SessionStatus(StrEnum):
    """Life of a session: an active one takes messages and tasks, a closed one is only read, an archived one hidden."""

    ACTIVE = "active"
    CLOSED = "closed"
    ARCHIVED = "archived"


@dataclass(frozen=True, slots=True)
class Session:
    """One row of `sessions`. `suppress_completion`: whether `all_tasks_processed` is left out."""

    id: str
    uid: int
    title: str
    status: SessionStatus
    active_objective: str | None
    created_at: int
    updated_at: int
    sequence: int = 0
    suppress_completion: bool = False
    metadata: JsonObject = field(default_factory=dict)
    closed_at: int | None = None
    archived_at: int | None = None


@dataclass(frozen=True, slots=True)
class Thread:
    """One row of `threads`."""

    id: str
    session_id: str
    title: str
    created_at: int


@dataclass(frozen=True, slots=True)
class Message:
    """One row of `messages`. `uid`: who added it, whatever `role` they gave it."""

    id: str
    session_id: str
    thread_id: str | None
    uid: int
    role: str
    channel: str
    content: str
    created_at: int
    sequence: int = 0
    metadata: JsonObject = field(default_factory=dict)


SOURCES = {
    "user": Source.USER,
    "assistant": Source.MANAGER,
    "manager": Source.MANAGER,
    "system": Source.SYSTEM,
    "worker": Source.WORKER,
}
"""The source of the event that a message of each role is."""
