"""A daemon that dies at a commit of one's choice, and comes back on the same store beside the same launcher.

`Crash(commit, moment)`: BEFORE, nothing of that commit is written and all before it has been told; AFTER, it is on
disk and nobody has heard of it. After that moment no write and no answer of that life comes through: what its
cancelled coroutines still do is what a process does between its last commit and SIGKILL. A `World` holds the lives; its
`call` makes a call that dies with the daemon, and the calls of `tests.unit.reliability.client` begin again after it.
"""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING

from aiosd.store.database import Database
from tests.unit.core.rig import BOOT, USER, Config, daemon

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from aiosd.auth.caller import Caller
    from aiosd.model.event import Event
    from aiosd.model.jsontext import JsonObject
    from aiosd.store.writer import Queued, Seal
    from tests.unit.core.fakelauncher import FakeLauncher
    from tests.unit.core.rig import Core


class Moment(StrEnum):
    """On which side of the commit."""

    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True, slots=True)
class Crash:
    """When a life ends. `commit`: counted from its first, 1."""

    commit: int
    moment: Moment


class Dead(Exception):
    """The daemon died before it answered."""


class MortalSeal:
    """The trail's seal, which sees every commit, and dies at one of them. In the writer's thread."""

    def __init__(self, seal: Seal, crash: Crash | None, died: Callable[[], None]) -> None:
        self._seal = seal
        self._crash = crash
        self._died = died
        self.commits = 0
        self.dead = False

    def _die(self) -> None:
        self.dead = True
        self._died()

    def before_commit(self, connection: sqlite3.Connection) -> None:
        """Count it; a dead daemon commits nothing."""
        self.commits += 1
        if self._crash == Crash(self.commits, Moment.BEFORE):
            self._die()
        if self.dead:
            raise sqlite3.OperationalError("the daemon is dead")
        self._seal.before_commit(connection)

    def after_commit(self) -> None:
        """It stands; perhaps nobody hears of it."""
        if self._crash == Crash(self.commits, Moment.AFTER):
            self._die()
            return
        self._seal.after_commit()

    def close(self) -> None:
        """The writer has ended."""
        self._seal.close()


class MortalDatabase(Database):
    """A store that tells nobody anything once its daemon is dead."""

    seal: MortalSeal

    def _write_settled(self, jobs: list[Queued], items: list[object], changed: bool) -> None:  # noqa: FBT001  as it came
        if not self.seal.dead:
            super()._write_settled(jobs, items, changed)


_FOR_CALLERS = ("Control.", "Crew.", "Database.", "WorkerOperations.")
"""What a daemon does to its end for callers that may have gone; a dead one does not."""


@dataclass
class World:
    """One machine and its daemon's lives, one after the other. `told`: what each life's subscribers were told."""

    root: Path
    launcher: FakeLauncher
    crashes: list[Crash]
    boot: str = BOOT
    lives: int = 0
    commits: int = 0
    told: list[list[Event]] = field(default_factory=list)
    _core: Core | None = None
    _up: asyncio.Event = field(default_factory=asyncio.Event)
    _life: asyncio.Task[None] | None = None
    _calls: set[asyncio.Task[JsonObject]] = field(default_factory=set)

    def _opening(self, crash: Crash | None) -> Callable[[Path, Seal], AbstractAsyncContextManager[Database]]:
        loop = asyncio.get_running_loop()

        @asynccontextmanager
        async def opened(path: Path, seal: Seal) -> AsyncIterator[Database]:
            mortal = MortalSeal(seal, crash, partial(self._told_of_death, loop))
            async with MortalDatabase.open(path, seal=mortal) as database:
                assert isinstance(database, MortalDatabase)
                database.seal = mortal
                try:
                    yield database
                finally:
                    self.commits = mortal.commits

        return opened

    def _told_of_death(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.call_soon_threadsafe(self._end_life)

    def _end_life(self) -> None:
        self._up.clear()
        for call in self._calls:
            call.cancel()
        if self._life is not None:
            self._life.cancel()

    async def _live(self, crash: Crash | None) -> None:
        events: list[Event] = []
        self.told.append(events)
        config = Config(schedule_interval=30.0, allow_private_addresses=True)
        async with daemon(
            self.root, self.launcher, config=config, boot=self.boot, opening=self._opening(crash)
        ) as core:
            core.hub.listen(events.extend)
            assert not core.registry.problems, core.registry.problems
            self._core = core
            self._up.set()
            await core.services.deliverer.run()

    async def run(self) -> None:
        """Life after life, until cancelled."""
        for crash in itertools.chain(self.crashes, itertools.repeat(None)):
            self.lives += 1
            self._life = asyncio.create_task(self._live(crash))
            try:
                await asyncio.shield(self._life)
            except asyncio.CancelledError:
                self._up.clear()
                for task in asyncio.all_tasks():  # what it carries out for callers that may have gone
                    if getattr(task.get_coro(), "__qualname__", "").startswith(_FOR_CALLERS):
                        task.cancel()
                if not self._life.done() or asyncio.current_task().cancelling():  # type: ignore[union-attr]  # we run
                    self._life.cancel()
                    with suppress(asyncio.CancelledError):
                        await self._life
                    raise

    async def up(self) -> Core:
        """The daemon that serves."""
        await self._up.wait()
        assert self._core is not None
        return self._core

    async def call(self, name: str, params: JsonObject, caller: Caller = USER) -> JsonObject:
        """One call. Raises AiosError, and Dead when its daemon died meanwhile."""
        core = await self.up()
        call = asyncio.create_task(core.invoke(name, params, caller))
        self._calls.add(call)
        try:
            await asyncio.wait([call])
        finally:
            self._calls.discard(call)
            call.cancel()
        if call.cancelled():
            raise Dead
        return call.result()


@asynccontextmanager
async def world(root: Path, launcher: FakeLauncher, crashes: list[Crash], *, boot: str = BOOT) -> AsyncIterator[World]:
    """A machine whose daemon dies as `crashes` say, one a life."""
    made = World(root, launcher, crashes, boot)
    async with launcher.serving():
        lives = asyncio.create_task(made.run())
        try:
            yield made
        finally:
            lives.cancel()
            with suppress(asyncio.CancelledError):
                await lives
