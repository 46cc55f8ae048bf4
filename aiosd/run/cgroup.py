"""The shim's own scope, as the kernel shows it: who is in it, what it used, whether memory ran out (cgroups(7)).

Standard library only. Every figure is None where the kernel does not tell it (controller off, older kernel).
"""

from __future__ import annotations

import os
from contextlib import suppress

_ROOT = "/sys/fs/cgroup"


def _text(path: str) -> str:
    """A small file of the kernel's, "" when there is none."""
    data = b""
    with suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            while more := os.read(fd, 65536):
                data += more
        finally:
            os.close(fd)
    return data.decode("utf-8", "replace")


def _words(path: str) -> list[list[str]]:
    return [line.split() for line in _text(path).splitlines()]


class Scope:
    """The scope named `unit`, when this process is in it; otherwise only this process's own descendants are known."""

    def __init__(self, unit: str) -> None:
        """`unit`: name of the scope. Nothing is looked at before `locate`."""
        self._unit = unit
        self._path: str | None = None

    def locate(self) -> None:
        """Find the scope; only after systemd has put this process into it."""
        own = next((line[3:] for line in _text("/proc/self/cgroup").splitlines() if line.startswith("0::")), "")
        # Never act on a cgroup that is not this run's: it would be somebody else's processes that are killed.
        self._path = f"{_ROOT}/{own.strip('/')}" if own.endswith("/" + self._unit) else None

    def others(self) -> list[int]:
        """Process ids of everything in the scope but this process."""
        own = os.getpid()
        if self._path is None:
            return _descendants(own)
        if self._number("pids.current") == 1:
            return []
        found: list[int] = []
        waiting = [self._path]
        while waiting:
            directory = waiting.pop()
            found += [int(word) for word in _text(f"{directory}/cgroup.procs").split() if word.isdigit()]
            waiting += _directories(directory)
        return [pid for pid in found if pid not in (own, 0)]

    def _number(self, name: str) -> int | None:
        text = _text(f"{self._path}/{name}").strip() if self._path else ""
        return int(text) if text.isdigit() else None

    def _keyed(self, name: str, key: str) -> int | None:
        words = _words(f"{self._path}/{name}") if self._path else []
        return next((int(line[1]) for line in words if len(line) == 2 and line[0] == key), None)

    def oom_kills(self) -> int:
        """How many processes of the scope the kernel killed for memory; 0 where it does not tell."""
        return self._keyed("memory.events", "oom_kill") or 0

    def open_memory_events(self) -> int | None:
        """A descriptor that polls as exceptional when `oom_kills` may have changed."""
        if self._path is None:
            return None
        try:
            return os.open(f"{self._path}/memory.events", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None

    def usage(self) -> dict[str, int | None]:
        """`cpu_usec`, `memory_peak` (bytes), `io_read_bytes`, `io_write_bytes`, `tasks_peak`."""
        disks = _words(f"{self._path}/io.stat") if self._path and os.path.exists(f"{self._path}/io.stat") else None
        return {
            "cpu_usec": self._keyed("cpu.stat", "usage_usec"),
            "memory_peak": self._number("memory.peak"),
            "io_read_bytes": None if disks is None else _sum(disks, "rbytes="),
            "io_write_bytes": None if disks is None else _sum(disks, "wbytes="),
            "tasks_peak": self._number("pids.peak"),
        }


def _sum(lines: list[list[str]], prefix: str) -> int:
    return sum(int(word[len(prefix) :]) for line in lines for word in line[1:] if word.startswith(prefix))


def _directories(path: str) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:  # gone meanwhile
        return []


def _descendants(pid: int) -> list[int]:
    """Whole tree below `pid`; complete because the shim is a subreaper."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        for thread in _directories(f"/proc/{waiting.pop()}/task"):
            children = [int(word) for word in _text(f"{thread}/children").split()]
            found += children
            waiting += children
    return found
