"""The daemon on a machine of its own: its memory has an end (`MemoryMax=`), and its clock is set.

The kernel is a user-mode-linux one, so limits are enforced, and whoever sets the clock sets only its own.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.rig.uml import Machine

MANIFEST = """\
id = "test.patient"
title = "Wait for a word"
description = "Runs until a file is there."
level = "high"
user = "root"
read_write_paths = ["/var/tmp"]
exec = ["/usr/bin/sh", "-c", "while ! test -e /var/tmp/test-patient; do sleep 0.2; done"]
"""


def _until(check: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 120
    while not check():
        assert time.monotonic() < deadline, f"it does not come: {what}"
        time.sleep(0.2)


def _status(machine: Machine, task: str) -> str:
    shown = machine.run("aiosctl", "show", task, "--json", check=False)
    return str(json.loads(shown.stdout)["status"]) if shown.returncode == 0 else "away"


def test_killed_for_memory_it_comes_back_and_tasks_do_not_notice(machine: Machine) -> None:
    machine.write("/etc/aios/capabilities.d/test.patient.toml", MANIFEST)
    machine.run("systemctl", "reload", "aiosd.service")
    task = machine.run("aiosctl", "run", "test.patient").stdout.strip()
    _until(lambda: _status(machine, task) == "working", "it runs")
    limit = ("systemctl", "set-property", "--runtime", "aiosd.service")
    machine.run(*limit, "MemoryMax=16M", "MemorySwapMax=0")
    try:
        machine.run("aiosctl", "list", check=False)

        def killed() -> bool:
            shown = machine.run("systemctl", "show", "aiosd.service", "--property=NRestarts", "--value").stdout
            return int(shown) > 0

        _until(killed, "it is killed")
    finally:
        machine.run(*limit, "MemoryMax=infinity", "MemorySwapMax=infinity")
    _until(lambda: _status(machine, task) == "working", "it serves again, and the task runs on")
    log = machine.run("journalctl", "--unit=aiosd.service", "--output=cat", "--no-pager").stdout
    assert "oom-kill" in log
    machine.run("touch", "/var/tmp/test-patient")
    _until(lambda: _status(machine, task) == "completed", "it comes to its end")
    assert json.loads(machine.run("aiosctl", "show", task, "--json").stdout)["attempt"] == 1
    machine.run("systemctl", "reset-failed", "aiosd.service")


def test_the_clock_is_set(machine: Machine) -> None:
    """Forward by a day and back: a time limit is not over by it, and tomorrow's task starts when it is tomorrow."""
    machine.write("/etc/aios/capabilities.d/test.patient.toml", MANIFEST)
    machine.run("rm", "-f", "/var/tmp/test-patient")
    machine.run("systemctl", "reload", "aiosd.service")
    limited = machine.run("aiosctl", "run", "test.patient", "--timeout=30min").stdout.strip()
    _until(lambda: _status(machine, limited) == "working", "it runs")
    tomorrow = machine.run("date", "--date=+12 hours", "+%s000000").stdout.strip()
    made = machine.run(
        "busctl", "call", "org.aios.TaskManager", "/org/aios/TaskManager", "org.aios.TaskManager1", "CreateTask",
        "ssa{sv}", "system.info.read", "", "1", "not_before", "t", tomorrow,
    ).stdout  # fmt: skip
    later = "task-" + made.partition("/task/task_")[2].rstrip('"\n')
    assert _status(machine, later) == "pending"
    machine.run("date", "--set=+1 day")
    try:
        _until(lambda: _status(machine, later) == "completed", "tomorrow's task has run")
        assert _status(machine, limited) == "working"
    finally:
        machine.run("date", "--set=-1 day")

    def log() -> str:
        return machine.run("journalctl", "--unit=aiosd.service", "--output=cat", "--no-pager").stdout

    _until(lambda: log().count("its clock was set by") >= 2, "both changes were noticed")
    assert "The clocks are compared every" not in log(), "the kernel told of them"
    assert _status(machine, limited) == "working"
    machine.run("touch", "/var/tmp/test-patient")
    _until(lambda: _status(machine, limited) == "completed", "it comes to its end")
