"""Workers elsewhere: registered, given tasks, heard of, lost; and that what comes late counts for nothing."""

from __future__ import annotations

import asyncio
import os
from types import SimpleNamespace
from typing import TYPE_CHECKING

from aiosd.auth.caller import BusSubject, Caller
from aiosd.core.executors import LOCAL, WORKERS
from aiosd.core.operations import OPERATIONS
from aiosd.errors import AiosError
from aiosd.store import workers as stored
from tests.unit.core.fakelauncher import FakeLauncher
from tests.unit.core.rig import BOOT, OTHER, ROOT, STRANGER, USER, Config, Core, Decision, ErrorKind, core, daemon, play
from tests.unit.core.session_rig import payload, plan, rows, session, timeline, types
from tests.unit.core.worker_rig import MAC, register

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable
    from pathlib import Path

    import pytest

    from aiosd.model.jsontext import JsonObject
    from aiosd.model.worker import Assignment

LOGIN: JsonObject = {
    "title": "定位登录失败根因", "kind": "investigation", "priority": "high", "risk_level": "medium",
    "goal": "排查登录失败\uff0c输出根因和修复建议", "constraints": ["先不要改代码", "优先跑测试和读日志"],
    "workspace": {
        "repo": "git@github.com:org/repo.git", "branch": "boss/task-102",
        "worktree_path": "/workers/worktrees/task-102",
    },
    "requires": ["git", "terminal"],
}  # fmt: skip
"""A task whose execution request is seed 003's."""
RM = "准备执行 rm -rf build-cache"
SHORT = Config(schedule_interval=30.0, worker_lease=0.4)
STAYS = Config(schedule_interval=30.0, worker_lease=3600.0)
SUMMARY: JsonObject = {
    "summary": "已定位到接口重试在 401 时进入死循环", "progress_percent": 60, "current_step": "analyze_retry_logic",
    "next_step": "补充最小修复方案并跑测试", "risk": "medium",
}  # fmt: skip


async def assignments(aios: Core, task_id: str) -> list[Assignment]:
    """All of a task."""
    return await aios.database.read(lambda db: stored.of_task(db, task_id))


async def planned(aios: Core, *steps: JsonObject) -> tuple[str, dict[str, str]]:
    """A session with a plan of these; its tasks by title."""
    first = await session(aios)
    return first, await plan(aios, first, *steps)


def test_a_worker_does_a_task_and_all_of_it_is_on_the_timeline(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path, config=STAYS) as aios:
            first, ids = await planned(aios, LOGIN)
            task = ids[str(LOGIN["title"])]
            hand = await register(aios)
            offer = await hand.offered()
            request = offer["request"]
            assert isinstance(request, dict)
            seed = ("task_id", "session_id", "workspace", "execution_mode", "goal", "constraints")
            assert {name: request[name] for name in seed} == {
                "task_id": task, "session_id": first, "workspace": LOGIN["workspace"],
                "execution_mode": "independent", "goal": LOGIN["goal"], "constraints": LOGIN["constraints"],
            }  # fmt: skip
            assert (await aios.task(task)).phase == "assigned"
            await hand.say("accept", offer)
            step: JsonObject = {"name": "run_tests", "status": "started", "summary": "开始运行登录相关测试"}
            await hand.say("report", offer, step=step, tool_call={"name": "pytest", "status": "requested"})
            await hand.say("report", offer, tool_call={"name": "pytest", "status": "finished"})
            await hand.say("report", offer, step={**step, "status": "finished"}, progress={"percent": 60.0})
            part: JsonObject = {"text": "the retry loops on 401"}
            await hand.say("report", offer, summary=SUMMARY, artifact={"key": "cause", "parts": [part]})
            await hand.say("complete", offer, result={"root_cause": "retry"})
            done = await aios.invoke("task.get", {"task_id": task})
            assert (done["status"], done["result"], done["worker_id"]) == (
                "completed", {"root_cause": "retry"}, "worker_mac_001",
            )  # fmt: skip
            assert done["summary"] == SUMMARY
            (artifact,) = rows(done, "artifacts")
            got = await aios.invoke("artifact.get", {"artifact_id": artifact["id"]})
            assert isinstance(got["artifact"], dict)
            assert got["artifact"]["parts"] == [{"type": "text", "text": "the retry loops on 401"}]
            events = await timeline(aios, first)
            told = [str(one["type"]) for one in events if one.get("worker_id") == "worker_mac_001"]
            assert told == [
                "task.assigned", "worker.assignment.accepted", "task.started", "task.step.started",
                "tool.call.requested", "tool.call.finished", "task.progress", "task.step.finished", "task.progress",
                "task.progress", "task.completed", "task.completed",
            ]  # fmt: skip
            assert {str(one["source"]) for one in events if str(one["type"]).startswith(("task.step", "tool"))} == {
                "worker"
            }
            assert "all_tasks_processed" in await types(aios, first)

    play(scenario())


