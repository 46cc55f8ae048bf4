"""Parents and children: what is asked of a task is asked of all under it, and what a parent's end means for them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from aiosd.store.tree import open_below
from tests.unit.core.fakelauncher import FakeLauncher, FakeRun
from tests.unit.core.rig import ROOT, Core, core, daemon, eventually, manifest, play
from tests.unit.core.session_rig import patient, rows, session
from tests.unit.core.test_control import COOPERATIVE, polite

if TYPE_CHECKING:
    from pathlib import Path

    from aiosd.model.jsontext import JsonObject
    from aiosd.store.database import Transaction

HELD_BACK = "2100-01-05T10:00:00Z"


async def family(aios: Core) -> dict[str, str]:
    """root → (a → (a1, a2), b); all wait."""
    ids: dict[str, str] = {}
    for name, parent in (("root", None), ("a", "root"), ("b", "root"), ("a1", "a"), ("a2", "a")):
        above = None if parent is None else ids[parent]
        ids[name] = await aios.create(not_before=HELD_BACK, title=name, parent_task_id=above)
    return ids


def test_a_parents_cancel_ends_all_under_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            ids = await family(aios)
            stays = await aios.create(not_before=HELD_BACK)
            await aios.invoke("task.cancel", {"task_id": ids["root"], "reason": "changed my mind"})
            assert (await aios.task(ids["root"])).reason == "changed my mind"
            for name in ("a", "b", "a1", "a2"):
                task = await aios.task(ids[name])
                assert (name, task.status, task.reason) == (name, "canceled", "parent-canceled")
            assert (await aios.task(stays)).status == "pending"
            ended = [event.task_id for event in aios.events if event.change and event.change.new == "canceled"]
            assert ended.index(ids["a1"]) < ended.index(ids["a"]), "what is under it ends first"

    play(scenario())


def test_a_cancel_that_is_not_recursive_leaves_the_children(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            ids = await family(aios)
            await aios.invoke("task.cancel", {"task_id": ids["root"], "recursive": False})
            assert [(await aios.task(ids[name])).status for name in ("a", "b", "a1")] == ["pending"] * 3
            await aios.invoke("task.cancel", {"task_id": ids["a"]})
            assert (await aios.task(ids["b"])).status == "pending"

    play(scenario())


def test_running_children_are_told_to_end_with_their_parent(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            aios.launcher.program = patient
            parent = await aios.create()
            await aios.until(parent, "running")
            child = await aios.create(parent_task_id=parent)
            await aios.until(child, "running")
            await aios.invoke("task.cancel", {"task_id": parent, "reason": "enough"})
            task = await aios.ended(child)
            assert (task.status, task.reason) == ("canceled", "parent-canceled")
            heard = [run.heard[-1] for run in aios.launcher.runs.values() if run.request.task == child]
            assert [(kind, message["reason"]) for kind, message in heard] == [("cancel", "parent-canceled")]

    play(scenario())


def test_children_of_a_parent_that_completed_go_on_and_still_end_with_their_ancestor(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            ids = await family(aios)

            async def completes(run: FakeRun) -> None:
                await run.go()
                run.end(0)

            def let_start(transaction: Transaction) -> None:
                transaction.execute("UPDATE tasks SET not_before = NULL WHERE id = ?", (ids["a"],))

            aios.launcher.program = completes
            await aios.database.write(let_start)
            aios.scheduler.wake()
            assert (await aios.ended(ids["a"])).status == "completed"
            assert (await aios.task(ids["a1"])).status == "pending"
            await aios.invoke("task.cancel", {"task_id": ids["root"]})
            assert (await aios.task(ids["a1"])).reason == "parent-canceled"

    play(scenario())


async def refuses(run: FakeRun) -> None:
    """A program that does not want to be canceled."""
    await run.go()
    while True:
        message = await run.hear("can_cancel")
        run.say("can_cancel", {"id": message["id"], "allowed": False, "reason": "in the middle of a write"})


def test_a_child_that_refuses_keeps_the_whole_tree(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await aios.install(COOPERATIVE, manifest(COOPERATIVE, 'pausable = "cooperative"\n'))
            parent = await aios.create(not_before=HELD_BACK)
            aios.launcher.program = refuses
            child = await aios.create(COOPERATIVE, parent_task_id=parent)
            await aios.until(child, "running")
            refused = await aios.refused("task.cancel", {"task_id": parent})
            assert (refused.reason, refused.extra["task_id"]) == ("program-refused", child)
            assert (await aios.task(parent)).status == "pending"
            assert (await aios.task(child)).status == "working"
            await aios.invoke("task.cancel", {"task_id": parent, "recursive": False})
            assert (await aios.task(parent)).status == "canceled"

    play(scenario())


def test_nothing_new_begins_under_what_ends(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            aios.launcher.program = ends_late
            parent = await aios.create()
            await aios.until(parent, "running")

            def request(transaction: Transaction) -> None:
                transaction.execute("UPDATE tasks SET cancel_reason = 'x' WHERE id = ?", (parent,))

            await aios.database.write(request)
            options: JsonObject = {"async": True, "parent_task_id": parent}
            refused = await aios.refused("task.create", {"capability_id": "test.plain.run", "options": options})
            assert refused.reason == "stopping"

    play(scenario())


async def ends_late(run: FakeRun) -> None:
    await run.go()
    await run.hear("never")


def test_priority_of_a_whole_tree(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            ids = await family(aios)
            await aios.invoke("task.set_priority", {"task_id": ids["a"], "priority": "high", "recursive": True})
            shown = {name: (await aios.task(one)).priority.wire for name, one in ids.items()}
            assert shown == {"root": "normal", "a": "high", "b": "normal", "a1": "high", "a2": "high"}

    play(scenario())


def test_a_paused_tree_starts_nothing_and_goes_on_when_resumed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await aios.install(COOPERATIVE, manifest(COOPERATIVE, 'pausable = "cooperative"\n'))
            aios.launcher.program = polite
            parent = await aios.create(COOPERATIVE)
            await aios.until(parent, "running")
            child = await aios.create(COOPERATIVE, parent_task_id=parent, not_before=HELD_BACK)
            body = await aios.invoke("task.pause", {"task_id": parent, "recursive": True})
            assert [(row["task_id"], row["status"]) for row in rows(body, "tasks")] == [
                (parent, "paused"), (child, "pending"),
            ]  # fmt: skip
            assert body["refused"] == []
            assert (await aios.invoke("task.get", {"task_id": child}))["waiting_for"] == "held"

            def due(transaction: Transaction) -> None:
                transaction.execute("UPDATE tasks SET not_before = NULL WHERE id = ?", (child,))

            await aios.database.write(due)
            await aios.scheduler.scan()
            assert (await aios.task(child)).status == "pending", "what is held is not started"
            await aios.invoke("task.resume", {"task_id": parent, "recursive": True})
            assert (await aios.task(parent)).status == "working"
            await aios.until(child, "running")

    play(scenario())


def test_a_tree_with_a_program_that_cannot_be_paused_is_not_touched(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await aios.install("test.stiff.run", manifest("test.stiff.run", "pausable = false\n"))
            aios.launcher.program = patient
            parent = await aios.create(not_before=HELD_BACK)
            child = await aios.create("test.stiff.run", parent_task_id=parent)
            await aios.until(child, "running")
            refused = await aios.refused("task.pause", {"task_id": parent, "recursive": True})
            assert (refused.reason, refused.extra["task_id"]) == ("not-pausable", child)
            assert not (await aios.task(parent)).held

    play(scenario())


def test_a_hold_is_carried_out_by_the_next_daemon(tmp_path: Path) -> None:
    """The daemon dies between the commit of a hold and the pause of the program."""

    async def scenario() -> None:
        launcher = FakeLauncher(tmp_path / "launcher")
        launcher.program = polite
        async with launcher.serving():
            async with daemon(tmp_path, launcher) as aios:
                await aios.install(COOPERATIVE, manifest(COOPERATIVE, 'pausable = "cooperative"\n'))
                task = await aios.create(COOPERATIVE)
                await aios.until(task, "running")

                def hold(transaction: Transaction) -> None:
                    transaction.execute("UPDATE tasks SET held = 1 WHERE id = ?", (task,))

                await aios.database.write(hold)
            async with daemon(tmp_path, launcher) as aios:
                found = await aios.until(task, "paused")
                assert not found.held
                await aios.invoke("task.resume", {"task_id": task})
                await aios.invoke("task.cancel", {"task_id": task})

    play(scenario())


def test_a_task_held_while_it_is_being_started_is_paused_once_it_runs(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await aios.install(COOPERATIVE, manifest(COOPERATIVE, 'pausable = "cooperative"\n'))
            aios.launcher.program = polite
            aios.launcher.held = asyncio.Event()
            task = await aios.create(COOPERATIVE)
            await eventually(lambda: any(name == "start" for name, _ in aios.launcher.calls))
            await aios.invoke("task.pause", {"task_id": task, "recursive": True})
            aios.launcher.held.set()
            assert (await aios.until(task, "paused")).held is False

    play(scenario())


def test_a_tree_that_is_resumed_while_its_program_is_asked_to_pause_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was wanted last counts: or else it would be paused, and whoever resumed it would not know."""
    monkeypatch.setattr("aiosd.core.control.PAUSE_ANSWER", 0.05)
    asked, answer = asyncio.Event(), asyncio.Event()

    async def slow(run: FakeRun) -> None:
        await run.go()
        message = await run.hear("can_pause")
        asked.set()
        await answer.wait()
        run.say("can_pause", {"id": message["id"], "allowed": True})
        await run.hear("resume")
        await run.hear("cancel")
        run.end(0, stopped_by="cancel")

    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await aios.install(COOPERATIVE, manifest(COOPERATIVE, 'pausable = "cooperative"\n'))
            aios.launcher.program = slow
            aios.launcher.held = asyncio.Event()
            task = await aios.create(COOPERATIVE)
            await eventually(lambda: any(name == "start" for name, _ in aios.launcher.calls))
            await aios.invoke("task.pause", {"task_id": task, "recursive": True})
            aios.launcher.held.set()
            await asyncio.wait_for(asked.wait(), 30)
            await aios.invoke("task.resume", {"task_id": task, "recursive": True})
            answer.set()
            await eventually(lambda: not aios.services.holding._pausing)
            found = await aios.task(task)
            assert (found.status, found.held) == ("working", False)
            assert not aios.launcher.made(task)[0].frozen
            await aios.invoke("task.cancel", {"task_id": task})
            assert (await aios.ended(task)).status == "canceled"

    play(scenario())


