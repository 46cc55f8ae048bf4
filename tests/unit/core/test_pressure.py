"""Pressure: read as the kernel writes it; tasks of low priority wait for its end and say so, others start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from aiosd.core.admission import AdmissionLimits, Candidate, Running, WaitReason, choose
from aiosd.core.pressure import FRESH, Pressure, reason_for, some
from tests.unit.core.rig import Config

if TYPE_CHECKING:
    from pathlib import Path

# https://docs.kernel.org/accounting/psi.html
KERNELS = "some avg10=61.50 avg60=0.22 avg300=0.05 total=1234\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"


def test_the_kernels_line_is_read() -> None:
    assert some(KERNELS) == 61.5
    assert some("full avg10=3.00 avg60=0.00\n") is None
    assert some("") is None


def test_memory_comes_before_cpu_and_no_limit_is_none() -> None:
    config = Config(memory_pressure=60, cpu_pressure=90)
    assert reason_for(60.0, 99.0, config) is WaitReason.MEMORY_PRESSURE
    assert reason_for(59.9, 90.0, config) is WaitReason.CPU_PRESSURE
    assert reason_for(59.9, 89.9, config) is None
    assert reason_for(None, None, config) is None
    assert reason_for(100.0, 100.0, Config(memory_pressure=None, cpu_pressure=None)) is None


def test_it_is_looked_at_once_a_second_and_its_end_is_seen(tmp_path: Path) -> None:
    now = [0.0]
    pressure = Pressure(tmp_path, lambda: now[0])
    (tmp_path / "memory").write_text(KERNELS)
    config = Config(memory_pressure=60)
    assert pressure.reason(config) is WaitReason.MEMORY_PRESSURE
    (tmp_path / "memory").write_text(KERNELS.replace("61.50", "1.00"))
    assert pressure.reason(config) is WaitReason.MEMORY_PRESSURE
    now[0] += FRESH
    assert pressure.reason(config) is None


def test_a_kernel_without_it_holds_nobody_back(tmp_path: Path) -> None:
    assert Pressure(tmp_path).reason(Config(memory_pressure=1, cpu_pressure=1)) is None


@given(st.lists(st.integers(0, 3), max_size=20), st.integers(1, 20))
def test_low_waits_and_says_why_all_others_are_as_without(priorities: list[int], room: int) -> None:
    queue = [Candidate(f"t{number}", number, priority, f"x{number}") for number, priority in enumerate(priorities)]
    running: list[Running] = []
    limits = AdmissionLimits(room, 3)
    calm = choose(queue, running, limits, 0)
    pressed = choose(queue, running, AdmissionLimits(room, 3, WaitReason.MEMORY_PRESSURE), 0)
    low = {task.id for task in queue if task.priority == 0}
    assert [name for name in calm.start if name not in low] == list(pressed.start)
    assert {name for name, why in pressed.waiting.items() if why is WaitReason.MEMORY_PRESSURE} == low


@given(st.lists(st.integers(0, 3), max_size=20), st.integers(0, 3))
def test_on_a_machine_that_is_busy_for_days_low_ones_start_one_at_a_time(priorities: list[int], busy: int) -> None:
    queue = [Candidate(f"t{number}", number, priority, f"x{number}") for number, priority in enumerate(priorities)]
    running = [Running(f"r{number}", f"y{number}") for number in range(busy)]
    low = [task.id for task in queue if task.priority == 0]
    others = [task.id for task in queue if task.priority]
    pressed = choose(queue, running, AdmissionLimits(100, 3, WaitReason.CPU_PRESSURE), 0)
    assert {name for name in pressed.start if name not in low} == set(others)
    started = low[:1] if not (busy or others) else []
    assert [name for name in pressed.start if name in low] == started
    assert pressed.waiting == {name: WaitReason.CPU_PRESSURE for name in low if name not in started}
