"""From what a run left on disk to what the core works with: exit records and the growth of its logs."""

from __future__ import annotations

import os
from contextlib import suppress
from operator import attrgetter
from typing import TYPE_CHECKING

from aiosd.core.outcome import Ending

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from aiosd.model.jsontext import JsonObject, JsonValue
    from aiosd.run.records import ExitRecord, Usage

_USAGE = ("duration_usec", "cpu_usec", "memory_peak", "io_read_bytes", "io_write_bytes", "tasks_peak")
_ALL_OF_IT = attrgetter(*_USAGE)

EXCERPT = 4096
"""Bytes of new output that a `task.log` event shows at most; the log itself has all."""


def ending_of(record: ExitRecord, *, timed_out: bool, silent_for: float | None = None) -> Ending:
    """What the verdict needs of an exit record; the task's own columns are filled in later."""
    return Ending(
        "", exit_status=record.exit_status, signal=record.signal, oom_kill=record.oom_kill,
        stopped=record.stopped_by == "cancel", launch_error=record.launch_error, timed_out=timed_out,
        silent_for=silent_for,
    )  # fmt: skip


def _usage(usage: Usage) -> dict[str, JsonValue]:
    return dict(zip(_USAGE, _ALL_OF_IT(usage), strict=True))


def record_view(record: ExitRecord) -> dict[str, JsonValue]:
    """The exit record as it is stored and shown."""
    view: dict[str, JsonValue] = {
        "exit_status": record.exit_status, "signal": record.signal, "oom_kill": record.oom_kill,
        "stopped_by": record.stopped_by, "ended_at": record.ended_at, "usage": _usage(record.usage),
        "stdout_bytes": record.stdout_bytes, "stderr_bytes": record.stderr_bytes,
        "stdout_dropped": record.stdout_dropped, "stderr_dropped": record.stderr_dropped,
    }  # fmt: skip
    return {name: value for name, value in view.items() if value is not None}


def log_sizes(record: ExitRecord) -> dict[str, int]:
    """How large the logs of an ended run are."""
    return {"stdout": record.stdout_bytes, "stderr": record.stderr_bytes}


def sizes_on_disk(directory: Path) -> dict[str, int]:
    """How large the logs are of a run that left no exit record."""
    sizes = {}
    for stream in ("stdout", "stderr"):
        with suppress(OSError):
            sizes[stream] = (directory / stream).stat().st_size
    return sizes


def log_growth(directory: Path, told: Mapping[str, int], sizes: Mapping[str, int]) -> list[JsonObject]:
    """What was added to each stream since it was last told: where, how much, and the first part of it as text."""
    grown: list[JsonObject] = []
    for stream, size in sizes.items():
        begin = told.get(stream, 0)
        if size > begin:
            text = _excerpt(directory / stream, begin, min(size - begin, EXCERPT))
            grown.append({"stream": stream, "offset": begin, "size": size - begin, "text": text})
    return grown


def _excerpt(path: Path, offset: int, size: int) -> str:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return ""
    try:
        return os.pread(fd, size, offset).decode("utf-8", "replace").replace("\0", "\ufffd")
    finally:
        os.close(fd)
