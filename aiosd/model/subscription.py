"""Who hears which event: a subscription, and the one rule by which both doors match events against it. Pure.

The core authorises and answers `task.subscribe` and `feed.subscribe` with the scope that was granted; the door that
carries the subscription keeps it, delivers, and forgets it when its client leaves.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from aiosd.model.event import Kind
from aiosd.model.later import dataclass

if TYPE_CHECKING:
    from aiosd.model.event import Event
    from aiosd.model.jsontext import JsonObject, JsonValue


class Feed(StrEnum):
    """What a subscription follows: seed 000's events of tasks, or one of seed 003's three streams."""

    TASK = "task"
    """`task.subscribe`: seed 000's kinds, its data."""
    SESSION_FEED = "session_feed"
    """Everything of one session: its messages, plans, tasks, workers, approvals."""
    TASK_FEED = "task_feed"
    """Everything of one task, or of all of the caller's."""
    WORKER_FEED = "worker_feed"
    """What is told of one worker, or of all of the caller's."""


WITH_STATUS = frozenset({Kind.INPUT_REQUIRED, Kind.AUTH_REQUIRED, Kind.RESULT, Kind.ERROR})
"""What a change of status is about. Who chooses `status` gets these as well: seed 000's own request names `status`,
`progress`, `artifact` and `log`, and its stream brings the question and the result."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """What was granted. `task_id` "" for every task in scope; `uid`: owner of the tasks, None for all users;
    `choices`: words of `Kind.choice` (`status`: WITH_STATUS too), empty for all; `after`: the last event number that
    the client already has.
    A feed of seed 003 has no choices; its `session_id` or `worker_id` is "" for all in scope."""

    id: str
    task_id: str = ""
    uid: int | None = None
    choices: frozenset[str] = frozenset()
    after: int = 0
    feed: Feed = Feed.TASK
    session_id: str = ""
    worker_id: str = ""

    def wants(self, event: Event) -> bool:
        """Whether `event` goes to this subscriber. Timeline events are for feeds, never for seed 000's kinds."""
        return (
            event.sequence > self.after
            and (self.uid is None or event.uid == self.uid)
            and (not self.task_id or event.task_id == self.task_id)
            and self._chooses(event.kind)
            and self._follows(event)
        )

    def _chooses(self, kind: Kind) -> bool:
        if not self.choices or kind.choice in self.choices:
            return True
        return kind in WITH_STATUS and Kind.STATUS.choice in self.choices

    def _follows(self, event: Event) -> bool:
        match self.feed:
            case Feed.TASK:
                return event.kind is not Kind.TIMELINE
            case Feed.SESSION_FEED:
                return event.session_id is not None and self.session_id in ("", event.session_id)
            case Feed.TASK_FEED:
                return event.task_id is not None
            case Feed.WORKER_FEED:
                return event.worker_id is not None and self.worker_id in ("", event.worker_id)

    def shown_as(self, event: Event) -> str:
        """The event's name for this subscriber: seed 000's kind, or seed 003's type."""
        return event.kind.value if self.feed is Feed.TASK else event.type

    def data_of(self, event: Event) -> dict[str, JsonValue]:
        """The event's data for this subscriber: seed 000's, or seed 003's one format, whole."""
        return event.data() if self.feed is Feed.TASK else event.record()


@dataclass(frozen=True, slots=True)
class KeptSubscription:
    """A subscription as it is stored: whose (a user, and which of their sessions), the parameters that asked for it,
    the core's answer, and the number of the event after which it began."""

    id: str
    uid: int
    session: str
    scope: JsonObject
    granted: JsonObject
    after: int


def granted(body: JsonObject, *, after: int = 0) -> Subscription:
    """The subscription of an answer: `subscription_id`, `task_id`, `uid` (null: all), `events`; of a feed also `feed`,
    and `session_id` or `worker_id`.

    Raises KeyError, TypeError or ValueError when the answer lacks the scope: without one nobody is to hear anything.
    """
    identifier, task_id, uid, events = body["subscription_id"], body["task_id"], body["uid"], body["events"]
    if not isinstance(identifier, str) or not isinstance(task_id, str) or not isinstance(events, list):
        raise TypeError("not the answer to a subscription")
    if uid is not None and (isinstance(uid, bool) or not isinstance(uid, int)):
        raise TypeError("uid must be a number or null")
    return Subscription(
        identifier,
        task_id,
        uid,
        frozenset(str(word) for word in events),
        after,
        Feed(str(body.get("feed", Feed.TASK))),
        str(body.get("session_id", "")),
        str(body.get("worker_id", "")),
    )
