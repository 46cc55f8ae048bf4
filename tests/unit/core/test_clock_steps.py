"""The kernel's word that the clock was set: the timer that it is asked of, and what becomes of its word.

That the kernel gives it is `tests/limits/test_daemon.py`'s, on a machine whose clock may be set.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path

import pytest

from aiosd.core import clock_steps, time_change
from aiosd.core.time_change import TimeChange
from tests.unit.core.rig import eventually


def _timers() -> dict[int, dict[str, str]]:
    """The timers among the descriptors of this process, each with what the kernel tells of it."""
    found = {}
    for info in Path("/proc/self/fdinfo").iterdir():
        with suppress(FileNotFoundError):  # the one of this directory
            lines = [line.partition(":") for line in info.read_text().splitlines()]
            found[int(info.name)] = {name: value.strip() for name, _, value in lines}
    return {fd: shown for fd, shown in found.items() if "clockid" in shown}


def test_it_is_a_timer_of_the_wall_clock_that_is_never_due() -> None:
    """In the words of proc_pid_fdinfo(5): CLOCK_REALTIME is 0, TFD_TIMER_ABSTIME 01, TFD_TIMER_CANCEL_ON_SET 02."""

    async def scenario() -> None:
        with clock_steps.heard(lambda: None):
            ((fd, shown),) = _timers().items()
            assert (shown["clockid"], shown["settime flags"], shown["ticks"]) == ("0", "03", "0")
            left = int(shown["it_value"].strip("()").split(",")[0])
            assert left > 100 * 366 * 86_400, "a century and more"
            assert not os.get_inheritable(fd)
        assert not _timers()

    asyncio.run(scenario())


def test_each_word_is_passed_on_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        timer = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)  # read like a timer, and told by us
        monkeypatch.setattr(clock_steps, "_timer", lambda: timer)
        told: list[None] = []
        with clock_steps.heard(lambda: told.append(None)):
            for times in (1, 2):
                os.eventfd_write(timer, 1)
                await eventually(lambda times=times: len(told) == times)  # type: ignore[misc]
                await asyncio.sleep(0)
                assert len(told) == times
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(timer)

    asyncio.run(scenario())


def test_where_the_kernel_does_not_tell_the_clocks_are_compared(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused() -> int:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(clock_steps, "_timer", refused)
    monkeypatch.setattr(time_change, "PERIOD", 0.01)
    looks: list[None] = []

    async def scenario() -> None:
        change = TimeChange([])
        monkeypatch.setattr(change, "look", lambda: looks.append(None))
        running = asyncio.create_task(change.run())
        await eventually(lambda: len(looks) > 2)
        running.cancel()

    asyncio.run(scenario())
    assert "does not tell of steps" in caplog.text


def test_what_happened_before_it_listened_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[None] = []

    async def scenario() -> None:
        change = TimeChange([lambda: told.append(None)])
        monkeypatch.setattr(time_change, "apart", lambda: (0.0, 1e9))
        running = asyncio.create_task(change.run())
        await eventually(lambda: bool(told))
        running.cancel()

    asyncio.run(scenario())
