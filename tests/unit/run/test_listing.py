"""Listing the runs of a machine that keeps thousands of directories: in pages, and never in silence."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aiosd.model.ids import Prefix, new_id
from aiosd.run.client import LauncherError, LauncherErrorCode
from aiosd.run.protocol import LIST_PAGE
from tests.unit.run.fakesystemd import FakeSystemd
from tests.unit.run.test_broker import Launcher, request

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def launcher() -> Iterator[Launcher]:
    if os.geteuid() != 0:
        pytest.skip("needs root") if not os.environ.get("CI") else pytest.fail("needs root")
    with tempfile.TemporaryDirectory(prefix="aiosd-test-", dir="/var/lib") as state:
        yield Launcher(Path(state), FakeSystemd())


def test_more_runs_than_fit_into_a_packet_are_listed(launcher: Launcher) -> None:
    """A machine keeps the logs of its finished tasks for weeks."""
    launcher.install("test.true", ["/bin/true"])
    kept = sorted(new_id(Prefix.RUN) for _ in range(2 * LIST_PAGE))
    for run in kept:
        launcher.runs.paths(run).directory.mkdir()

    async def scenario() -> None:
        async with launcher.serve() as client:
            wanted = request("test.true")
            run = await client.start(wanted)
            assert [info.run for info in await client.list_runs()] == sorted([*kept, wanted.run])
            living = await client.list_runs(living=True)
            assert [(info.run, info.active) for info in living] == [(wanted.run, True)]
            run.control.close()
            os.close(run.pidfd)
            await client.stop(wanted.run)

    asyncio.run(scenario())


def test_an_answer_that_cannot_be_sent_is_an_error_and_no_silence(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aiosd.run.broker.LIST_PAGE", 5000)
    for _ in range(1500):
        launcher.runs.paths(new_id(Prefix.RUN)).directory.mkdir()

    async def scenario() -> None:
        async with launcher.serve() as client:
            with pytest.raises(LauncherError, match="longer than") as caught:
                await client.list_runs()
            assert caught.value.code is LauncherErrorCode.LAUNCH

    asyncio.run(scenario())
