"""How a shim ends its program: SIGTERM to everything in the scope but itself, a grace, SIGKILL.

Standard library only. Not cgroup.kill: that would take the shim along, and the exit record with it.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from aiosd.run.exitrecord import StoppedBy

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiosd.run.cgroup import Scope

_KILL_AGAIN = 0.1
_LOOK_AGAIN = 0.002


class Stopping:
    """Deadlines of one run. `reason`: who wanted the end, None while nobody does."""

    def __init__(self, scope: Scope) -> None:
        """`scope`: whose processes are meant."""
        self._scope = scope
        self.reason: StoppedBy | None = None
        self._term_at: float | None = None
        self._kill_at: float | None = None
        self._acted = False

    @property
    def outcome(self) -> StoppedBy | None:
        """`reason` as the exit record tells it: a program that left in time after its final chunk was not stopped."""
        return None if self.reason is StoppedBy.COMPLETION and not self._acted else self.reason

    @property
    def due(self) -> float | None:
        """The next moment (monotonic seconds) at which `act` has something to do."""
        moments = [moment for moment in (self._term_at, self._kill_at) if moment is not None]
        return min(moments, default=None)

    def begin(self, reason: StoppedBy, grace_ms: int, *, wait_ms: int = 0) -> None:
        """SIGTERM after `wait_ms`, SIGKILL `grace_ms` from now. A later call can only make it sooner; the first
        reason counts, unless it was the program's own end.
        """
        now = time.monotonic()
        if self.reason is None or self.reason is StoppedBy.COMPLETION:
            self.reason = reason
        term_at = now + wait_ms / 1000
        kill_at = max(now + grace_ms / 1000, term_at + (1.0 if wait_ms >= grace_ms > 0 else 0.0))
        self._term_at = term_at if self._kill_at is None else self._sooner(self._term_at, term_at)
        self._kill_at = self._sooner(self._kill_at, kill_at)

    @staticmethod
    def _sooner(first: float | None, second: float) -> float:
        return second if first is None else min(first, second)

    def act(self, now: float) -> None:
        """Do what is due at `now`."""
        if self._term_at is not None and now >= self._term_at:
            self._term_at = None
            self._acted = True
            self._signal_others(signal.SIGTERM)
            self._signal_others(signal.SIGCONT)
        if self._kill_at is not None and now >= self._kill_at:
            self._kill_at = now + _KILL_AGAIN  # until the program is reaped: it may fork faster than it is killed
            self.kill()

    def kill(self) -> None:
        """SIGKILL to everything but the shim."""
        self._signal_others(signal.SIGKILL)

    def _signal_others(self, number: signal.Signals) -> bool:
        others = self._scope.others()
        for pid in others:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        return bool(others)

    def kill_rest(self, reap: Callable[[], None], seconds: float) -> None:
        """Kill and reap until nobody is left, at most `seconds`: the launcher's `stop` has the last word."""
        end = time.monotonic() + seconds
        while self._signal_others(signal.SIGKILL) and time.monotonic() < end:
            reap()
            time.sleep(_LOOK_AGAIN)
        reap()
