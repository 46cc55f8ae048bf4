"""The exit record: the last thing a shim writes, and the proof that everything else of the run is on the disk.

Standard library only. The reader's side is `records.py`; the format is in `docs/architecture.md`.
"""

from __future__ import annotations

import os
import resource
import signal
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from aiosd.model.jsontext import dump
from aiosd.run.eventfile import timestamp
from aiosd.run.versions import SHIM

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonValue
    from aiosd.run.supervisor import Outputs


class StoppedBy(StrEnum):
    """Who made the program end: aiosd's `cancel`, a SIGTERM to the scope, or its own final chunk that it outlived."""

    CANCEL = "cancel"
    TERM = "term"
    COMPLETION = "completion"


class Ending(NamedTuple):
    """How a run ended. `status`: as waitpid(2) gives it, None when the program was never executed."""

    status: int | None
    launch_error: str | None
    stopped_by: StoppedBy | None
    oom_kill: bool
    duration_usec: int | None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal in between
        return f"SIG{number}"


def _cpu_usec() -> int:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return round((used.ru_utime + used.ru_stime) * 1_000_000)


def _record(run: str, ending: Ending, outputs: Outputs) -> dict[str, JsonValue]:
    started = ending.launch_error is None and ending.status is not None
    status = ending.status if started else None
    usage: dict[str, JsonValue] = {"duration_usec": ending.duration_usec, **outputs.scope.usage()}
    if usage["cpu_usec"] is None and started:
        usage["cpu_usec"] = _cpu_usec()
    return {
        "version": SHIM,
        "run": run,
        "started": started,
        "exit_status": os.WEXITSTATUS(status) if status is not None and os.WIFEXITED(status) else None,
        "signal": _signal_name(os.WTERMSIG(status)) if status is not None and os.WIFSIGNALED(status) else None,
        "oom_kill": ending.oom_kill,
        "stopped_by": ending.stopped_by,
        "launch_error": ending.launch_error,
        "ended_at": timestamp(),
        "usage": usage,
        "stdout_bytes": outputs.stdout.written,
        "stderr_bytes": outputs.stderr.written,
        "stdout_dropped": outputs.stdout.dropped,
        "stderr_dropped": outputs.stderr.dropped,
        "events": outputs.events.count,
        "events_lost": outputs.events.lost,
    }


def write(fd: int, run: str, ending: Ending, outputs: Outputs) -> None:
    """Flush everything, then write the record to `fd` (an empty file) and flush that."""
    for other in (outputs.stdout.sink, outputs.stderr.sink, outputs.events.fd, outputs.blobs.fd):
        if os.fstat(other).st_size:
            os.fdatasync(other)
    line = dump(_record(run, ending, outputs)).encode() + b"\n"
    while line:
        line = line[os.write(fd, line) :]
    os.fdatasync(fd)
