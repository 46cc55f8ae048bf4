"""The client for asyncio: JSON lines on the Unix socket, one connection for all calls and all events."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from aiosd.client import messages
from aiosd.client.messages import LINES_SOCKET, MAX_ANSWER, ProtocolError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence
    from os import PathLike
    from types import TracebackType
    from typing import Self

    from aiosd.client.messages import Event
    from aiosd.model.jsontext import JsonObject, JsonValue

MAX_WAITING = 10_000
"""Events that wait for one `events` loop; one that falls further behind ends with ProtocolError."""


class AsyncClient:
    """An async context manager: connected inside of it. `interactive`: the person behind this program may be asked.

    Every call raises CallError (refused), ProtocolError, or OSError (not reachable, or not any more).
    """

    def __init__(self, path: str | PathLike[str] = LINES_SOCKET, *, interactive: bool = False) -> None:
        """Connects on entering."""
        self._path = str(path)
        self._interactive = interactive
        self._answers: dict[int, asyncio.Future[JsonObject]] = {}
        self._queues: dict[str, asyncio.Queue[Event | None]] = {}
        self._early: dict[str, list[Event]] = {}
        self._granting = 0

    async def __aenter__(self) -> Self:
        """Connect. Raises OSError."""
        self._reader, self._writer = await asyncio.open_unix_connection(self._path, limit=MAX_ANSWER)
        self._receiving = asyncio.create_task(self._receive())
        if self._interactive:
            await self.call("aios/initialize", {"interactive": True})
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave; calls that wait end with ConnectionError."""
        self._receiving.cancel()
        await asyncio.gather(self._receiving, return_exceptions=True)
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def call(self, method: str, params: JsonObject | None = None) -> dict[str, JsonValue]:
        """Any method, by its JSON-RPC name."""
        if self._receiving.done():
            raise ConnectionResetError("the service has ended the connection")
        call = messages.call(method, params)
        future = self._answers[call.id] = asyncio.get_running_loop().create_future()
        try:
            self._writer.write(call.text().encode() + b"\n")
            await self._writer.drain()
            return messages.result(await future)
        finally:
            del self._answers[call.id]

    async def create(
        self, capability_id: str, arguments: JsonObject | None = None, *, metadata: JsonObject | None = None,
        wait: bool = False, options: JsonObject | None = None,
    ) -> dict[str, JsonValue]:  # fmt: skip
        """Run a capability. `wait`: answer with the finished task, else at once with `task_id` and `status`."""
        params = messages.create(capability_id, arguments, metadata, wait=wait, options=options)
        return await self.call("aios/task.create", params)

    async def get(self, task_id: str, *, history: bool = False) -> dict[str, JsonValue]:
        """One task, whole."""
        return await self.call("aios/task.get", {"task_id": task_id, "include_history": history})

    async def list(
        self, filter_: JsonObject | None = None, *, limit: int = 50, offset: int = 0
    ) -> dict[str, JsonValue]:
        """A page of tasks: `tasks`, `total`, `has_more`."""
        return await self.call("aios/task.list", messages.listing(filter_, limit, offset))

    async def cancel(self, task_id: str, reason: str = "user_request") -> dict[str, JsonValue]:
        """Stop a task for good."""
        return await self.call("aios/task.cancel", {"task_id": task_id, "reason": reason})

    async def provide_input(self, task_id: str, answer: JsonObject) -> dict[str, JsonValue]:
        """Answer a task's question."""
        return await self.call("aios/task.input", {"task_id": task_id, "input": answer})

    async def wait(self, task_id: str) -> dict[str, JsonValue]:
        """The task, once it is final."""
        return await self.call("aios/task.wait", {"task_id": task_id})

    async def events(
        self, task_id: str = "", kinds: Sequence[str] = (), *, last_event_id: str = ""
    ) -> AsyncGenerator[Event, None]:
        """Events from now on, or all after `last_event_id`, in order. Close it (`contextlib.aclosing`) when done.

        Raises ConnectionResetError when the connection ends: connect again and go on after the last event's id.
        """
        params, last, more = messages.following(task_id, kinds), last_event_id, True
        while more:
            granted, queue = await self._subscribe(params, last)
            missed = granted.get("missed_events")
            for one in missed if isinstance(missed, list) else ():
                if isinstance(one, Mapping):
                    yield messages.event_of(one)
            last, more = str(granted.get("last_event_id")), granted.get("more") is True
        try:
            while (event := await self._next(queue)) is not None:
                yield event
        finally:
            await self._unsubscribe(str(granted["subscription_id"]))

    async def _subscribe(self, params: JsonObject, last: str) -> tuple[JsonObject, asyncio.Queue[Event | None]]:
        """The answer, and where the events that follow it go."""
        queue: asyncio.Queue[Event | None] = asyncio.Queue()
        self._granting += 1
        try:
            if last:
                granted = await self.call("aios/task.resubscribe", {**params, "last_event_id": last})
            else:
                granted = await self.call("aios/task.subscribe", params)
            identifier = granted.get("subscription_id")
            if isinstance(identifier, str):
                self._queues[identifier] = queue
                for event in self._early.pop(identifier, ()):
                    queue.put_nowait(event)
            return granted, queue
        finally:
            self._granting -= 1
            if not self._granting:
                self._early.clear()

    async def _unsubscribe(self, identifier: str) -> None:
        del self._queues[identifier]
        if not self._receiving.done():
            with contextlib.suppress(OSError, messages.CallError):
                await self.call("aios/task.unsubscribe", {"subscription_id": identifier})

    async def _next(self, queue: asyncio.Queue[Event | None]) -> Event | None:
        if queue.empty() and self._receiving.done():
            raise ConnectionResetError("the service has ended the connection")
        event = await queue.get()
        if event is None:
            raise ConnectionResetError("the service has ended the connection")
        if queue.qsize() > MAX_WAITING:
            raise ProtocolError("events are not taken as fast as they come")
        return event

    async def _receive(self) -> None:
        try:
            while line := await self._reader.readline():
                self._take(messages.read(line))
        except (OSError, ValueError, ProtocolError):
            pass  # whoever waits is told that it is over
        finally:
            for future in self._answers.values():
                if not future.done():
                    future.set_exception(ConnectionResetError("the service has ended the connection"))
            for queue in self._queues.values():
                queue.put_nowait(None)

    def _take(self, message: JsonObject) -> None:
        identifier = message.get("id")
        params = message.get("params")
        if isinstance(identifier, int):
            future = self._answers.get(identifier)
            if future is not None and not future.done():
                future.set_result(message)
        elif message.get("method") == "aios/event" and isinstance(params, Mapping):
            subscription = str(params.get("subscription_id"))
            queue = self._queues.get(subscription)
            if queue is not None:
                queue.put_nowait(messages.event_of(params))
            elif self._granting:  # its subscription's answer has come, but not to whoever asked yet
                self._early.setdefault(subscription, []).append(messages.event_of(params))
