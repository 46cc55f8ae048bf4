"""What must hold of a store and its launcher after any number of deaths, whatever was done."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from aiosd.model.event import Kind
from aiosd.model.task import RunState
from aiosd.store import audit, journal, runs, tasks
from aiosd.store.audit_key import public_keys
from aiosd.store.audit_seal import HEAD_FILE, read_head
from aiosd.store.audit_verify import Evidence, verify
from tests.unit.core.rig import PATIENCE

if TYPE_CHECKING:
    import sqlite3

    from aiosd.model.event import Event
    from tests.unit.core.rig import Core
    from tests.unit.reliability.client import Client
    from tests.unit.reliability.crashing import World
    from tests.unit.reliability.scenarios import Scenario


async def settled(core: Core) -> None:
    """Wait until no run is followed any more."""
    async with asyncio.timeout(PATIENCE):
        while await _followed(core):  # noqa: ASYNC110  nothing tells
            await asyncio.sleep(0.005)


async def _followed(core: Core) -> bool:
    live = await core.database.read(runs.live)
    return bool(live or core.supervision.watches)


async def check(world: World, client: Client, scenario: Scenario) -> None:
    """All of it; AssertionError names what does not hold."""
    core = await world.up()
    await settled(core)
    await core.database.read(_sound)
    await _check_trail(core)
    log = await core.database.read(lambda db: journal.events_after(db, 0, limit=10_000)[0])
    _check_told(world.told, log)
    created = [event.task_id for event in log if event.change is not None and event.change.old is None]
    assert set(client.promised) <= set(created), "an answered task is lost"
    assert len(created) == len(set(created)) == scenario.tasks, f"tasks: {created}"
    for task_id in created:
        assert task_id is not None
        await _check_task(core, scenario, task_id, [event for event in log if event.task_id == task_id])
    assert client.states() == list(scenario.delivered)
    rows = {run.id for task_id in created for run in await core.runs(str(task_id))}
    for name, run in world.launcher.runs.items():
        assert not run.active, f"{name} still lives"
        removed = ("remove", name) in world.launcher.calls
        assert name in rows or removed, f"{name} is nobody's and its directory still there"


def _sound(db: sqlite3.Connection) -> None:
    assert db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    assert db.execute("PRAGMA foreign_key_check").fetchall() == []


async def _check_trail(core: Core) -> None:
    rows = await core.database.read(lambda db: list(audit.all_rows(db)))
    keys = await core.database.read(public_keys)
    head = await asyncio.to_thread(read_head, core.manifests.parent / HEAD_FILE)
    report = verify(lambda: rows, Evidence(keys=tuple(keys), head=head, issued=await core.database.read(audit.issued)))
    assert report.sound, report.problems


def _check_told(lives: list[list[Event]], log: list[Event]) -> None:
    """Nobody was told what is not stored, or twice, or out of order."""
    stored = {event.sequence: event for event in log}
    for events in lives:
        numbers = [event.sequence for event in events]
        assert numbers == sorted(set(numbers)), f"told out of order: {numbers}"
        for event in events:
            assert stored[event.sequence].payload == event.payload, f"told otherwise than stored: {event}"
    assert sorted(stored) == list(range(min(stored), max(stored) + 1)), "a gap in the event log"


async def _check_task(core: Core, scenario: Scenario, task_id: str, log: list[Event]) -> None:
    task = await core.database.read(lambda db: tasks.get(db, task_id))
    assert task is not None
    assert task.status.value == scenario.ends, f"{task.status} ({task.reason}, {task.error})"
    assert task.result == scenario.result
    started = [run for run in core.launcher.made(task_id) if run.went is not None]
    assert len(started) == scenario.runs, f"{len(started)} programs were started"
    assert all(run.state is RunState.ENDED for run in await core.runs(task_id))
    kinds = Counter(event.kind for event in log)
    said = [event.payload["message"] for event in log if event.kind is Kind.LOG and "message" in event.payload]
    assert said == [f"line {number}" for number in range(1, scenario.lines + 1)], said
    assert kinds[Kind.ARTIFACT] == scenario.artifacts
    assert kinds[Kind.RESULT] == (1 if scenario.ends == "completed" else 0)
    assert kinds[Kind.ERROR] == (1 if scenario.ends == "failed" else 0)
    assert kinds[Kind.INPUT_REQUIRED] <= 1
    states = [row.state for row in await core.database.read(lambda db: journal.history(db, task.sequence))]
    finals = [state for state in states if state in ("completed", "failed", "canceled")]
    assert finals == [scenario.ends], states
