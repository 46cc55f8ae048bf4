"""Writing what has happened already: a program's deed is not forgotten because a disk is full."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, TypeVar

from aiosd.store.database import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiosd.store.database import Database, Transaction

T = TypeVar("T")

STORE_RETRY = 1.0
"""Seconds between tries to store what a run has done while the store refuses."""

_log = logging.getLogger(__name__)


async def write_durably(database: Database, function: Callable[[Transaction], T]) -> T:
    """Write, and keep trying while the store refuses; told once, not at every try."""
    told = False
    while True:
        try:
            return await database.write(function)
        except StoreError as error:
            if not told:
                _log.error("The store refused what a run did; trying again: %s", error)
                told = True
            await asyncio.sleep(STORE_RETRY)
