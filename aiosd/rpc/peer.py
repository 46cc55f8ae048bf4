"""Who is at the other end of a Unix socket, by the kernel's word (unix(7)): its user, and a hold on its process.

The pidfd is of the very process that connected and cannot come to mean a later one. Before Linux 6.5 there is no
SO_PEERPIDFD; the pidfd is then opened by number, right after the connection was accepted. The start time, which polkit
before version 124 goes by, is in /proc and there only for who may see it; the daemon's own unit hides it, so it is 0
there, which those old versions answer by a look-up of their own.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from aiosd.auth.caller import Caller, ProcessSubject
from aiosd.model.later import dataclass

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

SO_PEERPIDFD = getattr(socket, "SO_PEERPIDFD", 77)
"""asm-generic/socket.h, Linux 6.5; named by Python 3.14."""
_CREDENTIALS = struct.Struct("=iII")
_START_TIME = 19
"""Field 22 of proc_pid_stat(5), counted after the command's closing bracket."""


class PeerGoneError(Exception):
    """The process that connected has ended."""


@dataclass(slots=True)
class Peer:
    """The process at the other end. Its pidfd is open until the connection and every call of it have let go."""

    uid: int
    pid: int
    pidfd: int
    start_time: int = 0
    _holders: int = field(default=0)

    @classmethod
    def of(cls, connection: socket.socket) -> Self:
        """Of an accepted connection. Raises PeerGoneError."""
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, uid, _ = _CREDENTIALS.unpack(raw)
        return cls(uid, pid, _pidfd(connection, pid), _start_time(pid))

    def caller(self, *, interactive: bool = False) -> Caller:
        """This process as the author of a call."""
        subject = ProcessSubject(self.pid, self.start_time, self.uid, self.pidfd)
        return Caller(self.uid, subject, interactive=interactive)

    def __enter__(self) -> Self:
        """Hold the pidfd open."""
        self._holders += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of it; the last one closes it."""
        self._holders -= 1
        if self._holders == 0:
            os.close(self.pidfd)


def _pidfd(connection: socket.socket, pid: int) -> int:
    try:
        return connection.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD)
    except OSError as error:
        if error.errno != errno.ENOPROTOOPT:  # the kernel knows the option, and there is no such process any more
            raise PeerGoneError(f"process {pid} has ended") from None
    try:
        return os.pidfd_open(pid)
    except OSError:
        raise PeerGoneError(f"process {pid} has ended") from None


def _start_time(pid: int) -> int:
    """In clock ticks after boot; 0 where it cannot be seen."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("ascii", "replace")
        return int(text.rpartition(")")[2].split()[_START_TIME])
    except (OSError, ValueError, IndexError):
        return 0
