"""What must come to its end whatever the daemon lacks for a while: room on the disk, descriptors, an answer.

A program's deed is not forgotten because a disk is full, and no program is given up because the daemon cannot look.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from typing import TYPE_CHECKING, TypeVar

from aiosd.store.database import StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiosd.store.database import Database, Transaction

T = TypeVar("T")

STORE_RETRY = 1.0
"""Seconds between tries to store what a run has done while the store refuses."""

OWN = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""What a call fails with that says nothing about the file: the daemon, or the machine, has no more to give."""

_log = logging.getLogger(__name__)


async def patiently(work: Callable[[], Awaitable[T]]) -> T:
    """Do it, and again while it is the daemon that lacks something (a StoreError, an OSError of `OWN`); told once."""
    told = False
    while True:
        try:
            return await work()
        except (StoreError, OSError) as error:
            if isinstance(error, OSError) and error.errno not in OWN:
                raise
            if not told:
                _log.error("What a run needs has to wait: %s", error)
                told = True
        await asyncio.sleep(STORE_RETRY)


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
