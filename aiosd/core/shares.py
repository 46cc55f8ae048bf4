"""How many calls at a time: of one user, of all users together, and how many that only wait.

A call that waits for a task's end or for news costs some memory and may last for days. So it is counted by itself
(`at_rest`): whoever waits for all their tasks can still cancel one, and what some users wait for keeps nobody else from
calling. Root has none of these limits, since it must get through to stop things.

A door takes a place for each call (`CallShares.call`); an operation that begins to wait says so without knowing which
door that was.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING

from aiosd.errors import AiosError, ErrorKind
from aiosd.model.later import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager


@dataclass(frozen=True, slots=True)
class CallLimits:
    """Calls of one door that are worked on, and calls that wait."""

    per_user: int = 256
    total: int = 1024
    waiting_per_user: int = 1024
    waiting: int = 4096


class CallShares:
    """What is in use."""

    def __init__(self, limits: Callable[[], CallLimits]) -> None:
        """`limits`: those in force. Nothing is in use."""
        self._limits = limits
        self._working: Counter[int] = Counter()
        self._waiting: Counter[int] = Counter()

    def __len__(self) -> int:
        """Calls that have a place, waiting ones too."""
        return self._working.total() + self._waiting.total()

    @contextmanager
    def call(self, uid: int) -> Iterator[None]:
        """A place for a call of that user. Raises AiosError (RateLimited)."""
        limits = self._limits()
        if uid != 0 and self._working[uid] >= limits.per_user:
            raise AiosError(ErrorKind.RATE_LIMITED, f"{limits.per_user} calls of your user are being answered")
        if uid != 0 and self._working.total() >= limits.total:
            raise AiosError(ErrorKind.RATE_LIMITED, "too many calls are being answered")
        token = _place.set(_Place(self, uid))
        self._working[uid] += 1
        try:
            yield
        finally:
            one_less(self._working, uid)
            _place.reset(token)

    @contextmanager
    def rest(self, uid: int) -> Iterator[None]:
        """A call of that user only waits while this lasts. Raises AiosError (RateLimited)."""
        limits = self._limits()
        if uid != 0 and self._waiting[uid] >= limits.waiting_per_user:
            raise AiosError(ErrorKind.RATE_LIMITED, f"{limits.waiting_per_user} calls of your user are waiting")
        if uid != 0 and self._waiting.total() >= limits.waiting:
            raise AiosError(ErrorKind.RATE_LIMITED, "too many calls are waiting")
        self._waiting[uid] += 1
        one_less(self._working, uid)
        try:
            yield
        finally:
            self._working[uid] += 1
            one_less(self._waiting, uid)


class _Place:
    """Of one call."""

    def __init__(self, shares: CallShares, uid: int) -> None:
        self._shares = shares
        self._uid = uid
        self._rests = False

    @contextmanager
    def rest(self) -> Iterator[None]:
        """Wait; who does already has what it needs."""
        if self._rests:
            yield
            return
        with self._shares.rest(self._uid):
            self._rests = True
            try:
                yield
            finally:
                self._rests = False


_place: ContextVar[_Place | None] = ContextVar("place", default=None)


def at_rest() -> AbstractContextManager[None]:
    """While this lasts, the call that is being answered only waits. Raises AiosError (RateLimited) when it is begun."""
    place = _place.get()
    return nullcontext() if place is None else place.rest()


def one_less(counter: Counter[int], uid: int) -> None:
    """One less; nothing stays of who has none."""
    counter[uid] -= 1
    if not counter[uid]:
        del counter[uid]
