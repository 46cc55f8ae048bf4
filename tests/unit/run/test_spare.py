"""The spare shim: it is there before a run comes, its death costs no run, and it ends with the fork server."""

from __future__ import annotations

import os
import select
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.unit.run.shimrig import Rig


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _spare(rig: Rig) -> int:
    """The one child of the fork server that has not been given a run yet."""
    server = rig._spawned.pid
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        spares = [pid for pid in _children(server) if pid not in {run.pid for run in rig._running}]
        if spares:
            return spares[0]
        time.sleep(0.01)
    raise AssertionError("no spare shim came up")


def test_a_run_gets_the_spare_and_another_takes_its_place(rig: Rig) -> None:
    spare = _spare(rig)
    run = rig.start(rig.spec(["/usr/bin/true"]))
    assert run.pid == spare
    assert run.go().wait().exit_status == 0
    assert _spare(rig) != spare


def test_the_death_of_the_spare_costs_no_run(rig: Rig) -> None:
    spare = _spare(rig)
    pidfd = os.pidfd_open(spare)
    os.kill(spare, signal.SIGKILL)
    assert select.select([pidfd], [], [], 10)[0]
    os.close(pidfd)
    run = rig.run(["/usr/bin/true"])
    assert run.pid != spare
    assert run.wait().exit_status == 0


def test_the_spare_ends_with_the_fork_server(rig: Rig) -> None:
    pidfd = os.pidfd_open(_spare(rig))
    os.kill(rig._spawned.pid, signal.SIGKILL)
    assert select.select([pidfd], [], [], 10)[0], "it has outlived the fork server"
    os.close(pidfd)
