"""The view with a progress bar. The only module, with `verb/watch.py` and `verb/top.py`, that needs rich."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.text import Text

from aiosd.cli.output import ByteOutput
from aiosd.cli.terminal import one_line
from aiosd.cli.views import Progress, remark

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

    from aiosd.cli.session import Session
    from aiosd.cli.values import TaskEvent
    from aiosd.model.jsontext import JsonObject


def console_for(session: Session, stream: TextIO) -> Console:
    """A console on a terminal that honours the session's choice of colours."""
    colored = session.colored(stream)
    return Console(file=stream, no_color=not colored, force_terminal=True, highlight=False, markup=False)


class LiveView:
    """A bar at the bottom, on stderr; the program's lines above it, or into the pipe that stdout is."""

    def __init__(self, session: Session, bar: Bar) -> None:
        """`bar`: started, with no task yet."""
        self._bar = bar
        self._row = bar.add_task("", total=None)
        self._progress = Progress()
        self._partial = {"stdout": "", "stderr": ""}
        self._outputs = {
            "stdout": ByteOutput(session.out, lambda text: self._above("stdout", text)),
            "stderr": ByteOutput(session.err, lambda text: self._above("stderr", text)),
        }

    def event(self, event: TaskEvent) -> None:
        """Move the bar, or print a remark above it."""
        self._progress.take_event(event)
        self._show()
        if text := remark(event):
            self.note(text)

    def task(self, task: JsonObject) -> None:
        """Where it is now."""
        self._progress.take_task(task)
        self._show()

    def output(self, stream: str, data: bytes) -> None:
        """Above the bar when our stream is the terminal."""
        self._outputs[stream].write(data)

    def note(self, text: str) -> None:
        """A line above the bar."""
        self._print(text)

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Take the bar away for as long as this lasts."""
        self._bar.stop()
        try:
            yield
        finally:
            self._bar.start()

    def finish(self) -> None:
        """Print what has no newline yet."""
        for output in self._outputs.values():
            output.finish()
        for text in self._partial.values():
            if text:
                self._print(text)

    def _show(self) -> None:
        state = one_line(self._progress.status)
        phase = one_line(self._progress.phase)
        name = state if phase in ("", state, "running") else f"{state} ({phase})"
        text = f"{name} {self._progress.message}".strip()
        total = None if self._progress.percent is None else 100
        self._bar.update(self._row, description=text, total=total, completed=self._progress.percent or 0)

    def _above(self, stream: str, text: str) -> None:
        *lines, self._partial[stream] = (self._partial[stream] + text).split("\n")
        for line in lines:
            self._print(line)

    def _print(self, text: str) -> None:
        self._bar.console.print(Text(text), soft_wrap=True)


@contextlib.contextmanager
def live_view(session: Session) -> Iterator[LiveView]:
    """The bar, gone again when the context ends."""
    bar = Bar(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        console=console_for(session, session.err),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    with bar:
        view = LiveView(session, bar)
        yield view
        view.finish()
