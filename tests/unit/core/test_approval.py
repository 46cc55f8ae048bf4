"""Approvals through the whole core: the second, independent act before anything critical starts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from aiosd.auth.caller import BusSubject, Caller
from aiosd.auth.decision import Decision
from aiosd.config import Config
from aiosd.store import approvals
from tests.unit.core.rig import OPEN, OTHER, ROOT, USER, core, manifest, play, timed_out

if TYPE_CHECKING:
    from pathlib import Path

    from aiosd.model.jsontext import JsonObject
    from tests.unit.core.rig import Core

CRITICAL, COMMAND = "test.critical.run", "compat.command.run"
SECOND = replace(USER, subject=BusSubject(":1.70"))
"""The user's other connection."""
ROOTS_SECOND = replace(ROOT, subject=BusSubject(":1.90"))
ADMIN = Caller(1002, BusSubject(":1.71"), interactive=True)


async def waiting(aios: Core, caller: Caller = USER, arguments: JsonObject | None = None) -> tuple[str, str]:
    """A critical task that waits for its approval, and the approval's id."""
    for name in (CRITICAL, COMMAND):
        if aios.registry.find(name) is None:
            await aios.install(name, manifest(name, OPEN, level="critical"))
    task = await aios.create(CRITICAL, caller, arguments=arguments or {"target": "disk"})
    found = await aios.task(task)
    assert (found.status, found.phase) == ("auth_required", "waiting_approval")
    assert found.auth_request is not None
    assert found.auth_request["type"] == "approval"
    return task, str(found.auth_request["approval_id"])


async def answer(aios: Core, approval: str, action: str, caller: Caller, **more: str) -> JsonObject:
    return await aios.invoke("approval.respond", {"approval_id": approval, "action": action, **more}, caller)


async def refused(aios: Core, approval: str, caller: Caller, action: str = "approve", **more: str) -> str | None:
    error = await aios.refused("approval.respond", {"approval_id": approval, "action": action, **more}, caller)
    return error.reason or error.kind.value.error_id


async def types(aios: Core, task: str) -> list[str]:
    return [event.type for event in await aios.log(task) if event.type.startswith("approval.")]


async def trail(aios: Core) -> list[str]:
    rows = await aios.database.read(lambda db: db.execute("SELECT kind FROM audit ORDER BY seq").fetchall())
    return [str(row[0]) for row in rows if str(row[0]).startswith("approval.")]


def test_it_is_told_as_both_documents_have_it(tmp_path: Path) -> None:
    """Seed 000's `task.auth_required` for who follows the task, seed 003's approval request on the timeline."""

    async def scenario() -> None:
        async with core(tmp_path) as aios:
            task, approval = await waiting(aios)
            kept = (await aios.task(task)).auth_request
            events = [one for one in await aios.log(task) if one.type in ("task.blocked", "approval.requested")]
            assert [(one.kind, one.type) for one in events] == [
                ("task.auth_required", "task.blocked"), ("timeline", "approval.requested")
            ]  # fmt: skip
            assert events[0].data() == {"task_id": task, "status": "auth_required", "auth_request": kept}
            told = events[1].payload
            assert {name: told[name] for name in ("id", "task_id", "kind", "summary", "risk_level", "status")} == {
                "id": approval, "task_id": task, "kind": "run", "summary": f"Title of {CRITICAL}",
                "risk_level": "critical", "status": "pending",
            }  # fmt: skip

    play(scenario())


@pytest.mark.parametrize("action", ["approve", "approve_once"])
def test_nothing_starts_before_a_second_act(tmp_path: Path, action: str) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            task, approval = await waiting(aios)
            await aios.scheduler.scan()
            assert await aios.count("runs") == 0
            assert (await answer(aios, approval, action, ADMIN))["status"] == "approved"
            assert (await aios.ended(task)).status == "completed"
            assert await aios.history(task) == ["auth_required", "working", "completed"]
            assert await types(aios, task) == ["approval.requested", "approval.approved"]
            assert await trail(aios) == ["approval.requested", "approval.answered"]
            started = [event.type for event in await aios.log(task) if event.type == "task.started"]
            assert len(started) == 1

    play(scenario())


def test_a_rule_that_says_yes_to_everything_leaves_the_second_act(tmp_path: Path) -> None:
    """polkit allows all that it is asked without asking anybody; the asking connection still cannot approve."""

    async def scenario() -> None:
        async with core(tmp_path) as aios:
            aios.authority.otherwise = Decision.ALLOWED
            task, approval = await waiting(aios)
            assert await refused(aios, approval, USER) == "same-connection"
            assert (await aios.task(task)).status == "auth_required"
            assert await aios.count("runs") == 0

    play(scenario())


