"""JSON-RPC's meaning, whatever carries it: a message and who sent it in, the answer out.

A batch is worked off in its order, one call after the other. What this door does itself is here too: it keeps the
subscriptions that the core grants, ends them, and describes itself (`rpc.discover`).
"""

from __future__ import annotations

import asyncio
import logging
import os
from dataclasses import field, replace
from typing import TYPE_CHECKING, Protocol

from aiosd.core.fair import Fair
from aiosd.errors import AiosError, ErrorKind, too_large
from aiosd.model.ids import event_sequence
from aiosd.model.jsontext import dump
from aiosd.model.later import dataclass
from aiosd.model.subscription import granted
from aiosd.rpc import jsonrpc
from aiosd.rpc.methods import DISCOVER, METHODS
from aiosd.rpc.subscriptions import Entry

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiosd.auth.caller import Caller
    from aiosd.core.operations import Reply
    from aiosd.model.jsontext import JsonObject, JsonValue
    from aiosd.rpc.feed import Feed
    from aiosd.rpc.jsonrpc import Malformed, Message, Request
    from aiosd.rpc.limits import Shares
    from aiosd.rpc.subscriptions import Owner, Subscriptions

MAX_ANSWER = 16 << 20
"""Largest answer, in characters: as on D-Bus."""
BATCHES = 4
"""Batches of one user that are worked off at a time: each is a hundred calls at most, answered with MAX_ANSWER."""
SMALL_ANSWER = 4096
"""An answer of so many characters is always given."""

_log = logging.getLogger(__name__)


class Core(Protocol):
    """What answers operations (core/manager.py)."""

    async def invoke(self, name: str, caller: Caller, params: JsonObject) -> Reply:
        """Do it as `caller`. Raises AiosError."""
        ...


@dataclass(slots=True)
class Session:
    """Who sends the messages. `make_feed`: where a new subscription's events go, None when a stream takes it up later.
    `stays`: whether the session is a connection, which may say once that its person can be asked. `held`: descriptors
    by which the core knows that a worker's connection is there; they are closed with it."""

    caller: Caller
    owner: Owner
    make_feed: Callable[[str], Feed] | None = None
    stays: bool = False
    held: list[int] = field(default_factory=list)

    def let_go(self) -> None:
        """The connection is over."""
        while self.held:
            os.close(self.held.pop())


@dataclass(slots=True)
class Answer:
    """What goes back: nothing when all were notifications. `afterwards` follows the text without a pause."""

    text: str | None = None
    afterwards: list[Callable[[], None]] = field(default_factory=list)

    def sent(self) -> None:
        """The text is on its way: what may follow it, follows."""
        for action in self.afterwards:
            action()


