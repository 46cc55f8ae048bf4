"""A webhook as the store holds it, and one delivery of it (seed 000). Times are microseconds since the epoch."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from aiosd.model.later import dataclass

if TYPE_CHECKING:
    from aiosd.model.event import Event


class WebhookState(StrEnum):
    """`PARKED`: it failed too often and waits to be resumed; its events go on waiting. `ENDED`: no more comes."""

    ACTIVE = "active"
    PARKED = "parked"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class WebhookRetry:
    """Seed 000's `retry_policy`: tries after the first, and the wait before the first of them, in milliseconds."""

    max_retries: int = 3
    retry_delay_ms: int = 1000


@dataclass(frozen=True, slots=True)
class Webhook:
    """One row of `webhooks`. `events` empty: all. `secret`: sealed. `dropped`: events for which there was no room."""

    id: str
    task_id: str
    uid: int
    url: str
    events: tuple[str, ...]
    retry: WebhookRetry
    created_at: int
    secret: bytes | None = None
    state: WebhookState = WebhookState.ACTIVE
    waiting: int = 0
    delivered: int = 0
    dropped: int = 0
    last_error: str | None = None
    last_at: int | None = None
    next_at: int | None = None


@dataclass(frozen=True, slots=True)
class Delivery:
    """The first thing that waits for a webhook. `attempts`: how often it was tried."""

    id: str
    event: Event
    attempts: int
    due_at: int
