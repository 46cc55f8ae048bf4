"""Tasks that need each other, are held, let go, canceled and removed, over several lives of the daemon, in any order.

What must hold is written down beside the manager, of the tasks that it was told of; `test_property.py` has what one
task goes through.
"""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aiosd.core import clock
from aiosd.core.artifacts import BlobStore
from aiosd.core.retention import DAY, Retention
from aiosd.errors import AiosError
from aiosd.store import tasks
from tests.unit.core.fakelauncher import FakeLauncher
from tests.unit.core.rig import OPEN, Config, Core, daemon, eventually, manifest, play

if TYPE_CHECKING:
    import sqlite3

    from tests.unit.core.fakelauncher import FakeRun

CAPABILITY = "test.lives.run"
CONFIG = Config(max_concurrent_tasks=2, schedule_interval=30.0, retention_days=1, creates_burst=1000)
MOST = 6
MOVES = st.lists(
    st.tuples(
        st.sampled_from(
            ["create", "create", "create", "hold", "release", "cancel", "completes", "fails", "settle", "sweep", "dies"]
        ),
        st.integers(0, MOST - 1),
        st.sets(st.integers(0, MOST - 1), max_size=2),
    ),
    min_size=6,
    max_size=30,
)


@dataclass
class Known:
    """A task as the test knows it. `began`: programs of it that had begun when it was held without one."""

    id: str
    needs: tuple[str, ...]
    held: bool = False
    began: int | None = None


@dataclass
class World:
    """Everything, and the present life of the daemon."""

    root: Path
    launcher: FakeLauncher
    life: AsyncExitStack
    aios: Core
    made: list[Known] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)

    async def begin(self) -> None:
        self.aios = await self.life.enter_async_context(daemon(self.root, self.launcher, config=CONFIG))

    def began(self, task: str) -> list[FakeRun]:
        return [run for run in self.launcher.made(task) if run.went is not None]

    async def create(self, needs: set[int]) -> None:
        wanted = tuple(self.made[one].id for one in sorted(needs) if one < len(self.made))
        if len(self.made) == MOST or self.gone & set(wanted):
            return
        task = await self.aios.create(CAPABILITY, depends_on=list(wanted))
        self.made.append(Known(task, wanted))

    async def ask(self, name: str, task: Known) -> bool:
        try:
            await self.aios.invoke(name, {"task_id": task.id, **({} if name == "task.cancel" else {"recursive": True})})
        except AiosError as error:
            assert error.kind.value.code in (-32106, -32107, -32007), error.text
            return False
        return True

    async def hold(self, task: Known) -> None:
        if await self.ask("task.pause", task):
            found = await self.aios.task(task.id)
            runs = await self.aios.runs(task.id)
            waits = found.status == "pending" and not any(run.state != "ended" for run in runs)
            task.held, task.began = True, len(self.began(task.id)) if waits and found.held else None

    async def release(self, task: Known) -> None:
        if task.held and task.began is not None:
            assert len(self.began(task.id)) == task.began, "it began while it was held"
        task.held = False
        await self.ask("task.resume", task)

    def ends(self, task: Known, status: int) -> None:
        for run in self.launcher.made(task.id):
            if run.active and run.went is not None and not run.frozen:
                run.end(status)

    async def sweep(self) -> None:
        """All that has ended has ended long ago."""
        long_ago = clock.now() - 2 * DAY

        def age(db: sqlite3.Connection) -> None:
            db.execute("UPDATE tasks SET ended_at = ? WHERE ended_at IS NOT NULL", (long_ago,))

        await self.aios.database.write(lambda tx: age(tx.connection))
        await Retention(self.aios.database, self.launcher, self.aios.settings, BlobStore(self.root / "blobs")).sweep()
        there = await self.aios.database.read(lambda db: {str(row[0]) for row in db.execute("SELECT id FROM tasks")})
        for task in self.made:
            if task.id not in there:
                self.gone.add(task.id)
        for task in self.made:
            if task.id in there and not (await self.aios.task(task.id)).status.is_final:
                assert not self.gone & set(task.needs), "what an unfinished one needs was removed"

    async def move(self, what: str, which: int, needs: set[int]) -> None:
        if what == "create":
            await self.create(needs)
        elif what == "settle":
            await asyncio.sleep(0.01)
        elif what == "sweep":
            await self.sweep()
        elif what == "dies":
            await self.life.aclose()
            await self.begin()
        elif which < len(self.made):
            task = self.made[which]
            if what == "cancel":
                await self.ask("task.cancel", task)
            elif what == "hold":
                await self.hold(task)
            elif what == "release":
                await self.release(task)
            else:
                self.ends(task, 0 if what == "completes" else 3)

    async def finish(self) -> None:
        """Everybody may go on, and every program ends."""
        for task in self.made:
            await self.release(task)
        over = asyncio.create_task(self._end_programs())
        try:
            for task in self.made:
                if task.id not in self.gone:
                    await self.aios.ended(task.id)
            await eventually(lambda: not self.aios.supervision.watches)
        finally:
            over.cancel()
            await asyncio.gather(over, return_exceptions=True)

    async def _end_programs(self) -> None:
        while True:
            for task in self.made:
                self.ends(task, 0)
            await asyncio.sleep(0.005)

    async def check(self) -> None:
        states = {}
        for task in self.made:
            if task.id not in self.gone:
                states[task.id] = (await self.aios.task(task.id)).status
        for task in self.made:
            assert len(self.began(task.id)) <= 1, "one attempt, one program"
            known = [states[one] for one in task.needs if one in states]
            if self.began(task.id):
                assert all(one == "completed" for one in known), "it began before what it needs had completed"
            elif task.id in states and any(one in ("failed", "canceled") for one in known):
                assert states[task.id] in ("failed", "canceled")
        await self.aios.database.read(_counted)
        assert not any(run.active for run in self.launcher.runs.values())


def _counted(db: sqlite3.Connection) -> None:
    kept = {tuple(row) for row in db.execute("SELECT uid, capability_id, status, count FROM task_counts")}
    rows = db.execute("SELECT uid, capability_id, status, count(*) FROM tasks GROUP BY 1, 2, 3")
    assert kept == {tuple(row) for row in rows}
    assert db.execute("PRAGMA foreign_key_check").fetchall() == []
    assert tasks.open_ids(db, None) == []


async def obedient(run: FakeRun) -> None:
    """Ends when it is canceled or its test says so."""
    await run.go()
    await run.hear("cancel")
    if run.active:
        run.end(0, stopped_by="cancel")


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(MOVES)
def test_nothing_begins_too_early_and_everything_ends(moves: list[tuple[str, int, set[int]]]) -> None:
    async def scenario(root: Path) -> None:
        launcher = FakeLauncher(root / "launcher")
        launcher.program = obedient
        (root / "capabilities.d").mkdir()
        (root / "capabilities.d" / f"{CAPABILITY}.toml").write_text(manifest(CAPABILITY, OPEN))
        async with launcher.serving(), AsyncExitStack() as life:
            world = World(root, launcher, life, await life.enter_async_context(daemon(root, launcher, config=CONFIG)))
            for what, which, needs in moves:
                await world.move(what, which, needs)
            await world.finish()
            await world.check()

    with tempfile.TemporaryDirectory() as folder:
        play(scenario(Path(folder)))