def test_a_pause_goes_on_when_who_asked_for_it_leaves(tmp_path: Path) -> None:
    """Or else the rows would say held of programs that nobody comes to pause before the next start."""
    asked = asyncio.Event()
    answer = asyncio.Event()

    async def slow(run: FakeRun) -> None:
        await run.go()
        await run.hear("can_pause")
        asked.set()
        await answer.wait()
        await run.hear("cancel")
        run.end(0, stopped_by="cancel")

    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await aios.install(COOPERATIVE, manifest(COOPERATIVE, 'pausable = "cooperative"\n'))
            aios.launcher.program = slow
            task = await aios.create(COOPERATIVE)
            await aios.until(task, "running")
            caller = asyncio.create_task(aios.invoke("task.pause", {"task_id": task, "recursive": True}))
            await asked.wait()
            caller.cancel()
            await asyncio.gather(caller, return_exceptions=True)
            answer.set()
            await aios.until(task, "paused")
            await aios.invoke("task.cancel", {"task_id": task})

    play(scenario())


def test_a_removed_parents_children_go_to_its_own_parent(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            ids = await family(aios)
            for name, promoted_to in (("a", ids["root"]), ("root", None)):

                def remove(transaction: Transaction, gone: str = ids[name]) -> None:
                    transaction.execute("DELETE FROM tasks WHERE id = ?", (gone,))

                await aios.database.write(remove)
                assert (await aios.task(ids["a1"])).parent_id == promoted_to
            assert (await aios.task(ids["b"])).parent_id is None

    play(scenario())


def test_the_tree_is_shown_each_parent_before_its_children(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            ids = await family(aios)
            names = {one: name for name, one in ids.items()}
            body = await aios.invoke("task.tree", {"task_id": ids["root"]})
            shown = [(names[str(row["task_id"])], row["depth"]) for row in rows(body, "tasks")]
            assert shown == [("root", 0), ("a", 1), ("a1", 2), ("a2", 2), ("b", 1)]
            assert body["complete"] is True
            part = await aios.invoke("task.tree", {"task_id": ids["root"], "limit": 3})
            assert [names[str(row["task_id"])] for row in rows(part, "tasks")] == ["root", "a", "a1"]
            assert part["complete"] is False

    play(scenario())


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 1000])
def test_a_tree_of_any_size_is_had_in_pages(tmp_path: Path, limit: int) -> None:
    """Each task once, each at its depth, whatever the pages' size."""

    async def pages(aios: Core, operation: str, params: JsonObject) -> list[JsonObject]:
        found: list[JsonObject] = []
        body = await aios.invoke(operation, {**params, "limit": limit})
        while True:
            assert len(rows(body, "tasks")) <= limit
            assert body["complete"] is ("next_cursor" not in body)
            found += rows(body, "tasks")
            if "next_cursor" not in body:
                return found
            body = await aios.invoke(operation, {**params, "limit": limit, "cursor": body["next_cursor"]})

    async def scenario() -> None:
        async with core(tmp_path) as aios:
            one = await session(aios)
            ids: dict[str, str] = {}
            for name, above in (
                ("r1", None), ("a", "r1"), ("r2", None), ("a1", "a"), ("b", "r1"), ("c", "r2"), ("a2", "a"),
                ("r3", None),
            ):  # fmt: skip
                where = {"session_id": one} if above is None else {"parent_task_id": ids[above]}
                options: JsonObject = {"async": True, "not_before": HELD_BACK, **where}
                made = await aios.invoke("task.create", {"capability_id": "test.plain.run", "options": options})
                ids[name] = str(made["task_id"])
            names = {identifier: name for name, identifier in ids.items()}

            def shown(found: list[JsonObject]) -> list[tuple[str, object]]:
                return [(names[str(row["task_id"])], row["depth"]) for row in found]

            under = [("r1", 0), ("a", 1), ("a1", 2), ("a2", 2), ("b", 1)]
            whole = await pages(aios, "session.tree", {"session_id": one})
            assert shown(whole) == [*under, ("r2", 0), ("c", 1), ("r3", 0)]
            assert shown(await pages(aios, "task.tree", {"task_id": ids["r1"]})) == under
            assert shown(await pages(aios, "task.tree", {"task_id": ids["a"]})) == [("a", 0), ("a1", 1), ("a2", 1)]

    play(scenario())


