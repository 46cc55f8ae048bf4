"""What is old is removed whole, by age and by number, and what is not finished or not old stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiosd.config import Config
from aiosd.core import clock
from aiosd.core.artifacts import BlobStore
from aiosd.core.retention import DAY, Retention
from aiosd.store import tasks
from tests.unit.core.rig import core, play

if TYPE_CHECKING:
    from pathlib import Path

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
