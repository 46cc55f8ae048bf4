"""An event: one committed change, in the one format that every door shows (seed 003) with seed 000's kind beside it."""

from __future__ import annotations

from dataclasses import field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from aiosd.model.ids import event_id
from aiosd.model.later import dataclass

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonObject, JsonValue

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Source(StrEnum):
    """Who caused an event (seed 003)."""

    USER = "user"
    MANAGER = "manager"
    SYSTEM = "system"
    WORKER = "worker"


class Kind(StrEnum):
    """What a subscriber of seed 000 sees; its last word is what `subscribe.events` chooses by."""

    STATUS = "task.status"
    PROGRESS = "task.progress"
    ARTIFACT = "task.artifact"
    INPUT_REQUIRED = "task.input_required"
    AUTH_REQUIRED = "task.auth_required"
    LOG = "task.log"
    RESULT = "task.result"
    ERROR = "task.error"
    TIMELINE = "timeline"
    """Seen on session feeds only: Boss's types that seed 000 has no event for."""

    @property
    def choice(self) -> str:
        """The word in a subscription's `events`."""
        return self.value.removeprefix("task.")


@dataclass(frozen=True, slots=True)
class StateChange:
    """What a `task.status` event changed; `old` is None for a new task."""

    old: str | None
    new: str
    phase: str


@dataclass(frozen=True, slots=True)
class Event:
    """One row of the event log. `sequence` ascends without gap; `time` in microseconds since the epoch.

    `type` is Boss's name (`task.started`), `kind` seed 000's. `payload` is what both show as data. `uid` owns the task:
    only its subscribers (and those with view-others) get it. `change` is there when the status or phase changed,
    `worker_id` when the event tells of a worker.
    """

    sequence: int
    task_id: str | None
    session_id: str | None
    uid: int
    source: Source
    type: str
    kind: Kind
    time: int
    payload: JsonObject = field(default_factory=dict)
    change: StateChange | None = None
    worker_id: str | None = None

    @property
    def id(self) -> str:
        """The event's id on the wire."""
        return event_id(self.sequence)

    def placed(self, sequence: int) -> Event:
        """It with its place in the log."""
        return Event(
            sequence, self.task_id, self.session_id, self.uid, self.source, self.type, self.kind, self.time,
            self.payload, self.change, self.worker_id,
        )  # fmt: skip

    def data(self) -> dict[str, JsonValue]:
        """Seed 000's `data`: the task's id and the payload, the payload's keys winning."""
        head: dict[str, JsonValue] = {} if self.task_id is None else {"task_id": self.task_id}
        return {**head, **self.payload}

    def record(self) -> dict[str, JsonValue]:
        """Seed 003's one format, as timelines and feeds show it."""
        moment = _EPOCH + timedelta(microseconds=self.time)
        shown: dict[str, JsonValue] = {
            "id": self.id,
            "session_id": self.session_id,
            "task_id": self.task_id,
            "source": self.source.value,
            "type": self.type,
            "timestamp": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "payload": self.payload,
        }
        if self.worker_id is not None:
            shown["worker_id"] = self.worker_id
        return shown
