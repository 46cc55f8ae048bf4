"""What the program writes to stdout and stderr: to its file byte for byte, and to the journal a line a message.

Standard library only. The file is the record; the journal is a copy, dropped rather than waited for. journald knows the
scope from the sender's cgroup (systemd.journal-fields(7), native protocol: https://systemd.io/JOURNAL_NATIVE_PROTOCOL/).
"""

from __future__ import annotations

import os
import socket
import struct
from contextlib import suppress

_READ = 64 * 1024
_JOURNAL_LINE_MAX = 48 * 1024
_JOURNAL_SOCKET = "/run/systemd/journal/socket"
_PRIORITY = {"stdout": 6, "stderr": 5}


class Journal:
    """A connected journal socket and the fields that every line of this run has; silent where there is no journald."""

    def __init__(self, fields: dict[str, str], path: str = _JOURNAL_SOCKET) -> None:
        """`fields`: names and values without newlines."""
        self._head = "".join(f"{name}={value}\n" for name, value in fields.items()).encode()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        self._connected = True
        try:
            self._socket.connect(path)
        except OSError:
            self._connected = False

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def send(self, stream: str, line: bytes) -> None:
        """One message. Never blocks; a full journal loses it."""
        if not self._connected:
            return
        stream_fields = f"AIOS_STREAM={stream}\nPRIORITY={_PRIORITY[stream]}\nMESSAGE\n".encode()
        with suppress(OSError):
            self._socket.send(self._head + stream_fields + struct.pack("<Q", len(line)) + line + b"\n")


class Stream:
    """One of the program's two outputs."""

    def __init__(self, name: str, source: int, sink: int, limit: int, journal: Journal) -> None:
        """`source`: non-blocking end of the pipe. `sink`: the file. `limit`: bytes kept in it."""
        self.name = name
        self.source = source
        self.sink = sink
        self.written = 0
        self.dropped = 0
        self._limit = limit
        self._journal = journal
        self._line = b""

    def drain(self) -> bool:
        """Take what one read gives; False at the end of the stream (BlockingIOError when there is nothing yet)."""
        data = os.read(self.source, _READ)
        if not data:
            if self._line:
                self._journal.send(self.name, self._line)
            self._line = b""
            return False
        self._keep(data)
        return True

    def _keep(self, data: bytes) -> None:
        kept = memoryview(data)[: max(0, self._limit - self.written)]
        self.dropped += len(data) - len(kept)
        self._to_journal(bytes(kept))
        while kept:
            try:
                done = os.write(self.sink, kept)
            except OSError:  # no space: the program goes on, what is missing is counted
                self.dropped += len(kept)
                return
            self.written += done
            kept = kept[done:]

    def _to_journal(self, data: bytes) -> None:
        *lines, rest = (self._line + data).split(b"\n")
        for line in lines:
            for start in range(0, max(1, len(line)), _JOURNAL_LINE_MAX):
                self._journal.send(self.name, line[start : start + _JOURNAL_LINE_MAX])
        while len(rest) > _JOURNAL_LINE_MAX:
            self._journal.send(self.name, rest[:_JOURNAL_LINE_MAX])
            rest = rest[_JOURNAL_LINE_MAX:]
        self._line = rest
