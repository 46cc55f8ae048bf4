"""What a scope uses, read from its control group (Linux cgroup v2, Documentation/admin-guide/cgroup-v2.rst).

Any user may read these files. Where a controller is not enabled its files are absent: the field is None then.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

ROOT = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at a control group. `moment` in seconds (monotonic), `cpu` in µs, `memory` in bytes."""

    moment: float
    cpu: int | None
    memory: int | None
    tasks: int | None


def sample(control_group: str, root: Path = ROOT) -> Sample:
    """Look at a control group, named as systemd does (`/aios.slice/…`)."""
    moment = time.monotonic()
    parts = PurePosixPath(control_group).parts
    if not control_group.startswith("/") or ".." in parts:
        return Sample(moment, None, None, None)
    folder = root.joinpath(*parts[1:])
    return Sample(
        moment,
        _keyed(folder / "cpu.stat", "usage_usec"),
        _number(folder / "memory.current"),
        _number(folder / "pids.current"),
    )


def cpu_percent(before: Sample, after: Sample) -> float | None:
    """Percent of one CPU used between two looks."""
    passed = after.moment - before.moment
    if before.cpu is None or after.cpu is None or passed <= 0:
        return None
    return max(after.cpu - before.cpu, 0) / (passed * 1e6) * 100


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return ""


def _number(path: Path) -> int | None:
    text = _read(path).strip()
    return int(text) if text.isdigit() else None


def _keyed(path: Path, key: str) -> int | None:
    for line in _read(path).splitlines():
        name, _, value = line.partition(" ")
        if name == key and value.isdigit():
            return int(value)
    return None
