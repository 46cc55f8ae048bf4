"""Reading what a run left: the daemon's side of the event file and the exit record. No state, no locks, no writes.

Tolerant of exactly one thing, a last line that is still being written; every other flaw is told, never skipped.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from aiosd.model.jsontext import JsonObject, JsonTextError, parse_object
from aiosd.model.later import dataclass
from aiosd.run.eventfile import LINE_MAX
from aiosd.run.versions import SHIM

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from aiosd.model.jsontext import JsonValue

READ_MAX = 4 * 1024 * 1024
"""Bytes read at a time when not told otherwise; at least one whole line is always within it."""

_EXIT_MAX = 16 * 1024
_T = TypeVar("_T")


class RunEventType(StrEnum):
    """Every type of event: what a program says, and what the shim adds."""

    PROCESSING = "processing"
    ARTIFACT = "artifact"
    LOG = "log"
    TASK_INTERACTION = "task_interaction"
    TASK_COMPLETION = "task_completion"
    TASK_FAILED = "task_failed"
    PAUSED = "paused"
    CAN_PAUSE = "can_pause"
    CAN_CANCEL = "can_cancel"
    STARTED = "started"
    PROTOCOL_ERROR = "protocol_error"


@dataclass(frozen=True, slots=True)
class RunEvent:
    """One line. `n`: its number in the file, 0 when the line could not be read; `time`: RFC 3339, of the shim."""

    n: int
    time: str
    type: RunEventType
    payload: JsonObject
    index: int = 0
    last_chunk: bool = False


@dataclass(frozen=True, slots=True)
class Usage:
    """What a run used; None where the kernel did not tell. Microseconds, bytes, processes."""

    duration_usec: int | None
    cpu_usec: int | None
    memory_peak: int | None
    io_read_bytes: int | None
    io_write_bytes: int | None
    tasks_peak: int | None


@dataclass(frozen=True, slots=True)
class ExitRecord:
    """How a run ended, as its shim saw it (docs/architecture.md, `exit`)."""

    run: str
    started: bool
    exit_status: int | None
    signal: str | None
    oom_kill: bool
    stopped_by: str | None
    launch_error: str | None
    ended_at: str
    usage: Usage
    stdout_bytes: int
    stderr_bytes: int
    stdout_dropped: int
    stderr_dropped: int
    events: int
    events_lost: int


class RecordError(ValueError):
    """The exit record is not one; `str()` says why."""


def _content(path: Path | str, offset: int, most: int, *, at_hand: bool) -> bytes:
    """What is in a file from `offset` on. Raises OSError; with `at_hand` also for what the disk would be waited for
    (preadv2(2), RWF_NOWAIT), and on a file system that cannot tell."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        if not at_hand:
            return os.pread(fd, most, offset)
        content = bytearray(min(most, max(0, os.fstat(fd).st_size - offset)))
        if not content:  # nothing to wait for; and what is no file says so
            return os.pread(fd, most, offset)
        if os.preadv(fd, [content], offset, os.RWF_NOWAIT) < len(content):
            raise BlockingIOError(errno.EAGAIN, "it is not in memory")
        return bytes(content)
    finally:
        os.close(fd)


def read_events(
    path: Path | str, offset: int, max_bytes: int = READ_MAX, *, at_hand: bool = False
) -> tuple[list[RunEvent], int]:
    """Events of the file `path` from byte `offset` on, and the offset after the last whole line.

    Call again from the new offset until it does not move. A missing file has no events. Raises OSError otherwise, with
    `at_hand` also when the content is not in memory.
    """
    try:
        data = _content(path, offset, max(max_bytes, 2 * LINE_MAX), at_hand=at_hand)
    except FileNotFoundError:
        return [], offset
    end = data.rfind(b"\n") + 1
    if end == 0 and len(data) >= 2 * LINE_MAX:  # no line is that long: what this is, nobody can say
        return [_broken("a line is too long")], offset + len(data)
    return [_event(line) for line in data[:end].split(b"\n")[:-1]] if end else [], offset + end


def _broken(reason: str) -> RunEvent:
    return RunEvent(0, "", RunEventType.PROTOCOL_ERROR, {"message": f"a line of the event file is damaged: {reason}"})


def _event(line: bytes) -> RunEvent:
    try:
        value = parse_object(line, limit=LINE_MAX)
        payload = value["payload"]
        if not isinstance(payload, Mapping):
            return _broken("payload is not an object")
        kind = RunEventType(_text(value, "type"))
        return RunEvent(
            _number(value, "n"),
            _text(value, "time"),
            kind,
            payload,
            _number(value, "index"),
            _flag(value, "last_chunk"),
        )
    except (JsonTextError, RecordError) as error:
        return _broken(str(error))
    except (KeyError, ValueError):
        return _broken("a field is missing or unknown")


def _text(value: JsonObject, key: str) -> str:
    found = value.get(key)
    if not isinstance(found, str):
        raise RecordError(f"{key} is not a string")
    return found


def _number(value: JsonObject, key: str) -> int:
    found = value.get(key)
    if isinstance(found, bool) or not isinstance(found, int) or found < 0:
        raise RecordError(f"{key} is not a whole number")
    return found


def _flag(value: JsonObject, key: str) -> bool:
    found = value.get(key)
    if not isinstance(found, bool):
        raise RecordError(f"{key} is not true or false")
    return found


def _maybe(read: Callable[[JsonObject, str], _T], value: JsonObject, key: str) -> _T | None:
    return None if value.get(key) is None else read(value, key)


def read_exit(path: Path | str, *, at_hand: bool = False) -> ExitRecord | None:
    """The exit record at `path`, or None when it is not (wholly) there. Raises RecordError when it is damaged, OSError
    when it cannot be read; with `at_hand` also when it is not in memory."""
    try:
        data = _content(path, 0, _EXIT_MAX + 1, at_hand=at_hand)
    except FileNotFoundError:
        return None
    if not data.endswith(b"\n"):
        return None
    try:
        value = parse_object(data, limit=_EXIT_MAX)
    except JsonTextError as error:
        raise RecordError(str(error)) from None
    return _exit_record(value)


def _exit_record(value: JsonObject) -> ExitRecord:
    if value.get("version") != SHIM:
        raise RecordError(f"its version is not {SHIM}")
    return ExitRecord(
        run=_text(value, "run"),
        started=_flag(value, "started"),
        exit_status=_maybe(_number, value, "exit_status"),
        signal=_maybe(_text, value, "signal"),
        oom_kill=_flag(value, "oom_kill"),
        stopped_by=_maybe(_text, value, "stopped_by"),
        launch_error=_maybe(_text, value, "launch_error"),
        ended_at=_text(value, "ended_at"),
        usage=_usage(value.get("usage")),
        stdout_bytes=_number(value, "stdout_bytes"),
        stderr_bytes=_number(value, "stderr_bytes"),
        stdout_dropped=_number(value, "stdout_dropped"),
        stderr_dropped=_number(value, "stderr_dropped"),
        events=_number(value, "events"),
        events_lost=_number(value, "events_lost"),
    )


def _usage(value: JsonValue) -> Usage:
    if not isinstance(value, Mapping):
        raise RecordError("usage is not an object")
    return Usage(
        duration_usec=_maybe(_number, value, "duration_usec"),
        cpu_usec=_maybe(_number, value, "cpu_usec"),
        memory_peak=_maybe(_number, value, "memory_peak"),
        io_read_bytes=_maybe(_number, value, "io_read_bytes"),
        io_write_bytes=_maybe(_number, value, "io_write_bytes"),
        tasks_peak=_maybe(_number, value, "tasks_peak"),
    )
