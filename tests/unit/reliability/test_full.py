"""The disk is full for one statement of the writer's, each in turn: what was asked for is refused or done, never half.

SQLite then undoes the statement, or rolls the whole transaction back by itself (https://sqlite.org/lang_transaction.html,
"Response To Errors Within A Transaction"); both are played. The daemon lives on, and who was refused asks again.
"""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from aiosd.errors import AiosError, ErrorKind
from aiosd.store.database import Database
from tests.unit.core.rig import PATIENCE, USER
from tests.unit.hooks.receiver import receiving
from tests.unit.reliability.client import Client
from tests.unit.reliability.crashing import Crash, Dead, World
from tests.unit.reliability.invariants import check
from tests.unit.reliability.scenarios import SCENARIOS, stage
from tests.unit.reliability.test_crash import hushed, leaf

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from aiosd.auth.caller import Caller
    from aiosd.model.jsontext import JsonObject
    from aiosd.store.writer import Parameters, Seal
    from tests.unit.reliability.scenarios import Scenario

__all__ = ["hushed"]

EVERY = 16
"""All of them were played once (docs/reliability.md); each time some are, in each scenario others."""
CHANGES = ("INSERT", "UPDATE", "DELETE", "COMMIT")


class Filling:
    """The writer's connection. `full_at`: number of the statement for which there is no room; `whole`: SQLite then
    rolls everything back."""

    def __init__(self, connection: sqlite3.Connection, full_at: int, *, whole: bool) -> None:
        self._connection = connection
        self._full_at = full_at
        self._whole = whole
        self.statements = 0
        self.counts = False

    @property
    def total_changes(self) -> int:
        return self._connection.total_changes

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction

    def execute(self, sql: str, parameters: Parameters = ()) -> sqlite3.Cursor:
        if self.counts and sql.startswith(CHANGES):
            self.statements += 1
            if self.statements == self._full_at:
                if self._whole:
                    self._connection.execute("ROLLBACK")
                error = sqlite3.OperationalError("database or disk is full")
                error.sqlite_errorcode = sqlite3.SQLITE_FULL
                raise error
        return self._connection.execute(sql, parameters)

    def executemany(self, sql: str, rows: Iterable[Parameters]) -> sqlite3.Cursor:
        return self._connection.executemany(sql, rows)

    def close(self) -> None:
        self._connection.close()


class FullWorld(World):
    """A machine with one daemon, whose disk is full for a moment."""

    full_at = 0
    whole = False
    filling: Filling | None = None

    def _opening(self, crash: Crash | None) -> Callable[[Path, Seal], AbstractAsyncContextManager[Database]]:
        @asynccontextmanager
        async def opened(path: Path, seal: Seal) -> AsyncIterator[Database]:
            async with Database.open(path, seal=seal) as database:
                writer = database._writer
                assert writer is not None
                self.filling = Filling(writer._connection, self.full_at, whole=self.whole)
                writer._connection = self.filling  # type: ignore[assignment]  # it does what the writer asks for
                yield database

        return opened

    async def call(self, name: str, params: JsonObject, caller: Caller = USER) -> JsonObject:
        """Who is refused by a full disk asks again, as who was not answered does.

        It may be full from the first call on: a start that is refused is the service manager's to repeat.
        """
        await self.up()
        assert self.filling is not None
        self.filling.counts = True
        try:
            return await super().call(name, params, caller)
        except AiosError as error:
            if error.kind is ErrorKind.STORAGE:
                raise Dead from None
            raise


async def lived(scenario: Scenario, full_at: int, *, whole: bool) -> int:
    """Play it; how many statements there were."""
    with stage(scenario) as (root, launcher):
        made = FullWorld(root, launcher, [])
        made.full_at, made.whole = full_at, whole
        async with launcher.serving():
            lives = asyncio.create_task(made.run())
            try:
                client = Client(made)
                async with asyncio.timeout(3 * PATIENCE), receiving(client.receiver):
                    await scenario.script(client)
                    await check(made, client, scenario)
                    assert made.lives == 1, "the daemon ended"
            finally:
                lives.cancel()
                with suppress(asyncio.CancelledError):
                    await lives
        assert made.filling is not None
        return made.filling.statements


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_disk_is_full_at_a_statement(name: str) -> None:
    async def all_of_them() -> None:
        scenario = SCENARIOS[name]
        count = await lived(scenario, 0, whole=False)
        wrong = []
        for number in range(1 + list(SCENARIOS).index(name), count + 1, EVERY):
            for whole in (False, True):
                try:
                    await lived(scenario, number, whole=whole)
                except (AssertionError, AiosError, TimeoutError, BaseExceptionGroup) as error:
                    wrong.append(f"{number} of {count}, whole {whole}: {leaf(error)!r}")
        assert not wrong, "\n".join(wrong)

    asyncio.run(all_of_them())
