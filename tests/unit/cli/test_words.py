"""Durations, moments, sizes and columns: what people write and read."""

from __future__ import annotations

import io
import time

import pytest

from aiosd.cli.durations import ago, duration, moment, parse_moment, parse_ms
from aiosd.cli.session import ColorWhen, Session, Style
from aiosd.cli.table import Cell, cut, render, width
from aiosd.cli.verb.artifact import file_name
from aiosd.cli.verb.status import size


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("text", "ms"),
    [("90", 90_000), ("1.5", 1500), ("250ms", 250), ("5min", 300_000), ("1h 30min", 5_400_000), ("1h30m", 5_400_000),
     ("2 days", 172_800_000), ("1w", 604_800_000)],
)  # fmt: skip
def test_parse_ms(text: str, ms: int) -> None:
    assert parse_ms(text) == ms


@pytest.mark.parametrize("text", ["", " ", "x", "5parsecs", "-5", "1h foo"])
def test_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_ms(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.35, "350ms"), (0, "0ms"), (1.5, "1.5s"), (12, "12s"), (90, "1min 30s"), (5400, "1h 30min"), (90061, "1d 1h")],
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    assert moment("2026-03-01T10:00:00.000Z") == "Sun 2026-03-01 11:00:00 CET"
    assert moment("gibberish") == "gibberish"
    assert parse_moment("2026-03-01 11:00") == parse_moment("2026-03-01T10:00:00Z") == 1772359200_000000
    assert abs(parse_moment("2h") - (time.time() - 7200) * 1e6) < 5e6
    with pytest.raises(ValueError, match="neither"):
        parse_moment("tomorrow")
    monkeypatch.undo()
    time.tzset()


def test_ago() -> None:
    now = time.time()
    assert [ago(round((now - passed) * 1e6)) for passed in (0, 90, 7300)] == ["now", "1min ago", "2h ago"]
    assert ago(0) == "-"


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0B"), (1023, "1023B"), (1024, "1.0K"), (12288, "12K"), (268435456, "256M"), (5 * 2**40, "5.0T"), (None, "-")],
)
def test_size(count: int | None, text: str) -> None:
    assert size(count) == text


def test_columns_are_cut_to_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    session = Session(out=Terminal(), color=ColorWhen.ALWAYS)
    head, row = render(session, ["A", "LAST"], [[Cell("漢字", Style.GOOD), "a long text that is cut"]])
    assert head == "\x1b[4mA\x1b[0m     \x1b[4mLAST\x1b[0m"
    assert row == "\x1b[32m漢字\x1b[0m  a long text t…"
    assert width("漢字") + 2 + width("a long text t…") == 20
    assert render(Session(out=io.StringIO()), ["A"], [["x" * 200]])[1] == "x" * 200
    assert cut("abc", 3) == "abc"


@pytest.mark.parametrize(
    ("variables", "terminal", "when", "colored"),
    [
        ({"TERM": "xterm"}, True, ColorWhen.AUTO, True),
        ({"TERM": "xterm"}, False, ColorWhen.AUTO, False),
        ({"TERM": "xterm", "NO_COLOR": "1"}, True, ColorWhen.AUTO, False),
        ({"TERM": "xterm", "NO_COLOR": ""}, True, ColorWhen.AUTO, True),
        ({"TERM": "dumb"}, True, ColorWhen.AUTO, False),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False, ColorWhen.ALWAYS, True),
        ({"TERM": "xterm"}, True, ColorWhen.NEVER, False),
    ],
)
def test_colours(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], *, terminal: bool, when: ColorWhen, colored: bool
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert Session(out=Terminal() if terminal else io.StringIO(), color=when).colored() is colored


@pytest.mark.parametrize(
    ("name", "saved"),
    [("report.txt", "report.txt"), ("../../etc/passwd", "passwd"), ("/", "art-1"), ("..", "art-1"), ("", "art-1"),
     (".bashrc", "bashrc"), ("a\x1b[2Jb\nc", "ab c"), ("ü" * 200, "ü" * 100)],
)  # fmt: skip
def test_file_name(name: str, saved: str) -> None:
    assert file_name(name, "art-1") == saved
