"""The blocking client: HTTP on the Unix socket, one connection for calls and one for each event stream."""

from __future__ import annotations

import http.client
import socket
import time
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from aiosd.client import messages
from aiosd.client.messages import HTTP_SOCKET, CallError, ProtocolError, StreamReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from os import PathLike
    from types import TracebackType
    from typing import Self

    from aiosd.client.messages import Event
    from aiosd.model.jsontext import JsonObject, JsonValue

FIRST_PAUSE = 0.1
"""Seconds between the second and the third try to take up an event stream that broke; each pause is twice the last."""
LONGEST_PAUSE = 5.0
SETTLED = 5.0
"""Seconds after which a stream that breaks had worked, so that it is taken up at once again."""
SHUTTING_DOWN = "AIOS-SHUTTING-DOWN"
"""A refusal after which the service comes back."""
ASK_AGAIN = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
"""Seconds before a call that met a stopping service is made again; together more than a stop takes."""
STREAM_SILENCE = 60.0
"""Seconds without even a heartbeat after which a stream counts as broken."""


class _UnixConnection(http.client.HTTPConnection):
    """HTTP on a Unix socket."""

    def __init__(self, path: str, timeout: float | None) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.sock.settimeout(self.timeout)
            self.sock.connect(self._path)
        except BaseException:
            self.sock.close()
            self.sock = None
            raise


