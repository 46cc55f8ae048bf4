"""This door's subscriptions: who hears which events, and where they go.

A subscription has a `Feed` while somebody listens: the connection that made it (JSON lines), or an event stream (HTTP).
One without a listener keeps nothing but the number of the first event that it owes; the stream that takes it up gets
the rest from the store. It is forgotten when nobody has listened for `IDLE_SECONDS`. Such a one is also kept in the
store (`keep`), so that it is there after a restart of the daemon, and the same seconds count anew.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from aiosd.errors import AiosError, ErrorKind
from aiosd.model.later import dataclass
from aiosd.model.recording import Recordings
from aiosd.model.subscription import Feed as Following
from aiosd.model.subscription import KeptSubscription, granted
from aiosd.rpc.feed import Shown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from aiosd.model.event import Event
    from aiosd.model.jsontext import JsonObject
    from aiosd.model.recording import Recording
    from aiosd.model.subscription import Subscription
    from aiosd.rpc.feed import Feed

IDLE_SECONDS = 300.0
"""How long a subscription lives without a listener."""
PER_USER = 64
"""Subscriptions of one user other than root, unless configured (`max_subscriptions_per_user`)."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose subscriptions: a user, and which of their sessions (a connection, or what the client called it)."""

    uid: int
    session: str = ""


class Keeper(Protocol):
    """Where subscriptions outlive the daemon (core/kept_subscriptions.py)."""

    async def position(self) -> int:
        """The number of the newest event."""
        ...

    async def keep(self, kept: KeptSubscription) -> bool:
        """Store one; whether it could be."""
        ...

    def forget(self, identifier: str) -> None:
        """Remove one, soon."""
        ...

    async def settled(self) -> None:
        """Return when what was to be forgotten is."""
        ...

    async def all_(self) -> Sequence[KeptSubscription]:
        """What earlier daemons have kept."""
        ...


@dataclass(slots=True, eq=False)
class Entry:
    """A subscription. `scope`: the parameters by which the core granted it, to ask it for missed events. `owed`: number
    of the first event that nobody has listened to. `kept`: it is in the store, too."""

    owner: Owner
    subscription: Subscription
    scope: JsonObject
    feed: Feed | None = None
    owed: int | None = None
    expiry: asyncio.TimerHandle | None = None
    kept: bool = False

    @property
    def id(self) -> str:
        """The subscription's id."""
        return self.subscription.id