def test_a_cursor_of_another_tree_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            first, second = await session(aios), await session(aios)
            tops = [await aios.create(session_id=one, not_before=HELD_BACK) for one in (first, first, second, second)]
            for operation, mine, other in (
                ("session.tree", {"session_id": first}, {"session_id": second}),
                ("task.tree", {"task_id": tops[0]}, {"task_id": tops[1]}),
            ):
                await aios.create(parent_task_id=tops[0], not_before=HELD_BACK)
                cursor = (await aios.invoke(operation, {**mine, "limit": 1}))["next_cursor"]
                for wrong in ({**other, "cursor": cursor}, {**mine, "cursor": "999999"}, {**mine, "cursor": "x"}):
                    assert (await aios.refused(operation, wrong)).field == "cursor"

    play(scenario())


def test_one_tree_belongs_to_one_session(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            first, second = await session(aios), await session(aios)
            parent = await aios.create(session_id=first, not_before=HELD_BACK)
            child = await aios.create(parent_task_id=parent, not_before=HELD_BACK)
            assert (await aios.task(child)).session_id == first
            options: JsonObject = {"async": True, "parent_task_id": parent, "session_id": second}
            refused = await aios.refused("task.create", {"capability_id": "test.plain.run", "options": options})
            assert refused.field == "options.session_id"
            body = await aios.invoke("session.tree", {"session_id": first})
            assert [(row["task_id"], row["depth"]) for row in rows(body, "tasks")] == [(parent, 0), (child, 1)]

    play(scenario())


def test_what_root_put_under_a_users_task_is_not_the_users_to_end(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            parent = await aios.create(not_before=HELD_BACK)
            child = await aios.create(caller=ROOT, parent_task_id=parent, not_before=HELD_BACK)
            await aios.invoke("task.cancel", {"task_id": parent})
            assert (await aios.task(child)).status == "pending"

    play(scenario())


@pytest.mark.parametrize("finished", [100, 2000])
def test_what_is_unfinished_below_is_found_past_any_number_of_finished_ones(tmp_path: Path, finished: int) -> None:
    """Steps of SQLite's virtual machine, counted: finished children cost nothing."""

    async def scenario() -> None:
        async with core(tmp_path, schedule=False) as aios:
            parent = await aios.create()
            child = await aios.create(parent_task_id=parent)

            def fill(transaction: Transaction) -> None:
                transaction.execute(
                    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)"
                    " INSERT INTO tasks(id, uid, capability_id, level, status, phase, created_at, updated_at,"
                    " ended_at, parent_id) SELECT 'task-' || i, 1000, 'a.b', 0, 'completed', 'completed', 1, 1, 1, ?"
                    " FROM n",
                    (finished, parent),
                )

            await aios.database.write(fill)
            top = await aios.task(parent)
            steps = 0

            def count() -> int:
                nonlocal steps
                steps += 1
                return 0

            def look(transaction: Transaction) -> list[str]:
                transaction.connection.set_progress_handler(count, 1)
                try:
                    return [task.id for task in open_below(transaction, top)]
                finally:
                    transaction.connection.set_progress_handler(None, 0)

            assert await aios.database.write(look) == [child]
            assert steps < 400

    play(scenario())
