"""What the service manager is told of the daemon's health: fed while the store answers, not while it does not."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import TYPE_CHECKING

from aiosd.notify import ServiceManager
from aiosd.store.database import Database
from tests.unit.core.rig import eventually

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

FED = b"WATCHDOG=1"


def test_the_watchdog_is_fed_while_the_store_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "notify"
    monkeypatch.setenv("NOTIFY_SOCKET", str(path))
    monkeypatch.setenv("WATCHDOG_USEC", "400000")

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sock:
            sock.bind(str(path))

            async def fed() -> None:
                assert await asyncio.wait_for(loop.sock_recv(sock, 100), 30) == FED

            async with Database.open(tmp_path / "tasks.db") as database:
                feeding = asyncio.create_task(ServiceManager().feed_watchdog(database))
                for _ in range(3):
                    await fed()
                gate = threading.Event()
                stuck = asyncio.ensure_future(database.write(lambda _: gate.wait(60)))
                await eventually(lambda: "The watchdog is not fed" in caplog.text)
                while _waiting(sock):
                    pass
                await asyncio.sleep(1)  # more than two of its periods
                assert not _waiting(sock)
                gate.set()
                await stuck
                await fed()
                feeding.cancel()

    asyncio.run(scenario())
    caplog.clear()  # its records hold what they were about


def test_without_a_watchdog_nobody_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WATCHDOG_USEC", raising=False)

    async def scenario() -> None:
        async with Database.open(tmp_path / "tasks.db") as database:
            await asyncio.wait_for(ServiceManager().feed_watchdog(database), 30)

    asyncio.run(scenario())


def _waiting(sock: socket.socket) -> bool:
    try:
        sock.recv(100)
    except BlockingIOError:
        return False
    return True
