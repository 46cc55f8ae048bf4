"""Every exit status of aiosctl, in one table: the verbs use it and aiosctl(1) is made from it.

aiosctl's own statuses are those of sysexits(3). A verb that waits for a task (`wait`, `run --wait`, `run --follow`)
exits with the task's: a shell's conventions, as in timeout(1) and bash(1).
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING

from aiosd.model.status import Reason, Status

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonObject


class ExitStatus(IntEnum):
    """aiosctl's own."""

    SUCCESS = 0
    FAILURE = 1
    USAGE = 64
    DATA = 65
    NOT_FOUND = 66
    UNAVAILABLE = 69
    INTERNAL = 70
    CANNOT_CREATE = 73
    IO = 74
    TRY_AGAIN = 75
    PROTOCOL = 76
    DENIED = 77
    TASK_TIMEOUT = 124
    TASK_NOT_RUN = 126
    TASK_NO_PROGRAM = 127
    SIGNAL_BASE = 128
    INTERRUPTED = 130
    BROKEN_PIPE = 141


MEANINGS: Mapping[int, str] = {
    ExitStatus.SUCCESS: "It worked. Of a task: it completed.",
    ExitStatus.FAILURE: "Any other failure. Of a task: it failed for a reason that has no status of its own "
    "(it said so itself, its result was wrong, a task that it depends on failed, it was lost).",
    ExitStatus.USAGE: "Wrong usage: an unknown verb, option, argument or value.",
    ExitStatus.DATA: "Wrong data: JSON or a manifest that cannot be read, or what the task's state rules out.",
    ExitStatus.NOT_FOUND: "No such task, capability, artifact or file.",
    ExitStatus.UNAVAILABLE: "The system bus or aiosd cannot be reached.",
    ExitStatus.INTERNAL: "An internal error of aiosd or of aiosctl.",
    ExitStatus.CANNOT_CREATE: "A file cannot be written.",
    ExitStatus.IO: "An error of reading or writing, or aiosd's store cannot be written.",
    ExitStatus.TRY_AGAIN: "Not now: the queue is full, the service busy or stopping, the task waits for a person, or "
    "the time of **wait \\-\\-timeout=** passed before the task ended.",
    ExitStatus.PROTOCOL: "aiosctl and aiosd do not understand each other: different versions.",
    ExitStatus.DENIED: "Permission denied, or the person who was asked refused.",
    ExitStatus.TASK_TIMEOUT: "Of a task: it ran out of time.",
    ExitStatus.TASK_NOT_RUN: "Of a task: its program could not be started.",
    ExitStatus.TASK_NO_PROGRAM: "Of a task: its capability is no longer installed.",
    ExitStatus.INTERRUPTED: "Interrupted by Ctrl-C (a task that was being followed goes on running). Of a task: it was "
    "canceled.",
    ExitStatus.BROKEN_PIPE: "The reader of the output went away.",
}

TASK_MEANINGS: Mapping[str, str] = {
    "1-255": "Of a task: its program's own exit status, when the program ended with one other than 0.",
    "128+n": "Of a task: its program was killed by signal *n* (137: SIGKILL, also for want of memory).",
}

_BY_REASON = {
    Reason.TIMEOUT: ExitStatus.TASK_TIMEOUT,
    Reason.INPUT_TIMEOUT: ExitStatus.TASK_TIMEOUT,
    Reason.AUTH_TIMEOUT: ExitStatus.TASK_TIMEOUT,
    Reason.FIRST_FRAME_TIMEOUT: ExitStatus.TASK_TIMEOUT,
    Reason.LAUNCH: ExitStatus.TASK_NOT_RUN,
    Reason.CAPABILITY_MISSING: ExitStatus.TASK_NO_PROGRAM,
    Reason.PERMISSION_DENIED: ExitStatus.DENIED,
    Reason.OOM_KILL: ExitStatus.SIGNAL_BASE + signal.SIGKILL,
}


def of_task(task: JsonObject) -> int:
    """The exit status that stands for how a task (GetTask's JSON) ended; TRY_AGAIN when it has not."""
    status = task.get("status")
    if status == Status.COMPLETED:
        return ExitStatus.SUCCESS
    if status == Status.CANCELED:
        return ExitStatus.DENIED if task.get("reason") == "approval-rejected" else ExitStatus.INTERRUPTED
    if status != Status.FAILED:
        return ExitStatus.TRY_AGAIN
    reason = task.get("reason")
    for known, value in _BY_REASON.items():
        if reason == known.value:
            return int(value)
    return _of_program(task.get("exit"))


def _of_program(report: object) -> int:
    if isinstance(report, Mapping):
        name, code = report.get("signal"), report.get("exit_status")
        if isinstance(name, str) and name in signal.Signals.__members__:
            return ExitStatus.SIGNAL_BASE + signal.Signals[name]
        if isinstance(code, int) and 0 < code < 256:
            return code
    return ExitStatus.FAILURE
