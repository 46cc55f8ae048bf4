"""This door's subscriptions: which connection hears which events, by unicast signals.

A subscription lives until Unsubscribe, or until its connection leaves the bus. Nothing is missed while one is made:
events that are committed between the core's answer and the entry here are recorded and delivered right after the reply.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from aiosd.errors import AiosError, ErrorKind
from aiosd.model.later import dataclass
from aiosd.model.recording import Recordings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from aiosd.model.event import Event
    from aiosd.model.recording import Recording
    from aiosd.model.subscription import Subscription


@dataclass(frozen=True, slots=True)
class Entry:
    """A subscription, the unique name that it is for, and whose connection that is."""

    peer: str
    uid: int
    subscription: Subscription


class Subscriptions:
    """The table, looked up by task. `send(peer, subscription, event)` delivers."""

    def __init__(self, send: Callable[[str, Subscription, Event], None], per_peer: Callable[[], int]) -> None:
        """`per_peer`: most subscriptions of one connection, as it is now, and of one user to the same: an event is sent
        once for each."""
        self._send = send
        self._per_peer = per_peer
        self._entries: dict[str, Entry] = {}
        self._by_task: dict[str, dict[str, Entry]] = {}
        self._by_peer: dict[str, set[str]] = {}
        self._alike: Counter[tuple[int, str]] = Counter()
        self._recordings: Recordings[Event] = Recordings()

    def __len__(self) -> int:
        """Subscriptions that there are."""
        return len(self._entries)

    def check_room(self, peer: str) -> None:
        """Raises AiosError (RateLimited) when `peer` has all that it may have."""
        if len(self._by_peer.get(peer, ())) >= self._per_peer():
            raise AiosError(ErrorKind.RATE_LIMITED, f"a connection may have {self._per_peer()} subscriptions")

    def check_followers(self, uid: int, subscription: Subscription) -> None:
        """Raises AiosError (RateLimited) when that user, who is not root, follows the same task, or more than one, with
        as many subscriptions as it may."""
        if uid != 0 and self._alike[uid, subscription.task_id] >= self._per_peer():
            what = "the same task" if subscription.task_id else "more than one task"
            raise AiosError(ErrorKind.RATE_LIMITED, f"a user may have {self._per_peer()} subscriptions to {what}")

    def recording(self) -> AbstractContextManager[Recording[Event]]:
        """Keep every event while a subscription is being made."""
        return self._recordings.begin()

    def record(self, events: Sequence[Event]) -> None:
        """Events as they are committed, before anything coalesces them."""
        self._recordings.record(events)

    def start(self, peer: str, uid: int, subscription: Subscription, recorded: Sequence[Event]) -> None:
        """Deliver what was recorded, and everything after it from now on. Follows the reply without a pause."""
        for event in recorded:
            if subscription.wants(event):
                self._send(peer, subscription, event)
        if recorded:
            subscription = replace(subscription, after=max(subscription.after, recorded[-1].sequence))
        entry = Entry(peer, uid, subscription)
        self._entries[subscription.id] = entry
        self._by_task.setdefault(subscription.task_id, {})[subscription.id] = entry
        self._by_peer.setdefault(peer, set()).add(subscription.id)
        self._alike[uid, subscription.task_id] += 1

    def deliver(self, event: Event) -> None:
        """Send `event` to everyone who asked for it and may have it."""
        for key in {event.task_id or "", ""}:
            for entry in tuple(self._by_task.get(key, {}).values()):
                if entry.subscription.wants(event):
                    self._send(entry.peer, entry.subscription, event)

    def owns(self, peer: str, subscription_id: str) -> bool:
        """Whether that subscription is this connection's."""
        return subscription_id in self._by_peer.get(peer, ())

    def end(self, subscription_id: str) -> None:
        """Forget one."""
        entry = self._entries.pop(subscription_id, None)
        if entry is None:
            return
        followers = self._by_task[entry.subscription.task_id]
        del followers[subscription_id]
        if not followers:
            del self._by_task[entry.subscription.task_id]
        alike = (entry.uid, entry.subscription.task_id)
        self._alike[alike] -= 1
        if not self._alike[alike]:
            del self._alike[alike]
        mine = self._by_peer[entry.peer]
        mine.discard(subscription_id)
        if not mine:
            del self._by_peer[entry.peer]

    def peer_left(self, peer: str) -> None:
        """Forget all of a connection's."""
        for subscription_id in tuple(self._by_peer.get(peer, ())):
            self.end(subscription_id)
