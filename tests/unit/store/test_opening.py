"""Opening: versions up and down, copies, damage and what is salvaged from it."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import pytest

from aiosd.store.database import Database, StoreError, StoreFailure
from aiosd.store.migrations import MIGRATIONS, Migration, Version, statements
from aiosd.store.opening import Opened, open_store
from tests.unit.store.rows import NOW, adding, insert_task, names

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NEWEST = MIGRATIONS[-1].version
ADDS = Migration(Version(NEWEST.level, NEWEST.sublevel + 1), "ALTER TABLE tasks ADD COLUMN colour TEXT;")
BREAKS = Migration(Version(NEWEST.level + 1, 0), "ALTER TABLE history RENAME COLUMN state TO status;")

EVENT = "INSERT INTO events(uid, source, type, kind, time, payload) VALUES (0, 'system', 'x', 'x', 1, '{}')"


@contextmanager
def opened(path: Path, migrations: tuple[Migration, ...] = MIGRATIONS) -> Iterator[Opened]:
    store = open_store(path, now=lambda: NOW, readers=1, migrations=migrations)
    try:
        yield store
    finally:
        for connection in store.readers:
            connection.close()
        if store.writer is not None:
            store.writer.close()
        store.release()


def make(path: Path, tasks: int = 3, migrations: tuple[Migration, ...] = MIGRATIONS) -> None:
    with opened(path, migrations) as store:
        assert store.writer is not None
        store.writer.execute("BEGIN")
        for number in range(tasks):
            insert_task(store.writer, f"t{number}", status="completed")
            store.writer.execute(
                "INSERT INTO history(task_seq, state, phase, time)"
                " SELECT seq, status, phase, ? FROM tasks WHERE id = ?",
                (NOW, f"t{number}"),
            )
        store.writer.execute("COMMIT")


def leave_uncleanly(path: Path) -> None:
    """As after a crash: the log is still there."""
    path.with_name(path.name + "-wal").touch()


def all_names(path: Path) -> list[str]:
    with opened(path) as store:
        return names(store.readers[0])


def test_a_new_database_has_the_newest_version(tmp_path: Path) -> None:
    with opened(tmp_path / "tasks.db") as store:
        assert store.report.created
        assert store.report.version == NEWEST
        assert store.report.read_only_reason is None
        assert store.report.migrated_from is None
        assert store.readers[0].execute("PRAGMA application_id").fetchone()[0] == int.from_bytes(b"AIOS", "big")
        assert store.readers[0].execute("PRAGMA auto_vacuum").fetchone()[0] == 2, "pruned rows give their pages back"
    with opened(tmp_path / "tasks.db") as store:
        assert not store.report.created


def test_every_statement_of_a_script_is_found() -> None:
    script = "CREATE TABLE a(x);\nCREATE TRIGGER t AFTER INSERT ON a BEGIN\n  DELETE FROM a;\n  DELETE FROM a;\nEND;\n"
    assert len(list(statements(script))) == 2
    with pytest.raises(ValueError, match="inside a statement"):
        list(statements("CREATE TABLE a(x)"))


def test_migrations_are_in_order() -> None:
    versions = [migration.version for migration in MIGRATIONS]
    assert versions == sorted(set(versions))


def test_an_additive_step_raises_the_sublevel_and_needs_no_copy(tmp_path: Path) -> None:
    make(tmp_path / "tasks.db")
    with opened(tmp_path / "tasks.db", (*MIGRATIONS, ADDS)) as store:
        assert store.report.version == ADDS.version
        assert store.report.migrated_from == NEWEST
        assert store.report.backup is None
        assert names(store.readers[0]) == ["t0", "t1", "t2"]


def test_an_older_program_works_on_a_newer_sublevel(tmp_path: Path) -> None:
    make(tmp_path / "tasks.db", migrations=(*MIGRATIONS, ADDS))
    with opened(tmp_path / "tasks.db") as store:
        assert store.report.version == ADDS.version, "it does not pretend that the database were older"
        assert store.writer is not None
        insert_task(store.writer, "by the older program")
    with opened(tmp_path / "tasks.db", (*MIGRATIONS, ADDS)) as store:
        assert store.report.migrated_from is None
        assert "by the older program" in names(store.readers[0])


def test_a_breaking_step_leaves_a_copy_to_go_back_to(tmp_path: Path) -> None:
    make(tmp_path / "tasks.db")
    with opened(tmp_path / "tasks.db", (*MIGRATIONS, BREAKS)) as store:
        backup = store.report.backup
        assert store.report.version == BREAKS.version
    assert backup is not None
    assert backup.name == "tasks.db.level-1-20260105T100000.000000Z"
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    assert all_names(backup) == ["t0", "t1", "t2"], "the older program opens the copy"


def test_an_older_program_only_reads_a_newer_level(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    make(path)
    with opened(path, (*MIGRATIONS, BREAKS)):
        pass

    async def scenario() -> None:
        async with Database.open(path) as database:
            assert (
                database.read_only_reason == f"the database has version {BREAKS.version}, this program knows {NEWEST}"
            )
            assert await database.read(names) == ["t0", "t1", "t2"]
            with pytest.raises(StoreError) as refused:
                await database.write(adding("a"))
            assert refused.value.failure is StoreFailure.READ_ONLY
            await database.health(within=5)

    before = path.read_bytes()
    asyncio.run(scenario())
    assert path.read_bytes() == before


def test_a_step_that_fails_leaves_the_database_as_it_was(tmp_path: Path) -> None:
    make(tmp_path / "tasks.db")
    wrong = Migration(ADDS.version, "CREATE TABLE extra(x);\nINSERT INTO nowhere VALUES (1);\n")
    with pytest.raises(StoreError), opened(tmp_path / "tasks.db", (*MIGRATIONS, wrong)):
        pass
    with opened(tmp_path / "tasks.db") as store:
        assert store.report.version == NEWEST
        tables = store.readers[0].execute("SELECT count(*) FROM sqlite_schema WHERE name = 'extra'").fetchone()[0]
        assert tables == 0


def test_an_unclean_stop_is_noticed_and_checked(tmp_path: Path) -> None:
    make(tmp_path / "tasks.db")
    leave_uncleanly(tmp_path / "tasks.db")
    with opened(tmp_path / "tasks.db") as store:
        assert store.report.unclean
        assert store.report.broken is None


def _page_of(path: Path, table: str) -> tuple[int, int, int]:
    """(root page, page size, pages) from the file itself."""
    with closing(sqlite3.connect(path)) as connection:
        root = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)).fetchone()[0]
        size = connection.execute("PRAGMA page_size").fetchone()[0]
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
    return root, size, pages


def _leaf_pages(path: Path, first: int, size: int, pages: int) -> list[int]:
    """Numbers of table leaf pages (https://sqlite.org/fileformat2.html: type 13) from `first` on."""
    raw = path.read_bytes()
    return [number for number in range(first, pages + 1) if raw[(number - 1) * size] == 13]


def test_one_bad_page_costs_the_rows_around_it_and_not_the_table(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    make(path, tasks=2000)
    root, size, pages = _page_of(path, "tasks")
    raw = bytearray(path.read_bytes())
    holding = [page for page in _leaf_pages(path, root, size, pages) if b"system.info.read" in _page(raw, page, size)]
    bad = holding[len(holding) // 2]
    lost = _page(raw, bad, size).count(b"system.info.read")
    raw[(bad - 1) * size : bad * size] = b"\xa5" * size
    path.write_bytes(raw)
    leave_uncleanly(path)

    with opened(path) as store:
        report = store.report
        assert report.broken == tmp_path / "tasks.db.broken-20260105T100000.000000Z"
        assert "tasks" in report.damaged
        assert report.broken_reason
        kept = names(store.readers[0])
        assert 0 < 2000 - len(kept) <= lost + 1
        assert len(kept) == report.salvaged["tasks"]
        assert store.readers[0].execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        assert store.readers[0].execute("PRAGMA foreign_key_check").fetchall() == []
        assert store.readers[0].execute("SELECT sum(count) FROM task_counts").fetchone()[0] == len(kept)
        assert store.readers[0].execute("SELECT count(*) FROM history").fetchone()[0] == len(kept)
        assert store.writer is not None
        insert_task(store.writer, "new")
        assert store.writer.execute("SELECT seq FROM tasks WHERE id = 'new'").fetchone()[0] == 2001
    assert report.broken.read_bytes() == bytes(raw), "the broken file is kept as it was"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def _page(raw: bytes | bytearray, number: int, size: int) -> bytes:
    return bytes(raw[(number - 1) * size : number * size])


@pytest.mark.parametrize(
    "content",
    [b"This is not a database at all.\n" * 200, b"SQLite format 3\0" + b"\xff" * 8000],
    ids=["text", "header only"],
)
def test_what_is_no_database_is_moved_aside(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "tasks.db"
    path.write_bytes(content)
    with opened(path) as store:
        assert store.report.broken is not None
        assert store.report.broken.read_bytes() == content
        assert store.writer is not None
        insert_task(store.writer, "a")
    assert all_names(path) == ["a"]


def test_a_file_cut_short_gives_what_is_left(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    make(path, tasks=1000)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2 // 4096 * 4096])
    leave_uncleanly(path)
    with opened(path) as store:
        assert store.report.broken is not None
        assert store.report.damaged
        assert store.readers[0].execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        assert store.readers[0].execute("PRAGMA foreign_key_check").fetchall() == []


def test_somebody_elses_database_is_not_written_into(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE bookmarks(url TEXT)")
        connection.commit()
    with opened(path) as store:
        assert store.report.broken_reason == "it is not a database of aiosd"
        assert store.report.broken is not None
        with closing(sqlite3.connect(store.report.broken)) as connection:
            assert connection.execute("SELECT count(*) FROM bookmarks").fetchone()[0] == 0


def test_a_crash_between_the_two_renames_loses_nothing(tmp_path: Path) -> None:
    make(tmp_path / "tasks.db")
    (tmp_path / "tasks.db").rename(tmp_path / "tasks.db.new")
    assert all_names(tmp_path / "tasks.db") == ["t0", "t1", "t2"]


def test_numbers_of_events_are_not_given_out_again_after_salvage(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    make(path, tasks=500)
    with opened(path) as store:
        assert store.writer is not None
        for _ in range(3):
            store.writer.execute(
                "INSERT INTO events(uid, source, type, kind, time, payload) VALUES (0, 'system', 'x', 'x', ?, '{}')",
                (NOW,),
            )
        store.writer.execute("DELETE FROM events")
    root, size, pages = _page_of(path, "tasks")
    raw = bytearray(path.read_bytes())
    bad = _leaf_pages(path, root, size, pages)[-1]
    raw[(bad - 1) * size : bad * size] = b"\xa5" * size
    path.write_bytes(raw)
    leave_uncleanly(path)
    with opened(path) as store:
        assert store.report.broken is not None
        assert store.writer is not None
        store.writer.execute(EVENT)
        assert store.writer.execute("SELECT seq FROM events").fetchone()[0] == 4
