"""The one way in for every door: `invoke` finds the operation in the table, parses its parameters and calls its
handler.

Handlers are grouped by subject (`*_operations.py`) and registered by operation name; one that is missing, or one too
many, is an error at start. A handler checks itself what its operation's access asks for, through `Authorizer`."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import TYPE_CHECKING, Protocol

from aiosd.core.fair import Fair
from aiosd.core.operations import OPERATIONS, Reply
from aiosd.errors import AiosError, ErrorKind
from aiosd.model.jsontext import dump
from aiosd.model.secrettext import SecretText, SecretTextError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from aiosd.auth.caller import Caller
    from aiosd.core.events import EventHub
    from aiosd.core.operations import Operation
    from aiosd.core.rates import Rates
    from aiosd.model.event import Event
    from aiosd.model.following import Subscribe
    from aiosd.model.jsontext import JsonObject, JsonValue
    from aiosd.model.wire import Wire


LONG = frozenset(
    {
        *("session.timeline", "message.list", "session.list", "plan.get", "feed.subscribe", "task.resubscribe"),
        "audit.query",
    }
)
"""Operations that answer pages of what callers have written, some MiB: a user has a few of them done at a time, lest
everybody else waits."""
LONG_EACH = 2
LONG_TOGETHER = 4


class Handlers(Protocol):
    """A group of handlers."""

    def handlers(self) -> Mapping[str, Callable[..., Awaitable[Reply]]]:
        """By operation name."""
        ...


def _secret(given: dict[str, JsonValue], name: str) -> SecretText:
    """Take the secret out of parameters that came as JSON (over a socket, where nobody else hears it)."""
    try:
        return SecretText(bytearray(dump(given.pop(name)).encode("utf-8", "surrogatepass")))
    except SecretTextError as error:
        raise AiosError(ErrorKind.INVALID_PARAMS, str(error), field=name) from None


def _shutting_down(detail: str) -> AiosError:
    return AiosError(ErrorKind.SHUTTING_DOWN, detail, reason="shutting-down")


class Manager:
    """What the doors talk to (their `Core`)."""

    def __init__(self, hub: EventHub, groups: Sequence[Handlers], rates: Rates | None = None) -> None:
        """`rates`: what one user may ask for. Raises ValueError when handlers and table do not match."""
        self._hub = hub
        self._rates = rates
        self._running: set[asyncio.Task[object]] = set()
        self._cut: set[asyncio.Task[object]] = set()
        self._is_over = False
        self._long = Fair(LONG_EACH, LONG_TOGETHER)
        self._handlers: dict[str, Callable[..., Awaitable[Reply]]] = {}
        for group in groups:
            self._handlers.update(group.handlers())
        if self._handlers.keys() != OPERATIONS.keys():
            raise ValueError(f"no match: {sorted(self._handlers.keys() ^ OPERATIONS.keys())}")

    async def invoke(self, name: str, caller: Caller, params: JsonObject, secret: SecretText | None = None) -> Reply:
        """Carry out an operation for a caller. Raises AiosError.

        `secret`: what a door got by descriptor, instead of the operation's secret parameter; wiped here.
        """
        operation = OPERATIONS.get(name)
        if operation is None:
            raise AiosError(ErrorKind.UNKNOWN_METHOD, field="method")
        if self._is_over:
            with secret or nullcontext():
                raise _shutting_down("ask again in a moment")
        if self._rates is not None:
            try:
                self._rates.require(caller, name)
            except AiosError:
                with secret or nullcontext():
                    raise
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("an operation needs a task to run in")
        self._running.add(task)
        try:
            return await self._carry_out(operation, caller, params, secret)
        except asyncio.CancelledError:
            if task not in self._cut or task.uncancel() > 0:
                raise  # the caller has left
            raise _shutting_down("what was begun goes on; ask again in a moment") from None
        finally:
            self._running.discard(task)

    async def wind_up(self, within: float) -> None:
        """The daemon ends: what is being answered has that many seconds; what still waits then is told so. Who comes
        with something short in the last moment still gets it. What an operation has begun is stored, and goes on
        without its caller."""
        begun = set(self._running)
        if begun:
            await asyncio.wait(begun, timeout=within)
        await self._tell(begun & self._running, within)

    async def close(self, within: float) -> None:
        """After it, nothing that operations stand on is needed: the rest is told that the daemon ends, and whoever
        comes is, too. `within`: seconds to tell it."""
        self._is_over = True
        await self._tell(set(self._running), within)

    async def _tell(self, some: set[asyncio.Task[object]], within: float) -> None:
        self._cut |= some
        for task in some:
            task.cancel()
        if some:
            await asyncio.wait(some, timeout=within)

    async def _carry_out(
        self, operation: Operation, caller: Caller, params: JsonObject, secret: SecretText | None
    ) -> Reply:
        given = dict(params)
        if operation.secret is not None and given.get(operation.secret) is not None:
            secret = _secret(given, operation.secret)
        with secret or nullcontext():
            parsed: Wire | Subscribe | None = operation.model.parse_plainly(given)
            if parsed is None:
                if not operation.model.is_loaded:
                    await asyncio.to_thread(operation.model.load)
                parsed = operation.model.parse(given)
            if operation.name in LONG:
                async with self._long.place(caller.uid):
                    return await self._handlers[operation.name](caller, parsed)
            if operation.secret is None:
                return await self._handlers[operation.name](caller, parsed)
            return await self._handlers[operation.name](caller, parsed, secret)

    def listen(self, callback: Callable[[Sequence[Event]], None]) -> Callable[[], None]:
        """Hear every committed event; returns what ends that."""
        return self._hub.listen(callback)
