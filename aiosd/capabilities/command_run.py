"""`compat.command.run`: the administrator's general command, an argument list and never a shell line.

The command's output is the task's log, because it inherits this process's. Its end becomes this process's own end: the
same exit status, or death by the same signal, so that the run's record is the command's.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from aiosd.capabilities.program import in_words, text_argument
from aiosd.worker import Task

if TYPE_CHECKING:
    from types import FrameType

    from aiosd.model.jsontext import JsonObject

_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def command(arguments: JsonObject) -> list[str]:
    """The argument list; the schema has seen to it that it is one."""
    argv = arguments["argv"]
    return [str(item) for item in argv] if isinstance(argv, list) else []


def execute(argv: list[str], cwd: str | None) -> int:
    """Run it to its end: its exit status, or minus the signal's number. Raises OSError when it cannot be started."""
    # The task's socket is ours: a command that reads its environment must not find a number that means nothing to it.
    environment = {name: value for name, value in os.environ.items() if name != "AIOS_TASK_FD"}
    # Held back until they can be passed on: one that comes while the command starts must not end us alone.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
    try:
        process = subprocess.Popen(  # noqa: S603 - its purpose
            argv, stdin=subprocess.DEVNULL, cwd=cwd, env=environment,
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before),
        )  # fmt: skip

        def pass_on(number: int, _frame: FrameType | None) -> None:
            process.send_signal(number)

        for number in _PASSED_ON:
            signal.signal(number, pass_on)
    finally:
        # Also when nothing could be started: what reports that must be one that can be stopped.
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    with process:
        return process.wait()


def end_as(returncode: int) -> None:
    """End this process as the command ended."""
    if returncode > 0:
        sys.exit(returncode)
    number = -returncode
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def main() -> None:
    """Run as a task."""
    with Task.connect() as task:
        argv = command(task.arguments)
        try:
            returncode = execute(argv, text_argument(task.arguments, "cwd") or None)
        except OSError as error:
            task.fail(f"{argv[0]} cannot be started: {in_words(error)}")
            return
        if returncode != 0:
            end_as(returncode)
        task.complete({"exit_status": 0})


if __name__ == "__main__":
    main()
