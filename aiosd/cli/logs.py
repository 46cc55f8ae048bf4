"""Reading what a task's program wrote, by the descriptors that OpenLog gives, while it goes on growing.

A log is a regular file, so growth is seen by reading on; `LogPump` looks four times a second, and the end is known
from the daemon (Wait), never from a quiet file. Each attempt has files of its own.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from aiosd.cli.exit_status import ExitStatus
from aiosd.cli.failure import Failure
from aiosd.cli.output import CHUNK
from aiosd.cli.values import integer_at

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator

    from aiosd.cli.client import TaskManagerClient

STREAMS = ("stdout", "stderr")
LOOK_INTERVAL = 0.25
"""Seconds between two looks at a growing log."""

_NOT_THERE_YET = frozenset({ExitStatus.NOT_FOUND, ExitStatus.DATA})


class LogReader:
    """One open log; a context manager that closes it. Reads at its own offset, which no other reader moves."""

    def __init__(self, descriptor: int) -> None:
        """`descriptor`: from now on the reader's."""
        self._descriptor = descriptor
        self._offset = 0

    def __enter__(self) -> LogReader:
        """Open already."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        os.close(self._descriptor)

    def pieces(self) -> Iterator[bytes]:
        """What came since the last time."""
        while data := os.pread(self._descriptor, CHUNK, self._offset):
            self._offset += len(data)
            yield data


class LogPump:
    """Takes a task's logs, attempt after attempt, to `write(stream, data)`."""

    def __init__(
        self,
        client: TaskManagerClient,
        task_id: str,
        write: Callable[[str, bytes], None],
        *,
        streams: tuple[str, ...] = STREAMS,
        attempt: int = 0,
    ) -> None:
        """`attempt`: only this one; 0: the running one and those that follow."""
        self._client = client
        self._task_id = task_id
        self._write = write
        self._streams = streams
        self._only = attempt
        self._shown = 0
        self._readers: list[tuple[str, LogReader]] = []
        self._open = contextlib.ExitStack()

    async def run(self, ended: asyncio.Event) -> None:
        """Until `ended` is set and everything is out."""
        import asyncio

        with self._open:
            looks = 0
            while not ended.is_set():
                if looks % 4 == 0 or not self._readers:
                    await self._advance()
                self._drain()
                looks += 1
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(ended.wait(), LOOK_INTERVAL)
            await self._advance()
            self._drain()

    async def _advance(self) -> None:
        """Open the logs of attempts that have begun since; the first time, only of the present one."""
        if self._only and self._shown:
            return
        try:
            present = self._only or integer_at(await self._client.get(self._task_id), "attempt") or 0
        except Failure as failure:
            if failure.is_absence:
                return  # what is open stays readable; the next look asks again
            raise
        begin = self._shown + 1 if self._shown else present
        for attempt in range(max(begin, 1), present + 1):
            self._drain()
            if not await self._switch(attempt):
                return
            self._shown = attempt

    async def _switch(self, attempt: int) -> bool:
        opened: list[tuple[str, LogReader]] = []
        for stream in self._streams:
            try:
                opened.append((stream, LogReader(await self._client.open_log(self._task_id, stream, attempt))))
            except Failure as failure:
                for _, reader in opened:
                    reader.__exit__()
                if failure.status in _NOT_THERE_YET or failure.is_absence:
                    return False
                raise
        self._open.close()
        for _, reader in opened:
            self._open.enter_context(reader)
        self._readers = opened
        return True

    def _drain(self) -> None:
        for stream, reader in self._readers:
            for piece in reader.pieces():
                self._write(stream, piece)
