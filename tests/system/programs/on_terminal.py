"""Runs a command on a terminal of its own and types a password when it is asked for one: PASSWORD COMMAND [ARGUMENT]…

Prints what the terminal showed; exits with the command's status.
"""

from __future__ import annotations

import os
import pty
import select
import sys
import time

TIMEOUT = 30.0

password, *command = sys.argv[1:]
pid, terminal = pty.fork()
if pid == 0:
    os.execvp(command[0], command)  # noqa: S606 - no shell is wanted
shown, typed, deadline = b"", False, time.monotonic() + TIMEOUT
while time.monotonic() < deadline:
    if not select.select([terminal], [], [], 0.2)[0]:
        continue
    try:
        data = os.read(terminal, 4096)
    except OSError:  # EIO: everybody on the other side has gone
        break
    if not data:
        break
    shown += data
    if not typed and b"assword:" in shown:
        os.write(terminal, password.encode() + b"\n")
        typed = True
sys.stdout.write(shown.decode("utf-8", "replace").replace("\r\n", "\n"))
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
