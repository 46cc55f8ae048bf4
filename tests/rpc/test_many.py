"""A thousand event streams of one task: each gets everything; and when none reads, the daemon's memory is bounded."""

from __future__ import annotations

import contextlib
import os
import resource
import selectors
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from tests import prerequisites
from tests.rpc.standin import TASK

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STREAMS = 1000
EVENTS = 50
LISTENING_KIB = 60
"""A stream at rest: connection, request, response, tasks, subscription."""
STUCK_KIB = 120
"""One whose client does not read: with the buffers of this process (two of 16 KiB and what Python adds)."""


@pytest.fixture
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * STREAMS or os.geteuid() != 0:
        prerequisites.missing("a thousand streams need root and 2000 descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Server:
    """The door in its process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, words: str) -> int:
        """Tell it something; its resident set in KiB."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(words + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


@contextlib.contextmanager
def server(place: Path) -> Iterator[Server]:
    command = [sys.executable, "-m", "tests.rpc.many", str(place)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield Server(process)
        finally:
            process.kill()


def read_all(streams: list[socket.socket], marker: bytes) -> float:
    """Read every stream until `marker` has come on it; the seconds it took."""
    begin, tails = time.monotonic(), dict.fromkeys(streams, b"")
    with selectors.DefaultSelector() as selector:
        for one in streams:
            selector.register(one, selectors.EVENT_READ, one)
        while tails and time.monotonic() < begin + 60:
            for key, _ in selector.select(1):
                stream: socket.socket = key.data
                piece = stream.recv(1 << 16)
                assert piece, "a stream ended"
                tails[stream] = tails[stream][-len(marker) :] + piece
                if marker in tails[stream]:
                    del tails[stream]
                    selector.unregister(stream)
    assert not tails, f"{len(tails)} streams did not get to {marker!r}"
    return time.monotonic() - begin


def test_a_thousand_streams_of_one_task(place: Path, many_files: None) -> None:
    with server(place) as served, contextlib.ExitStack() as stack:
        streams = []
        for _ in range(STREAMS):
            stream = stack.enter_context(socket.socket(socket.AF_UNIX))
            stream.connect(str(place / "aios.sock"))
            stream.sendall(f"GET /events?task_id={TASK} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            streams.append(stream)
            if len(streams) == 1:
                read_all(streams, b"retry: ")
                alone = served.ask("rss")
        read_all(streams[1:], b"retry: ")
        listening = served.ask("rss")
        begin = time.monotonic()
        served.ask(f"happen {EVENTS} 10")
        read_all(streams, f"evt-{EVENTS:016d}".encode())
        rate = EVENTS * STREAMS / (time.monotonic() - begin)
        served.ask("happen 800 2000")  # 1.6 MB for each of them, and nobody reads
        stuck = served.ask("rss")
        each, more = (listening - alone) / STREAMS, (stuck - listening) / STREAMS
        print(f"{STREAMS} streams: {each:.0f} KiB each, {rate:.0f} events/s; {more:.0f} KiB more each when none reads")
        assert (listening - alone) / STREAMS < LISTENING_KIB
        assert (stuck - listening) / STREAMS < STUCK_KIB
        read_all(streams, b"event: gap")
