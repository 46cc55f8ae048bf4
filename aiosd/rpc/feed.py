"""What waits for one subscriber: a bounded queue of events, in order, that never blocks who fills it.

When it is full, what comes next is lost and remembered as one `Gap`, which takes its place in the order: the client
learns which events it has not got, and may ask for them (`aios/task.resubscribe`). An event is encoded once, however
many subscribers it has.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from aiosd.model.ids import event_id
from aiosd.model.jsontext import dump
from aiosd.model.later import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiosd.model.event import Event
    from aiosd.model.jsontext import JsonObject

GAP = "gap"
"""The event that tells of lost ones."""
QUEUE_SIZE = 10_000
"""Events that wait for one subscriber, unless configured (`event_queue_size`)."""
QUEUE_BYTES = 1 << 20
"""Bytes of their data."""


class Shown:
    """A committed event on its way to its subscribers. `whole`: in seed 003's one format, as its feeds show it."""

    __slots__ = ("_sse", "_text", "_whole", "event", "kind")

    def __init__(self, event: Event, *, whole: bool = False) -> None:
        """Nothing is encoded until somebody takes it."""
        self.event = event
        self.kind: str = event.type if whole else event.kind.value
        self._whole: Shown | None = self if whole else None
        self._text: str | None = None
        self._sse: bytes | None = None

    @property
    def sequence(self) -> int:
        """Its number in the log."""
        return self.event.sequence

    @property
    def whole(self) -> Shown:
        """The same event, whole."""
        if self._whole is None:
            self._whole = Shown(self.event, whole=True)
        return self._whole

    @property
    def text(self) -> str:
        """Its data as JSON."""
        if self._text is None:
            self._text = dump(self.event.record() if self._whole is self else self.event.data())
        return self._text

    @property
    def sse(self) -> bytes:
        """It as a frame of an event stream."""
        if self._sse is None:
            self._sse = frame(self.kind, self.event.id, self.text)
        return self._sse


@dataclass(slots=True)
class Gap:
    """Lost events: the numbers of the first and the last, and how many of the subscriber's own."""

    first: int
    last: int
    count: int = 1

    def data(self) -> JsonObject:
        """As the client is told."""
        return {"from": event_id(self.first), "to": event_id(self.last), "count": self.count}

    @property
    def sse(self) -> bytes:
        """As a frame of an event stream; without an id, so that a reconnecting client asks for what it lost."""
        return frame(GAP, None, dump(self.data()))


def frame(kind: str, identifier: str | None, text: str) -> bytes:
    """A frame of an event stream (HTML standard, 9.2.5). `text`: JSON, so it has no line breaks."""
    head = f"event: {kind}\n" if identifier is None else f"event: {kind}\nid: {identifier}\n"
    return f"{head}data: {text}\n\n".encode()


class Feed:
    """The queue. `on_ready` is called when something is there that was not before."""

    def __init__(
        self, limit: int = QUEUE_SIZE, on_ready: Callable[[], None] | None = None, *, max_bytes: int = QUEUE_BYTES
    ) -> None:
        """`limit` in events, `max_bytes` of their data."""
        self._limit = limit
        self._max_bytes = max_bytes
        self._bytes = 0
        self._queue: deque[Shown | Gap] = deque()
        self._ready = asyncio.Event()
        self._on_ready = on_ready
        self.closed = False

    def __len__(self) -> int:
        """What waits."""
        return len(self._queue)

    @property
    def has_gap(self) -> bool:
        """Whether the newest entry stands for lost events."""
        return bool(self._queue) and isinstance(self._queue[-1], Gap)

    @property
    def first(self) -> int | None:
        """The number of the first event that waits (or is lost)."""
        if not self._queue:
            return None
        head = self._queue[0]
        return head.first if isinstance(head, Gap) else head.sequence

    def offer(self, item: Shown) -> None:
        """Take an event, or count it as lost."""
        if self.closed:
            return
        size = len(item.text)
        if len(self._queue) >= self._limit or (self._bytes and self._bytes + size > self._max_bytes):
            self._lose(item)
        else:
            self._bytes += size
            self._queue.append(item)
        self._ready.set()
        if self._on_ready is not None:
            self._on_ready()

    def _lose(self, item: Shown) -> None:
        tail = self._queue[-1] if self._queue else None
        if isinstance(tail, Gap):
            tail.last, tail.count = item.sequence, tail.count + 1
        else:
            self._queue.append(Gap(item.sequence, item.sequence))

    def take(self) -> Shown | Gap | None:
        """The oldest that waits; None when nothing does."""
        if not self._queue:
            return None
        item = self._queue.popleft()
        if isinstance(item, Shown):
            self._bytes -= len(item.text)
        if not self._queue and not self.closed:
            self._ready.clear()
        return item

    def skip(self, sequence: int) -> None:
        """Forget what is not newer than `sequence`: the client has it already."""
        while self._queue:
            head = self._queue[0]
            if (head.last if isinstance(head, Gap) else head.sequence) > sequence:
                return
            self.take()

    def clear(self) -> None:
        """Forget all that waits."""
        while self._queue:
            self.take()

    def close(self) -> None:
        """No more will come; who waits is told."""
        self.closed = True
        self._ready.set()

    def wake(self) -> None:
        """Let who waits look, though nothing is there."""
        self._ready.set()

    async def wait(self) -> None:
        """Until something waits, the feed is closed, or somebody wakes who waits here."""
        await self._ready.wait()
        if not self._queue and not self.closed:
            self._ready.clear()