class Client:
    """A context manager; not for several threads at once. `interactive`: the person behind this program may be asked.

    `timeout` in seconds for one answer, None for as long as it takes. Every call raises CallError (refused),
    ProtocolError, or OSError (not reachable).
    """

    def __init__(
        self, path: str | PathLike[str] = HTTP_SOCKET, *, interactive: bool = False, timeout: float | None = None
    ) -> None:
        """Connects with the first call."""
        self._path = str(path)
        self._timeout = timeout
        self._headers = {"Content-Type": "application/json"}
        if interactive:
            self._headers["X-AIOS-Interactive"] = "1"
        self._connection: _UnixConnection | None = None

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """End the connection; the next call makes a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def call(self, method: str, params: JsonObject | None = None) -> dict[str, JsonValue]:
        """Any method, by its JSON-RPC name.

        A service that is stopping carries out nothing and says so: then the call is made again, to the one that comes
        after it, some times.
        """
        for pause in ASK_AGAIN:
            try:
                return self._call(method, params)
            except CallError as error:
                if error.error_id != SHUTTING_DOWN:
                    raise
            self.close()
            time.sleep(pause)
        return self._call(method, params)

    def _call(self, method: str, params: JsonObject | None) -> dict[str, JsonValue]:
        call = messages.call(method, params)
        answer = messages.read(self._post(call.text().encode()))
        if answer.get("id") != call.id and "error" not in answer:
            raise ProtocolError("the answer is to another call")
        return messages.result(answer)

    def _post(self, body: bytes) -> bytes:
        """Nothing is sent twice: a connection that the service has closed meanwhile is seen before it is used."""
        try:
            if self._connection is not None and _is_stale(self._connection):
                self.close()
            if self._connection is None:
                self._connection = _UnixConnection(self._path, self._timeout)
            self._connection.request("POST", "/rpc", body, self._headers)
            response = self._connection.getresponse()
            text = response.read(messages.MAX_ANSWER)
        except http.client.HTTPException as error:
            self.close()
            raise ConnectionError(f"the service ended the connection: {error}") from error
        except OSError:
            self.close()
            raise
        if response.status != http.client.OK:
            self.close()
            raise ProtocolError(f"HTTP status {response.status}")
        return text

    def create(
        self, capability_id: str, arguments: JsonObject | None = None, *, metadata: JsonObject | None = None,
        wait: bool = False, options: JsonObject | None = None,
    ) -> dict[str, JsonValue]:  # fmt: skip
        """Run a capability. `wait`: answer with the finished task, else at once with `task_id` and `status`."""
        return self.call(
            "aios/task.create", messages.create(capability_id, arguments, metadata, wait=wait, options=options)
        )

    def get(self, task_id: str, *, history: bool = False) -> dict[str, JsonValue]:
        """One task, whole."""
        return self.call("aios/task.get", {"task_id": task_id, "include_history": history})

    def list(self, filter_: JsonObject | None = None, *, limit: int = 50, offset: int = 0) -> dict[str, JsonValue]:
        """A page of tasks: `tasks`, `total`, `has_more`."""
        return self.call("aios/task.list", messages.listing(filter_, limit, offset))

    def cancel(self, task_id: str, reason: str = "user_request") -> dict[str, JsonValue]:
        """Stop a task for good."""
        return self.call("aios/task.cancel", {"task_id": task_id, "reason": reason})

    def provide_input(self, task_id: str, answer: JsonObject) -> dict[str, JsonValue]:
        """Answer a task's question."""
        return self.call("aios/task.input", {"task_id": task_id, "input": answer})

    def wait(self, task_id: str) -> dict[str, JsonValue]:
        """The task, once it is final."""
        return self.call("aios/task.wait", {"task_id": task_id})

    def events(
        self, task_id: str = "", kinds: Sequence[str] = (), *, last_event_id: str = "", from_start: bool = True
    ) -> Iterator[Event]:
        """Events as they happen, for ever: a stream that breaks is taken up where it broke, without loss or repeat.

        At once, the first time and whenever the service ends as it should: while it is restarted its socket takes the
        connection and keeps it waiting.

        `task_id` "" for all tasks of this user; `kinds`: words as `status`, `progress`; none for all. `last_event_id`:
        go on after that event; without it a task's events come from its beginning (`from_start`) or from now on.
        """
        last = last_event_id or (_BEGINNING if from_start and task_id else "")
        query = urlencode([("task_id", task_id)] * bool(task_id) + [("events", ",".join(kinds))] * bool(kinds))
        reader = StreamReader()
        first, pause = True, 0.0
        while True:
            begun = time.monotonic()
            try:
                yield from self._stream(query, reader.last_id or last, reader)
            except (OSError, http.client.HTTPException):
                if first:
                    raise
            except CallError as error:
                if error.error_id != SHUTTING_DOWN:
                    raise
            first = False
            if reader.at_once or time.monotonic() - begun > SETTLED:
                pause = 0.0
            time.sleep(pause)
            pause = min(max(FIRST_PAUSE, 2 * pause), LONGEST_PAUSE)
            reader = _again(reader)

    def _stream(self, query: str, last: str, reader: StreamReader) -> Iterator[Event]:
        connection = _UnixConnection(self._path, STREAM_SILENCE)
        try:
            headers = {"Accept": "text/event-stream", **({"Last-Event-ID": last} if last else {})}
            connection.request("GET", f"/events?{query}", headers=headers)
            response = connection.getresponse()
            if response.status != http.client.OK:
                messages.result(messages.read(response.read(messages.MAX_ANSWER)))
                raise ProtocolError(f"HTTP status {response.status}")
            for line in response:
                event = reader.feed(line.decode("utf-8", "replace").rstrip("\r\n"))
                if event is not None:
                    yield event
        finally:
            connection.close()


_BEGINNING = "evt-0000000000000000"


def _again(reader: StreamReader) -> StreamReader:
    """A reader for the next connection: half an event of the one before is forgotten, its last id is not."""
    fresh = StreamReader()
    fresh.last_id = reader.last_id
    return fresh


def _is_stale(connection: _UnixConnection) -> bool:
    """Whether the other side has closed it, or said something unasked: no answer can be awaited on it."""
    if connection.sock is None:
        return True
    connection.sock.setblocking(False)  # noqa: FBT003 - no keyword
    try:
        connection.sock.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True
    finally:
        connection.sock.settimeout(connection.timeout)
    return True
