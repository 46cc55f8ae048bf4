"""The chunk protocol as the shim hears it: lines of a program that may send anything.

Standard library only. `LineReader` cuts the stream, `parse_chunk` takes a line or says why not.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from aiosd.model.jsontext import JsonObject, JsonTextError, parse_value
from aiosd.run.eventfile import LINE_MAX

CHUNK_MAX = LINE_MAX - 1024
"""Longest line taken from a program, in bytes; the event around it needs the rest."""


class ChunkType(StrEnum):
    """What a program can say (seed 002, and the answers to the shim's questions)."""

    PROCESSING = "processing"
    ARTIFACT = "artifact"
    LOG = "log"
    TASK_INTERACTION = "task_interaction"
    TASK_COMPLETION = "task_completion"
    TASK_FAILED = "task_failed"
    PAUSED = "paused"
    CAN_PAUSE = "can_pause"
    CAN_CANCEL = "can_cancel"


FINAL = frozenset({ChunkType.TASK_COMPLETION, ChunkType.TASK_FAILED})


class ChunkError(ValueError):
    """The line is not a chunk; `str()` says why without quoting it."""


class Chunk(NamedTuple):
    """One thing a program said."""

    type: ChunkType
    payload: JsonObject
    number: int

    @property
    def is_final(self) -> bool:
        """Whether nothing of the program is heard after it."""
        return self.type in FINAL


class LineReader:
    """Cuts a stream into lines of bounded length."""

    def __init__(self, limit: int = CHUNK_MAX) -> None:
        """`limit`: longest line in bytes; a longer one is thrown away up to its newline."""
        self._limit = limit
        self._parts = bytearray()
        self._skipping = False

    def feed(self, data: bytes) -> list[bytes | None]:
        """The lines that `data` completes, without newline; None stands for one that was too long."""
        lines: list[bytes | None] = []
        *whole, rest = data.split(b"\n")
        for part in whole:
            self._parts += part
            too_long = self._skipping or len(self._parts) > self._limit
            lines.append(None if too_long else bytes(self._parts))
            self._parts.clear()
            self._skipping = False
        if not self._skipping:
            self._parts += rest
            if len(self._parts) > self._limit:
                self._parts.clear()
                self._skipping = True
        return lines

    def unfinished(self) -> bool:
        """Whether the stream stopped in the middle of a line."""
        return self._skipping or bool(self._parts)


def parse_chunk(line: bytes | None) -> Chunk:
    """One line to a chunk. Raises ChunkError."""
    if line is None:
        raise ChunkError(f"a line is longer than {CHUNK_MAX} bytes")
    try:
        value = parse_value(line, limit=CHUNK_MAX)
    except JsonTextError as error:
        raise ChunkError(str(error)) from None
    if not isinstance(value, Mapping):
        raise ChunkError("a chunk must be a JSON object")
    return _checked(value)


def _checked(value: JsonObject) -> Chunk:
    kind, payload, index = value.get("type"), value.get("payload", {}), value.get("index", 0)
    if not isinstance(kind, str) or kind not in ChunkType.__members__.values():
        raise ChunkError("type: not one of the chunk types")
    if not isinstance(payload, Mapping):
        raise ChunkError("payload: must be an object")
    if isinstance(index, bool) or not isinstance(index, int) or index < 0:
        raise ChunkError("index: must be a whole number, 0 or more")
    if not isinstance(value.get("last_chunk", False), bool):
        raise ChunkError("last_chunk: must be true or false")
    return Chunk(ChunkType(kind), payload, index)
