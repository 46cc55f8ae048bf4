"""Who hears which event: a subscription, and the one rule by which both doors match events against it. Pure.

The core authorises and answers `task.subscribe` with the scope that was granted; the door that carries the subscription
keeps it, delivers, and forgets it when its client leaves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiosd.model.event import Kind

if TYPE_CHECKING:
    from aiosd.model.event import Event
    from aiosd.model.jsontext import JsonObject


@dataclass(frozen=True, slots=True)
class Subscription:
    """What was granted. `task_id` "" for every task in scope; `uid`: owner of the tasks, None for all users;
    `choices`: words of `Kind.choice`, empty for all; `after`: the last event number that the client already has."""

    id: str
    task_id: str = ""
    uid: int | None = None
    choices: frozenset[str] = frozenset()
    after: int = 0

    def wants(self, event: Event) -> bool:
        """Whether `event` goes to this subscriber. Timeline events are for session feeds, never for these."""
        return (
            event.kind is not Kind.TIMELINE
            and event.sequence > self.after
            and (self.uid is None or event.uid == self.uid)
            and (not self.task_id or event.task_id == self.task_id)
            and (not self.choices or event.kind.choice in self.choices)
        )


def granted(body: JsonObject, *, after: int = 0) -> Subscription:
    """The subscription of a `task.subscribe` answer: `subscription_id`, `task_id`, `uid` (null: all), `events`.

    Raises KeyError or TypeError when the answer lacks the scope: without one nobody is to hear anything.
    """
    identifier, task_id, uid, events = body["subscription_id"], body["task_id"], body["uid"], body["events"]
    if not isinstance(identifier, str) or not isinstance(task_id, str) or not isinstance(events, list):
        raise TypeError("not the answer to a subscription")
    if uid is not None and (isinstance(uid, bool) or not isinstance(uid, int)):
        raise TypeError("uid must be a number or null")
    return Subscription(identifier, task_id, uid, frozenset(str(word) for word in events), after)
