"""The units: the daemon is there when it is asked, comes back whatever happens to it, and tasks are not tied to it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.rig.container import Container

PING = ("busctl", "call", "org.aios.TaskManager", "/org/aios/TaskManager", "org.freedesktop.DBus.Peer", "Ping")


def _show(box: Container, unit: str, name: str) -> str:
    return box.run("systemctl", "show", unit, f"--property={name}", "--value").stdout.strip()


def _eventually_active(box: Container, *, restarts: int) -> None:
    deadline = time.monotonic() + 60
    while (
        int(_show(box, "aiosd.service", "NRestarts")) < restarts
        or _show(box, "aiosd.service", "ActiveState") != "active"
    ):
        assert time.monotonic() < deadline, "aiosd.service did not come back"
        time.sleep(0.1)


def _processes(box: Container, scope: str) -> str:
    """Pid and name of everything in the scope."""
    group = f"/sys/fs/cgroup/{_show(box, scope, 'ControlGroup')}/cgroup.procs"
    return box.sh(f"for pid in $(cat {group}); do echo $pid $(cat /proc/$pid/comm); done", check=False)


@pytest.fixture
def scope(box: Container) -> str:
    """The scope of a task of root's, with its program at work, which takes a minute."""
    box.run("aiosctl", "exec", "--", "/usr/bin/sleep", "60")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        listed = box.sh("systemctl list-units --plain --no-legend --state=running 'aios-task-*.scope'").split()
        if listed and _processes(box, listed[0]).count("sleep") == 1:
            return listed[0]
        time.sleep(0.1)
    pytest.fail("no task came up")


def test_it_says_ready_and_is_watched(box: Container) -> None:
    assert _show(box, "aiosd.service", "ActiveState") == "active"
    assert _show(box, "aiosd.service", "WatchdogUSec") == "30s"
    assert _show(box, "aiosd.service", "StartLimitIntervalUSec") == "0"


def test_it_runs_as_nobody_in_particular(box: Container) -> None:
    pid = _show(box, "aiosd.service", "MainPID")
    status = dict(line.split(":\t", 1) for line in box.read(f"/proc/{pid}/status").splitlines() if ":\t" in line)
    assert box.run("id", "-u", "aiosd").stdout.strip() in status["Uid"].split()
    assert {status[name] for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0000000000000000"}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")


def test_the_bus_starts_it(box: Container) -> None:
    box.run("systemctl", "stop", "aiosd.service")
    box.run(*PING, user="alice")
    _eventually_active(box, restarts=0)


def test_it_comes_back_when_killed(box: Container) -> None:
    before = int(_show(box, "aiosd.service", "NRestarts"))
    box.run("systemctl", "kill", "--signal=KILL", "aiosd.service")
    _eventually_active(box, restarts=before + 1)
    box.run(*PING, user="alice")


def test_a_reload_ends_and_keeps_the_process(box: Container) -> None:
    pid = _show(box, "aiosd.service", "MainPID")
    box.run("systemctl", "reload", "aiosd.service")
    assert _show(box, "aiosd.service", "MainPID") == pid
    assert _show(box, "aiosd.service", "ActiveState") == "active"


def test_what_the_bus_does_not_let_through(box: Container) -> None:
    call = ("busctl", "call", "org.aios.TaskManager", "/org/aios/TaskManager", "org.example.Other", "Foo")
    assert "Access denied" in box.run(*call, user="alice", check=False).stderr


@pytest.mark.parametrize("unit", ["aiosd.service", "aios-launcher.service"])
def test_a_task_outlives_both_services(box: Container, scope: str, unit: str) -> None:
    before = _processes(box, scope)
    box.run("systemctl", "kill", "--signal=KILL", unit)
    box.run("systemctl", "restart", "aios-launcher.service", "aiosd.service")
    box.run("systemctl", "stop", unit)
    assert _show(box, scope, "ActiveState") == "active"
    assert _processes(box, scope) == before
    box.run("systemctl", "start", "aios-launcher.socket", "aiosd.service")
    box.run("aiosctl", "cancel", "last")
    assert box.run("aiosctl", "wait", "last", check=False).returncode != 0
