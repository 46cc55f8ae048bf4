"""`top` and the control groups that it reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aiosd.cli import cgroup
from aiosd.cli.cgroup import Sample, cpu_percent, sample
from tests.unit.cli.daemon import ONE, TWO, Daemon

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.unit.cli.conftest import Ran

GROUP = "/aios.slice/aios-task-r.scope"


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files as the kernel writes them (Documentation/admin-guide/cgroup-v2.rst)."""
    folder = tmp_path / "cgroup" / GROUP[1:]
    folder.mkdir(parents=True)
    (folder / "cpu.stat").write_text("usage_usec 5000\nuser_usec 4000\nsystem_usec 1000\n")
    (folder / "memory.current").write_text("1048576\n")
    (folder / "pids.current").write_text("3\n")
    monkeypatch.setattr(cgroup, "ROOT", tmp_path / "cgroup")
    monkeypatch.setattr(cgroup.sample, "__defaults__", (tmp_path / "cgroup",))
    return folder


def test_sample(group: Path) -> None:
    found = sample(GROUP)
    assert (found.cpu, found.memory, found.tasks) == (5000, 1048576, 3)


@pytest.mark.parametrize("name", ["/none", "/../..", "relative", ""])
def test_no_such_group(group: Path, name: str) -> None:
    found = sample(name)
    assert (found.cpu, found.memory, found.tasks) == (None, None, None)


def test_cpu_percent() -> None:
    assert cpu_percent(Sample(1, 1_000_000, None, None), Sample(3, 1_500_000, None, None)) == 25
    assert cpu_percent(Sample(1, None, None, None), Sample(3, 1, None, None)) is None
    assert cpu_percent(Sample(1, 5, None, None), Sample(1, 5, None, None)) is None


def test_once(aiosctl: Callable[..., Ran], daemon: Daemon, group: Path) -> None:
    daemon.add(ONE, run={"unit": "aios-task-r.scope", "control_group": GROUP})
    daemon.add(TWO, run={"unit": "aios-task-s.scope", "control_group": "/aios.slice/gone.scope"})
    head, first, second = aiosctl("top", "--once").out.splitlines()
    assert head.split()[3:6] == ["%CPU", "MEMORY", "TASKS"]
    assert first.split()[0] == ONE
    assert first.split()[3:6] == ["0.0", "1.0M", "3"]
    assert second.split()[3:6] == ["-", "-", "-"]
    assert daemon.options("ListTasks")["status"] == ["working", "paused", "input_required", "auth_required"]


def test_json(aiosctl: Callable[..., Ran], daemon: Daemon, group: Path) -> None:
    daemon.add(ONE, run={"unit": "aios-task-r.scope", "control_group": GROUP})
    daemon.add(TWO, "pending")
    (row,) = aiosctl("top", "--once", "--json").rows("tasks")
    assert row["memory_bytes"] == 1048576
    assert row["control_group"] == GROUP
