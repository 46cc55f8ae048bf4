"""`Task`: one conversation with the shim over the socket that `AIOS_TASK_FD` names (docs/architecture.md).

Single-threaded and synchronous on purpose: messages to the program are looked at in `checkpoint`, `ask` and `poll`.
A final chunk is sent once; leaving the `with` block by an exception fails the task, with the traceback on stderr only.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from typing import Self, TypeAlias

    Json: TypeAlias = "Mapping[str, Json] | list[Json] | str | int | float | bool | None"

_READ = 65536


class WorkerError(Exception):
    """The conversation cannot go on: no socket, or the shim is gone."""


class Canceled(Exception):
    """The task is to end; `str()` is the reason. Clean up and let it through."""


class Task:
    """The task that this process works on."""

    def __init__(self, sock: socket.socket) -> None:
        """Use `Task.connect`."""
        self._socket = sock
        self._received = b""
        self._index = 0
        self._interactions = 0
        self._answers: dict[int, Mapping[str, Json]] = {}
        self._pauses: list[Json] = []
        self._resumed = False
        self._final = False
        self.canceled = False
        self.cancel_reason = ""
        self.cannot_pause = ""
        """Why it cannot be paused at this moment; "" when it can. Whoever wants it paused is told."""
        self.cannot_cancel = ""
        """Why it cannot be canceled at this moment. Heard where the system is: `poll`, `checkpoint`, `ask`."""
        start = self._wait_start()
        arguments, metadata = start.get("arguments"), start.get("metadata")
        self.arguments: dict[str, Json] = dict(arguments) if isinstance(arguments, dict) else {}
        self.metadata: dict[str, Json] = dict(metadata) if isinstance(metadata, dict) else {}
        self.task_id = str(start.get("task_id", os.environ.get("AIOS_TASK_ID", "")))
        attempt = start.get("attempt")
        self.attempt = attempt if isinstance(attempt, int) else 1

    @property
    def context(self) -> dict[str, Json]:
        """What the task may read of others: goal, constraints, `shared`, `handed_over` (docs/control-plane.md); {} for
        none. A part's `path` is the name of a file in the directory `$AIOS_CONTEXT`."""
        try:
            with open(os.path.join(os.environ.get("AIOS_CONTEXT", ""), "context.json"), encoding="utf-8") as file:  # noqa: PTH118, PTH123  pathlib costs more to import than all of this
                found = json.load(file)
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    @classmethod
    def connect(cls) -> Self:
        """Take up the conversation. Raises WorkerError when this process is not a task's program."""
        number = os.environ.get("AIOS_TASK_FD", "")
        try:
            return cls(socket.socket(fileno=int(number)))
        except (ValueError, OSError):
            raise WorkerError("AIOS_TASK_FD names no socket: this runs only as the program of a task") from None

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """An exception ends the program with status 1 and the task as failed; the traceback stays on stderr."""
        if error is None or isinstance(error, SystemExit):
            return
        if isinstance(error, Canceled):
            self._end(str(error), "canceled", retryable=False)
        else:
            import traceback

            traceback.print_exception(error)
            # As with a program that ends with a status: it is tried again as often as was asked for.
            self._end(f"{type(error).__name__}: {error}", "exception", retryable=True)
        sys.exit(1)

    def _end(self, message: str, reason: str, *, retryable: bool) -> None:
        if not self._final:
            self.fail(message, reason=reason, retryable=retryable)

    # -- to the system ----------------------------------------------------------------------------------------------

    def _say(self, kind: str, payload: Mapping[str, Json], *, last: bool = False) -> None:
        chunk = {"type": kind, "payload": payload, "index": self._index, "last_chunk": last}
        self._index += 1
        line = json.dumps(chunk, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        try:
            self._socket.sendall(line.encode() + b"\n")
        except OSError as error:
            raise WorkerError(f"the supervisor is gone: {error.strerror}") from None

    def progress(
        self,
        percent: float | None = None,
        message: str = "",
        *,
        current_step: int | None = None,
        total_steps: int | None = None,
    ) -> None:
        """How far it is: `percent` 0 to 100."""
        given: dict[str, Json] = {"percent": percent, "current_step": current_step, "total_steps": total_steps}
        progress = {key: value for key, value in given.items() if value is not None}
        self._say("processing", {"progress": {**progress, **({"message": message} if message else {})}})

    def step(self, name: str, status: str, summary: str = "") -> None:
        """A step of the work: `status` is started, finished or failed."""
        self._say("processing", {"step": {"name": name, "status": status, "summary": summary}})

    def tool_call(self, name: str, status: str, **details: Json) -> None:
        """A tool that is used: `status` is requested or finished."""
        self._say("processing", {"tool_call": {"name": name, "status": status, **details}})

    def summary(self, summary: str, **details: Json) -> None:
        """The structured summary: also progress_percent, current_step, next_step, risk."""
        self._say("processing", {"summary": {"summary": summary, **details}})

    def log(self, message: str, level: str = "info") -> None:
        """A line of the task's own log."""
        self._say("log", {"level": level, "message": message})

    def artifact(
        self,
        key: str,
        *,
        name: str = "",
        path: str | None = None,
        text: str | None = None,
        data: Mapping[str, Json] | None = None,
        mime_type: str = "application/octet-stream",
        type: str = "file",
        kind: str = "file",
        duration_ms: int | None = None,
        append: bool = False,
        last_chunk: bool = True,
    ) -> None:
        """Hand over a result: a file (`path`, relative to the scratch directory), `text` or `data`, or several.

        `kind`: what the file is: file, image, audio or video (seed 000), the last two with their `duration_ms`.
        To stream one: the same `key` with `append`, and `last_chunk=False` as long as more will come.
        """
        parts: list[Json] = []
        if path is not None:
            described: dict[str, Json] = {"path": os.fspath(path), "mime_type": mime_type}
            parts.append({kind: described if duration_ms is None else {**described, "duration_ms": duration_ms}})
        if text is not None:
            parts.append({"text": text})
        if data is not None:
            parts.append({"data": data})
        payload: dict[str, Json] = {"key": key, "name": name or key, "type": type, "mime_type": mime_type}
        self._say("artifact", {**payload, "parts": parts, "append": append, "last_chunk": last_chunk})

    def complete(
        self, result: Mapping[str, Json] | None = None, *, metadata: Mapping[str, Json] | None = None
    ) -> None:  # fmt: skip
        """The result; nothing after it is heard. `metadata` go over the task's own in the event that tells of it."""
        self._say("task_completion", {"result": result or {}, **_metadata(metadata)}, last=True)
        self._final = True

    def fail(
        self, message: str, *, reason: str = "", retryable: bool = False, data: Json = None,
        metadata: Mapping[str, Json] | None = None,
    ) -> None:  # fmt: skip
        """The task failed; nothing after it is heard. `metadata`: as of `complete`."""
        payload: dict[str, Json] = {"message": message, "reason": reason, "retryable": retryable, "data": data}
        self._say("task_failed", {**payload, **_metadata(metadata)}, last=True)
        self._final = True

    def ask(
        self,
        prompt: str,
        *,
        schema: Mapping[str, Json] | None = None,
        options: list[Json] | None = None,
        secret: bool = False,
        timeout_ms: int | None = None,
        metadata: Mapping[str, Json] | None = None,
    ) -> Mapping[str, Json]:
        """Ask the person and wait for the answer. `metadata`: as of `complete`. Raises Canceled, WorkerError."""
        payload: dict[str, Json] = {"kind": "input", "prompt": prompt, "secret": secret, **_metadata(metadata)}
        more: dict[str, Json] = {"schema": schema, "options": options, "timeout_ms": timeout_ms}
        return self._interact(payload | {key: value for key, value in more.items() if value is not None})

    def _interact(self, payload: Mapping[str, Json]) -> Mapping[str, Json]:
        self._interactions += 1
        number = self._interactions
        self._say("task_interaction", {"interaction": number, **payload})
        while number not in self._answers:
            self._take(self._read_line())
            self._raise_if_canceled()
        return self._answers.pop(number)

    def authenticate(
        self,
        type: str,
        *,
        provider: str = "",
        reason: str = "",
        authorization_url: str | None = None,
        scopes: list[Json] | None = None,
        timeout_ms: int | None = None,
        **more: Json,
    ) -> Mapping[str, Json]:
        """Have the person authenticate and wait for what they give; nobody else sees it.

        `type`: oauth2 (see `aiosd.worker.oauth`), api_key, password or certificate. `more`: state, client_id,
        code_challenge, code_challenge_method. The answer has the fields of that type: authorization_code, state,
        redirect_uri; api_key; username, password; certificate, private_key. Raises Canceled, WorkerError.
        """
        given: dict[str, Json] = {
            "type": type, "provider": provider, "authorization_url": authorization_url, "scopes": scopes,
            "reason": reason, "timeout_ms": timeout_ms, **more,
        }  # fmt: skip
        request = {key: value for key, value in given.items() if value not in (None, "")}
        return self._interact({"kind": "auth", "prompt": reason, "auth_request": request})

    def approve(
        self, kind: str, summary: str, risk_level: str = "medium", *, timeout_ms: int | None = None
    ) -> bool:  # fmt: skip
        """Ask whether something may be done, and wait: True only when a person approved exactly this.

        `kind`: a word, like `dangerous_command`. `summary`: what is about to be done, at most 2000 characters. No
        answer in time is a no. Raises Canceled, WorkerError.
        """
        wanted: dict[str, Json] = {"kind": kind, "summary": summary, "risk_level": risk_level}
        asked: dict[str, Json] = {"kind": "approval", "prompt": summary, "approval": wanted}
        more: dict[str, Json] = {} if timeout_ms is None else {"timeout_ms": timeout_ms}
        return self._interact(asked | more).get("approved") is True

    # -- from the system --------------------------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """A place where it can stop: raises Canceled when it is to, and stays here while the task is paused."""
        self.poll()
        while self._pauses:
            self._say("paused", {"id": self._pauses.pop()})
            self._pauses.clear()
            self._resumed = False
            while not self._resumed and not self.canceled:
                self._take(self._read_line())
        self._raise_if_canceled()

    def poll(self) -> None:
        """Look at what the system said, without waiting; `canceled` may have changed."""
        while b"\n" in self._received or select.select([self._socket], [], [], 0)[0]:
            self._take(self._read_line())

    def _raise_if_canceled(self) -> None:
        if self.canceled:
            raise Canceled(self.cancel_reason or "canceled")

    def _take(self, message: Mapping[str, Json]) -> None:
        kind = message.get("type")
        if kind == "cancel":
            self.canceled = True
            self.cancel_reason = str(message.get("reason") or "")
        elif kind == "pause":
            self._pauses.append(message.get("id"))
        elif kind == "resume":
            self._resumed = True
            self._pauses.clear()
        elif kind in ("can_pause", "can_cancel"):
            reason = self.cannot_pause if kind == "can_pause" else self.cannot_cancel
            self._say(str(kind), {"id": message.get("id"), "allowed": not reason, "reason": reason})
        elif kind in ("input", "authentication"):
            number, given = message.get("interaction"), message.get("input")
            if isinstance(number, int):
                self._answers[number] = given if isinstance(given, dict) else {}

    def _wait_start(self) -> Mapping[str, Json]:
        while (message := self._read_line()).get("type") != "start":
            self._take(message)
        return message

    def _read_line(self) -> Mapping[str, Json]:
        while b"\n" not in self._received:
            try:
                data = self._socket.recv(_READ)
            except OSError as error:
                raise WorkerError(f"the supervisor is gone: {error.strerror}") from None
            if not data:
                raise WorkerError("the supervisor is gone")
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        message = json.loads(line)
        return message if isinstance(message, dict) else {}


def _metadata(given: Mapping[str, Json] | None) -> dict[str, Json]:
    """What a chunk says beside its own; the payload's keys win over the task's (seed 002)."""
    return {} if given is None else {"metadata": given}
