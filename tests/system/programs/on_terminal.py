"""Runs a command on a terminal of its own and types a password when it is asked for one: PASSWORD COMMAND [ARGUMENT]…

Prints what the terminal showed; exits with the command's status.
"""

from __future__ import annotations

import os
import pty
import select
import sys
import termios
import time

TIMEOUT = 30.0


def reads_a_password(terminal: int) -> bool:
    """Whether it shows nothing of what is typed; until it does, what is typed may be flushed away."""
    return not termios.tcgetattr(terminal)[3] & termios.ECHO


password, *command = sys.argv[1:]
pid, terminal = pty.fork()
if pid == 0:
    os.execvp(command[0], command)  # noqa: S606 - no shell is wanted
shown, typed, deadline = b"", False, time.monotonic() + TIMEOUT
while time.monotonic() < deadline:
    if not typed and b"assword:" in shown and reads_a_password(terminal):
        os.write(terminal, password.encode() + b"\n")
        typed = True
    if not select.select([terminal], [], [], 0.1)[0]:
        continue
    try:
        data = os.read(terminal, 4096)
    except OSError:  # EIO: everybody on the other side has gone
        break
    if not data:
        break
    shown += data
else:
    os.close(terminal)  # which hangs up
sys.stdout.write(shown.decode("utf-8", "replace").replace("\r\n", "\n"))
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