def test_the_worker_feed_has_what_the_seed_says_of_workers_and_replays_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aiosd.core.crew.TOLD_EVERY", 0.05)

    async def scenario() -> None:
        async with core(tmp_path, config=STAYS) as aios:
            await planned(aios, LOGIN)
            hand = await register(aios)
            await hand.takes()
            await hand.beat(status="busy", capabilities=["git"])
            feed: JsonObject = {"feed": "worker_feed", "id": hand.id, "last_event_id": "evt-0000000000000000"}
            async with asyncio.timeout(30):
                while True:  # the heartbeat's event is stored a moment later
                    body = await aios.invoke("feed.subscribe", feed)
                    found = [str(row["event"]) for row in rows(body, "missed_events")]
                    if "worker.heartbeat" in found:
                        break
                    await asyncio.sleep(0.02)
            assert found[0] == "worker.registered"
            assert {"task.assigned", "worker.assignment.accepted", "worker.capabilities.updated"} <= set(found)
            beat = next(row for row in rows(body, "missed_events") if row["event"] == "worker.heartbeat")
            data = beat["data"]
            assert isinstance(data, dict)
            assert {name: payload(data)[name] for name in ("worker_id", "status", "load")} == {
                "worker_id": hand.id, "status": "busy", "load": 0.0,
            }  # fmt: skip
            nobodys = await aios.invoke("feed.subscribe", feed, OTHER)
            assert nobodys["missed_events"] == []

    play(scenario())


