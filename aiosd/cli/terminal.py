"""Text that a task or a stranger chose, made safe to show: no control sequences, no text that runs backwards.

A task's output may hold escape sequences that move the cursor, rename the window, or answer for the person at the
keyboard (ECMA-48; xterm's control sequences). On a terminal they are taken out; into a pipe or a file every byte goes
as it came, because there it is data. Format characters that reorder text are taken out with them (CVE-2021-42574).
"""

from __future__ import annotations

import codecs
import re

_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI
    r"|\x9b[0-?]*[ -/]*[@-~]"  # CSI as one C1 character
    r"|(?:\x1b[PX^_\]]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"  # DCS, SOS, OSC, PM, APC
    r"|\x1b(?:[ -/]+[0-~]|[0-OQ-WYZ\\`-~])"  # character sets; two-character escapes
)
_STRAY = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_UNFINISHED = re.compile(
    r"(?:(?:\x1b\[|\x9b)[0-?]*[ -/]*"
    r"|(?:\x1b[PX^_\]]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*\x1b?"
    r"|\x1b[ -/]*)\Z"
)
_LINE_ENDS = re.compile(r"\r\n?")

HOLD_BACK = 512
"""Characters of an unfinished sequence that are kept until its end comes; a longer one is stripped as it stands."""


def clean(text: str) -> str:
    """Text of several lines without control characters, save newline and tab. A lone CR becomes a newline."""
    text = _LINE_ENDS.sub("\n", text)
    return _STRAY.sub("", _SEQUENCE.sub("", text))


def one_line(text: str) -> str:
    """As `clean`, on one line."""
    return " ".join(clean(text).split())


def json_text(text: str) -> str:
    """JSON text with what a terminal would not show as it is written as JSON's own escapes: the same value."""
    return _STRAY.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class StreamCleaner:
    """`clean` for bytes that come in pieces: sequences and characters may be cut anywhere."""

    def __init__(self) -> None:
        """A cleaner at the start of a stream."""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._kept = ""

    def feed(self, data: bytes) -> str:
        """What of the stream so far can be shown."""
        text = self._kept + self._decoder.decode(data)
        text, self._kept = self._split(text)
        return clean(text)

    def finish(self) -> str:
        """What was kept back, at the end of the stream."""
        text, self._kept = self._kept + self._decoder.decode(b"", final=True), ""
        return clean(text)

    @staticmethod
    def _split(text: str) -> tuple[str, str]:
        if text.endswith("\r"):
            return text[:-1], "\r"
        tail = _UNFINISHED.search(text, _end_of_sequences(text))
        if tail is None or len(tail.group()) > HOLD_BACK:
            return text, ""
        return text[: tail.start()], tail.group()


def _end_of_sequences(text: str) -> int:
    """Where the last whole sequence ends: what ends it must not be taken for the beginning of another."""
    end = 0
    for sequence in _SEQUENCE.finditer(text):
        end = sequence.end()
    return end
