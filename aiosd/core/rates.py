"""How much one user may ask for: a token bucket for calls and one for tasks that are created. Root has no limit.

A bucket holds `burst` tokens and gains `per_second` of them; a call takes one. So a user may be quick for a moment and
is slowed down for long, and what one user does takes nothing from another. Both doors come through `Manager.invoke`,
which asks here first, before anything is parsed. Only the loop's thread uses it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from aiosd.errors import AiosError, ErrorKind
from aiosd.model.later import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiosd.auth.caller import Caller
    from aiosd.core.settings import Settings

CREATING = frozenset({"task.create", "task.retry", "plan.create", "plan.apply_diff"})
"""Operations that store new tasks."""

FREE = frozenset({"emergency.stop", "task.cancel", "task.unsubscribe"})
"""What always gets through: it makes less of what there is too much of."""

MAX_USERS = 4096
"""Buckets that are remembered; those that are full again are forgotten first."""


@dataclass(slots=True)
class Bucket:
    """Tokens at a moment. Seconds of a clock that never goes back."""

    tokens: float
    at: float

    def take(self, now: float, per_second: float, burst: float) -> float:
        """Take one token; seconds until there would be one, 0.0 when it was taken."""
        self.tokens = min(burst, self.tokens + max(0.0, now - self.at) * per_second)
        self.at = now
        if self.tokens >= 1:
            self.tokens -= 1
            return 0.0
        return (1 - self.tokens) / per_second


class Rates:
    """The buckets of all users."""

    def __init__(self, settings: Settings, now: Callable[[], float] = time.monotonic) -> None:
        """`now`: seconds of a clock that never goes back."""
        self._settings = settings
        self._now = now
        self._buckets: dict[tuple[int, str], Bucket] = {}

    def require(self, caller: Caller, operation: str) -> None:
        """Raises RATE_LIMITED, with the milliseconds after which it is worth another try."""
        if caller.is_root or operation in FREE:
            return
        current = self._settings.current
        wait = self._take(caller.uid, "calls", current.calls_per_second, current.calls_burst)
        limit = "calls_per_second"
        if not wait and operation in CREATING:
            wait = self._take(caller.uid, "creates", current.creates_per_second, current.creates_burst)
            limit = "creates_per_second"
        if wait:
            raise AiosError(
                ErrorKind.RATE_LIMITED, "this user asks for too much at a time", reason="rate",
                data={"limit": limit, "retry_after_ms": max(1, round(wait * 1000))},
            )  # fmt: skip

    def _take(self, uid: int, kind: str, per_second: int, burst: int) -> float:
        now = self._now()
        bucket = self._buckets.get((uid, kind))
        if bucket is None:
            if len(self._buckets) >= 2 * MAX_USERS:
                self._forget(now)
            bucket = self._buckets[uid, kind] = Bucket(burst, now)
        return bucket.take(now, per_second, burst)

    def _forget(self, now: float) -> None:
        """Half of them go: those that were not used for longest, which are full again or nearly so."""
        kept = sorted(self._buckets.items(), key=lambda item: item[1].at)[MAX_USERS:]
        self._buckets = dict(kept)