def test_what_was_read_last_is_what_a_worker_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two heartbeats read at the same time, and the one that saw less is answered last."""

    async def scenario() -> None:
        async with core(tmp_path, config=STAYS) as aios:
            hand = await register(aios)
            (member,) = aios.services.crew.present.values()
            read, held, release = aios.database.read, asyncio.Event(), asyncio.Event()

            async def slow(function: Callable[[sqlite3.Connection], object]) -> object:
                found = await read(function)
                if not held.is_set():
                    held.set()
                    await release.wait()
                return found

            aios.services.crew.outdated(member.worker.key)
            monkeypatch.setattr(aios.services.crew, "_database", SimpleNamespace(read=slow))
            first = asyncio.create_task(aios.services.crew.news(member))
            await held.wait()
            _, ids = await planned(aios, LOGIN)
            (task,) = ids.values()
            await aios.until(task, "assigned")
            second = asyncio.create_task(aios.services.crew.news(member))
            await asyncio.sleep(0.05)
            release.set()
            await asyncio.gather(first, second)
            monkeypatch.undo()
            assert member.tasks == {task}
            assert [one["task_id"] for one in await hand.beat()] == [task]
            await aios.invoke("task.cancel", {"task_id": task})
            assert await hand.beat() == [], "it is told that its task was canceled"

    play(scenario())


def test_a_rejected_task_is_tried_elsewhere_with_the_reason(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path, config=STAYS) as aios:
            first, ids = await planned(aios, LOGIN)
            task = ids[str(LOGIN["title"])]
            one = await register(aios)
            offer = await one.offered()
            await one.say("reject", offer, reason="no licence for this repo")
            assert await one.beat() == [], "it is not asked again"
            assert (await aios.invoke("task.get", {"task_id": task}))["waiting_for"] == "worker"
            other = await register(aios, worker_id="worker_win_a")
            again = await other.takes()
            assert again["task_id"] == task
            assert again["attempt"] == 2
            events = [row for row in await timeline(aios, first) if row["type"] == "worker.assignment.rejected"]
            assert [payload(row)["reason"] for row in events] == ["no licence for this repo"]
            late = await one.refused("accept", offer)
            assert (late.kind, late.reason) == (ErrorKind.INVALID_STATE, "fenced")
            assert (await aios.task(task)).retry_count == 0, "nothing was tried"

    play(scenario())


def test_a_silent_worker_loses_its_task_and_its_late_reports_are_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path, config=STAYS) as aios:
            first, ids = await planned(aios, LOGIN)
            task = ids[str(LOGIN["title"])]
            silent = await register(aios)
            offer = await silent.takes()
            aios.settings.current = SHORT
            await silent.beat(status="busy")
            await aios.until(task, "retry_wait")
            aios.settings.current = STAYS
            other = await register(aios, worker_id="worker_win_a")
            again = await other.takes()
            assert again["task_id"] == task
            for operation, params in (
                ("report", {"progress": {"percent": 99.0}}), ("complete", {"result": {"wrong": True}}),
                ("fail", {"message": "too late"}),
            ):  # fmt: skip
                late = await silent.refused(operation, offer, **params)
                assert (late.kind, late.reason) == (ErrorKind.INVALID_STATE, "fenced"), operation
                assert late.extra["ended_because"] == "worker-lost"
            assert (await aios.refused(
                "worker.heartbeat", {"worker_id": silent.id, "registration": silent.registration}
            )).kind is ErrorKind.WORKER_NOT_FOUND  # fmt: skip
            await other.say("complete", again, result={"right": True})
            after = await aios.task(task)
            assert (after.status, after.result, after.retry_count) == ("completed", {"right": True}, 1)
            retried = [row for row in await timeline(aios, first) if row["type"] == "task.retry"]
            assert [payload(row)["reason"] for row in retried] == ["worker-lost"]
            states = [one.status for one in await assignments(aios, task)]
            assert states == ["lost", "completed"]

    play(scenario())


def test_who_lets_go_of_its_descriptor_is_gone_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path, config=STAYS) as aios:
            _, ids = await planned(aios, LOGIN)
            task = ids[str(LOGIN["title"])]
            hand = await register(aios, liveness="descriptor")
            assert hand.fd is not None
            await hand.takes()
            os.close(hand.fd)
            await aios.until(task, "retry_wait")
            gone = await aios.invoke("worker.get", {"worker_id": hand.id})
            assert (gone["status"], gone["assignments"]) == ("gone", [])
            assert "descriptor" in str(gone["reason"])

    play(scenario())


def test_after_a_restart_a_worker_of_this_boot_keeps_what_it_has(tmp_path: Path) -> None:
    async def scenario() -> None:
        launcher = FakeLauncher(tmp_path / "launcher")
        async with launcher.serving():
            async with daemon(tmp_path, launcher, config=STAYS) as aios:
                _, ids = await planned(aios, LOGIN)
                task = ids[str(LOGIN["title"])]
                hand = await register(aios, liveness="descriptor")
                assert hand.fd is not None
                offer = await hand.takes()
            os.close(hand.fd)
            async with daemon(tmp_path, launcher, config=STAYS, boot=BOOT) as aios:
                back = await aios.reply(
                    "worker.register", {**MAC, "registration": hand.registration, "liveness": "descriptor"}
                )
                (held,) = rows(back.body, "assignments")
                assert (held["assignment_id"], held["state"]) == (offer["assignment_id"], "running")
                assert "request" in held, "one that comes back may have forgotten it"
                hand.aios = aios
                await hand.say("complete", offer, result={})
                assert (await aios.task(task)).status == "completed"
                os.close(back.fds[0])

    play(scenario())


def test_a_worker_does_not_outlive_the_machines_boot(tmp_path: Path) -> None:
    async def scenario() -> None:
        launcher = FakeLauncher(tmp_path / "launcher")
        async with launcher.serving():
            async with daemon(tmp_path, launcher, config=STAYS) as aios:
                first, ids = await planned(aios, LOGIN)
                task = ids[str(LOGIN["title"])]
                hand = await register(aios)
                offer = await hand.takes()
            async with daemon(tmp_path, launcher, config=STAYS, boot="4f0c7f2e-0000-4000-8000-000000000002") as aios:
                found = await aios.task(task)
                assert (found.phase, found.reason, found.retry_count) == ("retry_wait", "reboot", 1)
                hand.aios = aios
                assert (await hand.refused("complete", offer, result={})).reason == "fenced"
                assert "worker.assignment.lost" in await types(aios, first)

    play(scenario())


def test_registering_anew_without_the_registration_ends_the_old_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path, config=STAYS) as aios:
            await planned(aios, LOGIN)
            old = await register(aios)
            offer = await old.takes()
            new = await register(aios)
            assert (await old.refused("complete", offer, result={})).reason == "fenced"
            beat: JsonObject = {"worker_id": old.id, "registration": old.registration}
            superseded = await aios.refused("worker.heartbeat", beat)
            assert (superseded.kind, superseded.reason) == (ErrorKind.WORKER_NOT_FOUND, "superseded")
            assert (await new.offered())["attempt"] == 2

    play(scenario())


def test_what_several_workers_could_not_finish_a_person_decides(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path, config=STAYS) as aios:
            _, ids = await planned(aios, LOGIN)
            task = ids[str(LOGIN["title"])]
            for number in range(4):
                hand = await register(aios, worker_id=f"worker-{number}", liveness="descriptor")
                assert hand.fd is not None
                assert (await hand.takes())["task_id"] == task
                os.close(hand.fd)
                await aios.until(task, "blocked" if number == 3 else "retry_wait")
            blocked = await aios.task(task)
            assert (blocked.status, blocked.retry_count) == ("input_required", 3)
            await aios.invoke("task.input", {"task_id": task, "input": {"action": "retry", "reason": "new hardware"}})
            hand = await register(aios, worker_id="worker-new")
            await hand.say("complete", await hand.takes(), result={})
            assert (await aios.task(task)).status == "completed"

    play(scenario())


def test_a_reported_failure_is_tried_again_as_often_as_was_asked_for(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path, config=STAYS) as aios:
            twice: JsonObject = {**LOGIN, "retry": {"max_attempts": 2, "delay_ms": 0}}
            _, ids = await planned(aios, twice, {"title": "once"})
            hand = await register(aios, capacity=2)
            for state in ("retry_wait", "blocked"):
                async with asyncio.timeout(60):
                    found = await hand.takes()
                    while found["task_id"] != ids[str(LOGIN["title"])]:
                        await hand.say("fail", found, message="no such branch", retryable=False)
                        found = await hand.takes()
                await hand.say("fail", found, message="the network is down", reason="network")
                task = await aios.task(ids[str(LOGIN["title"])])
                assert state in (task.phase, "retry_wait")
            assert (await aios.task(ids[str(LOGIN["title"])])).phase == "blocked"
            async with asyncio.timeout(60):
                while (await aios.task(ids["once"])).status != "failed":
                    await hand.say("fail", await hand.takes(), message="no such branch", retryable=False)
            error = (await aios.task(ids["once"])).error
            assert error is not None
            assert error["message"] == "no such branch"

    play(scenario())


def test_pause_resume_and_cancel_reach_the_worker(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path, config=STAYS) as aios:
            _, ids = await planned(aios, LOGIN)
            task = ids[str(LOGIN["title"])]
            hand = await register(aios)
            offer = await hand.takes()
            waiting = asyncio.create_task(hand.until("paused"))
            await aios.invoke("task.pause", {"task_id": task})
            await waiting
            assert (await aios.task(task)).status == "paused"
            await aios.invoke("task.resume", {"task_id": task})
            await hand.until("running")
            await aios.invoke("task.pause", {"task_id": task, "recursive": True})
            assert (await aios.task(task)).status == "paused"
            await aios.invoke("task.resume", {"task_id": task, "recursive": True})
            await aios.invoke("task.cancel", {"task_id": task, "reason": "not wanted any more"})
            assert await hand.beat() == [], "what is not in the list has been taken away"
            late = await hand.refused("report", offer, progress={"percent": 1.0})
            assert late.reason == "fenced"
            assert [one.status for one in await assignments(aios, task)] == ["canceled"]

    play(scenario())


def test_a_worker_asks_a_person_and_hears_the_answer_until_it_says_that_it_has_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path, config=STAYS) as aios:
            _, ids = await planned(aios, LOGIN)
            task = ids[str(LOGIN["title"])]
            hand = await register(aios)
            offer = await hand.takes()
            schema: JsonObject = {"type": "object", "properties": {"branch": {"type": "string"}},
                                  "required": ["branch"]}  # fmt: skip
            asked: JsonObject = {"interaction": 7, "prompt": "Which branch?", "answer_schema": schema}
            await hand.say("report", offer, question=asked)
            assert (await aios.task(task)).status == "input_required"
            assert (await hand.beat())[0]["state"] == "waiting"
            wrong = await aios.refused("task.input", {"task_id": task, "input": {"branch": 1}})
            assert wrong.field == "input/branch"
            await aios.invoke("task.input", {"task_id": task, "input": {"branch": "main"}})
            (held,) = await hand.beat()
            answer = held["input"]
            assert isinstance(answer, dict)
            assert (answer["interaction"], answer["input"]) == (7, {"branch": "main"})
            assert "input" not in (await hand.beat(received=[answer["delivery"]]))[0]
            bad = await hand.refused("report", offer, question={"prompt": "?", "answer_schema": {"type": "nonsense"}})
            assert bad.field == "question.answer_schema"

    play(scenario())


def test_a_worker_asks_for_an_approval(tmp_path: Path) -> None:
    """Seed 003's own: rm -rf build-cache, rejected, asked again, approved once."""

    async def scenario() -> None:
        async with core(tmp_path, config=STAYS) as aios:
            first, ids = await planned(aios, LOGIN)
            task = ids[str(LOGIN["title"])]
            hand = await register(aios)
            offer = await hand.takes()
            wish: JsonObject = {
                "kind": "dangerous_command",
                "summary": "准备执行 rm -rf build-cache",
                "risk_level": "high",
            }
            for action, approved in (("reject", False), ("approve_once", True)):
                await hand.say("report", offer, approval=wish)
                (approval,) = rows(await aios.invoke("approval.list", {"task_id": task}), "approvals")
                assert (approval["kind"], approval["risk_level"]) == ("dangerous_command", "high")
                await aios.invoke("approval.respond", {"approval_id": approval["id"], "action": action}, ROOT)
                (held,) = await hand.beat()
                answer = held["input"]
                assert isinstance(answer, dict)
                assert isinstance(answer["input"], dict)
                assert answer["input"]["approved"] is approved
                await hand.beat(received=[answer["delivery"]])
            found = await types(aios, first)
            assert [one for one in found if one.startswith("approval.")] == [
                "approval.requested", "approval.rejected", "approval.requested", "approval.approved",
            ]  # fmt: skip

    play(scenario())


