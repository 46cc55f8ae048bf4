"""Very many tasks at once: in steps, so that others come in between, and with the same end as in one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.unit.core.rig import PLAIN, Core, core, manifest, play
from tests.unit.core.session_rig import patient, rows, session, timeline, types

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from aiosd.model.event import Event
    from aiosd.model.jsontext import JsonObject

MANY = 23
HELD_BACK = "2100-01-05T10:00:00Z"


@pytest.fixture(autouse=True)
def short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiosd.core.steps.STEP", 5)


async def wide(aios: Core, session_id: str | None = None) -> tuple[str, list[str]]:
    """A task with many under it, some of them further down."""
    top = await aios.create(not_before=HELD_BACK, session_id=session_id)
    under: list[str] = []
    for number in range(MANY):
        above = top if number < 10 else under[number - 10]
        under.append(await aios.create(not_before=HELD_BACK, parent_task_id=above, priority="low"))
    return top, under


def commits(aios: Core) -> list[list[Event]]:
    """What each commit from now on tells."""
    found: list[list[Event]] = []

    def heard(events: Sequence[Event]) -> None:
        found.append(list(events))

    aios.hub.listen(heard)
    return found


def canceled(events: Sequence[Event]) -> list[str]:
    """The tasks that were."""
    return [str(event.task_id) for event in events if event.change and event.change.new == "canceled"]


def test_a_large_tree_is_canceled_from_below_and_its_top_last(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            first = await session(aios)
            top, under = await wide(aios, first)
            aios.launcher.program = patient
            running = await aios.create(PLAIN, parent_task_id=under[-1], session_id=first)
            await aios.until(running, "running")
            told = commits(aios)
            done = await aios.invoke("task.cancel", {"task_id": top, "reason": "enough"})
            assert done["status"] == "canceled"
            steps = [ended for one in told if (ended := canceled(one))]
            assert len(steps) > 4, "not in one transaction"
            assert max(map(len, steps)) <= 7, "nor in large ones: a step's five, the top, and the program's own end"
            assert (await aios.ended(running)).reason == "parent-canceled"
            order = [one for step in steps for one in step if one not in (running,)]
            assert order[-1] == top
            assert sorted(order[:-1]) == sorted(under)
            assert all(order.index(under[number]) < order.index(under[number - 10]) for number in range(10, MANY))
            assert (await aios.task(top)).reason == "enough"
            assert (await types(aios, first)).count("all_tasks_processed") == 1, "only what is above ends it"

    play(scenario())


def test_a_large_tree_is_held_let_go_and_raised_each_task_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            top, under = await wide(aios)
            for name, more, kind in (
                ("task.pause", {}, "task.paused"), ("task.resume", {}, "task.resumed"),
                ("task.set_priority", {"priority": "high"}, "task.priority"),
            ):  # fmt: skip
                told = commits(aios)
                await aios.invoke(name, {"task_id": top, "recursive": True, **more})
                found = [str(event.task_id) for one in told for event in one if event.type == kind]
                assert sorted(found) == sorted([top, *under]), name
                assert len([one for one in told if one]) > 3, "in steps"
            assert {(await aios.task(one)).priority.wire for one in (top, *under)} == {"high"}
            assert {(await aios.task(one)).held for one in (top, *under)} == {False}

    play(scenario())


def test_a_program_that_refuses_keeps_a_large_tree_whole(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await aios.install("test.stays.run", manifest("test.stays.run", "cancelable = false\npausable = false\n"))
            top, under = await wide(aios)
            aios.launcher.program = patient
            stays = await aios.create("test.stays.run", parent_task_id=under[0])
            await aios.until(stays, "running")
            told = commits(aios)
            assert (await aios.refused("task.cancel", {"task_id": top})).reason == "not-cancelable"
            assert (await aios.refused("task.pause", {"task_id": top, "recursive": True})).reason == "not-pausable"
            assert [event for one in told for event in one] == []

    play(scenario())


def test_a_session_with_many_tasks_is_closed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            first = await session(aios)
            for _ in range(MANY):
                await aios.create(not_before=HELD_BACK, session_id=first)
            await aios.invoke("session.close", {"session_id": first, "cancel_tasks": True, "reason": "over"})
            events = await timeline(aios, first)
            assert [event["type"] for event in events].count("task.cancelled") == MANY
            assert events[-1]["type"] in ("session.closed", "all_tasks_processed")

    play(scenario())


def test_others_come_in_between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiosd.core.steps.STEP", 1)

    async def scenario() -> None:
        async with core(tmp_path) as aios:
            top, _ = await wide(aios)
            first = await session(aios)
            told, begun = commits(aios), asyncio.Event()
            aios.hub.listen(lambda _: begun.set())
            canceling = asyncio.create_task(aios.invoke("task.cancel", {"task_id": top}))
            await begun.wait()
            await aios.invoke("message.add", {"session_id": first, "content": "and I?"})
            await canceling
            kinds = [event.type for one in told for event in one]
            said = kinds.index("session.message.added")
            assert "task.cancelled" in kinds[:said]
            assert "task.cancelled" in kinds[said:]

    play(scenario())


def test_a_diff_is_of_so_many_tasks_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiosd.core.plans.MAX_TOGETHER", 10)

    async def scenario() -> None:
        async with core(tmp_path) as aios:
            first = await session(aios)
            await aios.invoke("plan.create", {"session_id": first, "tasks": [{"title": "x"}]})
            top, _ = await wide(aios, first)
            diff: JsonObject = {"cancel_tasks": [top]}
            refused = await aios.refused("plan.apply_diff", {"session_id": first, "version": 1, "diff": diff})
            assert (refused.reason, refused.data()["task_id"]) == ("too-many", top)
            assert (await aios.task(top)).status == "pending"

    play(scenario())


def test_a_cautious_diff_names_what_one_can_and_the_next_one_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aiosd.core.plans.MAX_NAMED", 3)

    async def scenario() -> None:
        async with core(tmp_path) as aios:
            first = await session(aios)
            tasks: JsonObject = {"tasks": [{"title": f"{number}"} for number in range(5)]}
            made = await aios.invoke("plan.create", {"session_id": first, **tasks})
            ids = [str(row["task_id"]) for row in rows(made, "tasks")]
            change: JsonObject = {"session_id": first, "content": "something else", "objective_change": True}
            for version, expected in ((1, ids[:3]), (2, ids[3:])):
                proposed = (await aios.invoke("message.add", change))["proposed"]
                assert isinstance(proposed, dict)
                assert isinstance(proposed["diff"], dict)
                assert proposed["diff"]["pause_tasks"] == expected
                about: JsonObject = {"session_id": first, "version": version, "diff_id": proposed["diff_id"]}
                await aios.invoke("plan.apply_diff", about)
            assert [(await aios.task(one)).held for one in ids] == [True] * 5

    play(scenario())
