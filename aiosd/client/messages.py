"""What goes over the wire, as values: calls, answers, errors and events. Pure."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiosd.model.jsontext import dump, parse_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiosd.model.jsontext import JsonObject, JsonValue

HTTP_SOCKET = "/run/aios/aios.sock"
LINES_SOCKET = "/run/aios/aios-lines.sock"
MAX_ANSWER = 1 << 26
"""Largest answer taken, in bytes."""

_numbers = itertools.count(1)


class ProtocolError(Exception):
    """The other side does not speak as it should."""


class CallError(Exception):
    """The service's refusal: JSON-RPC's `code` and message, and `data`, whose `error_id` is the stable key."""

    def __init__(self, code: int, message: str, data: JsonObject) -> None:
        """As the answer has it."""
        super().__init__(message)
        self.code = code
        self.data = data

    @property
    def error_id(self) -> str:
        """As `AIOS-TASK-NOT-FOUND`; "" when there is none."""
        return str(self.data.get("error_id", ""))

    def wire(self) -> dict[str, JsonValue]:
        """The error object of the answer."""
        return {"code": self.code, "message": str(self), "data": self.data}


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened. `kind`: as `task.status`, or `gap` for events that were lost on the way (its `data` says
    which; `id` is then "")."""

    id: str
    kind: str
    data: JsonObject


@dataclass(frozen=True, slots=True)
class Call:
    """A call that wants an answer."""

    method: str
    params: JsonObject
    id: int

    def text(self) -> str:
        """As it is sent."""
        return dump({"jsonrpc": "2.0", "id": self.id, "method": self.method, "params": self.params})


def call(method: str, params: JsonObject | None = None) -> Call:
    """A call with a number of its own."""
    return Call(method, params or {}, next(_numbers))


def read(text: bytes) -> JsonObject:
    """One message of the other side. Raises ProtocolError."""
    try:
        value = parse_value(text, limit=MAX_ANSWER)
    except ValueError as error:
        raise ProtocolError(str(error)) from None
    if not isinstance(value, Mapping):
        raise ProtocolError("an answer is an object")
    return value


def result(answer: JsonObject) -> dict[str, JsonValue]:
    """What an answer says. Raises CallError, ProtocolError."""
    error = answer.get("error")
    if isinstance(error, Mapping):
        code, data = error.get("code"), error.get("data")
        number = code if isinstance(code, int) else 0
        raise CallError(number, str(error.get("message", "")), data if isinstance(data, Mapping) else {})
    body = answer.get("result")
    if not isinstance(body, Mapping):
        raise ProtocolError("an answer has a result or an error")
    return dict(body)


def event_of(params: JsonObject) -> Event:
    """The event of an `aios/event` notification."""
    data = params.get("data")
    return Event(str(params.get("id", "")), str(params.get("event", "")), data if isinstance(data, Mapping) else {})


class StreamReader:
    """Turns the lines of an event stream (HTML standard, 9.2.6) into events; remembers the last id.

    `at_once`: the service has said that who is left without a stream may come back without a pause.
    """

    def __init__(self) -> None:
        """At the beginning of a stream."""
        self.last_id = ""
        self.at_once = False
        self._kind = ""
        self._id = ""
        self._data: list[str] = []

    def feed(self, line: str) -> Event | None:
        """One line, without its end; an event when it completes one."""
        if line:
            name, _, value = line.partition(":")
            self._field(name, value.removeprefix(" "))
            return None
        kind, identifier, data = self._kind, self._id, self._data
        self._kind, self._id, self._data = "", "", []
        if not data:
            return None
        try:
            value = json.loads("\n".join(data))
        except ValueError:
            raise ProtocolError("an event's data is JSON") from None
        return Event(identifier, kind, value if isinstance(value, dict) else {})

    def _field(self, name: str, value: str) -> None:
        if name == "event":
            self._kind = value
        elif name == "data":
            self._data.append(value)
        elif name == "id":
            self._id = self.last_id = value
        elif name == "retry":
            self.at_once = value == "0"


def create(
    capability_id: str,
    arguments: JsonObject | None,
    metadata: JsonObject | None,
    *,
    wait: bool,
    options: JsonObject | None,
) -> JsonObject:
    """Parameters of `aios/task.create`."""
    chosen: dict[str, JsonValue] = {"async": not wait, **(options or {})}
    return {"capability_id": capability_id, "arguments": arguments or {}, "metadata": metadata or {}, "options": chosen}


def listing(filter_: JsonObject | None, limit: int, offset: int) -> JsonObject:
    """Parameters of `aios/task.list` and `aios/task.history`."""
    return {"filter": filter_ or {}, "pagination": {"limit": limit, "offset": offset}}


def following(task_id: str, events: Sequence[str]) -> dict[str, JsonValue]:
    """Parameters of `aios/task.subscribe`."""
    return {"task_id": task_id, "events": list(events)}
