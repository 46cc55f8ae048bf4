"""Places for what only so much of may go on at a time: a few for each user, and not many more for all together.

So a user who asks for a thousand things at once waits for their own, and the next user's question is not behind them.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from aiosd.model.later import dataclass

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@dataclass(slots=True)
class _User:
    """One user's places, and how many are in them or wait for one."""

    places: asyncio.Semaphore
    here: int = 0


class Fair:
    """Waits are in order, for each user and for all."""

    def __init__(self, each: int, altogether: int) -> None:
        """How many places one user has, and how many there are."""
        self._each = each
        self._all = asyncio.Semaphore(altogether)
        self._users: dict[int, _User] = {}

    @asynccontextmanager
    async def place(self, uid: int) -> AsyncIterator[None]:
        """Have a place while this lasts."""
        user = self._users.setdefault(uid, _User(asyncio.Semaphore(self._each)))
        user.here += 1
        try:
            async with user.places, self._all:
                yield
        finally:
            user.here -= 1
            if not user.here:
                self._users.pop(uid, None)
