"""Lines from the person at the terminal, awaited on the loop: an answer that is no longer wanted is not waited for.

The terminal stays in its own line mode, so editing, Ctrl-C and job control are the kernel's (termios(3)).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import termios
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

_MOST = 64 * 1024
"""Bytes of one line that are looked at; a terminal gives 4096 at most."""


class Keyboard:
    """Stdin, line by line. `NoMore` is raised at its end (Ctrl-D)."""

    class NoMore(Exception):
        """The person closed the input."""

    def __init__(self) -> None:
        """Nothing is read until a line is asked for."""
        self._fd = sys.stdin.fileno()
        self._typed = bytearray()
        self.reading = False
        """Whether the person is waited for right now."""

    async def line(self, prompt: str, out: TextIO, *, hidden: bool = False) -> str:
        """The next line without its newline, asked for by `prompt` on `out`. Raises NoMore.

        `hidden`: it is not shown as it is typed, from before the prompt is.
        """
        with self._unseen() if hidden else contextlib.nullcontext():
            print(prompt, end="", file=out, flush=True)
            while b"\n" not in self._typed and len(self._typed) < _MOST:
                await self._readable()
                data = os.read(self._fd, 4096)
                if not data:
                    raise Keyboard.NoMore
                self._typed += data
        head, _, rest = self._typed.partition(b"\n")
        self._typed = rest
        return head.decode("utf-8", "replace").removesuffix("\r")

    def forget(self) -> None:
        """Throw away what was typed ahead: it was not meant for what is asked now."""
        self._typed.clear()
        with contextlib.suppress(termios.error):
            termios.tcflush(self._fd, termios.TCIFLUSH)

    async def _readable(self) -> None:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        loop.add_reader(self._fd, ready.set)
        self.reading = True
        try:
            await ready.wait()
        finally:
            self.reading = False
            loop.remove_reader(self._fd)

    @contextlib.contextmanager
    def _unseen(self) -> Iterator[None]:
        try:
            before = termios.tcgetattr(self._fd)
        except termios.error:  # no terminal: nothing is shown anyway
            yield
            return
        silent = [*before]
        silent[3] &= ~termios.ECHO
        termios.tcsetattr(self._fd, termios.TCSADRAIN, silent)
        try:
            yield
        finally:
            termios.tcsetattr(self._fd, termios.TCSADRAIN, before)