def test_a_worker_cannot_say_yes_to_itself_nor_can_who_made_its_task(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path, config=STAYS) as aios:
            _, ids = await planned(aios, LOGIN)
            hand = await register(aios, ROOT, serves="all")
            offer = await hand.takes()
            wish: JsonObject = {"kind": "dangerous_command", "summary": RM, "risk_level": "high"}
            await hand.say("report", offer, approval=wish)
            (approval,) = rows(await aios.invoke("approval.list", {"task_id": ids[str(LOGIN["title"])]}), "approvals")
            yes: JsonObject = {"approval_id": approval["id"], "action": "approve"}
            for caller in (ROOT, USER):
                refused = await aios.refused("approval.respond", yes, caller)
                assert "second, independent act" in refused.text
            assert (await aios.invoke("approval.respond", yes, Caller(0, BusSubject(":1.99"))))["status"] == "approved"

    play(scenario())


def test_a_worker_is_there_for_its_own_user_only_unless_it_serves_all(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path, config=STAYS) as aios:
            _, ids = await planned(aios, LOGIN)
            others = await register(aios, OTHER, worker_id="worker_win_a")
            assert await others.beat() == []
            serves = await register(aios, OTHER, worker_id="worker_ci", serves="all")
            offer = await serves.takes()
            assert offer["task_id"] == ids[str(LOGIN["title"])]
            mine = await register(aios)
            aios.authority.otherwise = Decision.DENIED
            for operation in ("accept", "reject", "report", "complete", "fail"):
                given: dict[str, JsonObject] = {
                    "reject": {"reason": "no"}, "report": {"progress": {}}, "fail": {"message": "no"}
                }  # fmt: skip
                foreign = await mine.refused(operation, offer, **given.get(operation, {}))
                assert foreign.kind is ErrorKind.ASSIGNMENT_NOT_FOUND, operation
            hidden = await aios.refused("task.get", {"task_id": offer["task_id"]}, STRANGER)
            assert hidden.kind is ErrorKind.TASK_NOT_FOUND, "a worker sees its assignments, not the tasks"

    play(scenario())


