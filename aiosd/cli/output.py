"""Where a task's bytes go: as they are into a pipe or a file, without control sequences onto a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiosd.cli.terminal import StreamCleaner

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO

CHUNK = 64 * 1024


class ByteOutput:
    """One of the task's streams on one of ours."""

    def __init__(self, target: TextIO, show: Callable[[str], None] | None = None) -> None:
        """`show`: takes the text for a terminal instead of `target` itself."""
        self._target = target
        self._show = show or self._print
        self._cleaner = StreamCleaner() if target.isatty() else None

    def write(self, data: bytes) -> None:
        """More of the stream."""
        if self._cleaner is None:
            self._target.flush()
            self._target.buffer.write(data)
            self._target.buffer.flush()
        else:
            self._show(self._cleaner.feed(data))

    def finish(self) -> None:
        """The stream's end."""
        if self._cleaner is not None:
            self._show(self._cleaner.finish())

    def _print(self, text: str) -> None:
        if text:
            self._target.write(text)
            self._target.flush()
