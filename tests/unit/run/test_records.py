"""Reading what a run left, whole, torn and damaged."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from aiosd.run.eventfile import FILE_MAX, LINE_MAX
from aiosd.run.records import RecordError, RunEventType, read_events, read_exit

if TYPE_CHECKING:
    from pathlib import Path

LINE = {"n": 1, "time": "2026-01-01T00:00:00.000Z", "type": "log", "payload": {"a": 1}, "index": 0, "last_chunk": False}


def line(**changes: object) -> bytes:
    return json.dumps({**LINE, **changes}).encode() + b"\n"


def test_a_line_that_is_still_being_written_is_not_there_yet(tmp_path: Path) -> None:
    path = tmp_path / "events"
    second = line(n=2)
    path.write_bytes(line() + second[:-5])
    events, offset = read_events(path, 0)
    assert ([event.n for event in events], offset) == ([1], len(line()))
    assert read_events(path, offset) == ([], offset)
    path.write_bytes(line() + second)
    events, offset = read_events(path, offset)
    assert ([event.n for event in events], offset) == ([2], len(line()) + len(second))


def test_what_the_disk_would_be_waited_for_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "events"
    path.write_bytes(line() + line(n=2))
    monkeypatch.setattr(os, "preadv", lambda fd, buffers, offset, flags: os.readv(fd, buffers))
    assert read_events(path, 0, at_hand=True) == read_events(path, 0)
    monkeypatch.setattr(os, "preadv", lambda fd, buffers, offset, flags: 7)  # as much of it as there is in memory
    with pytest.raises(BlockingIOError):
        read_events(path, 0, at_hand=True)
    with pytest.raises(BlockingIOError):
        read_exit(path, at_hand=True)


@pytest.mark.parametrize("at_hand", [True, False])
@pytest.mark.parametrize("offset", [0, 1 << 20])
def test_what_is_no_file_is_no_file_without_news(tmp_path: Path, offset: int, at_hand: bool) -> None:  # noqa: FBT001
    with pytest.raises(OSError, match=r"directory|not supported|unavailable"):
        read_events(tmp_path, offset, at_hand=at_hand)


def test_no_file_has_no_events(tmp_path: Path) -> None:
    assert read_events(tmp_path / "events", 0) == ([], 0)


def test_a_link_in_the_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(line())
    (tmp_path / "events").symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="events"):
        read_events(tmp_path / "events", 0)


@pytest.mark.parametrize(
    "bad",
    [
        b"garbage\n",
        b"\n",
        b"[]\n",
        line(type="unheard-of"),
        line(n="1"),
        line(n=-1),
        line(payload=[]),
        line(last_chunk=0),
        line(time=None),
        b'{"n": 1}\n',
        b"\xff\n",
    ],
)
def test_a_damaged_line_is_told_and_the_next_one_is_read(tmp_path: Path, bad: bytes) -> None:
    path = tmp_path / "events"
    path.write_bytes(bad + line(n=2))
    events, offset = read_events(path, 0)
    assert [event.type for event in events] == [RunEventType.PROTOCOL_ERROR, RunEventType.LOG]
    assert "damaged" in str(events[0].payload["message"])
    assert offset == len(bad) + len(line(n=2))


def test_what_is_larger_than_a_read_is_read_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "events"
    path.write_bytes(b"".join(line(n=number, payload={"x": "y" * 200_000}) for number in range(1, 8)))
    found: list[int] = []
    offset = 0
    while True:
        events, following = read_events(path, offset, max_bytes=1)
        if following == offset:
            break
        found += [event.n for event in events]
        offset = following
    assert found == list(range(1, 8))
    assert offset == path.stat().st_size
    assert LINE_MAX < FILE_MAX


def test_an_unfinished_exit_record_is_none_and_a_damaged_one_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "exit"
    assert read_exit(path) is None
    path.write_bytes(b"")
    assert read_exit(path) is None
    path.write_bytes(b'{"version": 1, "run"')
    assert read_exit(path) is None
    for damaged in (b"{}\n", b"x\n", b'{"version": 2}\n', b'{"version": 1, "run": 5}\n'):
        path.write_bytes(damaged)
        with pytest.raises(RecordError):
            read_exit(path)
