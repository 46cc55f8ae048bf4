"""Whose turn it is to be asked: one dialog at a time for each user, the rest queued, bounded and rate-limited.

A program that asks again and again must not wear a person down until they say yes, nor bury the dialog that matters.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from dataclasses import field
from typing import TYPE_CHECKING

from aiosd.errors import AiosError, ErrorKind
from aiosd.model.later import dataclass

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

MAX_QUEUED = 16
"""Questions of one user that may wait for the one that is on their screen."""
BURST = 10
"""Dialogs that one user may get in a row without having said yes to one."""
INTERVAL = 6.0
"""Seconds after which one more may follow."""


@dataclass(slots=True)
class _Person:
    """One user's turn, how many wait for it, and what is left of their patience (in dialogs, at a moment)."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0
    patience: float = BURST
    at: float = 0.0


class Prompts:
    """The turns of all users."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: seconds."""
        self._clock = clock
        self._people: dict[int, _Person] = {}

    @asynccontextmanager
    async def turn(self, uid: int) -> AsyncIterator[None]:
        """Wait until no other dialog of this user is open. Raises AiosError (RATE_LIMITED) when too many wait."""
        person = self._people.setdefault(uid, _Person(at=self._clock()))
        if person.waiting >= MAX_QUEUED:
            raise AiosError(ErrorKind.RATE_LIMITED, f"{MAX_QUEUED} questions wait for this person", reason="prompts")
        person.waiting += 1
        try:
            async with person.turn:
                yield
        finally:
            person.waiting -= 1
            if person.waiting == 0:
                self._forget_rested()

    def spend(self, uid: int) -> None:
        """A dialog is about to open. Raises AiosError (RATE_LIMITED) when this user has had too many."""
        person = self._people[uid]
        moment = self._clock()
        person.patience = min(BURST, person.patience + (moment - person.at) / INTERVAL)
        person.at = moment
        if person.patience < 1:
            wait = (1 - person.patience) * INTERVAL
            raise AiosError(
                ErrorKind.RATE_LIMITED, "this person was asked too often", reason="prompts",
                data={"retry_after_ms": round(wait * 1000)},
            )  # fmt: skip
        person.patience -= 1

    def welcome(self, uid: int) -> None:
        """The last dialog was answered with yes, so it was wanted and costs no patience."""
        person = self._people[uid]
        person.patience = min(BURST, person.patience + 1)

    def _forget_rested(self) -> None:
        """Whoever has all their patience back is not kept in mind."""
        moment = self._clock()
        rested = [
            uid
            for uid, person in self._people.items()
            if person.waiting == 0 and person.patience + (moment - person.at) / INTERVAL >= BURST
        ]
        for uid in rested:
            del self._people[uid]
