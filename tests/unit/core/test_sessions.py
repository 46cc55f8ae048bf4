"""Sessions, threads, messages and the timeline of seed 003; the completion signal of seed 002; the feeds."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiosd.core.operations import OPERATIONS
from aiosd.model.subscription import granted
from tests.unit.core.rig import (
    OTHER,
    PLAIN,
    ROOT,
    STRANGER,
    USER,
    Config,
    Decision,
    ErrorKind,
    core,
    manifest,
    play,
)
from tests.unit.core.session_rig import patient, payload, plan, rows, session, timeline, types

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from aiosd.model.jsontext import JsonObject
    from tests.unit.core.fakelauncher import FakeRun

SIGNAL = "all_tasks_processed"
OBJECTIVE = "先定位根因，再决定是否修改代码"  # noqa: RUF001  the seed's own words
WORDS = "先排查登录失败，不要急着改代码"  # noqa: RUF001  likewise


def test_seed_003s_project_session_and_message(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            first = await session(aios, title="修复登录与缓存问题", objective=OBJECTIVE)
            shown = await aios.invoke("session.get", {"session_id": first})
            assert {key: shown[key] for key in ("id", "title", "status", "active_objective")} == {
                "id": first, "title": "修复登录与缓存问题", "status": "active",
                "active_objective": OBJECTIVE,
            }  # fmt: skip
            message: JsonObject = {"role": "user", "channel": "web", "content": WORDS}
            added = await aios.invoke("message.add", {"session_id": first, **message})
            assert str(added["id"]).startswith("msg-")
            listed = rows(await aios.invoke("message.list", {"session_id": first}), "messages")
            assert [{key: row[key] for key in message} for row in listed] == [message]
            events = await timeline(aios, first)
            assert [event["type"] for event in events] == ["session.created", "session.message.added"]
            for event in events:
                assert list(event) == ["id", "session_id", "task_id", "source", "type", "timestamp", "payload"]
                assert event["session_id"] == first
                assert event["source"] == "user"
            assert payload(events[1])["content"] == message["content"]
            assert payload(events[1])["id"] == added["id"]

    play(scenario())


def test_a_closed_session_is_only_read_and_an_archived_one_is_out_of_the_way(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path, schedule=False) as aios:
            first, second = await session(aios), await session(aios)
            about: JsonObject = {"session_id": first}
            refused = await aios.refused("session.archive", about)
            assert refused.reason == "not-closed"
            await aios.invoke("session.close", about)
            for name, params in (
                ("message.add", {"role": "user", "content": "more"}), ("session.close", {}),
                ("session.update_objective", {"objective": "x"}), ("thread.create", {}), ("plan.create", {}),
                ("session.update", {"title": "x"}),
            ):  # fmt: skip
                refused = await aios.refused(name, {**about, **params})
                assert (name, refused.reason) == (name, "closed")
            options: JsonObject = {"async": True, "session_id": first}
            refused = await aios.refused("task.create", {"capability_id": PLAIN, "options": options})
            assert refused.reason == "closed"
            listed = await aios.invoke("session.list", {})
            assert [row["id"] for row in rows(listed, "sessions")] == [second, first], "newest first"
            await aios.invoke("session.archive", about)
            assert [row["id"] for row in rows(await aios.invoke("session.list", {}), "sessions")] == [second]
            archived = await aios.invoke("session.list", {"status": ["archived"]})
            assert [row["status"] for row in rows(archived, "sessions")] == ["archived"]
            assert (await types(aios, first))[-2:] == ["session.closed", "session.archived"]

    play(scenario())


def test_a_session_with_unfinished_tasks_is_closed_only_with_them(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            aios.launcher.program = patient
            first = await session(aios)
            running = await aios.create(session_id=first)
            await aios.until(running, "running")
            waiting = await aios.create(session_id=first, depends_on=[running])
            refused = await aios.refused("session.close", {"session_id": first})
            assert refused.reason == "unfinished-tasks"
            await aios.invoke("session.close", {"session_id": first, "cancel_tasks": True, "reason": "enough"})
            assert (await aios.task(waiting)).status == "canceled"
            task = await aios.ended(running)
            assert (task.status, task.reason) == ("canceled", "enough")
            assert (await types(aios, first)).count(SIGNAL) == 1

    play(scenario())


def test_a_program_that_cannot_be_canceled_keeps_its_session_open(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await aios.install("test.stays.run", manifest("test.stays.run", "cancelable = false\n"))
            aios.launcher.program = patient
            first = await session(aios)
            running = await aios.create("test.stays.run", session_id=first)
            await aios.until(running, "running")
            waiting = await aios.create(session_id=first, depends_on=[running])
            refused = await aios.refused("session.close", {"session_id": first, "cancel_tasks": True})
            assert refused.reason == "not-cancelable"
            assert refused.data()["task_id"] == running
            assert (await aios.task(waiting)).status == "pending"
            assert (await aios.invoke("session.get", {"session_id": first}))["status"] == "active"

    play(scenario())


def test_a_user_has_so_many_sessions_that_are_not_archived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiosd.core.sessions.MAX_SESSIONS", 2)

    async def scenario() -> None:
        async with core(tmp_path) as aios:
            first, _ = await session(aios), await session(aios)
            refused = await aios.refused("session.create", {"title": "x"})
            assert (refused.kind, refused.reason) == (ErrorKind.RATE_LIMITED, "sessions")
            await session(aios, OTHER)
            for _ in range(3):
                await session(aios, ROOT)
            await aios.invoke("session.close", {"session_id": first})
            assert (await aios.refused("session.create", {})).reason == "sessions"
            await aios.invoke("session.archive", {"session_id": first})
            await session(aios)

    play(scenario())


def test_threads_divide_the_messages(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            first, second = await session(aios), await session(aios)
            thread = (await aios.invoke("thread.create", {"session_id": first, "title": "cache"}))["id"]
            said: JsonObject = {"session_id": first, "role": "user"}
            await aios.invoke("message.add", {**said, "content": "in general"})
            await aios.invoke("message.add", {**said, "content": "of the cache", "thread_id": thread})
            about: JsonObject = {"session_id": first, "thread_id": thread}
            found = rows(await aios.invoke("message.list", about), "messages")
            assert [row["content"] for row in found] == ["of the cache"]
            whole = rows(await aios.invoke("message.list", {"session_id": first}), "messages")
            assert [row["content"] for row in whole] == ["in general", "of the cache"]
            listed = rows(await aios.invoke("thread.list", {"session_id": first}), "threads")
            assert [(row["id"], row["title"]) for row in listed] == [(thread, "cache")]
            for name in ("message.add", "message.list"):
                params: JsonObject = {"session_id": second, "thread_id": thread}
                more: JsonObject = {"role": "user", "content": "x"} if name == "message.add" else {}
                assert (await aios.refused(name, {**params, **more})).field == "thread_id"

    play(scenario())


def test_messages_and_sessions_come_in_pages(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            made = [await session(aios) for _ in range(5)]
            found: list[object] = []
            page = await aios.invoke("session.list", {"limit": 2})
            while True:
                found += [row["id"] for row in rows(page, "sessions")]
                if not page["has_more"]:
                    break
                page = await aios.invoke("session.list", {"limit": 2, "cursor": page["next_cursor"]})
            assert found == made[::-1]
            said: JsonObject = {"session_id": made[0], "role": "user"}
            for number in range(5):
                await aios.invoke("message.add", {**said, "content": str(number)})
            page = await aios.invoke("message.list", {"session_id": made[0], "limit": 3})
            assert page["has_more"] is True
            rest = await aios.invoke("message.list", {"session_id": made[0], "limit": 3, "cursor": page["next_cursor"]})
            assert [row["content"] for row in (*rows(page, "messages"), *rows(rest, "messages"))] == list("01234")
            assert "next_cursor" not in rest

    play(scenario())


def test_to_a_stranger_anothers_session_does_not_exist(tmp_path: Path) -> None:
    """Every operation on a session answers a stranger as it does for an id that there is not."""

    async def scenario() -> None:
        async with core(tmp_path) as aios:
            theirs = await session(aios)
            await aios.invoke("plan.create", {"session_id": theirs})
            more: dict[str, JsonObject] = {
                "session.get": {}, "session.update": {"title": "x"}, "session.update_objective": {"objective": "x"},
                "session.close": {}, "session.archive": {}, "session.timeline": {}, "session.tree": {},
                "thread.create": {}, "thread.list": {}, "message.list": {},
                "message.add": {"role": "user", "content": "x"}, "plan.create": {}, "plan.get": {},
                "plan.propose_diff": {"version": 1, "diff": {}}, "plan.apply_diff": {"version": 1, "diff": {}},
            }  # fmt: skip
            about = ("session.", "thread.", "message.", "plan.")
            assert set(more) == {name for name in OPERATIONS if name.startswith(about)} - {
                "session.create", "session.list"
            }  # fmt: skip
            for answer in (Decision.DENIED, Decision.CHALLENGE):
                aios.authority.otherwise = answer
                for name, params in more.items():
                    real = await aios.refused(name, {"session_id": theirs, **params}, STRANGER)
                    none = await aios.refused(name, {"session_id": "ps-none", **params}, STRANGER)
                    assert (name, real.kind, real.text, real.data()) == (name, none.kind, none.text, none.data())
            refused = await aios.refused("feed.subscribe", {"feed": "session_feed", "id": theirs}, STRANGER)
            assert refused.kind.value.dbus == "SessionNotFound"
            options: JsonObject = {"async": True, "session_id": theirs}
            aios.authority.otherwise = Decision.ALLOWED
            refused = await aios.refused("task.create", {"capability_id": PLAIN, "options": options}, OTHER)
            assert refused.kind.value.dbus == "SessionNotFound"
            assert rows(await aios.invoke("session.list", {}, OTHER), "sessions") == []
            seen = await aios.invoke("session.list", {"all_users": True}, ROOT)
            assert [row["id"] for row in rows(seen, "sessions")] == [theirs]

    play(scenario())


async def eventful(run: FakeRun) -> None:
    """A program of which there is much to tell."""
    await run.go()
    run.say("processing", {"progress": {"percent": 10, "message": "started"}})
    run.say("processing", {"step": {"name": "run_tests", "status": "started", "summary": "login tests"}})
    run.say("processing", {"step": {"name": "run_tests", "status": "finished"}})
    run.say("processing", {"step": {"name": "run_more", "status": "failed"}})
    run.say("processing", {"tool_call": {"name": "grep", "status": "requested"}})
    run.say("processing", {"tool_call": {"name": "grep", "status": "finished"}})
    run.say("task_completion", {"result": {"cause": "401"}})
    run.end(0)


def test_tasks_are_on_the_timeline_of_their_session_in_seed_003s_format(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            aios.launcher.program = eventful
            first = await session(aios)
            task = await aios.create(session_id=first)
            await aios.ended(task)
            elsewhere = await aios.create()
            await aios.ended(elsewhere)
            events = await timeline(aios, first)
            names = [event["type"] for event in events]
            assert list(dict.fromkeys(names)) == [
                "session.created", "task.created", "task.assigned", "task.started", "task.progress",
                "task.step.started", "task.step.finished", "task.step.failed", "tool.call.requested",
                "tool.call.finished", "task.completed", SIGNAL,
            ]  # fmt: skip
            step = next(event for event in events if event["type"] == "task.step.started")
            assert step["payload"] == {"step": "run_tests", "summary": "login tests"}
            assert step["source"] == "worker"
            assert {event["task_id"] for event in events if str(event["type"]).startswith("task.")} == {task}
            backwards = await aios.invoke("session.timeline", {"session_id": first, "order": "desc", "limit": 1000})
            assert rows(backwards, "events") == events[::-1]

    play(scenario())


def test_the_signal_comes_each_time_the_session_becomes_idle(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            first, other = await session(aios), await session(aios)
            one = await aios.create(session_id=first)
            await aios.ended(one)
            assert (await types(aios, first)).count(SIGNAL) == 1
            both = [await aios.create(session_id=first, priority="low") for _ in range(2)]
            await asyncio.gather(*(aios.ended(task) for task in both))
            names = await types(aios, first)
            assert names[-1] == SIGNAL
            assert names.count(SIGNAL) in (2, 3), "once, or twice when the first had ended before the second was made"
            assert SIGNAL not in await types(aios, other)

    play(scenario())


async def asks(run: FakeRun) -> None:
    await run.go()
    run.say("task_interaction", {"interaction": 1, "prompt": "which?"})
    await run.hear("input")
    run.end(0)


def test_a_task_that_waits_for_a_person_does_not_hold_the_signal_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            aios.launcher.program = asks
            first = await session(aios)
            task = await aios.create(session_id=first)
            await aios.until(task, "input_required")
            names = await types(aios, first)
            assert names[-2:] == ["task.blocked", SIGNAL]
            await aios.invoke("task.input", {"task_id": task, "input": {"a": 1}})
            await aios.ended(task)
            names = await types(aios, first)
            assert names.count(SIGNAL) == 2
            assert names[-1] == SIGNAL, "after the task's own last event"

    play(scenario())


def test_a_held_task_does_not_hold_the_signal_back_and_ends_without_another(tmp_path: Path) -> None:
    """To people it is paused, whatever its status (docs/decisions.md)."""

    async def scenario() -> None:
        async with core(tmp_path) as aios:
            first = await session(aios)
            await plan(aios, first, {"title": "waits for a worker"}, {"title": "is held"})
            made = await aios.invoke("session.tree", {"session_id": first})
            ids = [str(row["task_id"]) for row in rows(made, "tasks")]
            await aios.invoke("task.pause", {"task_id": ids[1], "recursive": True})
            assert SIGNAL not in await types(aios, first)
            await aios.invoke("task.cancel", {"task_id": ids[0]})
            assert (await types(aios, first))[-2:] == ["task.cancelled", SIGNAL]
            assert (await aios.invoke("session.get", {"session_id": first}))["idle"] is True
            await aios.invoke("task.resume", {"task_id": ids[1]})
            assert (await aios.invoke("session.get", {"session_id": first}))["idle"] is False
            await aios.invoke("task.pause", {"task_id": ids[1], "recursive": True})
            assert (await types(aios, first))[-2:] == ["task.paused", SIGNAL], "it was at work again"
            await aios.invoke("task.cancel", {"task_id": ids[1]})
            assert (await types(aios, first)).count(SIGNAL) == 2

    play(scenario())


def test_a_suppressed_signal_comes_when_that_is_taken_back(tmp_path: Path) -> None:
    """Seed 002's fourth test group."""

    async def scenario() -> None:
        config = Config(schedule_interval=30.0, suppress_completion_signal=True)
        async with core(tmp_path, config=config) as aios:
            first = await session(aios)
            talkative = await session(aios, suppress_completion_signal=False)
            for where in (first, talkative):
                await aios.ended(await aios.create(session_id=where))
            assert SIGNAL not in await types(aios, first)
            assert (await types(aios, talkative))[-1] == SIGNAL
            await aios.invoke("session.update", {"session_id": first, "suppress_completion_signal": False})
            assert (await types(aios, first))[-2:] == ["session.updated", SIGNAL]

    play(scenario())


