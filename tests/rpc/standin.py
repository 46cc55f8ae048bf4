"""A core for tests of the door alone: says who called what; answers, fails or waits as a test lays it out."""

from __future__ import annotations

import asyncio
import os
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pydantic import ValidationError

from aiosd.core.operations import OPERATIONS, Reply
from aiosd.core.parameters import refusal
from aiosd.core.protocol_operations import choose
from aiosd.model.event import Event, Kind, Source
from aiosd.model.ids import event_sequence
from aiosd.model.subscription import Subscription
from tests import prerequisites

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from aiosd.auth.caller import Caller
    from aiosd.model.jsontext import JsonObject, JsonValue

TASK = "task-01jdxg3v7m9q2w4e6r8t0y1abc"


def event(sequence: int, *, task_id: str = TASK, uid: int | None = None, size: int = 1) -> Event:
    """A progress event with that number."""
    payload: JsonObject = {"progress": {"percent": sequence % 100, "message": "x" * size}}
    owner = os.geteuid() if uid is None else uid
    return Event(sequence, task_id, None, owner, Source.WORKER, "task.progress", Kind.PROGRESS, 0, payload)


@dataclass
class StandIn:
    """`log`: every event there was. `gates`: operations that wait. `errors`: what operations raise."""

    log: list[Event] = field(default_factory=list)
    calls: list[tuple[str, Caller, JsonObject]] = field(default_factory=list)
    gates: dict[str, asyncio.Event] = field(default_factory=dict)
    errors: dict[str, Exception] = field(default_factory=dict)
    entered: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    cancelled: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    _listeners: list[Callable[[Sequence[Event]], None]] = field(default_factory=list)

    async def invoke(self, name: str, caller: Caller, params: JsonObject) -> Reply:
        """As core/manager.py does."""
        try:
            OPERATIONS[name].params.model_validate(dict(params))
        except ValidationError as error:
            raise refusal(error) from None
        self.calls.append((name, caller, params))
        self.entered.put_nowait(name)
        try:
            if name in self.gates:
                await self.gates[name].wait()
        except asyncio.CancelledError:
            self.cancelled.put_nowait(name)
            raise
        if name in self.errors:
            raise self.errors[name]
        return Reply(self._answer(name, caller, params))

    def _answer(self, name: str, caller: Caller, params: JsonObject) -> JsonObject:
        if name in ("task.subscribe", "task.resubscribe"):
            return self._granted(caller, params)
        if name == "initialize":
            return {"protocol_version": choose(str(params.get("protocol_version") or "2.0.0"), ())}
        if name == "task.unsubscribe":
            return {"subscription_id": params["subscription_id"]}
        return {"operation": name, "uid": caller.uid}

    def _granted(self, caller: Caller, params: JsonObject) -> JsonObject:
        body: dict[str, JsonValue] = {
            "subscription_id": f"sub-{len(self.calls)}", "task_id": params.get("task_id", ""), "uid": caller.uid,
            "events": params.get("events", []),
        }  # fmt: skip
        if "last_event_id" in params:
            last, limit = event_sequence(str(params["last_event_id"])), params.get("limit", 10_000)
            assert last is not None
            assert isinstance(limit, int)
            scope = Subscription("", str(body["task_id"]), caller.uid, after=last)
            found = [one for one in self.log if scope.wants(one)]
            body["missed_events"] = [
                {"id": one.id, "event": one.kind.value, "data": one.data()} for one in found[:limit]
            ]
            body["last_event_id"] = found[:limit][-1].id if found else params["last_event_id"]
            body["more"] = len(found) > limit
        return body

    def listen(self, callback: Callable[[Sequence[Event]], None]) -> Callable[[], None]:
        """As core/events.py does."""
        self._listeners.append(callback)
        return lambda: self._listeners.remove(callback)

    def commit(self, *events: Event) -> None:
        """A committed batch."""
        self.log.extend(events)
        for listener in tuple(self._listeners):
            listener(events)

    def happen(self, count: int, *, size: int = 1) -> None:
        """So many further events, one commit each."""
        for _ in range(count):
            self.commit(event(len(self.log) + 1, size=size))


@contextmanager
def as_user(uid: int) -> Iterator[None]:
    """What is connected in here, is connected by that user (unix(7): the effective uid counts). Needs root."""
    if os.geteuid() != 0:
        prerequisites.missing("another user needs root")
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
