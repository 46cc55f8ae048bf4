"""A secret as it arrives: a flat JSON object of strings, held in one buffer that can be overwritten.

Python's strings cannot be: whatever becomes a `str` or `bytes` stays somewhere in the process's memory until the
allocator happens to use that place again. So the text is checked where it lies, by regular expressions on the buffer,
and `field` shows a part of it without a copy. Whoever has made a `SecretText` wipes it: `with SecretText.take(...)`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

MAX_SECRET_BYTES = 64 * 1024
"""Longest secret that is taken, in bytes of JSON."""

MAX_FIELDS = 16

_SPACE = re.compile(rb"[ \t\r\n]*")
# One JSON string (RFC 8259, section 7) of well-formed UTF-8 (RFC 3629, section 4), without NUL and lone surrogates.
_STRING = re.compile(
    rb'"((?:[ !#-\[\]-\x7f]|[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]{2}'
    rb"|\xed[\x80-\x9f][\x80-\xbf]|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2}"
    rb'|\\["\\/bfnrt]|\\u(?!0000)(?:[0-9a-cefA-CEF][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2})'
    rb'|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})*+)"'
)
_NAME = re.compile(rb"[a-z_]{1,64}")


class SecretTextError(ValueError):
    """The text is not one that we take; `str()` says why without a word of it."""


def wipe(buffer: bytearray) -> None:
    """Overwrite every byte."""
    buffer[:] = bytes(len(buffer))


class SecretText:
    """A flat JSON object of strings in a buffer of its own. A context manager that wipes it."""

    def __init__(self, buffer: bytearray) -> None:
        """Take over `buffer`. Raises SecretTextError; the buffer is wiped then too."""
        self._buffer = buffer
        try:
            if len(buffer) > MAX_SECRET_BYTES:
                raise SecretTextError(f"longer than {MAX_SECRET_BYTES} bytes")
            self._spans = _spans(buffer)
        except SecretTextError:
            wipe(buffer)
            raise

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wipe."""
        self.wipe()

    def __repr__(self) -> str:
        """Never the content."""
        return f"SecretText({', '.join(sorted(self._spans))})"

    @property
    def json(self) -> bytearray:
        """The whole text. It is the buffer itself: not to be kept."""
        return self._buffer

    @property
    def names(self) -> frozenset[str]:
        """Names of its fields."""
        return frozenset(self._spans)

    def field(self, name: str) -> memoryview:
        """A field as it stands in the text, escapes and all; empty when it is not there. Release it before `wipe`."""
        begin, end = self._spans.get(name, (0, 0))
        return memoryview(self._buffer)[begin:end]

    def word(self, name: str) -> str:
        """A field that is no secret (`type`), as text; "" when it is longer than 64 bytes or not there."""
        begin, end = self._spans.get(name, (0, 0))
        return bytes(self._buffer[begin:end]).decode() if end - begin <= 64 else ""

    def wipe(self) -> None:
        """Overwrite it. Harmless when repeated."""
        wipe(self._buffer)
        self._spans = {}


def _spans(buffer: bytearray) -> dict[str, tuple[int, int]]:
    """Where each field's value is, between its quotes."""
    spans: dict[str, tuple[int, int]] = {}
    at = _expect(buffer, _skip(buffer, 0), b"{")
    at = _skip(buffer, at)
    while buffer[at : at + 1] != b"}":
        if spans:
            at = _skip(buffer, _expect(buffer, at, b","))
        begin, end = _string(buffer, at)
        if _NAME.fullmatch(buffer, begin, end) is None:
            raise SecretTextError("a field's name is not made of lower-case letters and underscores")
        name = buffer[begin:end].decode()
        at = _skip(buffer, _expect(buffer, _skip(buffer, end + 1), b":"))
        if name in spans or len(spans) >= MAX_FIELDS:
            raise SecretTextError("a field is there twice, or there are too many")
        spans[name] = begin, end = _string(buffer, at)
        at = _skip(buffer, end + 1)
    if _skip(buffer, at + 1) != len(buffer):
        raise SecretTextError("there is something after the object")
    return spans


def _skip(buffer: bytearray, at: int) -> int:
    found = _SPACE.match(buffer, at)
    return at if found is None else found.end()


def _expect(buffer: bytearray, at: int, sign: bytes) -> int:
    if buffer[at : at + 1] != sign:
        raise SecretTextError("not a JSON object whose values are all strings")
    return at + 1


def _string(buffer: bytearray, at: int) -> tuple[int, int]:
    found = _STRING.match(buffer, at)
    if found is None:
        raise SecretTextError("not a JSON object whose values are all strings")
    return found.span(1)
