"""Who asks. A caller's identity comes from the bus or the socket's peer credentials, never from a parameter."""

from __future__ import annotations

from aiosd.model.later import dataclass


@dataclass(frozen=True, slots=True)
class BusSubject:
    """A caller on the system bus: polkit's `system-bus-name` subject, the message's own sender."""

    name: str


@dataclass(frozen=True, slots=True)
class ProcessSubject:
    """The peer of a Unix socket: polkit's `unix-process` subject. `start_time` in clock ticks (proc_pid_stat(5))."""

    pid: int
    start_time: int
    uid: int
    pidfd: int | None = None


Subject = BusSubject | ProcessSubject


@dataclass(frozen=True, slots=True)
class Caller:
    """One request's author. `interactive`: the person behind it may be asked."""

    uid: int
    subject: Subject
    interactive: bool = False

    @property
    def is_root(self) -> bool:
        """Whether polkit need not be asked (design: permissions)."""
        return self.uid == 0
