"""Every code of seed 000, and every other that a JSON-RPC caller can meet, provoked at the door with the real core.

Nothing is injected: each row is what somebody does, and what they are told for it.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from aiosd.auth.decision import Decision
from aiosd.core.executors import LOCAL
from aiosd.errors import ErrorKind
from aiosd.rpc.peer import Peer
from aiosd.run.client import LauncherError, LauncherErrorCode
from tests.rpc.serving import Http
from tests.rpc.telling import Told, slow, told
from tests.unit.core.rig import OTHER, PLAIN, USER, eventually, manifest, play

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from tests.rpc.serving import Json
    from tests.unit.core.fakelauncher import FakeRun

NOBODY = "0000000000000000000000000a"
SEED = {-32106, -32107, -32005, -32006, -32108, -32002}
"""The codes of the document's table."""

COLOUR: Json = {"type": "object", "required": ["colour"], "properties": {"colour": {"enum": ["red", "green"]}}}


async def asks(run: FakeRun) -> None:
    """A program that needs an answer."""
    await run.go()
    run.say("task_interaction", {"interaction": 1, "prompt": "?", "schema": COLOUR})
    await run.hear("input")
    run.end(0)


async def authenticates(run: FakeRun) -> None:
    """A program that needs a key."""
    await run.go()
    run.say("task_interaction", {"interaction": 1, "kind": "auth", "auth_request": {"type": "api_key"}})
    await run.hear("cancel")
    run.end(0)


async def fails(run: FakeRun) -> None:
    """A program that does not work."""
    await run.go()
    run.end(3)


async def _error(story: Told, method: str, params: Json) -> Json:
    error: Json = (await story.http.call(method, params))["error"]
    return error


async def _posted(story: Told, text: str) -> Json:
    error: Json = (await story.http.post(text.encode())).json["error"]
    return error


def asking(method: str, **params: object) -> Callable[[Told], Awaitable[Json]]:
    """A call by itself."""
    return lambda story: _error(story, method, params)


def posting(text: str) -> Callable[[Told], Awaitable[Json]]:
    """A text that is no call."""
    return lambda story: _posted(story, text)


async def _create(story: Told, **options: object) -> Json:
    params = {"capability_id": PLAIN, "options": {"async": True, **options}}
    answer: Json = await story.http.call("aios/task.create", params)
    return answer


async def _task(story: Told) -> str:
    return str((await _create(story))["result"]["task_id"])


async def completed(story: Told) -> Json:
    await story.finish()
    return await _error(story, "aios/task.cancel", {"task_id": story.task_id})


async def canceled(story: Told) -> Json:
    story.aios.launcher.program = slow
    task = await _task(story)
    await story.aios.until(task, "running")
    await story.http.call("aios/task.cancel", {"task_id": task})
    await story.aios.ended(task)
    return await _error(story, "aios/task.pause", {"task_id": task})


async def timeout(story: Told) -> Json:
    story.aios.launcher.program = slow
    task = (await _create(story, timeout_ms=30))["result"]["task_id"]
    await story.aios.ended(task)
    error: Json = (await story.http.call("aios/task.get", {"task_id": task}))["result"]["error"]
    return error


async def sandboxed(story: Told) -> Json:
    async def calls_by_another_table(run: FakeRun) -> None:
        await run.go()
        run.end(None, signal="SIGSYS")

    story.aios.launcher.program = calls_by_another_table
    task = await _task(story)
    await story.aios.ended(task)
    error: Json = (await story.http.call("aios/task.get", {"task_id": task}))["result"]["error"]
    return error


async def shutting_down(story: Told) -> Json:
    story.aios.launcher.program = slow
    task = await _task(story)
    waiting = asyncio.create_task(_error(story, "aios/task.wait", {"task_id": task}))
    await story.aios.until(task, "running")
    await eventually(lambda: bool(story.aios.manager._running))
    async with Http.connect(story.path) as another:
        assert "result" in await another.call("aios/service.status")
        await story.aios.manager.wind_up(0.05)
        assert "result" in await another.call("aios/service.status"), "what is short is answered to the last"
        await story.aios.manager.close(0.05)
        error = (await another.call("aios/service.status"))["error"]
        assert error["data"]["error_id"] == "AIOS-SHUTTING-DOWN"
    return await waiting


async def too_often(story: Told) -> Json:
    settings = story.aios.settings
    settings.current = replace(settings.current, calls_per_second=1, calls_burst=1)
    await story.http.call("aios/service.status")
    return await _error(story, "aios/service.status", {})


async def busy(story: Told) -> Json:
    story.aios.launcher.program = slow
    task = await _task(story)
    await story.aios.until(task, "running")
    story.aios.launcher.broken["freeze"] = LauncherError(LauncherErrorCode.SYSTEMD, "the scope cannot be frozen")
    return await _error(story, "aios/task.pause", {"task_id": task})


