"""The shim's talk with the program over `AIOS_TASK_FD`: chunks become events, messages become lines.

Standard library only. The program may be hostile or deaf: lines are bounded and checked, what it does not read is
bounded too, and a file that it hands over is copied step by step while the shim goes on with the rest.
"""

from __future__ import annotations

import select
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from aiosd.model.jsontext import JsonObject, JsonValue, dump
from aiosd.run.artifacts import ArtifactError, BlobFile
from aiosd.run.chunks import Chunk, ChunkError, ChunkType, LineReader, parse_chunk

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Generator

    from aiosd.run.eventfile import EventFile

_READ = 64 * 1024
_UNREAD_MAX = 1024 * 1024
_ERRORS_MAX = 100


class Conversation:
    """Both directions of one program's socket."""

    def __init__(
        self,
        sock: socket.socket,
        events: EventFile,
        blobs: BlobFile,
        poke: Callable[[], None],
        watch: Callable[[int], None],
    ) -> None:
        """`poke`: called after an append. `watch`: told the epoll mask that is wanted, 0 for none."""
        sock.settimeout(0)
        self._socket = sock
        self._events = events
        self._blobs = blobs
        self._poke = poke
        self._watch = watch
        self._reader = LineReader()
        self._lines: deque[bytes | None] = deque()
        self._unsent = bytearray()
        self._copying: Generator[None, None, JsonObject] | None = None
        self._copied: Chunk | None = None
        self._errors = 0
        self._hears = True
        self._mask = 0
        self.has_spoken = False
        self.ended = False

    @property
    def busy(self) -> bool:
        """Whether `step` has more to do without waiting."""
        return self._copying is not None or bool(self._lines)

    def begin(self, go: JsonObject) -> None:
        """The gate is open: tell the program what it is to do, and listen."""
        given = {key: value for key, value in go.items() if key in ("arguments", "task_id", "attempt", "metadata")}
        self.say({"type": "start", **given})

    def say(self, message: JsonObject) -> None:
        """One line to the program; a program that reads nothing loses what is beyond a mebibyte."""
        line = dump(message).encode() + b"\n"
        if len(self._unsent) + len(line) > _UNREAD_MAX:
            self._complain("the program does not read what it is told")
        else:
            self._unsent += line
            self._send()
        self._listen()

    def _send(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: self._socket.send(self._unsent)]
        except BlockingIOError:
            return
        except OSError:  # it closed its end: it does not want to be told
            self._unsent.clear()

    def _listen(self) -> None:
        hears = self._hears and not self.busy
        mask = (select.EPOLLIN if hears else 0) | (select.EPOLLOUT if self._unsent else 0)
        if mask != self._mask:
            self._mask = mask
            self._watch(mask)

    def on_ready(self) -> None:
        """The socket is readable or writable."""
        self._send()
        if self._hears and not self.busy:
            self._hear()
        self._listen()

    def _hear(self) -> bool:
        """Take what one read gives; whether there was something."""
        try:
            data = self._socket.recv(_READ)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._hears = False
            self._unsent.clear()
            if self._reader.unfinished():
                self._complain("the last line has no end")
            return False
        self._lines.extend(self._reader.feed(data))
        return True

    def step(self) -> None:
        """Go on with what was heard, a bounded piece of it."""
        if not self.busy:
            return
        for _ in range(64):
            if not self._advance():
                break
        self._poke()
        self._listen()

    def _advance(self) -> bool:
        if self._copying is not None:
            self._copy_on(self._copying)
            return False
        if not self._lines:
            return False
        self._take(self._lines.popleft())
        return True

    def _take(self, line: bytes | None) -> None:
        try:
            chunk = parse_chunk(line)
        except ChunkError as error:
            self._complain(str(error))
            return
        self.has_spoken = True
        if self.ended:
            self._complain(f"{chunk.type} after the final chunk")
        elif chunk.type is ChunkType.ARTIFACT:
            self._copied = chunk
            self._copying = self._blobs.take(chunk.payload)
        else:
            self.ended = chunk.is_final
            self._record(chunk, chunk.payload)

    def _copy_on(self, copying: Generator[None, None, JsonObject]) -> None:
        chunk = self._copied
        try:
            next(copying)
        except StopIteration as done:
            self._copying = None
            payload: JsonObject = done.value
            if chunk is not None:
                self._record(chunk, payload)
        except ArtifactError as error:
            self._copying = None
            self._complain(f"artifact: {error}")

    def _record(self, chunk: Chunk, payload: JsonObject) -> None:
        final = chunk.is_final
        self._events.append(chunk.type, payload, index=chunk.number, last_chunk=final, vital=final)

    def _complain(self, message: str) -> None:
        """A protocol error is an event, but a program that makes nothing else does not fill the file with them."""
        self._errors += 1
        payload: dict[str, JsonValue] = {"message": message}
        if self._errors <= _ERRORS_MAX:
            self._events.append("protocol_error", payload)
        elif self._errors == _ERRORS_MAX + 1:
            self._events.append("protocol_error", {"message": "more protocol errors are not recorded"})

    def finish(self) -> None:
        """The program is gone: take what it said before it went."""
        more = True
        while more:
            while self.busy:
                self._advance()
            more = self._hears and self._hear()
        if self._reader.unfinished() and self._hears:
            self._complain("the last line has no end")
        with suppress(OSError):
            self._socket.close()
