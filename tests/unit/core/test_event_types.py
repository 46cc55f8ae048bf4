"""Every event type of seed 003's list, reached in one session's life: its own, its tasks', a worker's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.unit.core.rig import OPEN, PLAIN, core, eventually, manifest, play
from tests.unit.core.session_rig import plan, session, timeline
from tests.unit.core.test_approval import ADMIN, CRITICAL, answer
from tests.unit.core.test_control import COOPERATIVE, polite
from tests.unit.core.test_life import ESCALATE
from tests.unit.core.test_sessions import asks, eventful
from tests.unit.core.worker_rig import register

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from aiosd.model.jsontext import JsonObject
    from tests.unit.core.fakelauncher import FakeRun
    from tests.unit.core.rig import Core

SEED_003 = {
    "session.created", "session.objective.updated", "session.message.added",
    "plan.created", "plan.updated", "plan.diff.generated",
    "task.created", "task.assigned", "task.started", "task.progress", "task.blocked", "task.paused", "task.resumed",
    "task.cancelled", "task.completed", "task.failed",
    "task.step.started", "task.step.finished", "task.step.failed", "tool.call.requested", "tool.call.finished",
    "approval.requested", "approval.approved", "approval.rejected",
    "worker.heartbeat", "worker.capabilities.updated", "worker.assignment.accepted", "worker.assignment.rejected",
}  # fmt: skip
"""The seed's recommended types."""

SOURCES = {"user", "manager", "system", "worker"}


async def fails(run: FakeRun) -> None:
    await run.go()
    run.end(3)


async def work_for(aios: Core, session_id: str) -> None:
    """A worker that leaves one task to others and takes the other one."""
    diff: JsonObject = {"create_tasks": [{"title": "one"}, {"title": "two"}]}
    await aios.invoke("plan.apply_diff", {"session_id": session_id, "version": 2, "diff": diff})
    hand = await register(aios)
    await hand.say("reject", await hand.offered(), reason="no such tool here")
    await hand.say("accept", await hand.offered())
    await hand.beat(status="busy", capabilities=["git"])
    await eventually(lambda: any(event.type == "worker.heartbeat" for event in aios.events))


def test_a_session_can_have_them_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiosd.core.crew.TOLD_EVERY", 0.05)

    async def scenario() -> None:
        async with core(tmp_path) as aios:
            for name, lines, level in (
                (COOPERATIVE, 'pausable = "cooperative"\n', "public"), (CRITICAL, OPEN, "critical"),
                ("compat.command.run", OPEN, "critical"), ("test.escalating.run", ESCALATE, "public"),
            ):  # fmt: skip
                await aios.install(name, manifest(name, lines, level=level))
            first = await session(aios)
            ids = await plan(aios, first, {"title": "cache"})
            said: JsonObject = {"session_id": first, "role": "user", "content": "not the cache"}
            await aios.invoke(
                "message.add", {**said, "objective_change": True, "diff": {"cancel_tasks": [ids["cache"]]}}
            )
            await aios.invoke(
                "plan.apply_diff", {"session_id": first, "version": 1, "diff": {"cancel_tasks": [ids["cache"]]}}
            )
            aios.launcher.program = eventful
            await aios.ended(await aios.create(PLAIN, session_id=first))
            aios.launcher.program = fails
            await aios.ended(await aios.create(PLAIN, session_id=first))
            blocked = await aios.create("test.escalating.run", session_id=first)
            await aios.until(blocked, "blocked")
            why: JsonObject = {"action": "retry", "reason": "the network is back"}
            await aios.invoke("task.input", {"task_id": blocked, "input": why})
            aios.launcher.program = asks
            waits = await aios.create(PLAIN, session_id=first)
            await aios.until(waits, "input_required")
            aios.launcher.program = polite
            held = await aios.create(COOPERATIVE, session_id=first)
            await aios.until(held, "running")
            await aios.invoke("task.pause", {"task_id": held})
            await aios.invoke("task.resume", {"task_id": held})
            for action in ("approve", "reject"):
                task = await aios.create(CRITICAL, session_id=first, arguments={"n": action})
                request = (await aios.task(task)).auth_request
                assert request is not None
                await answer(aios, str(request["approval_id"]), action, ADMIN)
            await work_for(aios, first)
            await aios.invoke("session.close", {"session_id": first, "cancel_tasks": True})
            events = await timeline(aios, first)
            found = {str(event["type"]) for event in events}
            assert {name for name in SEED_003 - found} == {"worker.heartbeat", "worker.capabilities.updated"}
            found |= {event.type for event in aios.events if event.worker_id is not None}
            assert SEED_003 - found == set()
            assert {str(event["source"]) for event in events} <= SOURCES
            assert [event["id"] for event in events] == sorted(str(event["id"]) for event in events)
            retried = [event for event in events if event["type"] == "task.retry" and event["task_id"] == blocked]
            assert isinstance(retried[-1]["payload"], dict)
            assert retried[-1]["payload"]["message"] == "the network is back", "unblocked, and why"

    play(scenario())
