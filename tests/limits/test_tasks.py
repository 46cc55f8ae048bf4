"""A capability's limits, as its manifest says them, hold for its task; and the daemon lives through it.

The programs are written so that they would succeed without the limit. Expected numbers are the manifest's own.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.rig.uml import Machine

MANIFEST = """\
id = "{id}"
title = "Uses more than it may"
description = "A test."
level = "low"
exec = ["/usr/bin/python3", "-I", "-c", '''{program}''']

[limits]
{limits}
"""
EATER = "x = bytearray(200 << 20)"
FORKER = """
import os, time
made = 0
try:
    for _ in range(50):
        if os.fork() == 0:
            time.sleep(5)
            os._exit(0)
        made += 1
except BlockingIOError:
    pass
print(made, flush=True)
os.kill(0, 9)
"""
#: 60 MiB, three threads beside the first, half a second of processor time; prints how much that was.
USER = """
import threading, time
held = bytearray(60 << 20)
for at in range(0, len(held), 4096):
    held[at] = 1
done = threading.Event()
for _ in range(3):
    threading.Thread(target=done.wait).start()
while time.process_time() < 0.5:
    pass
done.set()
print(time.process_time())
"""
#: Its parent is the shim; what it counts is its own processor time over five seconds on the clock.
BURNER = """
import time
used, end = time.process_time(), time.monotonic() + 5
while time.monotonic() < end:
    pass
print((time.process_time() - used) / 5)
"""


@dataclass(frozen=True)
class Outcome:
    """What became of a task, and what its program printed."""

    exit_status: int
    task: str
    stdout: str


def _run(machine: Machine, name: str, program: str, limits: str) -> Outcome:
    """Install the capability, run it as alice at the machine, wait for its end."""
    capability = f"test.{name}"
    text = MANIFEST.format(id=capability, program=program, limits=limits)
    machine.write(f"/etc/aios/capabilities.d/{capability}.toml", text)
    machine.run("systemctl", "reload", "aiosd.service")
    done = machine.run("aiosctl", "run", capability, "--wait", user="alice", seat="seat0", check=False)
    assert "task-" in done.stderr, done.stderr
    shown = machine.run("aiosctl", "show", "last", "--json", user="alice").stdout
    log = machine.run("aiosctl", "logs", "last", "--stdout", user="alice").stdout
    return Outcome(done.returncode, shown, log)


def _main_pid(machine: Machine) -> str:
    return machine.run("systemctl", "show", "aiosd.service", "--property=MainPID", "--value").stdout


def test_too_much_memory_is_an_oom_kill_and_the_daemon_lives(machine: Machine) -> None:
    before = _main_pid(machine)
    outcome = _run(machine, "eater", EATER, 'memory_max = "50M"')
    task = json.loads(outcome.task)
    assert (outcome.exit_status, task["status"], task["reason"]) == (137, "failed", "oom-kill")
    assert _main_pid(machine) == before


def test_what_a_task_used_is_told(machine: Machine) -> None:
    outcome = _run(machine, "user", USER, 'memory_max = "200M"')
    usage = json.loads(outcome.task)["exit"]["usage"]
    assert outcome.exit_status == 0, outcome
    assert 60 << 20 <= usage["memory_peak"] < 200 << 20
    assert 4 <= usage["tasks_peak"] <= 6, "the shim, the program and three threads"
    assert usage["cpu_usec"] >= float(outcome.stdout) * 1_000_000
    assert usage["cpu_usec"] < usage["duration_usec"] * 1.1, "one processor"


def test_forks_stop_at_the_limit(machine: Machine) -> None:
    # ten, less the shim and the program itself
    outcome = _run(machine, "forker", FORKER, "tasks_max = 10")
    assert int(outcome.stdout) == pytest.approx(8, abs=1)


def test_a_burner_gets_its_quota(machine: Machine) -> None:
    outcome = _run(machine, "burner", BURNER, 'cpu_quota = "20%"')
    assert outcome.exit_status == 0
    assert float(outcome.stdout) == pytest.approx(0.20, abs=0.03)
