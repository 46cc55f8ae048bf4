"""Parameters of a subscription that there is nothing to say against, taken without the models of model/wire.py.

A client whose stream broke asks for it again, and all clients do when the daemon was started anew. They need not wait
until the library of the models is imported and has made one. Here is only accepted what those models accept as well,
with the same values; about everything else they are asked, and say what is wrong with it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from aiosd.model.event import Kind
from aiosd.model.later import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aiosd.model.jsontext import JsonObject, JsonValue

MAX_LIMIT = 10_000
_TASK_ID = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9._-]{0,127})?", re.ASCII)
_EVENT_ID = re.compile(r"[\x20-\x7e]{0,64}", re.ASCII)
_MAX_KINDS = 16
_KINDS = frozenset(kind.choice for kind in Kind if kind is not Kind.TIMELINE)


@dataclass(frozen=True, slots=True)
class Subscribe:
    """As `wire.TaskSubscribe`."""

    task_id: str
    events: list[str]
    all_users: bool


@dataclass(frozen=True, slots=True)
class Resubscribe(Subscribe):
    """As `wire.TaskResubscribe`."""

    last_event_id: str
    limit: int


def _is_kind(value: JsonValue) -> bool:
    return isinstance(value, str) and value in _KINDS


def subscribe(given: JsonObject) -> Subscribe | None:
    """The parameters of `task.subscribe`; None when the model is to judge."""
    task_id, events, all_users = given.get("task_id", ""), given.get("events", []), given.get("all_users", False)
    if not isinstance(task_id, str) or _TASK_ID.fullmatch(task_id) is None or not isinstance(all_users, bool):
        return None
    if not isinstance(events, list) or len(events) > _MAX_KINDS or not all(map(_is_kind, events)):
        return None
    return Subscribe(task_id, [str(kind) for kind in events], all_users)


def resubscribe(given: JsonObject) -> Resubscribe | None:
    """The parameters of `task.resubscribe`; None when the model is to judge."""
    plain, last, limit = subscribe(given), given.get("last_event_id"), given.get("limit", MAX_LIMIT)
    if plain is None or not isinstance(last, str) or _EVENT_ID.fullmatch(last) is None:
        return None
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_LIMIT:
        return None
    return Resubscribe(plain.task_id, plain.events, plain.all_users, last, limit)


PLAIN: Mapping[str, Callable[[JsonObject], Subscribe | None]] = {
    "TaskSubscribe": subscribe,
    "TaskResubscribe": resubscribe,
}
"""By the name of the model."""
