"""The daemon's own memory has an end (`MemoryMax=`): it is killed and comes back, and tasks do not notice."""

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