class Subscriptions:
    """The table, looked up by task."""

    def __init__(
        self,
        *,
        per_user: Callable[[], int] = lambda: PER_USER,
        idle_seconds: float = IDLE_SECONDS,
        keeper: Keeper | None = None,
    ) -> None:
        """`per_user`: as configured now; root has no such limit. `keeper`: without one all of them end with the
        daemon."""
        self._keeper = keeper
        self._per_user = per_user
        self._idle_seconds = idle_seconds
        self._entries: dict[str, Entry] = {}
        self._by_task: dict[str, dict[str, Entry]] = {}
        self._by_user: dict[int, set[str]] = {}
        self._recordings: Recordings[Shown] = Recordings()
        self.closed = False

    def __len__(self) -> int:
        """Subscriptions that there are."""
        return len(self._entries)

    def check_room(self, uid: int) -> None:
        """Raises AiosError (RateLimited) when the user has all that it may have."""
        if uid != 0 and len(self._by_user.get(uid, ())) >= self._per_user():
            raise AiosError(ErrorKind.RATE_LIMITED, f"a user may have {self._per_user()} subscriptions")

    def recording(self) -> AbstractContextManager[Recording[Shown]]:
        """Keep every event while a subscription is being made."""
        return self._recordings.begin()

    async def position(self) -> int:
        """The number of the newest event, from which on one that is being made is to be kept."""
        return 0 if self._keeper is None else await self._keeper.position()

    async def keep(self, entry: Entry, body: JsonObject, after: int) -> None:
        """Have it outlive the daemon. `body`: the core's grant; `after`: number of the last event that it is not to
        show."""
        if self._keeper is not None:
            kept = KeptSubscription(entry.id, entry.owner.uid, entry.owner.session, entry.scope, body, after)
            entry.kept = True  # the store may have it even when nobody waits for it any more
            entry.kept = await self._keeper.keep(kept)

    def drop(self, entry: Entry) -> None:
        """Forget one that was not started."""
        if entry.kept and self._keeper is not None:
            self._keeper.forget(entry.id)

    async def settled(self) -> None:
        """Return when those that have ended are gone from the store, too."""
        if self._keeper is not None:
            await self._keeper.settled()

    async def restore(self) -> None:
        """Take up what was kept: all that happened since is owed, as nobody knows what was sent of it."""
        if self._keeper is None:
            return
        for one in await self._keeper.all_():
            try:
                found = granted({**one.granted, "subscription_id": one.id}, after=one.after)
            except (KeyError, TypeError, ValueError):
                self._keeper.forget(one.id)  # of another program, or damaged: its client is told that it is not there
                continue
            self.start(Entry(Owner(one.uid, one.session), found, one.scope, owed=one.after + 1, kept=True))

    def start(self, entry: Entry, recorded: Sequence[Shown] = ()) -> None:
        """From now on `entry` gets its events; what was recorded and is newer than its client's last comes first."""
        self._entries[entry.id] = entry
        self._by_task.setdefault(entry.subscription.task_id, {})[entry.id] = entry
        self._by_user.setdefault(entry.owner.uid, set()).add(entry.id)
        for item in recorded:
            _give(entry, item)
        if recorded:
            last = max(entry.subscription.after, recorded[-1].sequence)
            entry.subscription = replace(entry.subscription, after=last)
        if entry.feed is None:
            self._expire_later(entry)

    def on_events(self, events: Sequence[Event]) -> None:
        """A batch of committed events (a hub's listener)."""
        for event in events:
            if not self._recordings and not self._by_task:
                return
            item = Shown(event)
            self._recordings.record((item,))
            for key in {event.task_id or "", ""}:
                for entry in tuple(self._by_task.get(key, {}).values()):
                    _give(entry, item)

    def find(self, uid: int, subscription_id: str) -> Entry:
        """One of the user's own. Raises AiosError: another's is not there either."""
        entry = self._entries.get(subscription_id)
        if entry is None or entry.owner.uid != uid:
            raise AiosError(
                ErrorKind.SUBSCRIPTION_NOT_FOUND, "there is no such subscription, or it is another user's",
                field="subscription_id",
            )  # fmt: skip
        return entry

    def attach(self, entry: Entry, feed: Feed) -> int | None:
        """Listen; an earlier listener is shut out. Returns the number of the first event that is owed."""
        if entry.feed is not None:
            entry.owed = _owed_by(entry.feed, entry.owed)
            entry.feed.close()
        if entry.expiry is not None:
            entry.expiry.cancel()
            entry.expiry = None
        entry.feed = feed
        owed, entry.owed = entry.owed, None
        return owed

    def seen(self, entry: Entry, sequence: int) -> None:
        """The client has everything up to that number. The store may show an event before it is announced here."""
        entry.subscription = replace(entry.subscription, after=max(entry.subscription.after, sequence))
        if entry.feed is not None:
            entry.feed.skip(sequence)

    def detach(self, entry: Entry, feed: Feed, owed: int | None) -> None:
        """Stop listening; nothing happens when somebody else listens by now. `owed`: first event not delivered."""
        if entry.feed is feed and entry.id in self._entries:
            entry.feed, entry.owed = None, owed
            self._expire_later(entry)

    def end(self, entry: Entry) -> None:
        """Forget one; its listener is told."""
        if self._entries.pop(entry.id, None) is None:
            return
        _discard(self._by_task, entry.subscription.task_id, entry.id)
        mine = self._by_user[entry.owner.uid]
        mine.discard(entry.id)
        if not mine:
            del self._by_user[entry.owner.uid]
        if entry.expiry is not None:
            entry.expiry.cancel()
        if entry.feed is not None:
            entry.feed.close()
        self.drop(entry)

    def end_session(self, owner: Owner) -> int:
        """Forget all of a session; how many there were."""
        found = [self._entries[one] for one in self._by_user.get(owner.uid, ()) if self._entries[one].owner == owner]
        for entry in found:
            self.end(entry)
        return len(found)

    def close(self) -> None:
        """The door is closing: forget all, but in the store."""
        self.closed = True
        for entry in tuple(self._entries.values()):
            entry.kept = False
            self.end(entry)

    def _expire_later(self, entry: Entry) -> None:
        entry.expiry = asyncio.get_running_loop().call_later(self._idle_seconds, self.end, entry)


def _give(entry: Entry, item: Shown) -> None:
    if not entry.subscription.wants(item.event):
        return
    if entry.feed is not None:
        entry.feed.offer(item if entry.subscription.feed is Following.TASK else item.whole)
    elif entry.owed is None:
        entry.owed = item.sequence


def _owed_by(feed: Feed, before: int | None) -> int | None:
    """What a listener that is shut out has not taken yet."""
    return before if feed.first is None else feed.first


def _discard(table: dict[str, dict[str, Entry]], key: str, identifier: str) -> None:
    del table[key][identifier]
    if not table[key]:
        del table[key]
