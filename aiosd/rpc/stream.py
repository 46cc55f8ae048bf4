"""One event stream's content (server-sent events, HTML standard 9.2), whatever carries the bytes.

What was missed comes from the store, then what happens from the feed, without a gap and without a repeat: the feed is
filled from before the store is read, and what the store has shown is skipped in it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiosd.model.ids import event_id, event_sequence
from aiosd.model.jsontext import dump
from aiosd.rpc.feed import frame

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from typing import Self

    from aiosd.auth.caller import Caller
    from aiosd.model.jsontext import JsonValue
    from aiosd.rpc.endpoint import Core
    from aiosd.rpc.feed import Feed
    from aiosd.rpc.subscriptions import Entry, Subscriptions

HEARTBEAT_SECONDS = 15.0
"""Longest silence: then a comment shows that both ends are still there."""
HEARTBEAT = b":\n\n"
RETRY = b"retry: 100\n\n"
"""How long a client waits before it reconnects, in milliseconds: not long, as the socket keeps it waiting by itself."""
FAREWELL = b"retry: 0\n\n"
"""Last words of a daemon that ends: its successor's socket is there already, so there is nothing to wait for."""
PAGE = 500
"""Missed events that are fetched at a time."""
CHUNK = 16 * 1024
"""Bytes that are put together into one write."""


class Pulse:
    """Calls when nothing was felt for so long. One timer, however much is felt; a context manager."""

    def __init__(self, seconds: float, call: Callable[[], None]) -> None:
        """Nothing happens before it is entered."""
        self._seconds = seconds
        self._call = call
        self._last = 0.0

    def __enter__(self) -> Self:
        """From now on."""
        self._loop = asyncio.get_running_loop()
        self._last = self._loop.time()
        self._timer = self._loop.call_later(self._seconds, self._look)
        return self

    def __exit__(self, *_: object) -> None:
        """No more."""
        self._timer.cancel()

    def felt(self) -> None:
        """Something has happened."""
        self._last = self._loop.time()

    def _look(self) -> None:
        left = self._last + self._seconds - self._loop.time()
        if left <= 0:
            self._call()
            left = self._seconds
        self._timer = self._loop.call_later(left, self._look)


class Stream:
    """A listener of one subscription."""

    def __init__(
        self,
        core: Core,
        subscriptions: Subscriptions,
        caller: Caller,
        entry: Entry,
        feed: Feed,
        *,
        replays: asyncio.Semaphore,
        heartbeat: float = HEARTBEAT_SECONDS,
    ) -> None:
        """`replays`: how many streams may fetch missed events at the same time. `heartbeat` in seconds."""
        self._core = core
        self._subscriptions = subscriptions
        self._caller = caller
        self._entry = entry
        self._feed = feed
        self._replays = replays
        self._pulse = Pulse(heartbeat, feed.wake)
        self._owed: int | None = None

    async def run(self, write: Callable[[bytes], Awaitable[None]], last: int | None) -> None:
        """Send until the subscription ends, somebody else takes it up, or `write` raises.

        `last`: number of the last event that the client has; None when it does not say. Raises AiosError when missed
        events are not to be had (any more).
        """
        owed = self._subscriptions.attach(self._entry, self._feed)
        start = last if last is not None or owed is None else owed - 1
        try:
            if start is None:
                await write(RETRY)
            else:
                await self._missed(write, start)
            await self._live(write)
            if self._subscriptions.closed:
                await write(FAREWELL)
        finally:
            self._subscriptions.detach(self._entry, self._feed, self._owed or self._feed.first)

    async def _missed(self, write: Callable[[bytes], Awaitable[None]], after: int) -> None:
        head = RETRY
        while True:
            self._owed = after + 1
            async with self._replays:
                params = {**self._entry.scope, "last_event_id": event_id(after), "limit": PAGE}
                again = "feed.subscribe" if "feed" in params else "task.resubscribe"
                page = (await self._core.invoke(again, self._caller, params)).body
            missed = page["missed_events"]
            frames = head + b"".join(map(_frame, missed if isinstance(missed, list) else ()))
            head = b""
            if frames:
                await write(frames)
            after = event_sequence(str(page["last_event_id"])) or after
            if self._feed.closed:
                return
            if page["more"]:
                continue
            self._subscriptions.seen(self._entry, after)
            if not self._feed.has_gap:
                self._owed = None
                return
            self._feed.clear()  # more happened meanwhile than the feed takes; the store has all of it

    async def _live(self, write: Callable[[bytes], Awaitable[None]]) -> None:
        with self._pulse:
            while True:
                await self._feed.wait()
                self._pulse.felt()
                if self._feed.closed:
                    return
                self._owed = self._feed.first
                await write(self._chunk() or HEARTBEAT)
                self._owed = None

    def _chunk(self) -> bytes:
        frames: list[bytes] = []
        size = 0
        while size < CHUNK and (item := self._feed.take()) is not None:
            frames.append(item.sse)
            size += len(item.sse)
        return b"".join(frames)


def _frame(missed: JsonValue) -> bytes:
    shown: Mapping[str, JsonValue] = missed if isinstance(missed, dict) else {}
    return frame(str(shown["event"]), str(shown["id"]), dump(shown["data"]))
