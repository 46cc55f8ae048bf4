"""`aiosctl state`: check, back up, restore, export, beside a daemon that runs and without one."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from aiosd.store import maintenance
from aiosd.store.connection import connect_writer
from aiosd.store.database import Database, StoreError, StoreFailure
from aiosd.store.migrations import level_1_0, statements

ROOT = Path(__file__).parents[3]
RELEASED = ROOT / "tests/fixtures/state-1.0.sql"
"""A database of the first released level, with tasks in every state: what later programs have to open."""

NOW = 1_780_000_000_000_000


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A file of level 1.0."""
    path = tmp_path / "aiosd.db"
    path.touch(0o600)
    with closing(connect_writer(path)) as db:
        db.execute("PRAGMA foreign_keys = OFF")
        db.executescript(RELEASED.read_text())
    return path


def rows(path: Path) -> list[str]:
    return [json.dumps(line) for line in maintenance.export(path)]


def test_the_first_level_is_as_it_was_released(database: Path) -> None:
    """A released step is never edited: who changes it breaks databases that exist."""
    with closing(sqlite3.connect(":memory:")) as fresh, closing(sqlite3.connect(database)) as old:
        for statement in statements(level_1_0.SCRIPT):
            fresh.execute(statement)
        schema = "SELECT type, name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%' ORDER BY type, name"
        assert old.execute(schema).fetchall() == fresh.execute(schema).fetchall()


def test_this_program_opens_the_first_level_and_keeps_all_of_it(database: Path) -> None:
    before = rows(database)

    async def opened() -> str:
        async with Database.open(database) as store:
            assert store.read_only_reason is None
            assert store.report.broken is None
            return str(store.report.version)

    version = asyncio.run(opened())
    after = rows(database)
    assert version == str(maintenance.check(database).newest)
    assert without_what_was_added(before, after) == [line for line in before if '"meta"' not in line][1:]


def without_what_was_added(before: list[str], after: list[str]) -> list[str]:
    """The rows of `after`, of the tables and columns of `before`, as the older program still sees them."""
    columns: dict[str, list[str]] = {}
    for line in before[1:]:
        entry = json.loads(line)
        columns.setdefault(entry["table"], list(entry["row"]))
    shown = []
    for line in after[1:]:
        entry = json.loads(line)
        if entry["table"] != "meta" and entry["table"] in columns:
            kept = {name: entry["row"][name] for name in columns[entry["table"]]}
            shown.append(json.dumps({**entry, "row": kept}))
    return shown


def test_check_finds_nothing_in_a_sound_one_and_names_what_is_wrong(database: Path) -> None:
    report = maintenance.check(database)
    assert (report.problems, report.writable, report.tables["tasks"] > 0) == ((), True, True)
    with closing(sqlite3.connect(database)) as db:
        db.execute("DELETE FROM tasks WHERE rowid = (SELECT min(rowid) FROM tasks)")
        db.commit()
    assert any("that is not there" in problem for problem in maintenance.check(database).problems)
    data = bytearray(database.read_bytes())
    data[8192:12288] = b"\xa5" * 4096
    database.write_bytes(data)
    assert maintenance.check(database).problems
    database.write_text("nothing of ours" * 1000)
    assert maintenance.check(database).version is None


def test_the_verbs_end_as_the_page_says(database: Path, tmp_path: Path) -> None:
    """73 for a copy that is there already, and 141 for a reader of the export that has seen enough."""
    command = [sys.executable, "-c", "from aiosd.cli.start import main; main()", "state"]
    run = [*command, "backup", "--database", str(database)]
    done = [subprocess.run([*run, str(tmp_path / "copy")], capture_output=True, cwd=ROOT) for _ in range(2)]
    assert [one.returncode for one in done] == [0, 73]
    export = ["bash", "-c", 'set -o pipefail; "$@" | head -c 10 >/dev/null', "bash", *command, "export", "--database"]
    gone = subprocess.run([*export, str(database)], capture_output=True, cwd=ROOT)
    assert (gone.returncode, gone.stderr) == (141, b"")


def test_a_backup_while_the_daemon_writes_comes_back(database: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy"

    async def scenario() -> None:
        async with Database.open(database) as store:
            await store.write(lambda tx: tx.execute("INSERT INTO meta(key, value) VALUES ('probe', 1)"))
            await asyncio.to_thread(maintenance.backup, database, target)
            await store.write(lambda tx: tx.execute("UPDATE meta SET value = 2 WHERE key = 'probe'"))
            with pytest.raises(StoreError) as refused:
                await asyncio.to_thread(maintenance.restore, database, target, now=lambda: NOW)
            assert refused.value.failure is StoreFailure.BUSY

    asyncio.run(scenario())
    aside = maintenance.restore(database, target, now=lambda: NOW)
    assert aside is not None
    for path, value in ((database, 1), (aside, 2)):
        with closing(sqlite3.connect(path)) as db:
            assert db.execute("SELECT value FROM meta WHERE key = 'probe'").fetchone() == (value,)
    assert database.stat().st_mode & 0o777 == 0o600
    with pytest.raises(StoreError, match="exists already"):
        maintenance.backup(database, target)


@pytest.mark.parametrize("kind", ["newer", "damaged"])
def test_what_is_not_to_be_used_is_not_restored(kind: str, database: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy"
    maintenance.backup(database, target)
    if kind == "newer":
        with closing(sqlite3.connect(target)) as db:
            db.execute("UPDATE meta SET value = 99 WHERE key = 'level'")
            db.commit()
    else:
        target.write_bytes(target.read_bytes()[:8192])
    before = database.read_bytes()
    with pytest.raises(StoreError):
        maintenance.restore(database, target, now=lambda: NOW)
    assert database.read_bytes() == before


def test_an_export_has_every_row_and_no_sealed_bytes(database: Path) -> None:
    lines = [json.loads(line) for line in rows(database)]
    assert lines[0] == {"format": "aiosd-state", "version": "1.0"}
    counts = maintenance.check(database).tables
    assert len(lines) - 1 == sum(counts.values())
    assert all("base64" not in json.dumps(line) for line in lines[1:] if line["table"] in maintenance.SEALED)
