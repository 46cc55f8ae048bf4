"""The views of a followed task: JSON lines, plain lines, and (`live.py`) a progress bar on a terminal."""

from __future__ import annotations

import base64
import contextlib
import time
from typing import TYPE_CHECKING

from aiosd.cli.output import ByteOutput
from aiosd.cli.session import STATUS_STYLES
from aiosd.cli.terminal import one_line
from aiosd.cli.values import integer_at, object_at, string_at, to_json
from aiosd.model.event import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from aiosd.cli.follow import View
    from aiosd.cli.session import Session
    from aiosd.cli.values import TaskEvent
    from aiosd.model.jsontext import JsonObject, JsonValue

QUIET_SECONDS = 5.0
QUIET_PERCENT = 10
"""Plain progress lines come at every tenth of the way, or after this time."""


def encoded(data: bytes) -> dict[str, JsonValue]:
    """Bytes in JSON: as text where they are UTF-8, else in base 64."""
    try:
        return {"encoding": "utf-8", "text": data.decode("utf-8")}
    except UnicodeDecodeError:
        return {"encoding": "base64", "text": base64.b64encode(data).decode("ascii")}


class JsonView:
    """One JSON object a line: `kind` task, output, or an event's."""

    def __init__(self, session: Session) -> None:
        """Writes to the session's stdout."""
        self._session = session

    def event(self, event: TaskEvent) -> None:
        """`{"event_id", "kind", "data"}`."""
        self._session.emit(to_json(event))

    def task(self, task: JsonObject) -> None:
        """`{"kind": "task", "data"}`."""
        self._session.emit({"kind": "task", "data": task})

    def output(self, stream: str, data: bytes) -> None:
        """`{"kind": "output", "stream", "encoding", "text"}`."""
        self._session.emit({"kind": "output", "stream": stream, **encoded(data)})

    def note(self, text: str) -> None:
        """Nothing: notes are for people."""

    def hold(self) -> AbstractContextManager[None]:
        """There is no room to make."""
        return contextlib.nullcontext()


class Progress:
    """How far a task is, as its events and its whole self tell it."""

    def __init__(self) -> None:
        """Unknown."""
        self.percent: int | None = None
        self.message = ""
        self.status = ""
        self.phase = ""

    def take_task(self, task: JsonObject) -> None:
        """From GetTask."""
        self.status, self.phase = string_at(task, "status"), string_at(task, "phase")
        self._take(object_at(task, "progress"))

    def take_event(self, event: TaskEvent) -> None:
        """From an event (seed 000: progress under `progress`)."""
        if event.kind == Kind.STATUS:
            self.status = string_at(event.data, "status") or self.status
            self.phase = string_at(event.data, "phase")
        elif event.kind == Kind.PROGRESS:
            self._take(object_at(event.data, "progress") or event.data)

    def _take(self, progress: JsonObject) -> None:
        summary = object_at(progress, "summary")
        percent = progress.get("percent", summary.get("progress_percent"))
        if isinstance(percent, int | float) and not isinstance(percent, bool):
            self.percent = max(0, min(100, round(percent)))
        self.message = one_line(string_at(progress, "message") or string_at(summary, "summary")) or self.message


def remark(event: TaskEvent) -> str:
    """What an event is worth saying beyond progress and status; empty for nothing."""
    data = event.data
    if event.kind == Kind.INPUT_REQUIRED:
        task_id = one_line(string_at(data, "task_id"))
        return f"It asks: {one_line(string_at(data, 'prompt'))}\n  answer: aiosctl answer {task_id} key=value"
    if event.kind == Kind.AUTH_REQUIRED:
        return _authorisation(one_line(string_at(data, "task_id")), object_at(data, "auth_request"))
    if event.kind == Kind.ARTIFACT:
        artifact = object_at(data, "artifact") or data
        return f"Artifact {one_line(string_at(artifact, 'id'))} {one_line(string_at(artifact, 'name'))}"
    if event.kind == Kind.LOG and string_at(data, "message"):
        return one_line(f"{string_at(data, 'level') or 'info'}: {string_at(data, 'message')}")
    return ""