def test_the_asking_connection_can_when_its_person_authenticates(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            task, approval = await waiting(aios)
            aios.authority.challenge("approve")
            mute = replace(USER, interactive=False)
            assert await refused(aios, approval, mute) == "interaction-required"
            await answer(aios, approval, "approve", USER)
            assert (await aios.ended(task)).status == "completed"

    play(scenario())


def test_root_is_not_asked_but_needs_a_second_act(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            task, approval = await waiting(aios, ROOT)
            assert await refused(aios, approval, ROOT) == "same-connection"
            await answer(aios, approval, "approve", ROOTS_SECOND)
            assert aios.authority.asked == []
            assert (await aios.ended(task)).status == "completed"

    play(scenario())


@pytest.mark.parametrize("decision", [Decision.DENIED, Decision.DISMISSED, Decision.UNAVAILABLE, Decision.CHALLENGE])
def test_no_answer_of_polkit_s_but_a_yes_approves(tmp_path: Path, decision: Decision) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            task, approval = await waiting(aios)
            aios.authority.answers["approve"] = decision
            for caller in (SECOND, ADMIN):
                await refused(aios, approval, caller)
            assert (await aios.task(task)).status == "auth_required"
            assert await trail(aios) == ["approval.requested"]

    play(scenario())


def test_a_rejection_cancels(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            task, approval = await waiting(aios)
            given = await answer(aios, approval, "reject", ADMIN, note="not on a Monday")
            assert (given["status"], given["decided_by"], given["note"]) == ("rejected", 1002, "not on a Monday")
            after = await aios.ended(task)
            assert (after.status, after.reason) == ("canceled", "approval-rejected")
            assert await types(aios, task) == ["approval.requested", "approval.rejected"]
            assert await aios.count("runs") == 0

    play(scenario())


def test_who_asked_may_take_it_back_without_leave(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            task, approval = await waiting(aios)
            aios.authority.answers["approve"] = Decision.DENIED
            assert await refused(aios, approval, OTHER, "reject") == "not-authorized"
            await answer(aios, approval, "reject", USER)
            assert (await aios.task(task)).status == "canceled"

    play(scenario())


def test_an_answer_counts_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            _, approval = await waiting(aios)
            await answer(aios, approval, "approve", ADMIN)
            for action in ("approve", "reject"):
                assert await refused(aios, approval, ADMIN, action) == "approved"

    play(scenario())


def test_critical_is_not_approved_for_a_session(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            task, approval = await waiting(aios)
            assert await refused(aios, approval, ADMIN, "approve_for_session") == "each-time"
            assert (await aios.task(task)).status == "auth_required"

    play(scenario())


def test_an_approval_is_of_one_request(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            first, approval = await waiting(aios)
            second, _ = await waiting(aios)
            await answer(aios, approval, "approve", ADMIN)
            assert (await aios.ended(first)).status == "completed"
            assert (await aios.task(second)).status == "auth_required"
            third, _ = await waiting(aios)
            assert (await aios.task(third)).status == "auth_required"

    play(scenario())


def test_what_was_shown_is_what_is_approved(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            task, approval = await waiting(aios)
            shown = await aios.invoke("approval.get", {"approval_id": approval}, SECOND)
            assert shown["arguments"] == {"target": "disk"}
            assert (shown["exec"], shown["user"], shown["void"]) == (["/usr/bin/true"], "root", False)
            assert await refused(aios, approval, ADMIN, request_hash="0" * 64) == "stale-authorization"
            await answer(aios, approval, "approve", ADMIN, request_hash=str(shown["request_hash"]))
            assert (await aios.ended(task)).status == "completed"

    play(scenario())


@pytest.mark.parametrize("change", ["manifest", "arguments"])
def test_what_changes_before_the_answer_makes_it_void(tmp_path: Path, change: str) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            task, approval = await waiting(aios)
            if change == "manifest":
                text = manifest(CRITICAL, OPEN, level="critical").replace("/usr/bin/true", "/usr/bin/false")
                await aios.install(CRITICAL, text)
            else:
                sql = """UPDATE tasks SET arguments = '{"target": "everything"}' WHERE id = ?"""
                await aios.database.write(lambda tx: tx.execute(sql, (task,)).rowcount)
            shown = await aios.invoke("approval.get", {"approval_id": approval}, SECOND)
            assert shown["void"] is True
            assert await refused(aios, approval, ADMIN) == "stale-authorization"
            assert await aios.count("runs") == 0

    play(scenario())


@pytest.mark.parametrize("change", ["manifest", "arguments"])
def test_what_changes_after_the_answer_does_not_start(tmp_path: Path, change: str) -> None:
    async def scenario() -> None:
        async with core(tmp_path, schedule=False) as aios:
            task, approval = await waiting(aios)
            await answer(aios, approval, "approve", ADMIN)
            if change == "manifest":
                text = manifest(CRITICAL, OPEN, level="critical").replace("/usr/bin/true", "/usr/bin/false")
                await aios.install(CRITICAL, text)
            else:
                sql = """UPDATE tasks SET arguments = '{"target": "everything"}' WHERE id = ?"""
                await aios.database.write(lambda tx: tx.execute(sql, (task,)).rowcount)
            await aios.scheduler.scan()
            after = await aios.task(task)
            assert (after.status, after.reason) == ("failed", "permission-denied")
            assert await aios.count("runs") == 0

    play(scenario())


def test_a_manifest_that_became_critical_while_a_task_queued(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path, schedule=False) as aios:
            await aios.install(CRITICAL, manifest(CRITICAL, OPEN, level="low"))
            task = await aios.create(CRITICAL)
            await aios.install(CRITICAL, manifest(CRITICAL, OPEN, level="critical"))
            await aios.scheduler.scan()
            assert (await aios.task(task)).reason == "permission-denied"
            assert await aios.count("runs") == 0

    play(scenario())


def test_an_answer_after_the_cancel_is_stale(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            task, approval = await waiting(aios)

            async def cancel() -> None:
                if aios.authority.actions[-1] == "approve":
                    await aios.invoke("task.cancel", {"task_id": task}, USER)

            aios.authority.meanwhile = cancel
            assert await refused(aios, approval, ADMIN) == "withdrawn"
            assert (await aios.task(task)).status == "canceled"
            assert await aios.count("runs") == 0

    play(scenario())


def test_an_approval_ends_with_its_time_and_its_task(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path, config=Config(schedule_interval=30.0, approval_timeout=1.0)) as aios:
            task, approval = await waiting(aios)
            after = await aios.ended(task)
            assert (after.status, after.reason) == ("failed", "auth-timeout")
            assert timed_out(after, 1000)
            assert await refused(aios, approval, ADMIN) == "expired"
            assert await types(aios, task) == ["approval.requested", "approval.expired"]
            canceled, other = await waiting(aios)
            await aios.invoke("task.cancel", {"task_id": canceled})
            assert await refused(aios, other, ADMIN) == "withdrawn"

    play(scenario())


def test_approvals_are_their_requester_s_to_see(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            task, approval = await waiting(aios)
            aios.authority.answers["view-others"] = Decision.DENIED
            hidden = await aios.refused("approval.get", {"approval_id": approval}, OTHER)
            absent = await aios.refused("approval.get", {"approval_id": "apr-none"}, OTHER)
            assert hidden.wire() == absent.wire()
            assert (await aios.invoke("approval.list", {}, OTHER))["approvals"] == []
            error = await aios.refused("approval.list", {"all_users": True}, OTHER)
            assert error.kind.value.error_id == "AIOS-PERM-DENIED"
            listed = (await aios.invoke("approval.list", {"all_users": True}, ROOT))["approvals"]
            assert isinstance(listed, list)
            assert [one["task_id"] for one in listed if isinstance(one, dict)] == [task]

    play(scenario())


def test_a_blocking_request_is_told_what_is_missing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await waiting(aios)
            error = await aios.refused("task.create", {"capability_id": CRITICAL, "options": {}})
            assert error.kind.value.error_id == "AIOS-AUTH-REQUIRED"
            asked = error.data()["auth_request"]
            assert isinstance(asked, dict)
            assert asked["type"] == "approval"

    play(scenario())


def test_root_s_command_is_spared_where_the_administrator_says_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await waiting(aios)
            task = await aios.create(COMMAND, ROOT)
            assert (await aios.task(task)).status == "auth_required"
            (tmp_path / "permission-policy.toml").write_text("root_command_without_approval = true\n")
            await aios.policies.load()
            assert (await aios.ended(await aios.create(COMMAND, ROOT))).status == "completed"
            for caller, capability in ((ROOT, CRITICAL), (USER, COMMAND)):
                other = await aios.create(capability, caller)
                assert (await aios.task(other)).status == "auth_required"

    play(scenario())


def test_both_confirmations_of_a_deferred_critical_task(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await waiting(aios)
            aios.authority.challenge("run-critical")
            task = await aios.create(CRITICAL, replace(USER, interactive=False))
            assert (await aios.task(task)).phase == "waiting_auth"
            assert await aios.database.read(lambda db: approvals.of_task(db, task)) == []
            await aios.invoke("task.authenticate", {"task_id": task}, USER)
            found = await aios.task(task)
            assert (found.status, found.phase) == ("auth_required", "waiting_approval")
            assert found.auth_request is not None
            await answer(aios, str(found.auth_request["approval_id"]), "approve", ADMIN)
            assert (await aios.ended(task)).status == "completed"

    play(scenario())