def test_strangers_are_told_the_same_of_a_worker_that_is_there_and_of_one_that_is_not(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path, config=STAYS) as aios:
            await planned(aios, LOGIN)
            hand = await register(aios)
            offer = await hand.takes()
            about: JsonObject = {"assignment_id": offer["assignment_id"]}
            more: dict[str, JsonObject] = {
                "worker.get": {}, "worker.heartbeat": {"registration": hand.registration},
                "worker.unregister": {"registration": hand.registration}, "worker.accept": about,
                "worker.reject": {**about, "reason": "no"}, "worker.report": {**about, "progress": {}},
                "worker.complete": about, "worker.fail": {**about, "message": "no"},
            }  # fmt: skip
            assert set(more) == {name for name in OPERATIONS if name.startswith("worker.")} - {
                "worker.register", "worker.list"
            }  # fmt: skip
            for answer in (Decision.DENIED, Decision.CHALLENGE):
                aios.authority.otherwise = answer
                for name, params in more.items():
                    for uid in ({}, {"uid": 1000}):
                        named: JsonObject = {**params, **uid}
                        real = await aios.refused(name, {"worker_id": hand.id, **named}, STRANGER)
                        none = await aios.refused(name, {"worker_id": "nobody", **named}, STRANGER)
                        assert (name, real.kind, real.text, real.data()) == (name, none.kind, none.text, none.data())
                everybodys = await aios.refused("worker.list", {"all_users": True}, STRANGER)
                assert everybodys.kind in (ErrorKind.PERMISSION_DENIED, ErrorKind.INTERACTIVE_AUTH_REQUIRED)
                assert (await aios.invoke("worker.list", {}, STRANGER))["workers"] == []

    play(scenario())


