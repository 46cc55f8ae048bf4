"""What the service manager is told: ready, reloading, stopping, alive (sd_notify(3), systemd.service(5))."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from typing import TYPE_CHECKING

import sdnotify

from aiosd.store.database import StoreError

if TYPE_CHECKING:
    from aiosd.store.database import Database

_log = logging.getLogger(__name__)


class ServiceManager:
    """systemd, when it started us; silence otherwise."""

    def __init__(self) -> None:
        """Reads NOTIFY_SOCKET and WATCHDOG_USEC."""
        self._notifier = sdnotify.SystemdNotifier()
        self._watchdog = int(os.environ.get("WATCHDOG_USEC", "0")) / 1_000_000

    def ready(self, status: str) -> None:
        """Serving; `status` is shown by `systemctl status`."""
        self._notifier.notify(f"READY=1\nSTATUS={status}")

    def status(self, status: str) -> None:
        """What the daemon is doing now."""
        self._notifier.notify(f"STATUS={status}")

    def reloading(self) -> None:
        """A reload has begun (Type=notify-reload wants the moment of it)."""
        self._notifier.notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """No new work is taken."""
        self._notifier.notify("STOPPING=1")

    async def feed_watchdog(self, database: Database) -> None:
        """Say that we are alive as long as this loop turns and the store answers; for ever."""
        if not self._watchdog:
            return
        period = self._watchdog / 2  # as sd_watchdog_enabled(3) has it
        while True:
            try:
                await database.health(within=period / 2)
                self._notifier.notify("WATCHDOG=1")
                await asyncio.sleep(period)
            except StoreError as error:
                _log.warning("The watchdog is not fed: %s", error)
                await asyncio.sleep(period / 8)  # there is time for another try or two
