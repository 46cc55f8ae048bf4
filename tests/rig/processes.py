"""Processes by pid and start time, so that a pid which was used again is never mistaken for the one that was meant."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Self


def start_time(pid: int) -> int | None:
    """Start time in clock ticks since boot (proc(5), field 22). None: ended, waiting to be reaped or not."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in {"Z", "X"} else int(fields[19])


@dataclass(frozen=True)
class Process:
    """One process, for good."""

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> Self:
        """The process that has this pid now; ProcessLookupError when there is none."""
        started = start_time(pid)
        if started is None:
            raise ProcessLookupError(pid)
        return cls(pid, started)

    @classmethod
    def own(cls) -> Self:
        """This process."""
        return cls.of(os.getpid())

    @classmethod
    def load(cls, path: Path) -> Self | None:
        """What `save` wrote; None when there is no such file."""
        try:
            pid, started = path.read_text().split()
        except (FileNotFoundError, ValueError):
            return None
        return cls(int(pid), int(started))

    def save(self, path: Path) -> None:
        """Remember it in a file."""
        path.write_text(f"{self.pid} {self.started}\n")

    def alive(self) -> bool:
        """Whether it has not ended."""
        return start_time(self.pid) == self.started

    def kill(self, sig: int) -> None:
        """Signal it; nothing happens when it has ended."""
        if self.alive():
            os.kill(self.pid, sig)