async def disk_full(story: Told) -> Json:
    await story.aios.database.write(lambda transaction: transaction.execute("PRAGMA max_page_count = 1").fetchone())
    for _ in range(100):
        answer = await story.http.call("aios/message.add", {"session_id": await _session(story), "content": "x" * 9000})
        if "error" in answer:
            break
    error: Json = answer["error"]
    return error


async def approved_for_another(story: Told) -> Json:
    """What was approved is not what would run: the capability has changed in between."""
    aios, capability = story.aios, "test.deep.act"
    await aios.install(capability, manifest(capability, level="critical"))
    aios.launcher.program = slow
    aios.settings.current = replace(aios.settings.current, max_concurrent_tasks=1)
    first = await _task(story)
    await aios.until(first, "running")
    params = {"capability_id": capability, "options": {"async": True}}
    created = (await story.http.call("aios/task.create", params))["result"]
    approval = created["auth_request"]["approval_id"]
    await aios.invoke("approval.respond", {"approval_id": approval, "action": "approve"}, OTHER)
    await aios.install(capability, manifest(capability, "timeout = 5\n", level="critical"))
    await story.http.call("aios/task.cancel", {"task_id": first})
    await aios.ended(created["task_id"])
    error: Json = (await story.http.call("aios/task.get", {"task_id": created["task_id"]}))["result"]["error"]
    return error


async def no_executor(story: Told) -> Json:
    story.aios.services.executors.remove(LOCAL)
    task = await _task(story)
    await story.aios.ended(task)
    error: Json = (await story.http.call("aios/task.get", {"task_id": task}))["result"]["error"]
    return error


async def no_assignment(story: Told) -> Json:
    made = (await story.http.call("aios/worker.register", {"worker_id": "mine", "liveness": "heartbeat"}))["result"]
    word = {"worker_id": "mine", "registration": made["registration"], "assignment_id": f"wa-{NOBODY}"}
    return await _error(story, "aios/worker.accept", word)


async def _session(story: Told) -> str:
    made = await story.http.call("aios/session.create", {"title": "t"})
    return str(made["result"]["session_id"]) if "result" in made else f"sess-{NOBODY}"


async def failed(story: Told) -> Json:
    story.aios.launcher.program = fails
    task = await _task(story)
    await story.aios.ended(task)
    error: Json = (await story.http.call("aios/task.get", {"task_id": task}))["result"]["error"]
    return error


async def queue_full(story: Told) -> Json:
    story.aios.launcher.program = slow
    story.aios.settings.current = replace(story.aios.settings.current, max_concurrent_tasks=1, max_queue_size=1)
    await story.aios.until(await _task(story), "running")
    await _task(story)
    error: Json = (await _create(story))["error"]
    return error


async def invalid_state(story: Told) -> Json:
    story.aios.launcher.program = slow
    task = await _task(story)
    await story.aios.until(task, "running")
    return await _error(story, "aios/task.resume", {"task_id": task})


async def input_required(story: Told) -> Json:
    story.aios.launcher.program = asks
    return await _error(story, "aios/task.create", {"capability_id": PLAIN})


async def auth_required(story: Told) -> Json:
    story.aios.launcher.program = authenticates
    return await _error(story, "aios/task.create", {"capability_id": PLAIN})


async def invalid_input(story: Told) -> Json:
    story.aios.launcher.program = asks
    task = await _task(story)
    await story.aios.until(task, "input_required")
    return await _error(story, "aios/task.input", {"task_id": task, "input": {"colour": "blue"}})


async def denied(story: Told) -> Json:
    story.aios.authority.otherwise = Decision.DENIED
    return await _error(story, "aios/task.list", {"filter": {"all_users": True}})


async def interaction(story: Told) -> Json:
    story.aios.authority.otherwise = Decision.CHALLENGE
    return await _error(story, "aios/task.list", {"filter": {"all_users": True}})


async def no_plan(story: Told) -> Json:
    session = (await story.http.call("aios/session.create", {"title": "t"}))["result"]["session_id"]
    return await _error(story, "aios/plan.get", {"session_id": session})


REAL = Peer.of

