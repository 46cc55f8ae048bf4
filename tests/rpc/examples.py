"""The calls of docs/protocol.md, made by running them: `python3 -m tests.rpc.examples docs/protocol.json`.

One user, one capability, seed 000's story; ids and times are those of that run. A test compares what the page shows
with what a run of today answers, member by member.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.rpc.serving import EventStream, Http, Json
from tests.rpc.story import CAPABILITY, REQUESTS
from tests.rpc.telling import Told, slow, told

if TYPE_CHECKING:
    from tests.rpc.serving import Event

WORKER: Json = {
    "worker_id": "worker_mac_001", "hostname": "mac-studio", "os": "macos", "shell": "zsh",
    "capabilities": ["git", "terminal", "playwright", "xcode"],
}  # fmt: skip
INVESTIGATION: Json = {
    "title": "定位登录失败根因", "kind": "investigation", "priority": "high", "risk_level": "medium",
    "goal": "排查登录失败\uff0c输出根因和修复建议", "constraints": ["先不要改代码", "优先跑测试和读日志"],
    "requires": ["git", "terminal"],
    "workspace": {
        "repo": "git@github.com:org/repo.git", "branch": "boss/task-102",
        "worktree_path": "/workers/worktrees/task-102",
    },
}  # fmt: skip
STEP: Json = {"name": "run_tests", "status": "started", "summary": "开始运行登录相关测试"}
SUMMARY: Json = {
    "summary": "已定位到接口重试在 401 时进入死循环", "progress_percent": 60, "current_step": "analyze_retry_logic",
    "next_step": "补充最小修复方案并跑测试", "risk": "medium",
}  # fmt: skip
"""Seed 003's worker, task and summary."""
START = {"Last-Event-ID": "evt-0000000000000000"}


class Recorder:
    """Calls, and remembers each with its answer."""

    def __init__(self, http: Http) -> None:
        self.http = http
        self.seen: list[Json] = []

    async def call(self, method: str, params: Json, title: str = "") -> Json:
        """A call for the page; `title` says what it shows, when it is not the method's first."""
        request = {"jsonrpc": "2.0", "id": str(len(self.seen) + 1), "method": method, "params": params}
        answer: Json = (await self.http.post(json.dumps(request).encode())).json
        self.seen.append({"title": title, "request": request, "answer": answer})
        return answer


async def _story(recorder: Recorder, story: Told) -> str:
    """From the greeting to the last event; the text of the event stream."""
    call = recorder.call
    await call("aios/initialize", {"protocol_version": "2.0.0", "client_info": {"name": "example", "version": "1.0"}})
    await call("aios/initialize", {"protocol_version": "0.4.0"}, "no common version")
    await call("aios/capability.list", {})
    await call("aios/capability.get", {"capability_id": CAPABILITY})
    created = await call("aios/task.create", REQUESTS["aios/task.create"])
    task_id = created["result"]["task_id"]
    subscribed = await call("aios/task.subscribe", {"task_id": task_id, "events": ["status", "progress"]})
    stream = await _follow(recorder, story, task_id)
    await call("aios/task.unsubscribe", {"subscription_id": subscribed["result"]["subscription_id"]})
    await call("aios/task.get", {"task_id": task_id, "include_history": True})
    await call("aios/task.wait", {"task_id": task_id})
    await call("aios/task.list", {"filter": {"status": ["completed"]}, "pagination": {"limit": 10, "offset": 0}})
    await call("aios/task.history", {"filter": {"start_time": "2026-01-05T00:00:00Z"}, "pagination": {"limit": 50}})
    listed = await call("aios/artifact.list", {"task_id": task_id})
    await call("aios/artifact.get", {"artifact_id": listed["result"]["artifacts"][-1]["id"]})
    await call("aios/task.logs", {"task_id": task_id, "stream": "stdout"})
    last = stream[-3].id
    await call("aios/task.resubscribe", {"task_id": task_id, "last_event_id": last})
    await call("aios/task.cancel", {"task_id": task_id}, "of a task that has ended")
    await call("aios/task.get", {"task_id": "task-0"}, "of a task that is not there, or another user's")
    await call("aios/shutdown", {"reason": "client_exit"})
    return "".join(f"event: {one.type}\nid: {one.id}\ndata: {one.data}\n\n" for one in stream)


async def _follow(recorder: Recorder, story: Told, task_id: str) -> list[Event]:
    async with EventStream.open(story.path, f"task_id={task_id}", **START) as stream:
        seen: list[Event] = []
        async for event in stream:
            seen.append(event)
            if event.type == "task.input_required":
                await recorder.call("aios/task.input", {**REQUESTS["aios/task.input"], "task_id": task_id})
            if event.type == "task.result":
                return seen
    raise AssertionError("the stream ended too early")


async def _steered(recorder: Recorder, story: Told) -> None:
    """A task that is paused, resumed, canceled and run again."""
    created = await story.create()
    ref = {"task_id": created["task_id"]}
    await story.aios.until(created["task_id"], "working")
    await recorder.call("aios/task.pause", ref)
    await recorder.call("aios/task.resume", ref)
    await recorder.call("aios/task.cancel", {**ref, "reason": "user_request"})
    await recorder.call("aios/task.retry", ref)


async def _worked(recorder: Recorder) -> None:
    """A task of a plan, and the worker that takes it (seed 003)."""
    call = recorder.call
    registered = await call("aios/worker.register", WORKER)
    session = await call("aios/session.create", {"title": "修复登录与缓存问题"})
    await call("aios/plan.create", {"session_id": session["result"]["session_id"], "tasks": [INVESTIGATION]})
    about = {"worker_id": WORKER["worker_id"], "registration": registered["result"]["registration"]}
    known = registered["result"]["tag"]
    beat = {**about, "status": "idle", "load": 0.25, "known": known, "wait_ms": 10_000}
    offered = await call("aios/worker.heartbeat", beat)
    assignment = offered["result"]["assignments"][0]["assignment_id"]
    word = {"worker_id": WORKER["worker_id"], "assignment_id": assignment}
    await call("aios/worker.accept", word)
    await call("aios/worker.get", {"worker_id": WORKER["worker_id"]})
    await call("aios/worker.report", {**word, "step": STEP, "summary": SUMMARY})
    await call("aios/worker.complete", {**word, "result": {"root_cause": "retry"}})
    await call("aios/worker.complete", {**word, "result": {}}, "late")
    await call("aios/worker.list", {})
    await call("aios/worker.unregister", about)


async def record() -> Json:
    """`calls`: of the page; `stream`: the text of an event stream."""
    with (
        tempfile.TemporaryDirectory(prefix="aiosd-rpc-") as one,
        tempfile.TemporaryDirectory(prefix="aiosd-rpc-") as two,
    ):
        async with told(Path(one)) as story:
            recorder = Recorder(story.http)
            stream = await _story(recorder, story)
        async with told(Path(two), slow) as story:
            steered = Recorder(story.http)
            await _steered(steered, story)
            worked = Recorder(story.http)
            await _worked(worked)
    return {"calls": recorder.seen + steered.seen + worked.seen, "stream": stream}


def main() -> None:
    """Write the file that is named on the command line."""
    made = json.dumps(asyncio.run(record()), ensure_ascii=False, indent=1)
    Path(sys.argv[1]).write_text(made + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
