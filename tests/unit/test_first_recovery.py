"""How long a daemon that starts waits for its tasks to be recovered before it serves."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest

from aiosd import app

if TYPE_CHECKING:
    from aiosd.app import Daemon


@pytest.fixture
def starting(monkeypatch: pytest.MonkeyPatch) -> Daemon:
    """A daemon at that point of its start, with little patience."""
    monkeypatch.setattr(app, "LAUNCHER_AWAY", 0.05)
    return app.Daemon(app._options([]))


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_launcher_that_takes_its_time_is_waited_for(starting: Daemon, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        waiting = asyncio.create_task(starting._first_recovery())
        await asyncio.sleep(0.2)
        assert not waiting.done()
        starting._recovered.set()
        await waiting

    asyncio.run(scenario())
    assert warnings(caplog) == []


def test_one_that_refuses_keeps_nobody_out(starting: Daemon, caplog: pytest.LogCaptureFixture) -> None:
    starting._recovery_failed = True
    asyncio.run(starting._first_recovery())
    assert warnings(caplog) == ["Serving before recovery is done: the launcher does not answer"]


def test_nobody_waits_for_ever(
    starting: Daemon, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "LAUNCHER_SLOW", 0.1)
    asyncio.run(starting._first_recovery())
    assert len(warnings(caplog)) == 1