def _authorisation(task_id: str, asked: JsonObject) -> str:
    """What it waits for (docs/authentication.md, permissions.md), and the verb that gives it."""
    kind = string_at(asked, "type")
    if kind == "approval":
        summary, approval_id = one_line(string_at(asked, "summary")), one_line(string_at(asked, "approval_id"))
        return f"It waits for an approval: {summary}\n  answer: aiosctl approve {approval_id}"
    by, why = one_line(string_at(asked, "provider")), one_line(string_at(asked, "reason"))
    what = f"{one_line(kind)}{f' of {by}' if by else ''}{f': {why}' if why else ''}"
    return f"It waits for an authentication: {what}\n  answer: aiosctl auth {task_id}"


class PlainView:
    """Lines on stderr, at a bearable rate; the program's output on stdout and stderr."""

    def __init__(self, session: Session) -> None:
        """Writes to the session's streams."""
        self._session = session
        self._outputs = {"stdout": ByteOutput(session.out), "stderr": ByteOutput(session.err)}
        self._progress = Progress()
        self._shown = ("", "")
        self._said = (-QUIET_PERCENT, 0.0)

    def event(self, event: TaskEvent) -> None:
        """A status line, a progress line, or a remark."""
        self._progress.take_event(event)
        if event.kind == Kind.STATUS:
            self._status()
        elif event.kind == Kind.PROGRESS:
            self._advance()
        elif text := remark(event):
            self.note(text)

    def task(self, task: JsonObject) -> None:
        """Where it is now."""
        self._progress.take_task(task)
        self._status()

    def output(self, stream: str, data: bytes) -> None:
        """Onto our stream of the same name."""
        self._outputs[stream].write(data)

    def note(self, text: str) -> None:
        """A line on stderr."""
        self._session.note(text)

    def hold(self) -> AbstractContextManager[None]:
        """There is no room to make: lines come one after the other."""
        return contextlib.nullcontext()

    def finish(self) -> None:
        """Let out what was held back."""
        for output in self._outputs.values():
            output.finish()

    def _status(self) -> None:
        status, phase = self._progress.status, self._progress.phase
        if (status, phase) != self._shown and status:
            self._shown = (status, phase)
            painted = self._session.paint(one_line(status), STATUS_STYLES.get(status), self._session.err)
            self.note(painted + (f" ({one_line(phase)})" if phase and phase != status else ""))

    def _advance(self) -> None:
        message, percent = self._progress.message, self._progress.percent or 0
        said_percent, said_at = self._said
        late = time.monotonic() - said_at > QUIET_SECONDS
        if late or percent - said_percent >= QUIET_PERCENT:
            self._said = (percent, time.monotonic())
            shown = f"{percent:3d}% " if self._progress.percent is not None else ""
            self.note(shown + message)


@contextlib.contextmanager
def view_for(session: Session) -> Iterator[View]:
    """The view that suits where the output goes."""
    if session.json:
        yield JsonView(session)
    elif session.is_screen(session.err):
        from aiosd.cli.live import live_view

        with live_view(session) as live:
            yield live
    else:
        plain = PlainView(session)
        yield plain
        plain.finish()


def say_end(session: Session, task: JsonObject) -> None:
    """How it ended, in one line on stderr; the error if there is one."""
    status, reason = string_at(task, "status"), string_at(task, "reason")
    message = string_at(object_at(task, "error"), "message")
    parts = [session.paint(one_line(status), STATUS_STYLES.get(status), session.err)]
    report = object_at(task, "exit")
    if status == "failed" and string_at(report, "signal"):
        parts.append(f"by {one_line(string_at(report, 'signal'))}")
    elif status == "failed" and integer_at(report, "exit_status"):
        parts.append(f"with exit status {integer_at(report, 'exit_status')}")
    if status != "completed" and reason:
        parts.append(f"({one_line(reason)})")
    text = " ".join(parts) + (f": {one_line(message)}" if message else "")
    session.note(f"{one_line(string_at(task, 'task_id'))} {text}")
