"""Where the program `aiosctl` begins: what has to be so before its modules are imported, a tenth of a second.

Ctrl-C meanwhile ends the process as the kernel does it, without a traceback. Standard streams that the caller has
closed are there again, so that no socket of ours becomes one of them: what is written to a closed stdout fails, as in
other programs, and what goes to stderr is lost.
"""

from __future__ import annotations

import io
import os
import signal
import sys

TYPE_CHECKING = False  # as type checkers know it: Ctrl-C while something is imported here ends in a traceback
if TYPE_CHECKING:
    from typing import NoReturn


def main() -> NoReturn:
    """The program."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a shell's background job has it ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    reopen_streams()
    from aiosd.cli.main import main as begin

    begin()


def reopen_streams() -> None:
    """Descriptors 0, 1 and 2 are open from now on; stdout never refuses a character for its encoding."""
    if sys.stdin is None:
        os.open(os.devnull, os.O_RDONLY)
        sys.stdin = open(0, encoding="utf-8")
    if sys.stdout is None:
        os.open(os.devnull, os.O_RDONLY)  # a write fails: its caller wants to know that nothing came
        sys.stdout = open(1, "w", encoding="utf-8")
    if sys.stderr is None:
        os.open(os.devnull, os.O_WRONLY)
        sys.stderr = open(2, "w", encoding="utf-8")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
