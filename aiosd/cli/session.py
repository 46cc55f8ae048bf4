"""What a verb is given: how to reach the daemon, and how to say things (text or JSON, with colour or without).

One `Session` lives for one invocation. The options that every verb has (`--json`, `--color`, `--no-ask-password`) set
it.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from aiosd.cli.terminal import one_line
from aiosd.model.jsontext import dump

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
    from contextlib import AbstractAsyncContextManager
    from typing import TextIO

    from aiosd.cli.client import TaskManagerClient, Transport
    from aiosd.model.jsontext import JsonValue

    Connect = Callable[["Session"], AbstractAsyncContextManager[Transport]]

T = TypeVar("T")


class ColorWhen(StrEnum):
    """When to use colours."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class Style(StrEnum):
    """What a piece of text is about; its SGR parameters (ECMA-48, 8.3.117)."""

    GOOD = "32"
    BAD = "31;1"
    WAITING = "33"
    RUNNING = "36"
    DIM = "2"
    HEAD = "4"


STATUS_STYLES = {
    "completed": Style.GOOD,
    "failed": Style.BAD,
    "canceled": Style.DIM,
    "working": Style.RUNNING,
    "paused": Style.WAITING,
    "input_required": Style.WAITING,
    "auth_required": Style.WAITING,
}
"""How a task's status looks."""


def _connect_bus(session: Session) -> AbstractAsyncContextManager[Transport]:
    from aiosd.cli.wire import connect

    return connect(interactive=session.ask_password)


@dataclass
class Session:
    """One invocation of aiosctl."""

    connect_to: Connect = _connect_bus
    json: bool = False
    color: ColorWhen = ColorWhen.AUTO
    ask_password: bool = True
    on_interrupt: str = ""
    """What to say when Ctrl-C ends the verb."""
    out: TextIO = field(default_factory=lambda: sys.stdout)
    err: TextIO = field(default_factory=lambda: sys.stderr)

    def run(self, work: Coroutine[object, object, T]) -> T:
        """Run a verb's work to its end."""
        try:
            import asyncio

            return asyncio.run(work)
        finally:
            work.close()  # Ctrl-C may have come before it began

    @contextlib.asynccontextmanager
    async def connect(self) -> AsyncIterator[TaskManagerClient]:
        """The daemon, over the system bus."""
        from aiosd.cli.client import TaskManagerClient

        async with self.connect_to(self) as transport:
            gc.freeze()  # what is imported stays
            gc.enable()
            yield TaskManagerClient(transport, self.asking)

    @contextlib.asynccontextmanager
    async def asking(self) -> AsyncIterator[None]:
        """While this lasts, the person at the terminal can be asked for a password, where that makes sense."""
        if not self.ask_password or os.geteuid() == 0 or not _is_terminal(sys.stdin):
            yield
            return
        from aiosd.cli.password_agent import agent

        async with agent():
            yield

    @contextlib.contextmanager
    def interruptible(self, hint: str) -> Iterator[None]:
        """Say `hint` when Ctrl-C comes in this context."""
        self.on_interrupt = hint
        yield
        self.on_interrupt = ""

    @property
    def out_is_terminal(self) -> bool:
        """Whether a person reads stdout."""
        return _is_terminal(self.out)

    @property
    def err_is_terminal(self) -> bool:
        """Whether a person reads stderr."""
        return _is_terminal(self.err)

    def is_screen(self, stream: TextIO) -> bool:
        """Whether what was written there can be written over: not on a terminal that calls itself dumb."""
        return _is_terminal(stream) and os.environ.get("TERM") not in (None, "", "dumb")

    def colored(self, stream: TextIO | None = None) -> bool:
        """Whether to use colours on the stream (https://no-color.org)."""
        if self.color is ColorWhen.AUTO:
            plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") in (None, "dumb")
            return _is_terminal(stream or self.out) and not plain
        return self.color is ColorWhen.ALWAYS

    def paint(self, text: str, style: Style | None, stream: TextIO | None = None) -> str:
        """`text` in a style, if colours are wanted."""
        return f"\x1b[{style}m{text}\x1b[0m" if style and text and self.colored(stream) else text

    def status(self, status: str) -> str:
        """A task's status, painted."""
        return self.paint(one_line(status), STATUS_STYLES.get(status))

    @property
    def can_ask(self) -> bool:
        """Whether there is a person at a terminal who reads what is shown and can answer."""
        return not self.json and self.ask_password and _is_terminal(sys.stdin) and self.err_is_terminal

    def read_line(self) -> str:
        """A line from the person; blocks."""
        return sys.stdin.readline()

    def forget_typed(self) -> None:
        """Throw away what was typed and not read yet (termios(3), tcflush)."""
        import termios

        with contextlib.suppress(termios.error):
            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)

    def say(self, text: str = "") -> None:
        """A line on stdout. Text that others chose must be clean already."""
        print(text, file=self.out)

    def note(self, text: str) -> None:
        """A line for the person, on stderr; silent with --json, where programs read."""
        if not self.json:
            print(text, file=self.err, flush=True)

    def emit(self, value: JsonValue, *, pretty: bool = False) -> None:
        """A JSON value on stdout, one a line (`pretty`: for people, indented); on a terminal without control
        characters, which JSON leaves as they are beyond ASCII."""
        text = dump(value)
        if pretty:
            import json

            text = json.dumps(value, ensure_ascii=False, indent=2)
        if self.out_is_terminal:
            from aiosd.cli.terminal import json_text

            text = json_text(text)
        print(text, file=self.out, flush=True)


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False
