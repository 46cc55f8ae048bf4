"""The capability's program: what joins it to its shim, and its execution when the gate opens.

Standard library only. The shim is by then everything that the program is to be (`sandbox.py`, `privilege.py`), so that
posix_spawn(3) does: it shares the shim's memory until execve(2), where fork(2) would copy its page tables and have both
copy what they touch.
"""

from __future__ import annotations

import os
import signal
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiosd.run.spec import ShimSpec

TASK_FD = 3
"""The number of the chunk protocol's socket in the program."""

_STDOUT_FD, _STDERR_FD, PIPES_END = 4, 5, 6

_PLACED = [(os.POSIX_SPAWN_DUP2, end, number) for end, number in ((_STDOUT_FD, 1), (_STDERR_FD, 2), (TASK_FD, TASK_FD))]

_UMASK = 0o022

_SIGNALS = tuple(signal.valid_signals())
"""All of them mean to the program what they mean to any: execve(2) would hand on what was ignored by anyone before."""


class ProgramError(Exception):
    """The program was not executed; `str()` says why."""


class Pipes:
    """Both ends of everything that joins the program to its shim, none inheritable.

    The program's ends have the numbers from 3 up to `PIPES_END`, whatever was there: the limit on open files may be so
    low that others could not be named any more.
    """

    def __init__(self) -> None:
        """Make them; the program's end of the socket has the number that it will have in the program."""
        self.shim_socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.stdout_read, stdout_write = os.pipe()
        self.stderr_read, stderr_write = os.pipe()
        for end, number in ((theirs.detach(), TASK_FD), (stdout_write, _STDOUT_FD), (stderr_write, _STDERR_FD)):
            os.dup2(end, number, inheritable=False)
            os.close(end)

    def execute(self, spec: ShimSpec, attempt: int) -> int:
        """Start the program; returns its pid. Raises ProgramError when it was not executed.

        It gets what this process is, so the caller is the task's user, real and effective (`Privilege.lent`).
        """
        environment = {**spec.environment, "AIOS_TASK_FD": str(TASK_FD), "AIOS_ATTEMPT": str(attempt)}
        before = os.umask(_UMASK)
        try:
            return os.posix_spawn(
                spec.argv[0], spec.argv, environment, setsid=True, setsigmask=(), setsigdef=_SIGNALS,
                file_actions=_PLACED,
            )  # fmt: skip
        except OSError as error:
            raise ProgramError(f"cannot execute {spec.argv[0]}: {os.strerror(error.errno or 0)}") from None
        except ValueError as error:
            raise ProgramError(f"cannot execute {spec.argv[0]}: {error}") from None
        finally:  # the streams are closed so that the end of the program is their end
            os.umask(before)
            os.closerange(TASK_FD, PIPES_END)
