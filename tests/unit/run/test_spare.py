"""Spare shims: they are there before a run comes, the death of one costs no run, and they end with the launcher."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aiosd.run.forkclient import SPARES, ForkError, ForkServer
from aiosd.run.records import read_exit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.unit.run.shimrig import Rig

CHECKOUT = Path(__file__).resolve().parents[3]


@asynccontextmanager
async def serving(rig: Rig) -> AsyncIterator[ForkServer]:
    """The broker's part, on the rig's fork server."""
    forks = ForkServer(socket.socket(fileno=os.dup(rig.server.fileno())))
    task = asyncio.create_task(forks.serve())
    await until_full(forks)
    yield forks
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def until_full(forks: ForkServer) -> None:
    async with asyncio.timeout(30):
        while len(forks._spares) < SPARES:  # noqa: ASYNC110  nothing tells
            await asyncio.sleep(0.01)


async def run(rig: Rig, forks: ForkServer) -> int:
    """A whole run; the pid of its shim."""
    spec = rig.spec(["/usr/bin/true"])
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        with theirs, rig.runs.create(spec.run, spec.account) as files:
            pid, pidfd = await forks.fork(spec, [theirs.fileno(), *files.fds])
        ours.send(b'{"type": "go", "id": 1}')
        assert select.select([pidfd], [], [], 30)[0]
        os.close(pidfd)
    record = read_exit(rig.runs.paths(spec.run).exit)
    assert record is not None
    assert record.exit_status == 0
    return pid


def test_a_run_gets_a_spare_and_another_takes_its_place(rig: Rig) -> None:
    async def scenario() -> None:
        async with serving(rig) as forks:
            spares = [spare.pid for spare in forks._spares]
            assert await run(rig, forks) == spares[0]
            await forks.refill()
            await until_full(forks)
            assert [spare.pid for spare in forks._spares][:-1] == spares[1:]

    asyncio.run(scenario())


def test_the_death_of_every_spare_costs_no_run(rig: Rig) -> None:
    async def scenario() -> None:
        async with serving(rig) as forks:
            spares = list(forks._spares)
            for spare in spares:
                os.kill(spare.pid, signal.SIGKILL)
                assert select.select([spare.pidfd], [], [], 30)[0]
            assert await run(rig, forks) not in {spare.pid for spare in spares}

    asyncio.run(scenario())


def test_more_runs_than_spares(rig: Rig) -> None:
    async def scenario() -> None:
        async with serving(rig) as forks:
            async with asyncio.TaskGroup() as group:
                shims = [group.create_task(run(rig, forks)) for _ in range(3 * SPARES)]
            assert len({task.result() for task in shims}) == len(shims)

    asyncio.run(scenario())


def test_spares_end_with_the_launcher(rig: Rig) -> None:
    async def scenario() -> None:
        async with serving(rig) as forks:
            pidfds = [os.dup(spare.pidfd) for spare in forks._spares]
        for pidfd in pidfds:
            assert select.select([pidfd], [], [], 30)[0], "it has outlived the launcher"
            os.close(pidfd)

    asyncio.run(scenario())


def test_without_a_fork_server_a_run_is_refused(rig: Rig) -> None:
    async def scenario() -> None:
        forks = ForkServer(socket.socket(fileno=os.dup(rig.server.fileno())))
        serving_ended = asyncio.create_task(forks.serve())
        await until_full(forks)
        os.kill(rig._spawned.pid, signal.SIGKILL)
        with pytest.raises(ForkError, match="the fork server ended"):
            await serving_ended
        with pytest.raises(ForkError):
            await run(rig, forks)

    asyncio.run(scenario())


HURRIED = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from aiosd.run import rehearsal
rehearsal._SECONDS = -1.0
from aiosd.run.forkserver import main
main()
"""


def test_a_rehearsal_that_does_not_end_keeps_no_run_from_starting() -> None:
    """The fork server begins anew without one, on the same socket, and says so."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        argv = [sys.executable, "-I", "-S", "-c", HURRIED, str(CHECKOUT), str(theirs.fileno())]
        with subprocess.Popen(argv, pass_fds=(theirs.fileno(),), stderr=subprocess.PIPE, text=True) as server:
            theirs.close()
            ours.settimeout(30)
            ours.send(b"1")
            data, fds, _, _ = socket.recv_fds(ours, 4096, 2)
            shown, end = Path(f"/proc/{json.loads(data)['pid']}/cmdline"), time.monotonic() + 30
            while not shown.read_bytes().startswith(b"aios-shim"):
                assert time.monotonic() < end, shown.read_bytes()
                time.sleep(0.01)
            for fd in fds:
                os.close(fd)
            ours.close()
            _, told = server.communicate(timeout=30)
    assert told == "the rehearsal of a run does not end; shims will be larger and slower\n"
    assert server.returncode == 0
