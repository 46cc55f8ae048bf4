"""Every request and every answer that seed 000 shows, field for field, over HTTP with the real core behind the door."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import pytest

from aiosd.rpc.methods import METHODS
from tests.rpc.serving import EventStream, Json
from tests.rpc.story import (
    CAPABILITY,
    EVENTS,
    OPTIONS,
    PROMPT,
    REPORT_PARTS,
    REQUESTS,
    RESULT,
)
from tests.rpc.telling import slow, told
from tests.unit.core.rig import play

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.core.fakelauncher import FakeRun

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


def test_every_method_of_the_document_is_there_and_takes_its_request() -> None:
    for method, params in REQUESTS.items():
        METHODS[method].params.model_validate(params)


def test_create(place: Path) -> None:
    async def scenario() -> None:
        async with told(place) as story:
            created = await story.create()
            assert created.keys() == {"task_id", "status", "created_at", "estimated_duration_ms"}
            assert (created["status"], created["estimated_duration_ms"]) == ("pending", 30000)
            assert TIME.fullmatch(created["created_at"])
            task = await story.ask("aios/task.get")
            request = REQUESTS["aios/task.create"]
            assert (task["arguments"], task["metadata"]) == (request["arguments"], request["metadata"])
            assert task["options"] == {"priority": "normal", "timeout_ms": 120000, "retry": request["options"]["retry"]}

    play(scenario())


def test_get_and_list_while_it_works(place: Path) -> None:
    async def scenario() -> None:
        async with told(place, slow) as story:
            await story.create()
            async with EventStream.open(story.path, f"task_id={story.task_id}&events=progress") as stream:
                subscribed = await story.ask("aios/task.get")
                if "progress" not in subscribed:
                    await stream.take(1)
            task = await story.ask("aios/task.get")
            expected = {"percent": 45, "message": "正在搜索淘宝...", "current_step": 2, "total_steps": 4}
            assert (task["task_id"], task["capability_id"]) == (story.task_id, CAPABILITY)
            assert (task["status"], task["progress"], task["artifacts"]) == ("working", expected, [])
            assert TIME.fullmatch(task["created_at"])
            assert TIME.fullmatch(task["started_at"])
            page = await story.ask("aios/task.list")
            assert (page["total"], page["has_more"]) == (1, False)
            (row,) = page["tasks"]
            assert (row["task_id"], row["status"], row["progress"]["percent"]) == (story.task_id, "working", 45)
            assert row["created_at"] == task["created_at"]

    play(scenario())


def test_cancel(place: Path) -> None:
    async def scenario() -> None:
        async with told(place, slow) as story:
            await story.create()
            await story.aios.until(story.task_id, "working")
            canceled = await story.ask("aios/task.cancel")
            assert canceled.keys() == {"task_id", "status", "canceled_at"}
            assert (canceled["task_id"], canceled["status"]) == (story.task_id, "canceled")
            assert TIME.fullmatch(canceled["canceled_at"])

    play(scenario())


def test_pause_and_resume(place: Path) -> None:
    async def scenario() -> None:
        async with told(place, slow) as story:
            await story.create()
            await story.aios.until(story.task_id, "working")
            assert await story.ask("aios/task.pause") == {"task_id": story.task_id, "status": "paused"}
            assert await story.ask("aios/task.resume") == {"task_id": story.task_id, "status": "working"}

    play(scenario())


@pytest.mark.parametrize("events", [REQUESTS["aios/task.subscribe"]["events"], []], ids=["the document's", "all"])
def test_the_stream_of_the_whole_story(place: Path, events: list[str]) -> None:
    async def scenario() -> None:
        async with told(place) as story:
            await story.create()
            start = {"Last-Event-ID": "evt-0000000000000000"}
            query = f"task_id={story.task_id}" + (f"&events={','.join(events)}" if events else "")
            async with EventStream.open(story.path, query, **start) as stream:
                seen = []
                async for event in stream:
                    seen.append(event)
                    if event.type == "task.input_required":
                        await story.ask("aios/task.input")
                    if event.type == "task.result":
                        break
            assert [event.id for event in seen] == sorted({event.id for event in seen})
            assert all(event.json["task_id"] == story.task_id for event in seen)
            rest = iter(seen)
            for kind, said in EVENTS:  # in this order; what else there is (pending, working again) stands between them
                assert any(event.type == kind and _says(event.json, said) for event in rest), (kind, said)
            assert [part["name"] for part in seen[-1].json["artifacts"]] == ["京东搜索结果", "价格对比报告"]
            for event in seen:
                if event.type == "task.status":
                    assert TIME.fullmatch(event.json["timestamp"])

    play(scenario())


def _says(data: object, expected: object) -> bool:
    """Whether `data` says at least what `expected` says."""
    if isinstance(expected, dict):
        return isinstance(data, dict) and all(_says(data.get(key), value) for key, value in expected.items())
    return data == expected


def test_subscribe_and_unsubscribe(place: Path) -> None:
    async def scenario() -> None:
        async with told(place) as story:
            await story.create()
            made = await story.ask("aios/task.subscribe")
            assert made["task_id"] == story.task_id
            assert made["events"] == REQUESTS["aios/task.subscribe"]["events"]
            identifier = made["subscription_id"]
            ended = await story.ask("aios/task.unsubscribe", subscription_id=identifier)
            assert ended == {"subscription_id": identifier}
            again = await story.http.call("aios/task.unsubscribe", {"subscription_id": identifier})
            assert again["error"]["data"]["error_id"] == "AIOS-SUBSCRIPTION-NOT-FOUND"

    play(scenario())


def test_resubscribe(place: Path) -> None:
    async def scenario() -> None:
        async with told(place) as story:
            await story.finish()
            log = await story.aios.log(story.task_id)
            third = next(event for event in log if event.payload.get("progress", {}) == EVENTS[2][1]["progress"])
            answer = await story.ask("aios/task.resubscribe", last_event_id=third.id)
            missed = answer["missed_events"]
            assert [one.keys() for one in missed] == [{"id", "event", "data"}] * len(missed)
            assert [one["id"] for one in missed] == [event.id for event in log if event.sequence > third.sequence]
            assert missed[0]["event"] == "task.artifact"
            assert "task.input_required" in [one["event"] for one in missed]
            assert answer["subscription_id"].startswith("sub-")

    play(scenario())


def test_artifacts(place: Path) -> None:
    async def scenario() -> None:
        async with told(place) as story:
            await story.finish()
            listed = await story.ask("aios/artifact.list")
            report = listed["artifacts"][-1]
            answer = await story.ask("aios/artifact.get", artifact_id=report["id"])
            assert answer == {"artifact": report}
            assert (report["name"], report["type"], report["mime_type"]) == (
                "价格对比报告", "report", "application/json",
            )  # fmt: skip
            assert report["parts"] == REPORT_PARTS
            assert report["metadata"] == {"source_task": story.task_id, "version": 1}
            assert TIME.fullmatch(report["created_at"])

    play(scenario())


def test_history(place: Path) -> None:
    async def scenario() -> None:
        async with told(place) as story:
            await story.finish()
            page = await story.ask("aios/task.history")
            assert (page["tasks"], page["total"], page["has_more"]) == ([], 0, False)  # the document's day is over
            day = {**REQUESTS["aios/task.history"]["filter"], "end_time": "2999-01-01T00:00:00Z"}
            page = await story.ask("aios/task.history", filter=day)
            assert [row["task_id"] for row in page["tasks"]] == [story.task_id]

    play(scenario())


def test_state_history(place: Path) -> None:
    async def scenario() -> None:
        async with told(place) as story:
            await story.finish()
            task = await story.ask("aios/task.get", include_history=True)
            rows = [row for row in task["state_history"] if row["phase"] not in ("assigned",)]
            assert [row["state"] for row in rows] == ["pending", "working", "input_required", "working", "completed"]
            assert all(TIME.fullmatch(row["timestamp"]) for row in rows)
            assert rows[2]["metadata"] == {"prompt": PROMPT, "options_count": len(OPTIONS)}
            assert (task["status"], task["result"]) == ("completed", RESULT)

    play(scenario())


@pytest.mark.parametrize("options", [{"async": False}, {}], ids=["false", "left out"])
def test_a_call_that_waits_answers_with_the_finished_task(place: Path, options: Json) -> None:
    async def at_once(run: FakeRun) -> None:
        await run.go()
        run.say("task_completion", {"result": RESULT})
        run.end(0)

    async def scenario() -> None:
        async with told(place, at_once) as story:
            task = await story.ask("aios/task.create", options=options)
            assert (task["status"], task["result"]) == ("completed", RESULT)

    play(scenario())


def test_a_call_that_waits_is_told_that_input_is_required(place: Path) -> None:
    async def scenario() -> None:
        async with told(place) as story:
            params = {**REQUESTS["aios/task.create"], "options": {}}
            error = (await story.http.call("aios/task.create", params))["error"]
            assert (error["code"], error["message"]) == (-32002, "Input required")
            assert error["data"]["question"]["prompt"] == PROMPT
            story.task_id = error["data"]["task_id"]
            await story.ask("aios/task.input")
            assert (await story.aios.ended(story.task_id)).status == "completed"

    play(scenario())


def test_a_time_limit_is_told_as_the_document_has_it(place: Path) -> None:
    async def scenario() -> None:
        async with told(place, slow) as story:
            created = await story.ask("aios/task.create", options={"async": True, "timeout_ms": 50})
            story.task_id = created["task_id"]
            await story.aios.ended(story.task_id)
            task = await story.ask("aios/task.get")
            assert task["status"] == "failed"
            assert (task["error"]["code"], task["error"]["message"]) == (-32005, "Timeout")
            data = task["error"]["data"]
            assert (data["capability_id"], data["timeout_ms"]) == (CAPABILITY, 50)
            assert data["elapsed_ms"] >= 50
            assert TIME.fullmatch(task["failed_at"])

    play(scenario())


def test_initialize_tells_the_limits_of_the_document(place: Path) -> None:
    async def scenario() -> None:
        async with told(place) as story:
            result = (await story.http.call("aios/initialize", {"protocol_version": "2.0.0"}))["result"]
            assert result["session"]["session_id"].startswith("client-"), "no project session, of which it is not one"
            assert result["capabilities"]["limits"] == {
                "max_concurrent_tasks": 10, "max_tasks_per_tool": 3, "max_queue_size": 100,
            }  # fmt: skip

    play(scenario())


def test_events_arrive_while_the_caller_waits_in_another_call(place: Path) -> None:
    async def scenario() -> None:
        async with told(place) as story, EventStream.open(story.path, "events=input_required") as stream:
            params = {**REQUESTS["aios/task.create"], "options": {}}
            waiting = asyncio.create_task(story.http.call("aios/task.create", params))
            (event,) = await stream.take(1)
            assert event.json["prompt"] == PROMPT
            assert (await waiting)["error"]["code"] == -32002

    play(scenario())
