"""What the parts of the system used, as the kernel counts it: by cgroup, so that processes that are gone count too."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path("/sys/fs/cgroup")

PARTS = {
    "aiosd": "system.slice/aiosd.service",
    "launcher and supervisors at their start": "system.slice/aios-launcher.service",
    "tasks and supervisors": "aios.slice/aios-tasks.slice",
    "systemd": "init.scope",
    "bus": "system.slice/dbus.service",
    "journal": "system.slice/systemd-journald.service",
}
SERVICES = ("aiosd", "launcher and supervisors at their start")


def times() -> dict[str, float]:
    """Seconds of processor time so far, by part (cgroups(7), cpu.stat)."""
    return {name: _usage(ROOT / path) for name, path in PARTS.items()}


def since(before: dict[str, float]) -> dict[str, float]:
    """Seconds since then."""
    return {name: now - before[name] for name, now in times().items()}


def _usage(directory: Path) -> float:
    try:
        words = (directory / "cpu.stat").read_text().split()
    except FileNotFoundError:  # the slice of the tasks comes with the first task
        return 0.0
    return int(words[words.index("usage_usec") + 1]) / 1e6


def pids(path: str) -> list[int]:
    """Processes of a cgroup and those below it."""
    return [int(word) for procs in sorted((ROOT / path).rglob("cgroup.procs")) for word in procs.read_text().split()]


def _status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def resident(name: str) -> float:
    """MiB of resident memory of a part."""
    return sum(int(_status(pid)["VmRSS"].split()[0]) for pid in pids(PARTS[name])) / 1024


def share(names: Iterable[str], without: str) -> float:
    """MiB of memory of parts of the system, what is shared counted once in all (PSS, proc(5)).

    `without`: the name of the tasks' own program, which is not ours.
    """
    total = 0
    for pid in (pid for name in names for pid in pids(PARTS[name])):
        if Path(f"/proc/{pid}/comm").read_text().strip() != without:
            words = Path(f"/proc/{pid}/smaps_rollup").read_text().split()
            total += int(words[words.index("Pss:") + 1])
    return total / 1024


def wakeups(path: str) -> int:
    """Voluntary context switches of all threads of a cgroup so far: how often one of them waited for something."""
    total = 0
    for pid in pids(path):
        for task in Path(f"/proc/{pid}/task").iterdir():
            total += int(_status(int(task.name))["voluntary_ctxt_switches"])
    return total
