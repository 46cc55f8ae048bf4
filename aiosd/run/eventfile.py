"""The event file: the queue between a run and the daemon. One JSON object a line, appended, never rewritten.

Standard library only. The reader's side is `records.py`; the format is in `docs/architecture.md`.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from aiosd.model.jsontext import JsonObject, dump

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonValue

LINE_MAX = 256 * 1024
"""Longest line, newline included, in bytes."""

FILE_MAX = 64 * 1024 * 1024
"""After so many bytes only what ends the run is taken: a program cannot fill the disk with events."""


def timestamp() -> str:
    """Now, RFC 3339 in UTC with milliseconds."""
    now = time.time_ns() // 1_000_000
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now // 1000)) + f".{now % 1000:03d}Z"


class EventFile:
    """Appends numbered events to a descriptor. `count`: how many are in the file, `lost`: how many are not."""

    def __init__(self, fd: int) -> None:
        """`fd`: the empty event file, opened for appending."""
        self.fd = fd
        self.count = 0
        self.lost = 0
        self._size = 0
        self._full = False

    def append(
        self, kind: str, payload: JsonObject, *, index: int = 0, last_chunk: bool = False, vital: bool = False
    ) -> bool:
        """Append one event; whether it is in the file. `vital` ones are taken even when the file is full."""
        event: dict[str, JsonValue] = {"n": self.count + 1, "time": timestamp(), "type": kind, "payload": payload}
        event["index"] = index
        event["last_chunk"] = last_chunk
        line = dump(event).encode() + b"\n"
        if len(line) > LINE_MAX:
            return self.append("protocol_error", {"message": f"a chunk is longer than {LINE_MAX} bytes"})
        if not vital and self._size + len(line) > FILE_MAX:
            self._overflow()
            return False
        return self._write(line)

    def _overflow(self) -> None:
        self.lost += 1
        if not self._full:
            self._full = True
            message = f"more than {FILE_MAX} bytes of events; the rest is dropped"
            self.append("protocol_error", {"message": message}, vital=True)

    def _write(self, line: bytes) -> bool:
        done = 0
        try:
            while done < len(line):
                done += os.write(self.fd, line[done:])
        except OSError:  # no space: a torn line must not stay in front of the next one
            os.ftruncate(self.fd, self._size)
            self.lost += 1
            return False
        self._size += len(line)
        self.count += 1
        return True
