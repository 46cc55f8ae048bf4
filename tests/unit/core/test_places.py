"""What is for a person is not taken from a program that runs in a task, whatever polkit says."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from aiosd.auth.caller import BusSubject, ProcessSubject
from aiosd.auth.places import run_of
from aiosd.run.layout import unit_name
from tests.unit.core.rig import OTHER, ROOT, USER, core, manifest, play
from tests.unit.core.test_approval import ADMIN, answer, waiting
from tests.unit.core.test_program_approvals import asks, heard, waits

if TYPE_CHECKING:
    from pathlib import Path

    from aiosd.auth.caller import Caller, Subject
    from tests.unit.core.fakelauncher import FakeRun
    from tests.unit.core.rig import Core


async def within(aios: Core, task: str, subject: Subject, caller: Caller = USER) -> Caller:
    """A program of that task, as it calls."""
    (run,) = await aios.runs(task)
    aios.places.units[subject] = unit_name(run.id)
    return replace(caller, subject=subject)


async def question(run: FakeRun) -> None:
    await run.go()
    run.say("task_interaction", {"interaction": 1, "prompt": "?", "options": ["red", "green"]})
    await run.hear("input")
    run.end(0)


async def key(run: FakeRun) -> None:
    await run.go()
    run.say("task_interaction", {"interaction": 1, "kind": "auth", "auth_request": {"type": "api_key"}})
    await run.hear("authentication")
    run.end(0)


def test_a_unit_s_name_tells_the_run() -> None:
    assert run_of(unit_name("run-01jdxg3v7m9q2w4e6r8t0y1abc")) == "run-01jdxg3v7m9q2w4e6r8t0y1abc"
    for other in ("", "session-1.scope", "aios-tasks.slice", "aios-task-run.service", "aiosd.service"):
        assert run_of(other) is None


@pytest.mark.parametrize("subject", [BusSubject(":1.99"), ProcessSubject(99, 0, USER.uid, 7)], ids=["bus", "socket"])
@pytest.mark.parametrize("caller", [USER, ROOT], ids=["user", "root"])
def test_a_program_does_not_approve_what_it_asked_for(tmp_path: Path, subject: Subject, caller: Caller) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:  # an authority that says yes to everything
            aios.launcher.program = asks()
            task, approval = await waits(aios)
            program = await within(aios, task, subject, caller)
            params = {"approval_id": approval, "action": "approve"}
            error = await aios.refused("approval.respond", params, program)
            assert (error.kind.value.error_id, error.reason) == ("AIOS-PERM-DENIED", "from-a-task")
            assert (await aios.task(task)).status == "auth_required"
            await answer(aios, approval, "approve", ADMIN)
            assert await heard(aios, task) == {"approved": True, "decision": "approve"}

    play(scenario())


def test_nor_what_another_waits_for_but_takes_its_own_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            task, own = await _waits(aios)
            other, approval = await waiting(aios, OTHER)
            program = await within(aios, task, BusSubject(":1.99"))
            error = await aios.refused("approval.respond", {"approval_id": approval, "action": "approve"}, program)
            assert error.reason == "from-a-task"
            assert (await aios.task(other)).status == "auth_required"
            assert (await answer(aios, own, "reject", program))["status"] == "rejected"

    async def _waits(aios: Core) -> tuple[str, str]:
        aios.launcher.program = asks()
        return await waits(aios)

    play(scenario())


def test_a_program_grants_nothing_ahead(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await aios.install("test.low.act", manifest("test.low.act", level="low"))
            aios.launcher.program = question
            task = await aios.create()
            await aios.until(task, "input_required")
            aios.authority.challenge("run-low")
            program = await within(aios, task, BusSubject(":1.99"))
            params = {"capability_id": "test.low.act", "scope": "persistent"}
            assert (await aios.refused("permission.request", params, program)).reason == "from-a-task"
            assert await aios.count("grants") == 0
            assert [row[3] for row in aios.authority.asked if row[1] == "run-low"] == []  # nobody was bothered

    play(scenario())


def test_a_program_answers_others_questions_and_not_its_own(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            aios.launcher.program = question
            one, other = await aios.create(), await aios.create()
            for task in (one, other):
                await aios.until(task, "input_required")
            program = await within(aios, one, BusSubject(":1.99"))
            given = {"input": {"answer": "red"}}
            error = await aios.refused("task.input", {"task_id": one, **given}, program)
            assert (error.reason, error.field) == ("from-a-task", "task_id")
            await aios.invoke("task.input", {"task_id": other, **given}, program)
            assert (await aios.ended(other)).status == "completed"

    play(scenario())


def test_a_program_is_not_who_authenticates(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            aios.launcher.program = key
            task = await aios.create()
            await aios.until(task, "auth_required")
            program = await within(aios, task, BusSubject(":1.99"))
            given = {"auth_response": {"type": "api_key", "api_key": "k"}}
            error = await aios.refused("task.authenticate", {"task_id": task, **given}, program)
            assert error.reason == "from-a-task"
            await aios.install("test.low.act", manifest("test.low.act", level="low"))
            aios.authority.challenge("run-low")
            deferred = await aios.create("test.low.act", replace(USER, interactive=False))
            assert (await aios.task(deferred)).phase == "waiting_auth"
            assert (await aios.refused("task.authenticate", {"task_id": deferred}, program)).reason == "from-a-task"
            await aios.invoke("task.authenticate", {"task_id": task, **given})
            assert (await aios.ended(task)).status == "completed"

    play(scenario())


def test_where_nobody_can_tell_the_answer_is_no(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            _, approval = await waiting(aios)
            aios.places.unknown = True
            error = await aios.refused("approval.respond", {"approval_id": approval, "action": "approve"}, ADMIN)
            assert (error.kind.value.error_id, error.reason) == ("AIOS-PERM-DENIED", "authority-unavailable")
            aios.places.unknown = False
            assert (await answer(aios, approval, "approve", ADMIN))["status"] == "approved"

    play(scenario())