class Endpoint:
    """Answers messages."""

    def __init__(self, core: Core, subscriptions: Subscriptions, shares: Shares) -> None:
        """Keeps what it asks."""
        self._core = core
        self._subscriptions = subscriptions
        self._shares = shares
        self._batches = Fair(BATCHES, 1 << 20)
        self._special = {
            "task.subscribe": self._subscribe,
            "task.resubscribe": self._subscribe,
            "feed.subscribe": self._subscribe,
            "task.unsubscribe": self._unsubscribe,
            "initialize": self._initialize,
            "shutdown": self._shutdown,
            "worker.register": self._register,
        }

    async def answer(self, session: Session, message: bytes) -> Answer:
        """One message. Never raises for what is in it."""
        uid = session.caller.uid
        if not self._shares.hold(uid, len(message)):
            error = AiosError(ErrorKind.RATE_LIMITED, "messages of your user that are being answered are too large")
            return Answer(jsonrpc.failure(None, error))
        try:
            return await self._answer(session, message)
        finally:
            self._shares.release(uid, len(message))

    async def _answer(self, session: Session, message: bytes) -> Answer:
        parsed = jsonrpc.parse(message)
        if len(parsed.calls) == 1:
            return await self._answers(session, parsed)
        async with self._batches.place(session.caller.uid):
            return await self._answers(session, parsed)

    async def _answers(self, session: Session, parsed: Message) -> Answer:
        answer = Answer()
        texts: list[str] = []
        size = 0
        for number, call in enumerate(parsed.calls):
            if number:
                await asyncio.sleep(0)  # others are served between the calls of a batch
            text = await self._one(session, call, answer.afterwards, size)
            if not call.is_notification:
                texts.append(text)
                size += len(text)
        if texts:
            answer.text = jsonrpc.batch(texts) if parsed.is_batch else texts[0]
        return answer

    async def _one(
        self, session: Session, call: Request | Malformed, afterwards: list[Callable[[], None]], before: int
    ) -> str:
        """`before`: characters of the answers before it in the same message."""
        if isinstance(call, jsonrpc.Malformed):
            return jsonrpc.failure(call.id, call.error)
        uid, begun = session.caller.uid, len(afterwards)
        try:
            if before > MAX_ANSWER:  # a batch; what cannot be told is not done
                raise too_large(before)
            with self._shares.calls.call(uid):
                text = jsonrpc.result(call.id, await self._do(session, call, afterwards))
            if len(text) > MAX_ANSWER:
                raise too_large(len(text))
            if len(text) + before > SMALL_ANSWER:
                self._shares.require_room(uid, len(text) + before)
            return text
        except AiosError as error:
            del afterwards[begun:]
            return jsonrpc.failure(call.id, error)
        except Exception:  # noqa: BLE001 - the caller gets an answer, the journal the traceback
            _log.exception("%s failed unexpectedly", call.method)
            return jsonrpc.failure(call.id, AiosError(ErrorKind.INTERNAL))

    async def _do(self, session: Session, call: Request, afterwards: list[Callable[[], None]]) -> JsonObject:
        if call.method == DISCOVER:
            from aiosd.rpc.openrpc import document

            return document()
        operation = METHODS.get(call.method)
        if operation is None:
            raise AiosError(ErrorKind.UNKNOWN_METHOD, f"{DISCOVER} tells those that there are", field="method")
        special = self._special.get(operation.name)
        if special is not None:
            return await special(session, operation.name, call.params, afterwards)
        return await self._ask(session, operation.name, call.params)

    async def _ask(self, session: Session, name: str, params: JsonObject) -> JsonObject:
        reply = await self._core.invoke(name, session.caller, params)
        for fd in reply.fds:  # no method of this door has any; one that came must not stay open
            os.close(fd)
        return reply.body

    async def _subscribe(
        self, session: Session, name: str, params: JsonObject, afterwards: list[Callable[[], None]]
    ) -> JsonObject:
        """The core decides and names the scope; this door keeps the subscription and loses nothing meanwhile."""
        self._subscriptions.check_room(session.owner.uid)
        with self._subscriptions.recording() as recording:
            before = await self._subscriptions.position() if session.make_feed is None else 0
            body = await self._ask(session, name, params)
            after = event_sequence(str(body.get("last_event_id"))) or 0
            entry = Entry(session.owner, granted(body, after=after), scope_of(params))
            try:
                if session.make_feed is None:
                    await self._subscriptions.keep(entry, grant_of(body), after or before)
                self._subscriptions.check_room(session.owner.uid)
                if recording.overflowed:
                    raise AiosError(ErrorKind.BUSY, "too much happened meanwhile; ask again")
            except BaseException:
                self._subscriptions.drop(entry)
                raise
        recorded = tuple(recording.events)
        shown = {key: value for key, value in body.items() if key != "uid"}
        more = body.get("more") is True
        if session.make_feed is None:
            entry.owed = after + 1 if more else None  # a stream goes on where this answer stops
            self._subscriptions.start(entry, recorded)
        elif more:
            del shown["subscription_id"]  # first the rest of what was missed: later events must not come before it
        else:
            entry.feed = session.make_feed(entry.id)
            afterwards.append(lambda: self._subscriptions.start(entry, recorded))
        return shown

    async def _unsubscribe(
        self, session: Session, name: str, params: JsonObject, afterwards: list[Callable[[], None]]
    ) -> JsonObject:
        del afterwards
        body = await self._ask(session, name, params)
        entry = self._subscriptions.find(session.owner.uid, str(params["subscription_id"]))
        if session.stays and entry.owner != session.owner:
            raise AiosError(ErrorKind.SUBSCRIPTION_NOT_FOUND, "this connection has none of that id")
        self._subscriptions.end(entry)
        await self._subscriptions.settled()
        return body

    async def _register(
        self, session: Session, name: str, params: JsonObject, afterwards: list[Callable[[], None]]
    ) -> JsonObject:
        """A worker that is there as long as its connection is: this door holds the descriptor for it."""
        del afterwards
        if not session.stays and params.get("liveness") == "descriptor":
            detail = "a call over HTTP has no connection that stays; a worker is known by its heartbeats there"
            raise AiosError(ErrorKind.INVALID_PARAMS, detail, field="liveness")
        reply = await self._core.invoke(name, session.caller, params)
        session.held += reply.fds
        return reply.body

    async def _initialize(
        self, session: Session, name: str, params: JsonObject, afterwards: list[Callable[[], None]]
    ) -> JsonObject:
        del afterwards
        body = await self._ask(session, name, params)
        if session.stays:
            session.caller = replace(session.caller, interactive=params.get("interactive") is True)
        return body

    async def _shutdown(
        self, session: Session, name: str, params: JsonObject, afterwards: list[Callable[[], None]]
    ) -> JsonObject:
        del afterwards
        body = await self._ask(session, name, params)
        ended = self._subscriptions.end_session(session.owner)
        await self._subscriptions.settled()
        return {**body, "subscriptions_ended": ended}


def scope_of(params: JsonObject) -> JsonObject:
    """What a subscription is about, of the parameters that asked for it."""
    return {key: params[key] for key in ("task_id", "events", "all_users", "feed", "id") if key in params}


def grant_of(body: JsonObject) -> JsonObject:
    """What was granted, of the core's answer: without the events that were missed."""
    return {key: value for key, value in body.items() if key not in ("missed_events", "last_event_id", "more")}


def notification(subscription_id: str, identifier: str | None, kind: str, data: str) -> str:
    """An event as JSON-RPC tells it on a connection that stays. `data`: JSON."""
    head: dict[str, JsonValue] = {"subscription_id": subscription_id, "event": kind}
    if identifier is not None:
        head["id"] = identifier
    return f'{{"jsonrpc":"{jsonrpc.VERSION}","method":"aios/event","params":{dump(head)[:-1]},"data":{data}}}}}'
