"""The ground that the other tests here stand on: this kernel enforces what a scope asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.rig.uml import Machine

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
print(made)
"""
BURNER = """
import time
used, end = time.process_time(), time.monotonic() + 5
while time.monotonic() < end:
    pass
print((time.process_time() - used) / 5)
"""


def _scope(*properties: str) -> list[str]:
    return ["systemd-run", "--quiet", "--scope", *(f"--property={text}" for text in properties), "python3", "-c"]


def test_controllers(bare_machine: Machine) -> None:
    controllers = bare_machine.read("/sys/fs/cgroup/cgroup.controllers").split()
    assert {"cpu", "io", "memory", "pids"} <= set(controllers)


def test_memory_max_kills(bare_machine: Machine) -> None:
    done = bare_machine.run(*_scope("MemoryMax=50M", "MemorySwapMax=0"), EATER, check=False)
    assert done.returncode == 137


def test_tasks_max_refuses_forks(bare_machine: Machine) -> None:
    done = bare_machine.run(*_scope("TasksMax=10"), FORKER)
    assert int(done.stdout) == 9


def test_cpu_quota_holds(bare_machine: Machine) -> None:
    done = bare_machine.run(*_scope("CPUQuota=20%"), BURNER)
    assert float(done.stdout) == pytest.approx(0.20, abs=0.03)