def test_registering_needs_its_action_and_a_user_may_have_so_many(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path, config=Config(schedule_interval=30.0, max_workers_per_user=2)) as aios:
            aios.authority.answers["register-worker"] = Decision.DENIED
            assert (await aios.refused("worker.register", MAC)).kind is ErrorKind.PERMISSION_DENIED
            aios.authority.answers["register-worker"] = Decision.ALLOWED
            for number in range(2):
                await register(aios, worker_id=f"worker-{number}")
            await register(aios, worker_id="worker-1")
            full = await aios.refused("worker.register", MAC)
            assert (full.kind, full.reason, full.extra["limit"]) == (
                ErrorKind.RATE_LIMITED, "workers", "max_workers_per_user",
            )  # fmt: skip
            await register(aios, ROOT)
            listed = rows(await aios.invoke("worker.list", {}), "workers")
            assert [row["worker_id"] for row in listed] == ["worker-0", "worker-1"]

    play(scenario())


def test_a_task_whose_dependency_failed_does_not_wait_for_a_worker(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path, config=STAYS) as aios:
            _, ids = await planned(
                aios, {"title": "look", "ref": "look"}, {"title": "fix", "depends_on": ["look"], "ref": "fix"}
            )
            hand = await register(aios)
            offer = await hand.takes()
            assert offer["task_id"] == ids["look"]
            assert await hand.beat() != [], "it has one"
            await hand.say("fail", offer, message="cannot", retryable=False)
            after = await aios.ended(ids["fix"])
            assert (after.status, after.reason) == ("failed", "dependency-failed")

    play(scenario())


def test_a_task_that_a_worker_could_not_do_is_asked_for_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path, config=STAYS) as aios:
            _, ids = await planned(aios, LOGIN)
            hand = await register(aios)
            await hand.say("fail", await hand.takes(), message="no such branch", retryable=False)
            again = await aios.invoke("task.retry", {"task_id": ids[str(LOGIN["title"])]})
            offer = await hand.takes()
            assert offer["task_id"] == again["task_id"]
            request = offer["request"]
            assert isinstance(request, dict)
            assert (request["workspace"], request["goal"]) == (LOGIN["workspace"], LOGIN["goal"])
            assert (await aios.task(str(again["task_id"]))).retry_of == ids[str(LOGIN["title"])]

    play(scenario())


