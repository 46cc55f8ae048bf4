"""Damage that is met while the database is open: said once, noted for the next start, which salvages."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from aiosd.store.database import Database, StoreError, StoreFailure
from aiosd.store.files import SUSPECT, beside
from tests.unit.store.test_maintenance import database

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["database"]


def tear(path: Path, table: str) -> None:
    """Overwrite the first page of a table, of a database that is not open."""
    with closing(sqlite3.connect(path)) as db:
        root = int(db.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)).fetchone()[0])
        size = int(db.execute("PRAGMA page_size").fetchone()[0])
    data = bytearray(path.read_bytes())
    data[(root - 1) * size : root * size] = b"\xa5" * size
    path.write_bytes(data)


def test_the_next_start_salvages(database: Path) -> None:
    async def scenario() -> None:
        async with Database.open(database):
            pass  # a step to a newer version may read what it would have met
        tear(database, "events")
        async with Database.open(database) as store:
            assert store.report.broken is None, "a clean stop is not looked at"
            with pytest.raises(StoreError) as met:
                await store.read(lambda db: db.execute("SELECT payload FROM events").fetchall())
            assert met.value.failure is StoreFailure.CORRUPT
            assert store.damaged.is_set()
        assert beside(database, SUSPECT).exists()
        async with Database.open(database) as store:
            assert store.report.broken is not None
            assert store.report.broken.exists()
            await store.write(lambda tx: tx.execute("INSERT OR REPLACE INTO meta(key, value) VALUES ('probe', 1)"))
        assert not beside(database, SUSPECT).exists()
        async with Database.open(database) as store:
            assert store.report.broken is None, "once is enough"

    asyncio.run(scenario())
