"""The shim's own scope, as the kernel shows it: who is in it, what it used, whether memory ran out (cgroups(7)).

Standard library only. Every figure is None where the kernel does not tell it (controller off, older kernel).
"""

from __future__ import annotations

import os
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")


def _words(path: Path) -> list[list[str]]:
    try:
        return [line.split() for line in path.read_text("utf-8").splitlines()]
    except (OSError, ValueError):
        return []


class Scope:
    """The scope named `unit`, when this process is in it; otherwise only this process's own descendants are known."""

    def __init__(self, unit: str) -> None:
        """`unit`: name of the scope. Nothing is looked at before `locate`."""
        self._unit = unit
        self._path: Path | None = None

    def locate(self) -> None:
        """Find the scope; only after systemd has put this process into it."""
        own = next((line[3:] for line in _own_cgroups() if line.startswith("0::")), "")
        # Never act on a cgroup that is not this run's: it would be somebody else's processes that are killed.
        self._path = _ROOT / own.strip("/") if own.endswith("/" + self._unit) else None

    def others(self) -> list[int]:
        """Process ids of everything in the scope but this process."""
        own = os.getpid()
        if self._path is None:
            return _descendants(own)
        found: list[int] = []
        for directory, _, _ in os.walk(self._path):
            words = _words(Path(directory) / "cgroup.procs")
            found += [int(word[0]) for word in words if word and word[0].isdigit()]
        return [pid for pid in found if pid not in (own, 0)]

    def _number(self, name: str) -> int | None:
        words = _words(self._path / name) if self._path else []
        return int(words[0][0]) if words and words[0] and words[0][0].isdigit() else None

    def _keyed(self, name: str, key: str) -> int | None:
        words = _words(self._path / name) if self._path else []
        return next((int(line[1]) for line in words if len(line) == 2 and line[0] == key), None)

    def oom_kills(self) -> int:
        """How many processes of the scope the kernel killed for memory; 0 where it does not tell."""
        return self._keyed("memory.events", "oom_kill") or 0

    def open_memory_events(self) -> int | None:
        """A descriptor that polls as exceptional when `oom_kills` may have changed."""
        if self._path is None:
            return None
        try:
            return os.open(self._path / "memory.events", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None

    def usage(self) -> dict[str, int | None]:
        """`cpu_usec`, `memory_peak` (bytes), `io_read_bytes`, `io_write_bytes`, `tasks_peak`."""
        return {
            "cpu_usec": self._keyed("cpu.stat", "usage_usec"),
            "memory_peak": self._number("memory.peak"),
            "io_read_bytes": self._io("rbytes"),
            "io_write_bytes": self._io("wbytes"),
            "tasks_peak": self._number("pids.peak"),
        }

    def _io(self, key: str) -> int | None:
        if self._path is None or not (self._path / "io.stat").exists():
            return None
        prefix = key + "="
        fields = [word for line in _words(self._path / "io.stat") for word in line[1:] if word.startswith(prefix)]
        return sum(int(word[len(prefix) :]) for word in fields)


def _own_cgroups() -> list[str]:
    try:
        return Path("/proc/self/cgroup").read_text("utf-8").splitlines()
    except OSError:
        return []


def _descendants(pid: int) -> list[int]:
    """Whole tree below `pid`; complete because the shim is a subreaper."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        for path in Path(f"/proc/{waiting.pop()}/task").glob("*/children"):
            children = [int(word) for line in _words(path) for word in line]
            found += children
            waiting += children
    return found
