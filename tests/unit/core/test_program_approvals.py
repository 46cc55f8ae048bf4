"""Approvals that a running program asks for: its words to a person, their answer to it, once, also across a crash."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from aiosd.auth.decision import Decision
from aiosd.config import Config
from aiosd.core.program_approvals import request
from aiosd.store import approvals
from tests.unit.core.fakelauncher import FakeLauncher
from tests.unit.core.rig import OPEN, PLAIN, ROOT, USER, core, daemon, manifest, play
from tests.unit.core.session_rig import session
from tests.unit.core.test_approval import ADMIN, SECOND, answer, refused, trail, types

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from aiosd.model.jsontext import JsonObject
    from tests.unit.core.fakelauncher import FakeRun
    from tests.unit.core.rig import Core

SEED: JsonObject = {"kind": "dangerous_command", "summary": "准备执行 rm -rf build-cache", "risk_level": "high"}
"""Seed 003's example."""


def asks(asked: object = SEED, **more: object) -> Callable[[FakeRun], Awaitable[None]]:
    """A program that asks, and tells in its result what it heard."""

    async def program(run: FakeRun) -> None:
        await run.go()
        run.say("task_interaction", {"interaction": 7, "kind": "approval", "approval": asked, **more})  # type: ignore[dict-item]  # also what is no JSON object
        message = await run.hear("input")
        run.say("task_completion", {"result": {"interaction": message["interaction"], "heard": message["input"]}})
        run.end(0)

    return program


async def brief(aios: Core) -> None:
    """The programs above hear nothing but an answer; whoever cancels them need not wait for the usual grace."""
    await aios.install(PLAIN, manifest(PLAIN, f'cancel_grace = "20ms"\n{OPEN}'))


async def waits(aios: Core, **options: object) -> tuple[str, str]:
    """A task whose program waits for an approval, and the approval's id."""
    task = await aios.create(PLAIN, **options)  # type: ignore[arg-type]  # passed on
    found = await aios.until(task, "waiting_approval")
    assert found.status == "auth_required"
    assert found.auth_request is not None
    return task, str(found.auth_request["approval_id"])


async def heard(aios: Core, task: str) -> object:
    found = await aios.ended(task)
    assert found.status == "completed", found.error
    assert found.result is not None
    assert found.result["interaction"] == 7
    return found.result["heard"]


@pytest.mark.parametrize("action", ["approve", "approve_once", "reject"])
def test_the_program_hears_the_answer_and_decides(tmp_path: Path, action: str) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            aios.launcher.program = asks()
            task, approval = await waits(aios)
            shown = await aios.invoke("approval.get", {"approval_id": approval})
            assert {name: shown[name] for name in SEED} == SEED
            assert (shown["status"], shown["void"], shown["task_id"]) == ("pending", False, task)
            await answer(aios, approval, action, ADMIN)
            approved = action != "reject"
            assert await heard(aios, task) == {"approved": approved, "decision": action}
            assert await aios.history(task) == ["pending", "working", "auth_required", "working", "completed"]
            end = "approval.approved" if approved else "approval.rejected"
            assert await types(aios, task) == ["approval.requested", end]
            assert await trail(aios) == ["approval.requested", "approval.answered"]
            assert await refused(aios, approval, ADMIN) == ("approved" if approved else "rejected")
            assert (await aios.task(task)).question is None

    play(scenario())