def test_what_one_worker_made_is_handed_to_the_next(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path, config=STAYS) as aios:
            together: JsonObject = {"execution_mode": "collaborative"}
            look: JsonObject = {"title": "look", "ref": "look", "handoff_expected": True, **together}
            await planned(aios, look, {"title": "fix", "depends_on": ["look"], **together})
            hand = await register(aios)
            first = await hand.takes()
            assert await hand.beat() != []
            await hand.say("report", first, artifact={"key": "cause", "parts": [{"text": "the retry loops"}]})
            await hand.say("complete", first, result={"root_cause": "retry"}, summary=SUMMARY)
            request = (await hand.takes())["request"]
            assert isinstance(request, dict)
            assert isinstance(request["context"], dict)
            (before,) = rows(request["context"], "handed_over")
            assert (before["title"], before["result"], before["summary"]) == ("look", {"root_cause": "retry"}, SUMMARY)
            (artifact,) = rows(before, "artifacts")
            assert artifact["parts"] == [{"type": "text", "text": "the retry loops"}]

    play(scenario())


def test_an_offer_that_is_not_taken_goes_to_another_worker(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path, config=STAYS) as aios:
            first, ids = await planned(aios, LOGIN)
            one = await register(aios)
            offer = await one.offered()
            other = await register(aios, worker_id="worker_win_a")
            assigner = aios.services.assigner
            await assigner.scan()
            assigner._offered_at[str(offer["assignment_id"])] -= 3601  # an hour, which is the lease here, has passed
            assigner.wake()
            assert (await other.offered())["attempt"] == 2
            assert (await one.refused("accept", offer)).reason == "fenced"
            assert (await aios.task(ids[str(LOGIN["title"])])).worker_id == "worker_win_a"
            rejected = [row for row in await timeline(aios, first) if row["type"] == "worker.assignment.rejected"]
            assert [(row["source"], payload(row)["reason"]) for row in rejected] == [
                ("system", "not accepted in time")
            ]  # fmt: skip

    play(scenario())


def test_a_workers_task_has_its_time_limit(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path, config=STAYS) as aios:
            _, ids = await planned(aios, {**LOGIN, "timeout_ms": 300})
            hand = await register(aios)
            offer = await hand.takes()
            after = await aios.ended(ids[str(LOGIN["title"])])
            assert (after.status, after.reason) == ("failed", "timeout")
            assert (await hand.refused("complete", offer, result={})).reason == "fenced"

    play(scenario())


def test_draining_and_an_emergency_stop_give_nothing_to_workers(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path, config=STAYS) as aios:
            aios.scheduler.drain(True)
            _, ids = await planned(aios, LOGIN)
            hand = await register(aios)
            await aios.services.assigner.scan()
            assert await hand.beat() == []
            aios.scheduler.drain(False)
            aios.services.assigner.wake()
            offer = await hand.takes()
            await aios.invoke("emergency.stop", {"scope": "user", "reason": "it runs wild"})
            assert (await hand.refused("complete", offer, result={})).reason == "fenced"
            assert (await aios.task(ids[str(LOGIN["title"])])).status == "canceled"

    play(scenario())


def test_executors_are_added_removed_and_missed_while_the_daemon_runs(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            executors = aios.services.executors
            local = executors.get("test.plain.run")
            assert executors.get(WORKERS) is aios.services.assigner
            executors.remove(LOCAL)
            try:
                executors.get("test.plain.run")
            except AiosError as error:
                assert (error.kind, error.reason) == (ErrorKind.EXECUTOR_NOT_FOUND, "no-executor")
            else:
                raise AssertionError("nobody is there and somebody was found")
            failed = await aios.ended(await aios.create())
            assert failed.error is not None
            assert (failed.status, failed.error["code"]) == ("failed", ErrorKind.EXECUTOR_NOT_FOUND.value.code)
            executors.add("test", local)
            assert (await aios.ended(await aios.create())).status == "completed"
            assert executors.get("test.plain.run") is local
            executors.remove(WORKERS)
            await planned(aios, LOGIN)
            hand = await register(aios)
            await aios.services.assigner.scan()
            assert await hand.beat() == []

    play(scenario())
