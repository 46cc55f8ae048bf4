"""aiosctl against the real core: each call goes through the D-Bus door's own tables, without a bus in between.

The core lives in a thread with a loop of its own, as each invocation of aiosctl has one.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from aiosd.bus.connection import Variant
from aiosd.bus.members import MEMBERS
from aiosd.bus.paths import find
from aiosd.cli.client import Notice, Reply
from aiosd.cli.failure import of_dbus
from aiosd.errors import AiosError
from aiosd.model.jsontext import dump
from aiosd.model.subscription import Subscription, granted
from tests.unit.core.rig import USER, Core, core

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
    from pathlib import Path

    from aiosd.cli.client import Argument, Member
    from aiosd.model.event import Event
    from tests.unit.core.fakelauncher import FakeLauncher


class CoreThread:
    """A core in a thread. `run` does something in its loop and waits for the answer."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._end: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run)
        self.core: Core | None = None

    @contextlib.contextmanager
    def running(self) -> Iterator[CoreThread]:
        self._thread.start()
        assert self._ready.wait(20)
        try:
            yield self
        finally:
            if self._end is not None:
                self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join(20)

    @property
    def launcher(self) -> FakeLauncher:
        assert self.core is not None
        return self.core.launcher

    def run(self, work: Coroutine[object, object, object]) -> object:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(20)

    async def there(self, work: Coroutine[object, object, object]) -> object:
        """From another loop."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._live())
        finally:
            self._ready.set()
            self._loop.close()

    async def _live(self) -> None:
        self._end = asyncio.Event()
        async with core(self._root) as self.core:
            self._ready.set()
            await self._end.wait()


class CoreTransport:
    """`aiosd.cli.client.Transport`, for one invocation."""

    def __init__(self, thread: CoreThread) -> None:
        self._thread = thread
        self._subscriptions: list[Subscription] = []
        self._listener: Callable[[Notice], None] | None = None

    async def call(
        self, member: Member, path: str, body: tuple[Argument, ...], seconds: float | None, fds: tuple[int, ...] = ()
    ) -> Reply:
        del seconds, fds
        row, target = MEMBERS[member.interface, member.name], find(path)
        assert target is not None
        values = tuple(
            {name: Variant(one.signature, one.value) for name, one in each.items()}
            if isinstance(each, Mapping)
            else each
            for each in body
        )
        try:
            params = row.params(values, target.params)
            answer = await self._thread.there(self._invoke(row.operation, params))
        except AiosError as error:
            raise of_dbus(error.kind.dbus_name, error.text, error.data()) from None
        assert isinstance(answer, dict)
        if row.operation == "feed.subscribe":
            self._subscriptions.append(granted(answer))
        return Reply(row.encode(answer))

    async def _invoke(self, operation: str, params: Mapping[str, object]) -> object:
        assert self._thread.core is not None
        return await self._thread.core.invoke(operation, params, USER)  # type: ignore[arg-type]  # JSON of the door's

    @contextlib.asynccontextmanager
    async def listen(self, names: tuple[str, ...], listener: Callable[[Notice], None]) -> AsyncIterator[None]:
        assert names == ("Event",)
        loop = asyncio.get_running_loop()

        def relay(events: Sequence[Event]) -> None:
            for event in events:
                for one in self._subscriptions:
                    if one.wants(event):
                        body = (one.id, event.id, one.shown_as(event), dump(one.data_of(event)))
                        loop.call_soon_threadsafe(listener, Notice("Event", body))

        async def begin() -> object:
            assert self._thread.core is not None
            return self._thread.core.hub.listen(relay)

        off = await self._thread.there(begin())

        async def end() -> None:
            assert callable(off)
            off()

        try:
            yield
        finally:
            await self._thread.there(end())
