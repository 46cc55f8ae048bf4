"""A grant: what a person has consented to ahead of the next use. The value; what it covers says `auth/grants.py`."""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING

from aiosd.model.later import dataclass

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonObject
    from aiosd.model.status import Level


class Scope(StrEnum):
    """How long a grant lives."""

    ONCE = "once"
    """For one task."""
    TASK = "task"
    """For one task's retries and children."""
    SESSION = "session"
    """For tasks of one project session, while that is open."""
    TIMED = "timed"
    PERSISTENT = "persistent"
    """Until it is revoked."""


@dataclass(frozen=True, slots=True)
class Grant:
    """One row of `grants`. `capability`: id or glob. `constraints`: see `auth.grants.fits`. Times in microseconds."""

    id: str
    uid: int
    capability: str
    level: Level
    scope: Scope
    granted_by: int
    created_at: int
    constraints: JsonObject = field(default_factory=dict)
    task_id: str | None = None
    session_id: str | None = None
    expires_at: int | None = None
    revoked_at: int | None = None
    used_count: int = 0
    last_used_at: int | None = None

    def is_valid(self, now: int) -> bool:
        """Whether it can still be used by somebody for something."""
        if self.revoked_at is not None or (self.expires_at is not None and now >= self.expires_at):
            return False
        return self.scope is not Scope.ONCE or self.used_count == 0
