"""A request for an event stream, whoever has read it: which subscription is meant, from where on, and the stream."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiosd.errors import AiosError, ErrorKind
from aiosd.model.ids import event_sequence
from aiosd.model.subscription import granted
from aiosd.rpc.endpoint import scope_of
from aiosd.rpc.feed import Feed
from aiosd.rpc.stream import Stream
from aiosd.rpc.subscriptions import Entry

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from aiosd.model.jsontext import JsonValue
    from aiosd.rpc.endpoint import Core, Session
    from aiosd.rpc.limits import Allowance, Shares, Timing
    from aiosd.rpc.subscriptions import Subscriptions

WRITE_BUFFER = 16 * 1024
"""Bytes that wait in this process for a client to read them, beside what the kernel takes."""
REPLAYS = 8
"""Streams that fetch missed events at the same time."""
STATUS = {
    ErrorKind.INVALID_PARAMS: 400,
    ErrorKind.PERMISSION_DENIED: 403,
    ErrorKind.INTERACTIVE_AUTH_REQUIRED: 403,
    ErrorKind.TASK_NOT_FOUND: 404,
    ErrorKind.SUBSCRIPTION_NOT_FOUND: 404,
    ErrorKind.RATE_LIMITED: 429,
}
"""HTTP statuses of refusals; 503 of others."""

_QUERY = frozenset({"subscription_id", "task_id", "events", "all_users", "feed", "id", "last_event_id"})
"""What `/events` takes: a word that is mistyped must not mean all events."""


def query_of(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The words of a query. Raises AiosError for one that is unknown or there twice."""
    query: dict[str, str] = {}
    for name, value in pairs:
        if name not in _QUERY or name in query:
            detail = f"is unknown or there twice; there are {', '.join(sorted(_QUERY))}"
            raise AiosError(ErrorKind.INVALID_PARAMS, detail, field=name[:64])
        query[name] = value
    return query


class EventStreams:
    """Makes the streams of the HTTP door."""

    def __init__(
        self,
        core: Core,
        subscriptions: Subscriptions,
        shares: Shares,
        timing: Timing,
        allowance: Callable[[], Allowance],
    ) -> None:
        """`allowance`: what is configured now."""
        self._core = core
        self._subscriptions = subscriptions
        self._shares = shares
        self._timing = timing
        self._allowance = allowance
        self._replays = asyncio.Semaphore(REPLAYS)

    async def run(
        self, session: Session, pairs: Iterable[tuple[str, str]], last: str | None,
        write: Callable[[bytes], Awaitable[None]],
    ) -> None:  # fmt: skip
        """Send until the subscription ends or `write` raises. `last`: the header that a reconnecting client sends.

        Raises AiosError for what is refused, before anything is written or when missed events are gone; and
        ConnectionResetError as the daemon ends: a refusal would tell clients not to come back (HTML standard, 9.2.3).
        """
        try:
            await self._run(session, pairs, last, write)
        except AiosError as error:
            if error.kind is not ErrorKind.SHUTTING_DOWN:
                raise
            raise ConnectionResetError("the daemon ends") from None

    async def _run(
        self, session: Session, pairs: Iterable[tuple[str, str]], last: str | None,
        write: Callable[[bytes], Awaitable[None]],
    ) -> None:  # fmt: skip
        query = query_of(pairs)
        after = _sequence(last or query.get("last_event_id"))
        entry, is_own = await self._entry(query, session)
        try:
            stream = Stream(
                self._core, self._subscriptions, session.caller, entry, Feed(self._allowance().events),
                replays=self._replays, heartbeat=self._timing.heartbeat,
            )  # fmt: skip
            await stream.run(write, after)
        finally:
            if is_own:
                self._subscriptions.end(entry)

    async def _entry(self, query: Mapping[str, str], session: Session) -> tuple[Entry, bool]:
        """The subscription that is meant, or one for this stream alone."""
        if "subscription_id" in query:
            if len(query) > 1 + ("last_event_id" in query):
                raise AiosError(ErrorKind.INVALID_PARAMS, "says already what is followed", field="subscription_id")
            return self._subscriptions.find(session.owner.uid, query["subscription_id"]), False
        params: dict[str, JsonValue] = {key: query[key] for key in ("task_id", "feed", "id") if key in query}
        if query.get("events"):
            params["events"] = [*query["events"].split(",")]
        if query.get("all_users", "0") not in ("0", "1"):
            raise AiosError(ErrorKind.INVALID_PARAMS, "is 0 or 1", field="all_users")
        params["all_users"] = query.get("all_users") == "1"
        self._subscriptions.check_room(session.owner.uid)
        with self._subscriptions.recording() as recording, self._shares.calls.call(session.owner.uid):
            wanted = "feed.subscribe" if "feed" in params else "task.subscribe"
            body = (await self._core.invoke(wanted, session.caller, params)).body
        entry = Entry(session.owner, granted(body), scope_of(params))
        self._subscriptions.check_room(session.owner.uid)
        self._subscriptions.start(entry, tuple(recording.events))
        return entry, True


def _sequence(text: str | None) -> int | None:
    """The number of what the client has already."""
    if not text:
        return None
    last = event_sequence(text)
    if last is None:
        raise AiosError(ErrorKind.INVALID_PARAMS, "is not the id of an event", field="last_event_id")
    return last