ROWS: dict[ErrorKind, tuple[Callable[[Told], Awaitable[Json]], dict[str, object]]] = {
    ErrorKind.PARSE: (posting("{"), {}),
    ErrorKind.INVALID_REQUEST: (posting('{"jsonrpc": "1.0", "id": 1, "method": "x"}'), {"field": "jsonrpc"}),
    ErrorKind.UNKNOWN_METHOD: (asking("aios/task.explode"), {"field": "method"}),
    ErrorKind.INVALID_PARAMS: (asking("aios/task.get", task_id=7), {"field": "task_id"}),
    ErrorKind.PERMISSION_DENIED: (denied, {"reason": "not-authorized"}),
    ErrorKind.INTERACTIVE_AUTH_REQUIRED: (interaction, {"reason": "interaction-required"}),
    ErrorKind.INPUT_REQUIRED: (input_required, {"reason": "waiting_input", "status": "input_required"}),
    ErrorKind.AUTH_REQUIRED: (auth_required, {"reason": "waiting_auth", "status": "auth_required"}),
    ErrorKind.CAPABILITY_NOT_FOUND: (asking("aios/task.create", capability_id="not.there.yet"), {}),
    ErrorKind.TASK_TIMEOUT: (timeout, {"capability_id": PLAIN, "timeout_ms": 30}),
    ErrorKind.QUEUE_FULL: (queue_full, {"max_queue_size": 1}),
    ErrorKind.VERSION_MISMATCH: (asking("aios/initialize", protocol_version="0.4.0"), {}),
    ErrorKind.TASK_FAILED: (failed, {"capability_id": PLAIN, "exit_status": 3}),
    ErrorKind.SESSION_NOT_FOUND: (asking("aios/session.get", session_id=f"sess-{NOBODY}"), {}),
    ErrorKind.TASK_NOT_FOUND: (asking("aios/task.get", task_id="task-001"), {"field": "task_id"}),
    ErrorKind.TASK_COMPLETED: (completed, {"reason": "completed", "status": "completed"}),
    ErrorKind.TASK_CANCELED: (canceled, {"reason": "canceled"}),
    ErrorKind.INVALID_STATE: (invalid_state, {}),
    ErrorKind.INVALID_INPUT: (invalid_input, {"field": "input/colour"}),
    ErrorKind.ARTIFACT_NOT_FOUND: (asking("aios/artifact.get", artifact_id="art-001"), {"field": "artifact_id"}),
    ErrorKind.SUBSCRIPTION_NOT_FOUND: (asking("aios/task.unsubscribe", subscription_id="sub-001"), {}),
    ErrorKind.APPROVAL_NOT_FOUND: (asking("aios/approval.get", approval_id=f"apr-{NOBODY}"), {}),
    ErrorKind.PLAN_NOT_FOUND: (no_plan, {"field": "session_id"}),
    ErrorKind.ASSIGNMENT_NOT_FOUND: (no_assignment, {"field": "assignment_id"}),
    ErrorKind.EXECUTOR_NOT_FOUND: (no_executor, {"reason": "capability-missing"}),
    ErrorKind.WORKER_NOT_FOUND: (asking("aios/worker.get", worker_id="nobody"), {"field": "worker_id"}),
    ErrorKind.WEBHOOK_NOT_FOUND: (asking("aios/webhook.resume", webhook_id=f"wh-{NOBODY}"), {"field": "webhook_id"}),
    ErrorKind.SANDBOX_VIOLATION: (sandboxed, {"reason": "sandbox", "signal": "SIGSYS"}),
    ErrorKind.SHUTTING_DOWN: (shutting_down, {"reason": "shutting-down"}),
    ErrorKind.RATE_LIMITED: (too_often, {"reason": "rate", "limit": "calls_per_second"}),
    ErrorKind.BUSY: (busy, {"reason": "launcher"}),
    ErrorKind.STORAGE: (disk_full, {"reason": "store-full"}),
    ErrorKind.APPROVAL_REJECTED: (approved_for_another, {"reason": "permission-denied"}),
    ErrorKind.GRANT_NOT_FOUND: (asking("aios/permission.revoke", grant_id=f"grant-{NOBODY}"), {}),
}
"""By kind: what is done, and what `data` says besides the error's id."""


ELSEWHERE = {
    ErrorKind.INTERNAL,  # a fault of ours: test_http has one put in
}


HOW = {
    ErrorKind.TASK_TIMEOUT,
    ErrorKind.TASK_FAILED,
    ErrorKind.SANDBOX_VIOLATION,
    ErrorKind.APPROVAL_REJECTED,
    ErrorKind.EXECUTOR_NOT_FOUND,
}
"""Ends of a task: the message is how it came about."""


def test_every_error_is_here() -> None:
    assert {kind.value.code for kind in ROWS} >= SEED
    assert ROWS.keys() | ELSEWHERE == set(ErrorKind)


@pytest.fixture(autouse=True)
def _a_common_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may do everything: who calls here is seen as the user of the rig."""

    def of(connection: socket.socket) -> Peer:
        real = REAL(connection)
        return replace(real, uid=USER.uid)

    monkeypatch.setattr(Peer, "of", of)


@pytest.mark.parametrize("kind", ROWS, ids=lambda kind: kind.name)
def test_what_is_done_and_what_is_told(place: Path, kind: ErrorKind) -> None:
    provoke, data = ROWS[kind]

    async def scenario() -> None:
        async with told(place) as story:
            error = await asyncio.wait_for(provoke(story), 60)
            assert error["code"] == kind.value.code, error
            assert error["data"].get("error_id", kind.value.error_id) == kind.value.error_id
            if kind not in HOW:
                assert error["message"].startswith(kind.value.message)
            assert {name: error["data"].get(name) for name in data} == data

    play(scenario())
