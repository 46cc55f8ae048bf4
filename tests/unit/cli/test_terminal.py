"""What a task may not do to a terminal."""

from __future__ import annotations

import json
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiosd.cli.terminal import HOLD_BACK, StreamCleaner, clean, json_text, one_line

HOSTILE = [
    ("colour", "\x1b[31mred\x1b[0m", "red"),
    ("clear the screen", "a\x1b[2J\x1b[Hb", "ab"),
    ("window title", "a\x1b]0;owned\x07b", "ab"),
    ("clipboard", "a\x1b]52;c;cm0gLXJm\x1b\\b", "ab"),
    ("hyperlink", "\x1b]8;;http://x\x1b\\text\x1b]8;;\x1b\\", "text"),
    ("device control", 'a\x1bP$q"p\x1b\\b', "ab"),
    ("answerback", "a\x05b", "ab"),
    ("C1 control sequence", "a\x9b31mb", "ab"),
    ("C1 command", "a\x9d0;owned\x9cb", "ab"),
    ("character set", "a\x1b(0b", "ab"),
    ("reset", "a\x1bcb", "ab"),
    ("overwritten line", "rm -rf\rls    ", "rm -rf\nls    "),
    ("line ends", "a\r\nb", "a\nb"),
    ("backspace", "abc\b\b\bxyz", "abcxyz"),
    ("bell", "a\x07", "a"),
    ("delete", "a\x7f", "a"),
    ("bidirectional override", "a\u202etxt.exe\u202c", "atxt.exe"),
    ("isolate", "a\u2066b\u2069", "ab"),
    ("line separator", "a\u2028b", "ab"),
    ("kept", "tab\there\nünïcode 漢字 🙂", "tab\there\nünïcode 漢字 🙂"),
]


@pytest.mark.parametrize(("text", "shown"), [row[1:] for row in HOSTILE], ids=[row[0] for row in HOSTILE])
def test_clean(text: str, shown: str) -> None:
    assert clean(text) == shown
    assert clean(shown) == shown


@pytest.mark.parametrize(("text", "shown"), [row[1:] for row in HOSTILE], ids=[row[0] for row in HOSTILE])
def test_the_same_cut_anywhere(text: str, shown: str) -> None:
    data = text.encode()
    for at in range(len(data) + 1):
        cleaner = StreamCleaner()
        assert cleaner.feed(data[:at]) + cleaner.feed(data[at:]) + cleaner.finish() == shown, at
    cleaner = StreamCleaner()
    assert "".join(cleaner.feed(bytes([byte])) for byte in data) + cleaner.finish() == shown


@given(st.lists(st.binary(max_size=20)))
def test_no_stream_gets_a_control_through(pieces: list[bytes]) -> None:
    cleaner = StreamCleaner()
    shown = "".join(cleaner.feed(piece) for piece in pieces) + cleaner.finish()
    assert not [char for char in shown if unicodedata.category(char) == "Cc" and char not in "\n\t"]


@given(st.text(alphabet=st.sampled_from("\x1b[]0;m\x07\\ab\n\x9b"), max_size=40))
def test_one_line_is_one_line(text: str) -> None:
    assert re.fullmatch(r"[^\x00-\x1f\x7f-\x9f]*", one_line(text))


def test_an_endless_sequence_does_not_hide_the_stream() -> None:
    cleaner = StreamCleaner()
    cleaner.feed(b"\x1b]0;")
    assert "x" * HOLD_BACK in cleaner.feed(b"x" * (HOLD_BACK + 1))


def test_bytes_that_are_no_text_are_marked() -> None:
    cleaner = StreamCleaner()
    assert cleaner.feed(b"a\xff") + cleaner.feed(b"\xc3") + cleaner.finish() == "a\ufffd\ufffd"


def test_json_on_a_terminal_is_the_same_value_and_does_nothing() -> None:
    value = {"a\u009b2J": "\u202e\x7f\u2028ü\n\x1b[2J"}
    for text in (json.dumps(value, ensure_ascii=False), json.dumps(value, ensure_ascii=False, indent=2)):
        shown = json_text(text)
        assert json.loads(shown) == value
        assert clean(shown) == shown
        assert "ü" in shown
