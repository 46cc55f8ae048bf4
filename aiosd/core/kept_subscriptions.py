"""Keeps in the store the subscriptions that a door wants to find again after a restart of the daemon.

A door whose clients have no connection that ends with the daemon (HTTP) keeps them here as they were granted; what the
caller may see is looked at again with the first thing that is asked of one. Forgetting is done in the background: one
that a crash leaves behind is taken up by the next daemon and lapses there like any other that nobody listens to.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from aiosd.core import clock
from aiosd.store import journal, subscriptions
from aiosd.store.database import StoreError

if TYPE_CHECKING:
    from aiosd.model.subscription import KeptSubscription
    from aiosd.store.database import Database

_log = logging.getLogger(__name__)


class KeptSubscriptions:
    """The table. Used on the loop."""

    def __init__(self, database: Database) -> None:
        """Keeps what it asks."""
        self._database = database
        self._unwanted: list[str] = []
        self._forgetting: asyncio.Task[None] | None = None

    async def position(self) -> int:
        """The number of the newest event. Raises StoreError."""
        return await self._database.glance("journal.last_sequence", journal.last_sequence)

    async def keep(self, kept: KeptSubscription) -> bool:
        """Store one; False when the store cannot, and it is there for this life of the daemon only."""
        if self._database.read_only_reason is not None:
            return False
        try:
            await self._database.write(lambda transaction: subscriptions.keep(transaction, kept, clock.now()))
        except StoreError as error:
            _log.warning("A subscription will not outlive the daemon: %s", error)
            return False
        return True

    def forget(self, identifier: str) -> None:
        """Remove one, soon."""
        self._unwanted.append(identifier)
        if self._forgetting is None or self._forgetting.done():
            self._forgetting = asyncio.create_task(self._forget())

    async def settled(self) -> None:
        """Return when what was to be forgotten is, or cannot be."""
        if self._forgetting is not None:
            await asyncio.shield(self._forgetting)

    async def all_(self) -> list[KeptSubscription]:
        """What earlier lives of the daemon have kept. Raises StoreError."""
        if self._database.read_only_reason is not None:
            return []
        return await self._database.read(subscriptions.all_)

    async def _forget(self) -> None:
        while self._unwanted:
            ids, self._unwanted = self._unwanted, []
            try:
                await self._database.write(lambda transaction, ids=ids: subscriptions.forget(transaction, ids))  # type: ignore[misc]
            except StoreError as error:
                _log.warning("%d subscriptions could not be removed: %s", len(ids), error)
