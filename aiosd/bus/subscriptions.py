"""This door's subscriptions: which connection hears which events, by unicast signals.

A subscription lives until Unsubscribe, or until its connection leaves the bus. Nothing is missed while one is made:
events that are committed between the core's answer and the entry here are recorded and delivered right after the reply.
"""

from __future__ import annotations

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
    """A subscription and the unique name that it is for."""

    peer: str
    subscription: Subscription


class Subscriptions:
    """The table, looked up by task. `send(peer, subscription, event)` delivers."""

    def __init__(self, send: Callable[[str, Subscription, Event], None], per_peer: Callable[[], int]) -> None:
        """`per_peer`: most subscriptions of one connection, as it is now."""
        self._send = send
        self._per_peer = per_peer
        self._entries: dict[str, Entry] = {}
        self._by_task: dict[str, dict[str, Entry]] = {}
        self._by_peer: dict[str, set[str]] = {}
        self._recordings: Recordings[Event] = Recordings()

    def __len__(self) -> int:
        """Subscriptions that there are."""
        return len(self._entries)

    def check_room(self, peer: str) -> None:
        """Raises AiosError (RateLimited) when `peer` has all that it may have."""
        if len(self._by_peer.get(peer, ())) >= self._per_peer():
            raise AiosError(ErrorKind.RATE_LIMITED, f"a connection may have {self._per_peer()} subscriptions")

    def recording(self) -> AbstractContextManager[Recording[Event]]:
        """Keep every event while a subscription is being made."""
        return self._recordings.begin()

    def record(self, events: Sequence[Event]) -> None:
        """Events as they are committed, before anything coalesces them."""
        self._recordings.record(events)

    def start(self, peer: str, subscription: Subscription, recorded: Sequence[Event]) -> None:
        """Deliver what was recorded, and everything after it from now on. Follows the reply without a pause."""
        for event in recorded:
            if subscription.wants(event):
                self._send(peer, subscription, event)
        if recorded:
            subscription = replace(subscription, after=max(subscription.after, recorded[-1].sequence))
        entry = Entry(peer, subscription)
        self._entries[subscription.id] = entry
        self._by_task.setdefault(subscription.task_id, {})[subscription.id] = entry
        self._by_peer.setdefault(peer, set()).add(subscription.id)

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
        mine = self._by_peer[entry.peer]
        mine.discard(subscription_id)
        if not mine:
            del self._by_peer[entry.peer]

    def peer_left(self, peer: str) -> None:
        """Forget all of a connection's."""
        for subscription_id in tuple(self._by_peer.get(peer, ())):
            self.end(subscription_id)
