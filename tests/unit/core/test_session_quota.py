"""What one user may keep by talking: `session_quota_bytes`, whatever it is that fills it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from aiosd.core import clock
from aiosd.core.retention import DAY
from aiosd.store import sessions
from aiosd.store.migrations import MIGRATIONS, migrate, statements
from tests.unit.core.rig import OTHER, ROOT, USER, Config, ErrorKind, core, play
from tests.unit.core.session_rig import plan, session
from tests.unit.core.test_retention import retention
from tests.unit.core.worker_rig import register

if TYPE_CHECKING:
    from pathlib import Path

    from aiosd.model.jsontext import JsonObject
    from tests.unit.core.rig import Core

LONG = "é" * 4000
"""8000 bytes in UTF-8."""
QUOTA = 100_000


async def used(aios: Core) -> int:
    return await aios.database.read(lambda db: sessions.kept_bytes(db, USER.uid))


async def fill(aios: Core, operation: str, params: JsonObject) -> tuple[str | None, int]:
    """Ask for more until there is no room; the field that is named, and how often it went well."""
    for done in range(200):
        if await used(aios) >= QUOTA:
            refused = await aios.refused(operation, params)
            assert refused.kind is ErrorKind.RATE_LIMITED
            assert (refused.reason, refused.extra["max"]) == ("session-quota", QUOTA)
            assert "session_quota_bytes" in refused.text
            return refused.field, done
        await aios.invoke(operation, params)
    raise AssertionError("there is no end to it")


@pytest.mark.parametrize(
    ("operation", "more", "field"),
    [
        ("message.add", {"content": LONG}, "content"),
        ("message.add", {"content": "short", "metadata": {"note": LONG}}, "content"),
        ("session.update_objective", {"objective": LONG}, "objective"),
        ("plan.propose_diff", {"version": 1, "diff": {"create_tasks": [{"title": "x", "goal": LONG}]}}, "diff"),
        ("session.create", {"metadata": {"note": LONG}}, None),
        ("session.create", {"objective": LONG}, None),
    ],
)
def test_whatever_fills_it_meets_an_end(tmp_path: Path, operation: str, more: JsonObject, field: str | None) -> None:
    async def scenario() -> None:
        async with core(tmp_path, config=Config(session_quota_bytes=QUOTA)) as aios:
            one, others = await session(aios), await session(aios, OTHER)
            await plan(aios, one, {"title": "task"})
            about: JsonObject = {} if operation == "session.create" else {"session_id": one}
            named, times = await fill(aios, operation, {**about, **more})
            assert named == field
            assert 2 < times < 20
            refused: tuple[tuple[str, JsonObject], ...] = (
                ("session.create", {}), ("session.update", {"session_id": one, "title": "x"}),
                ("thread.create", {"session_id": one}), ("message.add", {"session_id": one, "content": "x"}),
                ("plan.apply_diff", {"session_id": one, "version": 1, "diff": {}}),
            )  # fmt: skip
            for other, params in refused:
                assert (await aios.refused(other, params)).reason == "session-quota"
            await aios.invoke("message.add", {"session_id": others, "content": "hello"}, OTHER)
            await aios.invoke("message.add", {"session_id": one, "content": LONG}, ROOT)
            await aios.invoke("session.close", {"session_id": one, "cancel_tasks": True})
            await aios.invoke("session.archive", {"session_id": one})

    play(scenario())


def test_what_a_worker_reports_counts_too_and_it_can_still_end(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path, config=Config(session_quota_bytes=QUOTA)) as aios:
            one = await session(aios)
            await plan(aios, one, {"title": "task"})
            hand = await register(aios)
            job = await hand.takes()
            times = 0
            while await used(aios) < QUOTA:
                await hand.say("report", job, tool_call={"name": "look", "status": "finished", "summary": LONG})
                times += 1
                assert times < 200
            refused = await hand.refused("report", job, log={"message": "more"})
            assert (refused.kind, refused.field, refused.reason) == (
                ErrorKind.RATE_LIMITED, "report", "session-quota",
            )  # fmt: skip
            await hand.say("complete", job, result={"done": True})

    play(scenario())


def test_room_comes_back_with_what_is_removed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path, config=Config(session_quota_bytes=QUOTA, retention_days=30)) as aios:
            one = await session(aios)
            await fill(aios, "message.add", {"session_id": one, "content": LONG})
            for step in ("session.close", "session.archive"):
                await aios.invoke(step, {"session_id": one})
            then = clock.now() - 31 * DAY
            await aios.database.write(lambda tx: sessions.update(tx, one, {"archived_at": then}))
            await aios.database.write(lambda tx: tx.execute("UPDATE events SET time = ?", (then,)))
            await retention(aios, tmp_path).sweep()
            assert await used(aios) == 0
            await session(aios)

    play(scenario())


def test_a_reload_counts_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path, config=Config(session_quota_bytes=QUOTA)) as aios:
            one = await session(aios)
            await fill(aios, "message.add", {"session_id": one, "content": LONG})
            aios.settings.current = replace(aios.settings.current, session_quota_bytes=2 * QUOTA)
            await aios.invoke("message.add", {"session_id": one, "content": LONG})

    play(scenario())


def _counted(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT coalesce(sum(size), 0) FROM talk_usage").fetchone()[0])


def test_a_database_from_before_is_counted_as_one_of_now(tmp_path: Path) -> None:
    """The totals that a step makes of what is there are those that the triggers would have made."""

    async def scenario() -> None:
        async with core(tmp_path) as aios:
            one = await session(aios, metadata={"a": 1})
            await plan(aios, one, {"title": "task"})
            await aios.invoke("message.add", {"session_id": one, "content": LONG})
            await aios.invoke("message.add", {"session_id": one, "content": "x", "objective_change": True})
            hand = await register(aios)
            await hand.say("report", await hand.takes(), log={"message": "hello"})
            await aios.ended(await aios.create(session_id=one))

    play(scenario())
    with closing(sqlite3.connect(next(tmp_path.rglob("*.db")), isolation_level=None)) as connection:
        before = _counted(connection)
        assert before > 16_000
        (step,) = [one for one in MIGRATIONS if "talk_usage" in one.script]
        for statement in statements(step.script):
            if statement.startswith("CREATE TRIGGER"):
                connection.execute(f"DROP TRIGGER {statement.split()[2]}")
        connection.execute("DROP TABLE talk_usage")
        connection.execute("UPDATE meta SET value = ? WHERE key = 'sublevel'", (step.version.sublevel - 1,))
        earlier = MIGRATIONS[MIGRATIONS.index(step) - 1].version
        migrate(connection, earlier, MIGRATIONS)
        assert _counted(connection) == before
        connection.execute("DELETE FROM events")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("DELETE FROM sessions")
        assert _counted(connection) == 0