def test_the_event_is_seed_000s_auth_required(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await brief(aios)
            aios.launcher.program = asks()
            task, approval = await waits(aios)
            (event,) = [one for one in await aios.log(task) if one.kind == "task.auth_required"]
            asked = event.payload["auth_request"]
            assert isinstance(asked, dict)
            assert (asked["type"], asked["approval_id"], asked["risk_level"]) == ("approval", approval, "high")
            (told,) = [one for one in await aios.log(task) if one.type == "approval.requested"]
            assert (told.payload["id"], told.payload["task_id"], told.payload["status"]) == (approval, task, "pending")
            await aios.invoke("task.cancel", {"task_id": task})
            assert (await aios.task(task)).status == "canceled"

    play(scenario())


def test_who_made_the_task_is_no_second_act(tmp_path: Path) -> None:
    """An agent's connection cannot say yes to its own program, a rule in its favour or not; root neither."""

    async def scenario() -> None:
        async with core(tmp_path) as aios:
            aios.launcher.program = asks()
            _, approval = await waits(aios)
            assert await refused(aios, approval, USER) == "same-connection"
            aios.authority.challenge("approve")
            aios.authority.answers["approve"] = Decision.DENIED
            assert await refused(aios, approval, SECOND) == "not-authorized"
            _, of_root = await waits(aios, caller=ROOT)
            assert await refused(aios, of_root, ROOT) == "same-connection"

    play(scenario())


def test_once_for_the_session_and_for_exactly_these_words(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await brief(aios)
            aios.launcher.program = asks()
            first = await session(aios)
            task, approval = await waits(aios, session_id=first)
            await answer(aios, approval, "approve_for_session", ADMIN)
            yes = {"approved": True, "decision": "approve_for_session"}
            assert await heard(aios, task) == yes
            again = await aios.create(PLAIN, session_id=first)
            assert await heard(aios, again) == yes
            assert "auth_required" not in await aios.history(again)
            (row,) = await aios.database.read(lambda db: approvals.of_task(db, again))
            assert (row.status, row.note) == ("approved", f"as {approval}, which is for the session")
            # Another session, other words, another risk: each is asked again.
            task, _ = await waits(aios, session_id=await session(aios))
            await aios.invoke("task.cancel", {"task_id": task})
            for changed in ({"summary": "rm -rf /"}, {"risk_level": "low"}, {"kind": "other"}):
                aios.launcher.program = asks({**SEED, **changed})
                task, _ = await waits(aios, session_id=first)
                await aios.invoke("task.cancel", {"task_id": task})

    play(scenario())


def test_what_is_critical_or_has_no_session_is_asked_each_time(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            aios.launcher.program = asks()
            _, alone = await waits(aios)
            assert await refused(aios, alone, ADMIN, "approve_for_session") == "no-session"
            aios.launcher.program = asks({**SEED, "risk_level": "critical"})
            _, critical = await waits(aios, session_id=await session(aios))
            assert await refused(aios, critical, ADMIN, "approve_for_session") == "each-time"
            aios.launcher.program = asks({**SEED, "risk_level": "harmless, really"})
            task, _ = await waits(aios)
            (row,) = await aios.database.read(lambda db: approvals.of_task(db, task))
            assert row.risk_level == "critical", "a risk that is unknown counted as less than the highest"

    play(scenario())


def test_an_emergency_stop_ends_what_was_given_for_the_session(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            aios.launcher.program = asks()
            first = await session(aios)
            task, approval = await waits(aios, session_id=first)
            await answer(aios, approval, "approve_for_session", ADMIN)
            await aios.ended(task)
            await aios.invoke("emergency.stop", {"scope": "machine"}, ROOT)
            await aios.invoke("emergency.lift", {"scope": "machine"}, ROOT)
            await waits(aios, session_id=first)

    play(scenario())


@pytest.mark.parametrize("own", [{}, {"timeout_ms": 50}])
def test_no_answer_in_time_is_a_no(tmp_path: Path, own: dict[str, object]) -> None:
    async def scenario() -> None:
        wait = 600.0 if own else 0.05
        async with core(tmp_path, config=Config(schedule_interval=30.0, approval_timeout=wait)) as aios:
            aios.launcher.program = asks(**own)
            task = await aios.create(PLAIN)
            assert await heard(aios, task) == {"approved": False, "decision": "timeout"}
            assert await types(aios, task) == ["approval.requested", "approval.expired"]
            (row,) = await aios.database.read(lambda db: approvals.of_task(db, task))
            assert row.status == "expired"

    play(scenario())


@pytest.mark.parametrize(
    "asked",
    [None, {}, {**SEED, "kind": "run"}, {**SEED, "kind": "Two words"}, {**SEED, "summary": "x" * 2001},
     {**SEED, "summary": " \u202e "}],
)  # fmt: skip
def test_what_nobody_can_be_shown_is_a_no(tmp_path: Path, asked: object) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            aios.launcher.program = asks(asked)
            task = await aios.create(PLAIN)
            assert await heard(aios, task) == {"approved": False, "decision": "invalid"}
            assert await aios.count("approvals") == 0

    play(scenario())


def test_a_text_that_hides_something_is_shown_without_it() -> None:
    kept = request({"approval": {**SEED, "summary": "rm \u202e-rf\x1b[2K /"}}, 1, 10)
    assert kept["summary"] == "rm -rf[2K /"


def test_an_approval_for_one_thing_starts_nothing_critical(tmp_path: Path) -> None:
    """What a program was approved is no approval of running its capability, whatever the words are."""
    assert request({"approval": {**SEED, "kind": "run"}}, 1, 10)["invalid"]

    async def scenario() -> None:
        async with core(tmp_path) as aios:
            aios.launcher.program = asks()
            _, first = await waits(aios)
            _, second = await waits(aios)
            row = await aios.database.read(lambda db: approvals.get(db, first))
            assert row is not None
            assert await refused(aios, second, ADMIN, request_hash="0" * 64) == "stale-authorization"
            await answer(aios, second, "approve", ADMIN, request_hash=row.request_hash)

    play(scenario())


def test_it_waits_across_a_crash_and_the_answer_is_given_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        launcher = FakeLauncher(tmp_path / "launcher")
        launcher.program = asks()
        async with launcher.serving():
            async with daemon(tmp_path, launcher) as aios:
                task, approval = await waits(aios)
            async with daemon(tmp_path, launcher) as aios:
                assert (await aios.task(task)).phase == "waiting_approval"
                # Committed, and the daemon dies before the shim has it.
                aios.services.approval_answers._waiting = Deaf()
                await answer(aios, approval, "approve", ADMIN)
                kept = (await aios.task(task)).question
                assert kept is not None
                assert kept["answer"] == {"approved": True, "decision": "approve"}
            async with daemon(tmp_path, launcher) as aios:
                assert await heard(aios, task) == {"approved": True, "decision": "approve"}
                assert (await aios.task(task)).question is None

    play(scenario())


def test_an_answer_on_its_way_is_not_asked_again_when_its_task_was_held_meanwhile(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await aios.install("test.frozen.run", manifest("test.frozen.run", 'pausable = "freeze"\n'))
            aios.launcher.program = asks()
            task = await aios.create("test.frozen.run")
            asked = (await aios.until(task, "waiting_approval")).auth_request
            assert asked is not None
            waiting, aios.services.approval_answers._waiting = aios.services.approval_answers._waiting, Deaf()
            await answer(aios, str(asked["approval_id"]), "approve", ADMIN)
            await aios.invoke("task.pause", {"task_id": task})
            assert (await aios.invoke("task.resume", {"task_id": task}))["status"] == "working"
            aios.services.approval_answers._waiting = {*waiting, task}
            aios.services.approval_answers._wakeup.set()
            assert await heard(aios, task) == {"approved": True, "decision": "approve"}

    play(scenario())


class Deaf(set[str]):
    """Remembers nobody that waits for an answer."""

    def __ior__(self, _more: object) -> Deaf:  # type: ignore[override]  # narrower on purpose
        return self


def test_the_bus_connection_of_the_person_counts_not_the_users_name(tmp_path: Path) -> None:
    """The same person over another connection, allowed by polkit: that is a second act."""

    async def scenario() -> None:
        async with core(tmp_path) as aios:
            aios.launcher.program = asks()
            task, approval = await waits(aios)
            await answer(aios, approval, "approve", replace(SECOND, interactive=False))
            assert await heard(aios, task) == {"approved": True, "decision": "approve"}

    play(scenario())
