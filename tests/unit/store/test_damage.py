"""Damage that is met while the database is open: said once, noted for the next start, which salvages."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from aiosd.store.connection import connect_writer
from aiosd.store.database import Database, StoreError, StoreFailure
from aiosd.store.files import SUSPECT, beside
from aiosd.store.salvage import salvage
from tests.unit.store.rows import fill
from tests.unit.store.test_maintenance import database
from tests.unit.store.test_schema import database as made

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


FULL = """
INSERT INTO sessions(id, uid, created_at, updated_at) VALUES ('s', 1, 1, 1);
INSERT INTO plans(id, session_id, uid, created_at, updated_at) VALUES ('p', 's', 1, 1, 1);
INSERT INTO tasks(id, uid, level, status, phase, created_at, updated_at)
    SELECT 't' || i, 1, 1, 'pending', 'planning', 1, 1 FROM n;
INSERT INTO plan_tasks SELECT 1, seq, 1 FROM tasks;
INSERT INTO subscriptions SELECT 'sub-' || i, 1, '', '{}', '{}', 0, 1 FROM n;
INSERT INTO webhooks(id, task_id, uid, url, max_retries, retry_delay_ms, created_at)
    VALUES ('wh', 't1', 1, 'https://a', 1, 1, 1);
INSERT INTO outbox(id, event_seq, hook_id, due_at) SELECT 'd' || i, i, 'wh', 1 FROM n;
INSERT INTO blobs(sha256, size, created_at) VALUES (printf('%064d', 1), 1, 1);
INSERT INTO artifacts(id, task_id, uid, key, name, type, created_at, size)
    VALUES ('a', 't1', 1, 'k', 'n', 'text', 1, 7);
INSERT INTO artifact_blobs VALUES (1, printf('%064d', 1));
"""
"""Also what is kept without a row number (plan_tasks, subscriptions), and what is counted by triggers."""
COUNTERS = (
    "SELECT waiting FROM webhooks", "SELECT refs FROM blobs", "SELECT count, size FROM artifact_usage",
    "SELECT uid, capability_id, status, count FROM task_counts ORDER BY 1, 2, 3",
)  # fmt: skip
SIZE = 1000
LEAF = 0x0A
"""First byte of a page with rows of a table that has no row numbers (https://sqlite.org/fileformat.html)."""


def test_every_row_of_a_sound_table_is_salvaged_and_counted_once(tmp_path: Path) -> None:
    with closing(made(tmp_path / "old.db")) as old, closing(made(tmp_path / "new.db")) as new:
        fill(old, FULL, SIZE)
        found = salvage(tmp_path / "old.db", new)
        assert found.damaged == ()
        for table in found.rows:
            rows = f"SELECT * FROM {table} ORDER BY 1, 2"  # noqa: S608  names of the schema
            assert new.execute(rows).fetchall() == old.execute(rows).fetchall(), table
        for counted in COUNTERS:
            assert new.execute(counted).fetchall() == old.execute(counted).fetchall(), counted


def test_what_belonged_to_a_lost_row_goes_also_where_rows_have_no_number(tmp_path: Path) -> None:
    with closing(made(tmp_path / "old.db")) as old, closing(made(tmp_path / "new.db")) as new:
        fill(old, FULL, SIZE)
    tear(tmp_path / "old.db", "plans")
    with closing(connect_writer(tmp_path / "new.db")) as new:
        found = salvage(tmp_path / "old.db", new)
        assert found.damaged == ("plans",)
        assert new.execute("PRAGMA foreign_key_check").fetchall() == []
        assert new.execute("SELECT count(*) FROM plan_tasks").fetchone()[0] == 0
        assert new.execute("SELECT count(*) FROM tasks").fetchone()[0] == SIZE


def test_a_table_without_row_numbers_is_read_from_both_ends_of_the_damage(tmp_path: Path) -> None:
    with closing(made(tmp_path / "old.db")) as old, closing(made(tmp_path / "new.db")):
        fill(old, FULL, SIZE)
        size = int(old.execute("PRAGMA page_size").fetchone()[0])
    data = bytearray((tmp_path / "old.db").read_bytes())
    leaves = [begin for begin in range(0, len(data), size) if data[begin] == LEAF and b"sub-50" in data[begin:][:size]]
    data[leaves[0] : leaves[0] + size] = b"\xa5" * size
    (tmp_path / "old.db").write_bytes(data)
    with closing(connect_writer(tmp_path / "new.db")) as new:
        found = salvage(tmp_path / "old.db", new)
        assert found.damaged == ("subscriptions",)
        ids = [row[0] for row in new.execute("SELECT id FROM subscriptions ORDER BY id")]
        assert "sub-1" in ids
        assert "sub-999" in ids
        assert SIZE - 2 * size // 20 < len(ids) < SIZE
