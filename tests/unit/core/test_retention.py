"""What is old is removed whole, by age and by number, and what is not finished or not old stays."""

from __future__ import annotations

import asyncio
import hashlib
import os
from typing import TYPE_CHECKING

import pytest

from aiosd.config import Config
from aiosd.core import clock
from aiosd.core.artifacts import BlobStore
from aiosd.core.retention import DAY, STEP, Retention
from aiosd.run.client import LauncherError
from aiosd.store import sessions, tasks
from aiosd.store.migrations import statements
from tests.unit.core.rig import ErrorKind, core, eventually, play
from tests.unit.core.session_rig import patient, plan, session
from tests.unit.store.test_pages import task as row

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

    from aiosd.store.database import Transaction
    from tests.unit.core.fakelauncher import FakeRun
    from tests.unit.core.rig import Core


def retention(aios: Core, root: Path) -> Retention:
    return Retention(aios.database, aios.launcher, aios.settings, BlobStore(root / "blobs"))


async def grow_old(aios: Core, task_id: str, days: int) -> None:
    then = clock.now() - days * DAY
    await aios.database.write(lambda tx: tasks.update(tx, task_id, {"ended_at": then}))


def test_a_task_past_its_age_goes_with_all_that_hangs_on_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path, config=Config(retention_days=30)) as aios:
            old, young = await aios.create(), await aios.create()
            for task in (old, young):
                await aios.ended(task)
            await grow_old(aios, old, 31)
            (run,) = aios.launcher.made(old)
            directory = run.paths.directory
            assert directory.exists()
            assert await retention(aios, tmp_path).sweep() == 1
            assert not directory.exists()
            assert (await aios.refused("task.get", {"task_id": old})).kind.value.code == -32106
            assert (await aios.invoke("task.list", {}))["total"] == 1
            left = await aios.log(old)
            assert [event.type for event in left] == ["task.removed"]
            for table in ("runs", "history"):
                assert await aios.count(table) > 0
            assert [run.task_id for run in await aios.runs(old)] == []
            assert (await aios.task(young)).status == "completed"

    play(scenario())


NAMING = """
INSERT INTO approvals(id, task_id, uid, kind, capability_id, request_hash, requester, created_at, expires_at)
    VALUES ('apr', :task, 1, 'run', 'x', hex(zeroblob(32)), '', 1, 1);
INSERT INTO assignments(id, task_id, worker_id, worker_uid, attempt, created_at) VALUES ('wa', :task, 'w', 1, 1, 1);
INSERT INTO grants(id, task_id, uid, capability_id, level, scope, granted_by, created_at)
    VALUES ('grant', :task, 1, 'x', 1, 'task', 1, 1);
INSERT INTO webhooks(id, task_id, uid, url, max_retries, retry_delay_ms, created_at)
    VALUES ('hook', :task, 1, 'https://a', 1, 1, 1);
INSERT INTO secrets(task_id, run_id, uid, interaction, sealed, created_at) VALUES (:task, '', 1, '', x'', 1);
INSERT INTO artifacts(id, task_id, uid, key, name, type, created_at) VALUES ('art', :task, 1, 'k', '', '', 1);
"""
"""A row in each table that names a task by its id, but for the audit's, which is kept by its own rule."""


def test_no_table_names_a_task_that_was_removed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path, config=Config(retention_days=30)) as aios:
            old, young = await aios.create(), await aios.create()
            for task in (old, young):
                await aios.ended(task)

            def named(db: sqlite3.Connection, task: str) -> set[str]:
                tables = db.execute(
                    "SELECT DISTINCT m.name FROM sqlite_schema m, pragma_table_info(m.name) c"
                    " WHERE m.type = 'table' AND c.name = 'task_id'"
                )
                found = "SELECT count(*) FROM {} WHERE task_id = ?"
                return {row[0] for row in tables if db.execute(found.format(row[0]), (task,)).fetchone()[0]}

            def fill(transaction: Transaction) -> None:
                for statement in statements(NAMING):
                    transaction.execute(statement, {"task": old})

            await aios.database.write(fill)
            tables = {"approvals", "artifacts", "assignments", "audit", "events", "grants", "secrets", "webhooks"}
            assert await aios.database.read(lambda db: named(db, old)) == tables, "all of them"
            await grow_old(aios, old, 31)
            assert await retention(aios, tmp_path).sweep() == 1
            assert await aios.database.read(lambda db: named(db, old)) == {"audit", "events"}
            assert [event.type for event in await aios.log(old)] == ["task.removed"]
            assert (await aios.task(young)).status == "completed"

    play(scenario())


