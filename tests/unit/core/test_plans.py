"""Plans and their diffs: applied whole, or not at all; against the version they were made for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from aiosd.store import plans as stored
from tests.unit.core.rig import PLAIN, Core, Decision, core, manifest, play
from tests.unit.core.session_rig import patient, payload, plan, rows, session, timeline, types
from tests.unit.core.test_control import COOPERATIVE, polite
from tests.unit.core.test_task_tree import refuses

if TYPE_CHECKING:
    from pathlib import Path

    from aiosd.model.jsontext import JsonObject
    from aiosd.store.database import Transaction

INVESTIGATE: JsonObject = {
    "title": "定位登录失败根因",
    "kind": "investigation",
    "priority": "high",
    "risk_level": "medium",
}
CACHE: JsonObject = {"title": "cache", "kind": "implementation"}
UI: JsonObject = {"title": "ui", "kind": "implementation"}
CLOSED = "test.closed.run"
API: JsonObject = {"title": "api", "kind": "implementation"}
SLOW, ASKED = "test.slow.run", "test.asked.run"


async def state(aios: Core, session_id: str) -> list[object]:
    """Everything of a session that a diff could change."""
    tree = rows(await aios.invoke("session.tree", {"session_id": session_id}), "tasks")
    shown: list[object] = [(row["task_id"], row["status"], row.get("held")) for row in tree]
    return [
        *shown,
        (await aios.invoke("plan.get", {"session_id": session_id}))["version"],
        await types(aios, session_id),
    ]


def test_a_plan_makes_all_of_its_tasks(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            first = await session(aios, objective="find the cause")
            steps: list[JsonObject] = [
                {"ref": "fix", "title": "Fix it", "depends_on": ["look"], "goal": "no endless loop"},
                {"ref": "look", **INVESTIGATE, "constraints": ["change no code"]},
                {"title": "Report", "parent_task_id": "look", "capability_id": PLAIN, "depends_on": ["fix"]},
            ]
            made = await aios.invoke("plan.create", {"session_id": first, "tasks": list(steps)})
            assert (made["version"], made["objective"]) == (1, "find the cause")
            by_title = {str(row["title"]): row for row in rows(made, "tasks")}
            look, fix, report = (by_title[str(step["title"])] for step in (steps[1], steps[0], steps[2]))
            assert {key: look[key] for key in ("kind", "priority", "risk_level", "status", "phase")} == {
                "kind": "investigation", "priority": "high", "risk_level": "medium", "status": "pending",
                "phase": "planning",
            }  # fmt: skip
            assert fix["depends_on"] == [look["task_id"]]
            assert (report["parent_task_id"], report["depends_on"]) == (look["task_id"], [fix["task_id"]])
            assert (report["capability_id"], report["phase"]) == (PLAIN, "waiting")
            whole = await aios.invoke("task.get", {"task_id": look["task_id"]})
            assert (whole["constraints"], whole["waiting_for"]) == (["change no code"], "worker")
            assert await types(aios, first) == ["session.created", *["task.created"] * 3, "plan.created"]
            refused = await aios.refused("plan.create", {"session_id": first})
            assert refused.reason == "plan-exists"

    play(scenario())


def test_a_planned_task_is_not_started_and_does_not_fill_the_queue(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            first = await session(aios)
            ids = await plan(aios, first, INVESTIGATE)
            done = await aios.create()
            await aios.ended(done)
            assert (await aios.task(ids[str(INVESTIGATE["title"])])).phase == "planning"
            status = await aios.invoke("service.status", {})
            assert isinstance(status["tasks"], dict)

    play(scenario())


def test_seed_003s_change_of_objective(tmp_path: Path) -> None:
    """The message, the objective, the proposed diff; applied, it cancels one, pauses one, continues one, makes one."""

    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await aios.install(COOPERATIVE, manifest(COOPERATIVE, 'pausable = "cooperative"\n'))
            aios.launcher.program = polite
            first = await session(aios)
            runs: JsonObject = {"capability_id": COOPERATIVE}
            ids = await plan(aios, first, CACHE, {**UI, **runs}, {**API, **runs})
            await asyncio.gather(aios.until(ids["ui"], "running"), aios.until(ids["api"], "running"))
            diff: JsonObject = {
                "change_reason": "retry first, not the cache", "cancel_tasks": [ids["cache"]],
                "pause_tasks": [ids["ui"]], "continue_tasks": [ids["api"]],
                "create_tasks": [{"title": "修复接口重试逻辑", "kind": "implementation", "priority": "high"}],
            }  # fmt: skip
            said: JsonObject = {"session_id": first, "role": "user", "content": "The retry first, please."}
            added = await aios.invoke("message.add", {**said, "objective_change": True, "diff": diff})
            proposed = added["proposed"]
            assert isinstance(proposed, dict)
            assert (proposed["version"], proposed["applied"]) == (1, False)
            assert (await aios.task(ids["cache"])).status == "pending", "proposed is not applied"
            about: JsonObject = {"session_id": first, "version": 1, "diff_id": proposed["diff_id"]}
            done = await aios.invoke("plan.apply_diff", about)
            assert done["version"] == 2
            applied = done["applied"]
            assert isinstance(applied, dict)
            assert (applied["canceled"], applied["paused"], applied["continued"]) == (
                [ids["cache"]], [ids["ui"]], [ids["api"]],
            )  # fmt: skip
            assert done["refused"] == []
            assert [(await aios.task(ids[name])).status for name in ("cache", "ui", "api")] == [
                "canceled", "paused", "working",
            ]  # fmt: skip
            events = await timeline(aios, first)
            names = [str(event["type"]) for event in events]
            tail = names[names.index("session.message.added") :]
            assert tail == [
                "session.message.added", "session.objective.updated", "plan.diff.generated", "task.created",
                "task.cancelled", "plan.updated", "task.paused",
            ]  # fmt: skip
            assert payload(events[names.index("session.objective.updated")])["active_objective"] == said["content"]
            generated = payload(events[names.index("plan.diff.generated")])["diff"]
            assert generated == {"session_id": first, **diff}
            assert (await aios.refused("plan.apply_diff", {**about, "version": 2})).reason == "applied"
            await aios.invoke("session.close", {"session_id": first, "cancel_tasks": True})

    play(scenario())


def test_an_objective_that_changes_without_more_proposes_that_what_can_wait_waits(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await aios.install("test.stiff.run", manifest("test.stiff.run", "pausable = false\n"))
            aios.launcher.program = patient
            first = await session(aios)
            ids = await plan(aios, first, CACHE, {**API, "capability_id": "test.stiff.run"})
            await aios.until(ids["api"], "running")
            said: JsonObject = {"session_id": first, "role": "user", "content": "something else"}
            added = await aios.invoke("message.add", {**said, "objective_change": True, "objective": "other"})
            proposed = added["proposed"]
            assert isinstance(proposed, dict)
            assert proposed["diff"] == {
                "change_reason": "something else", "cancel_tasks": [], "pause_tasks": [ids["cache"]],
                "continue_tasks": [ids["api"]], "create_tasks": [],
            }  # fmt: skip
            await aios.invoke("plan.apply_diff", {"session_id": first, "version": 1, "diff_id": proposed["diff_id"]})
            assert (await aios.task(ids["cache"])).held
            assert (await aios.invoke("session.get", {"session_id": first}))["active_objective"] == "other"
            await aios.invoke("plan.apply_diff", {
                "session_id": first, "version": 2, "diff": {"continue_tasks": [ids["cache"]]}
            })  # fmt: skip
            assert not (await aios.task(ids["cache"])).held
            await aios.invoke("session.close", {"session_id": first, "cancel_tasks": True})

    play(scenario())


def test_a_stale_diff_changes_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            first = await session(aios)
            ids = await plan(aios, first, CACHE, UI)
            about: JsonObject = {"session_id": first, "version": 1}
            kept = await aios.invoke("plan.propose_diff", {**about, "diff": {"cancel_tasks": [ids["ui"]]}})
            await aios.invoke("plan.apply_diff", {**about, "diff": {"pause_tasks": [ids["cache"]]}})
            before = await state(aios, first)
            tries: list[JsonObject] = [
                {"diff": {"cancel_tasks": [ids["cache"]]}}, {"diff_id": kept["diff_id"]},
                {"diff_id": kept["diff_id"], "version": 2},
            ]  # fmt: skip
            for stale in tries:
                refused = await aios.refused("plan.apply_diff", {**about, **stale})
                assert refused.reason == "stale-plan"
                assert refused.extra["version"] == 2
            assert (await aios.refused("plan.propose_diff", {**about, "diff": {}})).reason == "stale-plan"
            assert await state(aios, first) == before

    play(scenario())


def test_of_two_diffs_at_once_one_is_applied(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            first = await session(aios)
            ids = await plan(aios, first, CACHE, UI)
            tries = await asyncio.gather(
                *(
                    aios.invoke("plan.apply_diff", {
                        "session_id": first, "version": 1, "diff": {"cancel_tasks": [ids[name]]}
                    })
                    for name in ("cache", "ui")
                ),
                return_exceptions=True,
            )  # fmt: skip
            refused = [one for one in tries if isinstance(one, BaseException)]
            assert len(refused) == 1
            ended = [(await aios.task(one)).status for one in ids.values()]
            assert sorted(ended) == ["canceled", "pending"]

    play(scenario())


def refusals(ids: dict[str, str], other: str) -> list[tuple[JsonObject, str]]:
    """Diffs of which something is wrong, beside something that is right."""
    good: JsonObject = {"cancel_tasks": [ids["cache"]], "create_tasks": [{"title": "new"}]}
    return [
        ({**good, "continue_tasks": [ids["cache"]]}, "diff.continue_tasks[0]"),
        ({**good, "pause_tasks": [ids["ui"], "task-none"]}, "diff.pause_tasks[1]"),
        ({**good, "pause_tasks": [other]}, "diff.pause_tasks[0]"),
        ({**good, "create_tasks": [{"title": "a"}, {"title": "b", "depends_on": [other]}]},
         "diff.create_tasks[1].depends_on[0]"),
        ({**good, "create_tasks": [{"title": "a", "depends_on": [ids["cache"]]}]}, "diff.create_tasks[0].depends_on"),
        ({**good, "create_tasks": [{"ref": "x", "title": "a", "depends_on": ["y"]},
                                   {"ref": "y", "title": "b", "depends_on": ["x"]}]}, "diff.create_tasks"),
        ({**good, "create_tasks": [{"title": "a", "capability_id": "test.absent.run"}]},
         "diff.create_tasks[0].capability_id"),
        ({**good, "create_tasks": [{"title": "a", "capability_id": CLOSED, "arguments": {"x": 1}}]},
         "diff.create_tasks[0].arguments"),
        ({**good, "create_tasks": [{"title": "a", "shared_context_refs": ["art-none"]}]},
         "diff.create_tasks[0].shared_context_refs"),
    ]  # fmt: skip


def test_a_diff_that_is_wrong_somewhere_changes_nothing_anywhere(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            first, second = await session(aios), await session(aios)
            ids = await plan(aios, first, CACHE, UI)
            (other,) = (await plan(aios, second, API)).values()
            await aios.install(CLOSED, manifest(CLOSED, '[input]\ntype = "object"\nadditionalProperties = false\n'))
            before = await state(aios, first)
            for diff, field in refusals(ids, other):
                refused = await aios.refused("plan.apply_diff", {"session_id": first, "version": 1, "diff": diff})
                assert refused.field == field, diff
                assert await state(aios, first) == before, diff

    play(scenario())


def test_a_permission_that_is_not_given_refuses_the_whole_diff(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            first = await session(aios)
            ids = await plan(aios, first, CACHE)
            before = await state(aios, first)
            aios.authority.answers["run-public"] = Decision.DENIED
            diff: JsonObject = {
                "cancel_tasks": [ids["cache"]], "create_tasks": [{"title": "a"}, {"title": "b", "capability_id": PLAIN}]
            }  # fmt: skip
            refused = await aios.refused("plan.apply_diff", {"session_id": first, "version": 1, "diff": diff})
            assert refused.kind.value.dbus == "PermissionDenied"
            assert await state(aios, first) == before

    play(scenario())


def test_a_program_that_refuses_to_be_canceled_refuses_the_whole_diff(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await aios.install(COOPERATIVE, manifest(COOPERATIVE, 'pausable = "cooperative"\n'))
            aios.launcher.program = refuses
            first = await session(aios)
            ids = await plan(aios, first, CACHE, {**API, "capability_id": COOPERATIVE})
            await aios.until(ids["api"], "running")
            before = await state(aios, first)
            diff: JsonObject = {"cancel_tasks": [ids["cache"], ids["api"]]}
            refused = await aios.refused("plan.apply_diff", {"session_id": first, "version": 1, "diff": diff})
            assert (refused.reason, refused.extra["task_id"]) == ("program-refused", ids["api"])
            assert await state(aios, first) == before

    play(scenario())


def test_a_program_that_is_paused_while_a_diff_is_looked_at_goes_on_with_it(tmp_path: Path) -> None:
    """Or else its task would be at work and its scope frozen, and nobody would come to thaw it."""

    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await aios.install(SLOW, manifest(SLOW, 'pausable = "freeze"\n'))
            await aios.install(ASKED, manifest(ASKED, level="medium"))
            aios.launcher.programs[SLOW] = patient
            first = await session(aios)
            ids = await plan(aios, first, {**API, "capability_id": SLOW})
            task = ids["api"]
            await aios.until(task, "running")

            async def meanwhile() -> None:
                aios.authority.meanwhile = None
                await aios.invoke("task.pause", {"task_id": task})
                assert aios.launcher.made(task)[0].frozen

            aios.authority.meanwhile = meanwhile
            diff: JsonObject = {
                "continue_tasks": [task],
                "create_tasks": [{"ref": "new", "title": "new", "capability_id": ASKED}],
            }
            await aios.invoke("plan.apply_diff", {"session_id": first, "version": 1, "diff": diff})
            assert (await aios.task(task)).status == "working"
            assert not aios.launcher.made(task)[0].frozen
            await aios.invoke("task.cancel", {"task_id": task})
            assert (await aios.ended(task)).status == "canceled"

    play(scenario())


def test_a_paused_program_goes_on_when_a_diff_continues_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await aios.install(COOPERATIVE, manifest(COOPERATIVE, 'pausable = "cooperative"\n'))
            aios.launcher.program = polite
            first = await session(aios)
            ids = await plan(aios, first, {**API, "capability_id": COOPERATIVE})
            await aios.until(ids["api"], "running")
            about: JsonObject = {"session_id": first}
            await aios.invoke("plan.apply_diff", {**about, "version": 1, "diff": {"pause_tasks": [ids["api"]]}})
            assert (await aios.task(ids["api"])).status == "paused"
            await aios.invoke("plan.apply_diff", {**about, "version": 2, "diff": {"continue_tasks": [ids["api"]]}})
            assert (await aios.task(ids["api"])).status == "working"
            await aios.invoke("plan.apply_diff", {**about, "version": 3, "diff": {"cancel_tasks": [ids["api"]]}})
            assert (await aios.ended(ids["api"])).status == "canceled"

    play(scenario())


def test_a_canceled_task_takes_what_is_under_it_along(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            first = await session(aios)
            steps = ({"ref": "c", **CACHE}, {**UI, "parent_task_id": "c"}, API)
            ids = await plan(aios, first, *steps)
            diff: JsonObject = {"change_reason": "not now", "cancel_tasks": [ids["cache"]]}
            await aios.invoke("plan.apply_diff", {"session_id": first, "version": 1, "diff": diff})
            assert [(await aios.task(ids[name])).reason for name in ("cache", "ui", "api")] == [
                "not now", "parent-canceled", None,
            ]  # fmt: skip

    play(scenario())


def test_a_session_that_a_diff_empties_and_fills_is_not_idle_in_between(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            first = await session(aios)
            ids = await plan(aios, first, CACHE)
            diff: JsonObject = {"cancel_tasks": [ids["cache"]], "create_tasks": [API]}
            await aios.invoke("plan.apply_diff", {"session_id": first, "version": 1, "diff": diff})
            assert "all_tasks_processed" not in await types(aios, first)
            made = (await aios.invoke("plan.get", {"session_id": first}))["tasks"]
            assert isinstance(made, list)
            last = made[-1]
            assert isinstance(last, dict)
            await aios.invoke("plan.apply_diff", {
                "session_id": first, "version": 2, "diff": {"cancel_tasks": [last["task_id"]]}
            })  # fmt: skip
            assert (await types(aios, first))[-2:] == ["plan.updated", "all_tasks_processed"]

    play(scenario())


def test_a_large_plan_is_shown_in_pages_and_a_change_of_it_by_what_is_left(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            first = await session(aios)
            ids = await plan(aios, first, *({"title": f"{number}"} for number in range(7)))
            await aios.invoke("task.cancel", {"task_id": ids["0"]})
            about: JsonObject = {"session_id": first, "version": 1}
            diff: JsonObject = {"cancel_tasks": [ids["1"]], "create_tasks": [{"title": "7"}]}
            changed = await aios.invoke("plan.apply_diff", {**about, "diff": diff})
            shown = [(row["title"], row["status"]) for row in rows(changed, "tasks")]
            assert shown == [("1", "canceled"), *((f"{number}", "pending") for number in range(2, 8))]
            found: list[object] = []
            where: JsonObject = {}
            while True:
                page = await aios.invoke("plan.get", {"session_id": first, "limit": 3, **where})
                found += [row["title"] for row in rows(page, "tasks")]
                if not page["has_more"]:
                    break
                where = {"cursor": page["next_cursor"]}
            assert found == [f"{number}" for number in range(8)]
            assert "next_cursor" not in page

    play(scenario())


def test_the_plan_remembers_its_diffs(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            first = await session(aios)
            ids = await plan(aios, first, CACHE)
            about: JsonObject = {"session_id": first, "version": 1}
            kept = await aios.invoke("plan.propose_diff", {**about, "diff": {"cancel_tasks": [ids["cache"]]}})
            await aios.invoke("plan.apply_diff", {**about, "diff": {"create_tasks": [UI]}})
            found = await aios.invoke("plan.get", {"session_id": first, "diffs": True})
            assert [(row["applied"], row["version"]) for row in rows(found, "diffs")] == [(True, 1), (False, 1)]
            assert rows(found, "diffs")[1]["diff_id"] == kept["diff_id"]
            assert [row["version"] for row in rows(found, "tasks")] == [1, 2]
            refused = await aios.refused("plan.apply_diff", {**about, "diff": {}, "diff_id": "diff-1"})
            assert refused.kind.value.dbus == "InvalidParams"
            other = await session(aios)
            assert (await aios.refused("plan.get", {"session_id": other})).kind.value.dbus == "PlanNotFound"

    play(scenario())


@pytest.mark.parametrize("finished", [100, 3000])
def test_a_diff_costs_the_same_with_any_number_of_finished_tasks(tmp_path: Path, finished: int) -> None:
    """Steps of SQLite's virtual machine, counted over the transaction that applies."""

    async def scenario() -> None:
        async with core(tmp_path, schedule=False) as aios:
            first = await session(aios)
            ids = await plan(aios, first, CACHE, UI)

            def fill(transaction: Transaction) -> None:
                transaction.execute(
                    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)"
                    " INSERT INTO tasks(id, uid, capability_id, level, status, phase, created_at, updated_at,"
                    " ended_at, session_id) SELECT 'task-' || i, 1000, '', 0, 'completed', 'completed', 1, 1, 1, ?"
                    " FROM n",
                    (finished, first),
                )
                found = stored.of_session(transaction, first)
                assert found is not None
                transaction.execute(
                    "INSERT INTO plan_tasks SELECT ?, seq, 1 FROM tasks WHERE status = 'completed'", (found.sequence,)
                )

            await aios.database.write(fill)
            steps = 0

            def count() -> int:
                nonlocal steps
                steps += 1
                return 0

            def watch(transaction: Transaction) -> None:
                transaction.connection.set_progress_handler(count, 1)

            await aios.database.write(watch)
            diff: JsonObject = {"cancel_tasks": [ids["cache"]], "pause_tasks": [ids["ui"]], "create_tasks": [API]}
            await aios.invoke("plan.apply_diff", {"session_id": first, "version": 1, "diff": diff})
            assert steps < 6000

    play(scenario())
