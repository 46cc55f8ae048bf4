"""The end of the daemon: what runs is told or left alone, and what hangs does not keep the machine from going on.

Everything that counts is on disk before anybody is told of it, so the last resort loses nothing: it is what a crash is.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from aiosd.core.control import Control
    from aiosd.core.supervision import Supervision

LATE = 75
"""Exit status when the end took too long (EX_TEMPFAIL): the service manager sees that something hung."""

FAILED = 1
"""Exit status after an error that nobody expected."""

STOP_REASON = "daemon-stopped"

_log = logging.getLogger(__name__)


def end_within(seconds: float) -> None:
    """Leave the process after that time, however stuck it is: a thread of its own needs no loop and no store."""

    def leave() -> None:
        _log.error("The end took longer than %.1f s; leaving as a crash would, which loses nothing", seconds)
        os._exit(LATE)

    timer = threading.Timer(seconds, leave)
    timer.daemon = True
    timer.start()


def end_at_once(error: BaseException | None) -> None:
    """Leave after an error that nobody expected, of the loop or of a thread: memory that ran out there, say.

    An ordinary exit would wait for the store's threads, which nobody tells any more that it is over; and without its
    writer the daemon would only be found dead by the watchdog.
    """
    with suppress(MemoryError):
        _log.critical("The daemon ends: %s", error, exc_info=error)
    os._exit(FAILED)


def leave(status: int) -> NoReturn:
    """The ordinary end, once everything is closed: at once, because the next daemon begins when this process is gone.

    The interpreter's own end would take every object apart first, which is of no use to anybody and callers wait for.
    """
    logging.shutdown()
    os._exit(status)


async def stop_tasks(control: Control, supervision: Supervision, within: float) -> None:
    """Cancel what runs (`stop_tasks_on_stop`). After `within` seconds the rest is left to the next start."""
    watches = list(supervision.watches.values())
    try:
        async with asyncio.timeout(within):
            await control.stop_for_the_daemon([watch.task_id for watch in watches], STOP_REASON)
            await asyncio.gather(*(watch.ended.wait() for watch in watches))
    except TimeoutError:
        _log.warning("Not every task has ended in time; the rest is taken up at the next start")


async def at_rest(supervision: Supervision) -> None:
    """Wait until no program runs that cannot simply be run again (`idempotent`)."""
    while once := [
        watch for watch in supervision.watches.values() if watch.capability is None or not watch.capability.idempotent
    ]:
        await once[0].ended.wait()
