"""What the verbs see of the daemon: rows, pages and notices, and how they are read from untyped D-Bus bodies.

A peer may answer anything, so every field is looked at; a surprise is a `Failure` with status PROTOCOL. Named tuples,
not dataclasses: making those takes several times as long, and aiosctl pays for it at every start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from aiosd.cli.exit_status import ExitStatus
from aiosd.cli.failure import die
from aiosd.model.jsontext import JsonTextError, parse_object

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonObject, JsonValue

T = TypeVar("T")

MAX_ANSWER_BYTES = 64 * 1024 * 1024
"""Largest JSON text that is taken from the daemon: half of what a D-Bus message can carry."""


class TaskRow(NamedTuple):
    """A row of ListTasks. `percent` is -1 when unknown; `created` in µs since the epoch."""

    task_id: str
    path: str
    capability_id: str
    status: str
    phase: str
    uid: int
    percent: int
    created: int


class TaskPage(NamedTuple):
    """A page of tasks, of `total` that match."""

    tasks: tuple[TaskRow, ...]
    total: int
    has_more: bool


class CapabilityRow(NamedTuple):
    """A row of ListCapabilities."""

    capability_id: str
    title: str
    level: str
    description: str


class ArtifactRow(NamedTuple):
    """A row of ListArtifacts. `size` in bytes."""

    artifact_id: str
    name: str
    type: str
    mime_type: str
    size: int


class StateChange(NamedTuple):
    """A StateChanged signal; `old` empty and `new` the first status for TaskNew, `new` empty for TaskRemoved."""

    task_id: str
    uid: int
    old: str
    new: str
    phase: str


class TaskEvent(NamedTuple):
    """An Event signal of a subscription."""

    event_id: str
    kind: str
    data: JsonObject


class Created(NamedTuple):
    """A new task."""

    task_id: str
    path: str


def read(body: Sequence[object], index: int, kind: type[T]) -> T:
    """The value at `index` of a reply's body; bool is no int."""
    value = body[index] if index < len(body) else None
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        die(
            f"aiosd answered something else than {kind.__name__} at place {index}",
            hint="aiosctl and aiosd are of different versions: restart aiosd.service",
            status=ExitStatus.PROTOCOL,
        )
    return value


def read_json(body: Sequence[object], index: int) -> JsonObject:
    """The JSON object whose text is at `index`."""
    try:
        return parse_object(read(body, index, str), limit=MAX_ANSWER_BYTES)
    except JsonTextError as error:
        die(f"aiosd answered JSON that cannot be read: {error}", status=ExitStatus.PROTOCOL)


def rows(body: Sequence[object], index: int) -> list[Sequence[object]]:
    """The array of structs at `index`."""
    return [row for row in read(body, index, list) if isinstance(row, list | tuple)]


def task_row(row: Sequence[object]) -> TaskRow:
    """A row of ListTasks or ListHistory."""
    task_id, path, capability, status, phase = (read(row, index, str) for index in range(5))
    uid, percent, created = (read(row, index, int) for index in range(5, 8))
    return TaskRow(task_id, path, capability, status, phase, uid, percent, created)


def capability_row(row: Sequence[object]) -> CapabilityRow:
    """A row of ListCapabilities."""
    identifier, title, level, description = (read(row, index, str) for index in range(4))
    return CapabilityRow(identifier, title, level, description)


def artifact_row(row: Sequence[object]) -> ArtifactRow:
    """A row of ListArtifacts."""
    identifier, name, kind, mime_type = (read(row, index, str) for index in range(4))
    return ArtifactRow(identifier, name, kind, mime_type, read(row, 4, int))


def to_json(row: TaskRow | TaskPage | CapabilityRow | ArtifactRow | StateChange | TaskEvent | Created) -> JsonObject:
    """A value as --json shows it."""
    fields = row._asdict()
    if isinstance(row, TaskPage):
        fields["tasks"] = [task._asdict() for task in row.tasks]
    return fields


def text_of(value: JsonValue | object) -> str:
    """A field for people: text as it is, nothing for None, else JSON-like."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else str(value)


def object_at(value: JsonObject, key: str) -> JsonObject:
    """The object at `key`, {} when there is none."""
    found = value.get(key)
    return found if isinstance(found, Mapping) else {}


def string_at(value: JsonObject, key: str) -> str:
    """The text at `key`, empty when there is none."""
    found = value.get(key)
    return found if isinstance(found, str) else ""


def integer_at(value: JsonObject, key: str) -> int | None:
    """The whole number at `key`."""
    found = value.get(key)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def list_at(value: JsonObject, key: str) -> list[JsonValue]:
    """The list at `key`, [] when there is none."""
    found = value.get(key)
    return found if isinstance(found, list) else []