def test_old_events_go_in_steps_to_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiosd.core.retention.EVENTS_STEP", 5)

    async def scenario() -> None:
        async with core(tmp_path, config=Config(retention_days=30)) as aios:
            for _ in range(12):
                await session(aios)
            assert await aios.count("events") == 12
            long_ago = clock.now() - 31 * DAY
            await aios.database.write(lambda tx: tx.execute("UPDATE events SET time = ?", (long_ago,)) and None)
            await retention(aios, tmp_path).sweep()
            assert await aios.count("events") == 0

    play(scenario())


def test_what_an_unfinished_task_depends_on_is_kept(tmp_path: Path) -> None:
    """A task that waits longer than retention must not start because nobody knows any more what became of the other."""

    async def scenario() -> None:
        async with core(tmp_path, config=Config(retention_days=30)) as aios:
            aios.launcher.program = patient
            first = await aios.create()
            await aios.until(first, "running")
            second = await aios.create(depends_on=[first])
            await aios.invoke("task.pause", {"task_id": second, "recursive": True})
            await aios.invoke("task.cancel", {"task_id": first})
            await grow_old(aios, first, 31)
            assert await retention(aios, tmp_path).sweep() == 0
            await aios.invoke("task.resume", {"task_id": second, "recursive": True})
            ended = await aios.ended(second)
            assert (ended.status, ended.reason) == ("failed", "dependency-failed")
            assert await retention(aios, tmp_path).sweep() == 1
            assert (await aios.refused("task.get", {"task_id": first})).kind is ErrorKind.TASK_NOT_FOUND

    play(scenario())


def test_one_that_cannot_be_removed_does_not_keep_the_others(tmp_path: Path) -> None:
    """A supervisor that hangs (a process in an uninterruptible sleep) has the launcher say `busy` at each round."""

    async def scenario() -> None:
        async with core(tmp_path, config=Config(retention_days=30)) as aios:
            made = [await aios.create() for _ in range(3)]
            for days, one in zip((33, 32, 31), made, strict=True):
                await aios.ended(one)
                await grow_old(aios, one, days)
            stuck = aios.launcher.made(made[0])[0].request.run
            aios.launcher.stuck.add(stuck)
            sweeper = retention(aios, tmp_path)
            assert await sweeper.sweep() == 2
            assert (await aios.task(made[0])).status == "completed"
            aios.launcher.stuck.clear()
            assert await sweeper.sweep() == 1

    play(scenario())


def test_a_launcher_that_is_away_keeps_all_for_the_next_round(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path, config=Config(retention_days=30)) as aios:
            task = await aios.create()
            await aios.ended(task)
            await grow_old(aios, task, 31)
            aios.launcher.away = True
            with pytest.raises(LauncherError):
                await retention(aios, tmp_path).sweep()
            assert (await aios.task(task)).status == "completed"
            aios.launcher.away = False
            assert await retention(aios, tmp_path).sweep() == 1

    play(scenario())


def test_beyond_the_number_kept_the_ones_that_ended_first_go(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path, config=Config(retention_days=None, retention_tasks=100, creates_burst=1000)) as aios:
            made: list[str] = []
            for _ in range(103):
                task = await aios.create()
                await aios.ended(task)
                made.append(task)
            assert await retention(aios, tmp_path).sweep() == 3
            page = await aios.invoke("task.list", {"pagination": {"limit": 100}, "sort": {"order": "asc"}})
            rows = page["tasks"]
            assert isinstance(rows, list)
            assert page["total"] == 100
            assert [row["task_id"] for row in rows if isinstance(row, dict)] == made[3:]

    play(scenario())