def test_a_feed_tells_all_of_a_session_and_replays_what_was_missed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            aios.launcher.program = eventful
            first, other = await session(aios), await session(aios)
            begin = (await timeline(aios, first))[0]["id"]
            body = await aios.invoke("feed.subscribe", {"feed": "session_feed", "id": first})
            live = granted(body)
            await aios.ended(await aios.create(session_id=first))
            await aios.ended(await aios.create(session_id=other))
            heard = [live.data_of(event) for event in aios.events if live.wants(event)]
            whole = await timeline(aios, first)
            assert heard == whole
            assert {live.shown_as(event) for event in aios.events if live.wants(event)} == {
                event["type"] for event in whole
            }
            missed: list[object] = []
            last: object = begin
            while True:
                params: JsonObject = {"feed": "session_feed", "id": first, "last_event_id": str(last), "limit": 5}
                page = await aios.invoke("feed.subscribe", params)
                missed += [row["data"] for row in rows(page, "missed_events")]
                last = page["last_event_id"]
                if not page["more"]:
                    break
            assert missed == whole[1:], "without gap or repeat"

    play(scenario())


def test_the_task_feed_is_whole_and_the_callers_own(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            aios.launcher.program = eventful
            one = granted(await aios.invoke("feed.subscribe", {"feed": "task_feed"}))
            await aios.ended(await aios.create())
            await aios.ended(await aios.create(caller=OTHER))
            mine = [event for event in aios.events if event.task_id is not None and event.uid == USER.uid]
            assert [event for event in aios.events if one.wants(event)] == mine
            assert "task.step.started" in {event.type for event in mine}
            workers = granted(await aios.invoke("feed.subscribe", {"feed": "worker_feed"}))
            assert not [event for event in aios.events if workers.wants(event)]
            aios.authority.answers["view-others"] = Decision.DENIED
            refused = await aios.refused("feed.subscribe", {"feed": "task_feed", "all_users": True})
            assert refused.kind.value.dbus == "PermissionDenied"

    play(scenario())


def test_a_timeline_is_asked_for_with_ids_of_events(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            first = await session(aios)
            for wrong in ("7", "evt-x", "task-1"):
                refused = await aios.refused("session.timeline", {"session_id": first, "last_event_id": wrong})
                assert refused.field == "last_event_id"
            params: JsonObject = {"feed": "session_feed", "id": first, "last_event_id": "evt-0000000000009999"}
            assert (await aios.refused("feed.subscribe", params)).field == "last_event_id"

    play(scenario())
