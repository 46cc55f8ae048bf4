"""The capability's program: what joins it to its shim, and its execution when the gate opens.

Standard library only. The shim has by then entered everything that the program is to run in (`sandbox.py`); what is
left is the user. Between fork(2) and execve(2) no Python runs: the child would copy what it touches of the shim's
memory.
"""

from __future__ import annotations

import os
import socket
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiosd.run.spec import ShimSpec

TASK_FD = 3
"""The number of the chunk protocol's socket in the program."""

_UMASK = 0o022


class ProgramError(Exception):
    """The program was not executed; `str()` says why."""


class Pipes:
    """Both ends of everything that joins the program to its shim, none inheritable. Takes number 3, whatever it was."""

    def __init__(self) -> None:
        """Make them; the program's end of the socket has the number that it will have in the program."""
        self.shim_socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            self._program_socket = os.dup2(theirs.fileno(), TASK_FD, inheritable=False)
        self.stdout_read, self._stdout_write = os.pipe()
        self.stderr_read, self._stderr_write = os.pipe()

    def execute(self, spec: ShimSpec, attempt: int) -> int:
        """Start the program; returns its pid. Raises ProgramError when it was not executed.

        From what the shim is (`privilege.py`) it takes no privilege to become the task's user: setreuid(2) may take the
        effective user as the real one. Between that and execve(2) the child can be signalled by its user, as the
        program can be from then on; it cannot be traced, because memory that is not dumpable stays so in a fork.
        """
        environment = {**spec.environment, "AIOS_TASK_FD": str(TASK_FD), "AIOS_ATTEMPT": str(attempt)}
        try:
            program = subprocess.Popen(  # noqa: S603 - the manifest's argv, no shell
                spec.argv, env=environment, stdout=self._stdout_write, stderr=self._stderr_write, pass_fds=(TASK_FD,),
                user=spec.account.uid, umask=_UMASK, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise ProgramError(f"cannot execute {spec.argv[0]}: {os.strerror(error.errno or 0)}") from None
        except (ValueError, subprocess.SubprocessError) as error:
            raise ProgramError(f"cannot execute {spec.argv[0]}: {error}") from None
        finally:  # so that the end of the program is the end of the streams
            for fd in (self._program_socket, self._stdout_write, self._stderr_write):
                os.close(fd)
        program.returncode = 0  # the supervisor waits for all of its children, this one among them
        return program.pid