def test_what_is_not_finished_stays_however_old(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path, config=Config(retention_days=1), schedule=False) as aios:
            task = await aios.create()
            long_ago = clock.now() - 400 * DAY
            await aios.database.write(lambda tx: tasks.update(tx, task, {"created_at": long_ago}))
            assert await retention(aios, tmp_path).sweep() == 0
            assert (await aios.task(task)).status == "pending"

    play(scenario())


def test_it_goes_in_small_steps_and_others_come_in_between(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path, config=Config(retention_days=30), schedule=False) as aios:
            old = [row(number) for number in range(2 * STEP + 7)]
            await aios.database.write(lambda tx: [tasks.insert(tx, one) for one in old] and None)
            steps: list[int] = []
            aios.hub.listen(lambda events: steps.append(sum(event.type == "task.removed" for event in events)))
            sweeping = asyncio.create_task(retention(aios, tmp_path).sweep())
            await eventually(lambda: bool(steps))
            await aios.create()
            assert not sweeping.done(), "who comes meanwhile does not wait for all of it"
            assert await sweeping == len(old)
            assert [count for count in steps if count] == [STEP, STEP, 7]

    play(scenario())


def test_content_goes_with_the_last_artifact_that_refers_to_it(tmp_path: Path) -> None:
    async def program(run: FakeRun) -> None:
        await run.go()
        run.say("artifact", {"key": "k", "parts": [{"file": {"blob": run.blob(b"the same"), "name": "a"}}]})
        run.end(0)

    async def scenario() -> None:
        async with core(tmp_path, config=Config(retention_days=30)) as aios:
            aios.launcher.program = program
            first, second = await aios.create(), await aios.create()
            for one in (first, second):
                await aios.ended(one)
            content = BlobStore(tmp_path / "blobs").path(hashlib.sha256(b"the same").hexdigest())
            assert await aios.count("blobs") == 1
            await aios.database.write(lambda tx: tx.execute("UPDATE blobs SET created_at = 1") and None)
            for one, stays in ((first, True), (second, False)):
                await grow_old(aios, one, 31)
                assert await retention(aios, tmp_path).sweep() == 1
                assert content.exists() is stays
            assert await aios.count("blobs") == 0
            used = await aios.database.read(lambda db: db.execute("SELECT sum(size) FROM artifact_usage").fetchone()[0])
            assert not used

    play(scenario())


def test_content_that_a_crash_left_goes_when_it_is_old(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path, config=Config(retention_days=30)) as aios:
            store = BlobStore(tmp_path / "blobs")
            old, young = (store.path(hashlib.sha256(name).hexdigest()) for name in (b"old", b"young"))
            copied = old.with_name(".copied")
            for path in (old, young, copied):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
            for path in (old, copied):
                os.utime(path, (1, 1))
            await retention(aios, tmp_path).sweep()
            assert [path.exists() for path in (old, copied, young)] == [False, False, True]

    play(scenario())


def test_an_archived_session_goes_after_its_tasks(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path, config=Config(retention_days=30)) as aios:
            kept, old, young = [await session(aios) for _ in range(3)]
            task = await aios.create(session_id=old)
            await aios.ended(task)
            await aios.invoke("message.add", {"session_id": old, "content": "hello"})
            await plan(aios, old)
            for one in (old, young):
                await aios.invoke("session.close", {"session_id": one})
                await aios.invoke("session.archive", {"session_id": one})
            then = clock.now() - 31 * DAY
            await aios.database.write(lambda tx: sessions.update(tx, old, {"archived_at": then}))
            await retention(aios, tmp_path).sweep()
            assert (await aios.invoke("session.get", {"session_id": old}))["status"] == "archived", "it has a task"
            await grow_old(aios, task, 31)
            assert await retention(aios, tmp_path).sweep() == 1
            gone = await aios.refused("session.get", {"session_id": old})
            assert gone.kind is ErrorKind.SESSION_NOT_FOUND
            for one in (kept, young):
                await aios.invoke("session.get", {"session_id": one})
            for table in ("messages", "plans"):
                assert await aios.count(table) == 0

    play(scenario())
