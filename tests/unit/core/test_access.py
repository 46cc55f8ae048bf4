"""Default deny, walked: every operation of the table, asked by a stranger with an authority that says no (design)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from aiosd.auth.decision import Decision
from aiosd.auth.policy import Access
from aiosd.core.operations import OPERATIONS
from aiosd.errors import AiosError
from tests.unit.core.rig import OPEN, PLAIN, ROOT, STRANGER, Core, core, eventually, manifest, play

if TYPE_CHECKING:
    from pathlib import Path

    from aiosd.model.jsontext import JsonObject
    from tests.unit.core.fakelauncher import FakeRun

ABOUT_A_TASK: dict[str, JsonObject] = {
    "task.get": {}, "task.cancel": {}, "task.pause": {}, "task.resume": {}, "task.retry": {},
    "task.set_priority": {"priority": "low"}, "task.input": {"input": {}}, "task.wait": {"timeout_ms": 1},
    "task.state_history": {}, "task.logs": {}, "task.open_log": {}, "task.subscribe": {},
    "task.resubscribe": {"last_event_id": "evt-0000000000000001"}, "artifact.list": {},
    "task.tree": {},
}  # fmt: skip
CONTROLS = {"task.cancel", "task.pause", "task.resume", "task.set_priority", "task.input"}
ABOUT_ARTIFACTS = ("artifact.get", "artifact.open")
OF_EVERYBODY: dict[str, JsonObject] = {
    "task.list": {"filter": {"all_users": True}}, "task.history": {"filter": {"uid": 1000}},
    "task.subscribe": {"all_users": True},
    "task.resubscribe": {"all_users": True, "last_event_id": "evt-0000000000000001"},
    "permission.list": {"all_users": True}, "approval.list": {"all_users": True},
    "permission.explain": {"capability_id": PLAIN, "uid": 1000},
}  # fmt: skip
OF_THE_MACHINE: dict[str, JsonObject] = {
    "audit.query": {"filter": {"all_users": True}}, "audit.rotate_key": {}, "emergency.stop": {"scope": "machine"},
    "emergency.lift": {"scope": "machine"}, "service.reload": {}, "service.drain": {},
}  # fmt: skip
"""What needs the action `manage`."""
OF_ANOTHER: dict[str, JsonObject] = {
    "audit.query": {"filter": {"uid": 1000}}, "emergency.stop": {"scope": "user", "uid": 1000},
    "emergency.lift": {"scope": "user", "uid": 1000},
}  # fmt: skip
"""The same action, about somebody else."""
ABOUT_A_GRANT: dict[str, str] = {"permission.revoke": "control-others"}
ABOUT_AN_APPROVAL: dict[str, str] = {"approval.get": "view-others", "approval.respond": "approve"}
PUBLIC: dict[str, JsonObject] = {
    "capability.list": {}, "capability.get": {"capability_id": PLAIN}, "service.status": {}, "initialize": {},
    "initialized": {},
}  # fmt: skip
OWN: dict[str, JsonObject] = {"task.unsubscribe": {"subscription_id": "sub-1"}, "shutdown": {}}
CREATING = {"task.create", "permission.request"}
"""What asks for the action of a capability's level."""

WITH_WALKS_OF_THEIR_OWN = (
    "plan.", "session.", "thread.", "message.", "feed.", "webhook.", "task.subscribe_webhook",
    "task.unsubscribe_webhook", "task.authenticate", "worker.",
)  # fmt: skip
"""Operations (by the beginning of their names) whose own tests ask strangers the same."""


async def with_artifact(run: FakeRun) -> None:
    await run.go()
    run.say("artifact", {"key": "k", "name": "n", "type": "report", "parts": [{"text": "secret"}]})
    run.end(0)


async def prepared(aios: Core) -> tuple[str, str]:
    """A finished task of the first user, with an artifact."""
    aios.launcher.program = with_artifact
    task = await aios.create()
    await aios.ended(task)
    shown = await aios.invoke("task.get", {"task_id": task})
    found = shown["artifacts"]
    assert isinstance(found, list)
    assert isinstance(found[0], dict)
    return task, str(found[0]["id"])


def elsewhere(aios: Core) -> set[str]:
    """Operations whose handlers this rig does not have; their own tests ask the same of them."""
    return {name for name, handler in aios.manager._handlers.items() if handler.__name__ == "absent"}


def test_every_operation_is_in_one_of_the_lists_of_this_test(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            listed = {*ABOUT_A_TASK, *ABOUT_ARTIFACTS, *OF_EVERYBODY, *PUBLIC, *OWN, *CREATING, *OF_THE_MACHINE}
            listed |= {*ABOUT_A_GRANT, *ABOUT_AN_APPROVAL}
            assert [name for name in OPERATIONS.keys() - listed if not name.startswith(WITH_WALKS_OF_THEIR_OWN)] == []
            assert not listed & elsewhere(aios)
            for name in PUBLIC:
                assert OPERATIONS[name].access is Access.PUBLIC
            for name in CONTROLS:
                assert OPERATIONS[name].access is Access.CONTROL

    play(scenario())


def test_to_a_stranger_anothers_task_does_not_exist(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            task, artifact = await prepared(aios)
            before = await aios.log(task)
            for answer in (Decision.DENIED, Decision.CHALLENGE, Decision.DISMISSED, Decision.UNAVAILABLE):
                aios.authority.otherwise = answer
                for name, more in ABOUT_A_TASK.items():
                    aios.authority.asked.clear()
                    hidden = await aios.refused(name, {"task_id": task, **more}, STRANGER)
                    missing = await aios.refused(name, {"task_id": "task-none", **more}, STRANGER)
                    # Word for word the same: nothing tells the one from the other.
                    assert hidden.wire() == missing.wire(), name
                    assert hidden.kind.value.code == -32106, name
                    wanted = "control-others" if name in CONTROLS else "view-others"
                    assert set(aios.authority.actions) == {wanted}, name
                for name in ABOUT_ARTIFACTS:
                    hidden = await aios.refused(name, {"artifact_id": artifact}, STRANGER)
                    missing = await aios.refused(name, {"artifact_id": "art-none"}, STRANGER)
                    assert hidden.wire() == missing.wire()
                    assert hidden.kind.value.code == -32109
            assert await aios.log(task) == before

    play(scenario())


def test_what_is_everybodys_or_the_services_needs_its_action(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await prepared(aios)
            aios.authority.otherwise = Decision.DENIED
            for name, params in (*OF_EVERYBODY.items(), *OF_THE_MACHINE.items(), *OF_ANOTHER.items()):
                aios.authority.asked.clear()
                error = await aios.refused(name, params, STRANGER)
                assert error.kind.value.code == -32001, name
                assert set(aios.authority.actions) == {"manage" if name in OF_THE_MACHINE else "view-others"}, name
            # Without asking for more, a list is one's own.
            mine = await aios.invoke("task.list", {}, STRANGER)
            assert (mine["tasks"], mine["total"]) == ([], 0)
            heard = await aios.invoke("task.subscribe", {}, STRANGER)
            assert heard["uid"] == STRANGER.uid
            missed = await aios.invoke("task.resubscribe", {"last_event_id": "evt-0000000000000001"}, STRANGER)
            assert missed["missed_events"] == []
            for name in CREATING:
                error = await aios.refused(name, {"capability_id": PLAIN}, STRANGER)
                assert error.kind.value.code == -32001, name

    play(scenario())


def test_anothers_grant_and_approval_are_not_a_strangers(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await aios.install("test.critical.run", manifest("test.critical.run", OPEN, level="critical"))
            task = await aios.create("test.critical.run")
            asked = (await aios.task(task)).auth_request
            assert asked is not None
            approval = str(asked["approval_id"])
            await aios.install("test.low.run", manifest("test.low.run", level="low"))
            aios.authority.challenge("run-low")
            given = await aios.invoke("permission.request", {"capability_id": "test.low.run"})
            grant = str(given["grant_id"])
            for answer in (Decision.DENIED, Decision.CHALLENGE, Decision.DISMISSED, Decision.UNAVAILABLE):
                aios.authority.otherwise = answer
                for name, action in ABOUT_A_GRANT.items():
                    aios.authority.asked.clear()
                    hidden = await aios.refused(name, {"grant_id": grant}, STRANGER)
                    missing = await aios.refused(name, {"grant_id": "grant-none"}, STRANGER)
                    assert hidden.wire() == missing.wire()
                    assert set(aios.authority.actions) == {action}
                for name, action in ABOUT_AN_APPROVAL.items():
                    for word in ("approve", "reject") if name == "approval.respond" else ("",):
                        aios.authority.asked.clear()
                        params: JsonObject = {"approval_id": approval, **({"action": word} if word else {})}
                        await aios.refused(name, params, STRANGER)
                        assert set(aios.authority.actions) == {action}, (name, word)
                shown = await aios.refused("approval.get", {"approval_id": approval}, STRANGER)
                missing = await aios.refused("approval.get", {"approval_id": "apr-none"}, STRANGER)
                assert shown.wire() == missing.wire()
            found = await aios.task(task)
            assert (found.status, found.auth_request) == ("auth_required", asked)
            rows = (await aios.invoke("permission.list", {}))["grants"]
            assert isinstance(rows, list)
            assert len(rows) == 1
            assert (await aios.invoke("permission.list", {}, STRANGER))["grants"] == []
            assert (await aios.invoke("approval.list", {}, STRANGER))["approvals"] == []

    play(scenario())


def test_what_is_public_asks_nobody_and_tells_nothing_of_tasks(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            task, artifact = await prepared(aios)
            aios.authority.asked.clear()
            aios.authority.otherwise = Decision.DENIED
            for name, params in {**PUBLIC, **OWN}.items():
                answer = await aios.invoke(name, params, STRANGER)
                assert task not in str(answer)
                assert artifact not in str(answer)
            assert aios.authority.asked == []

    play(scenario())


def test_the_owner_and_root_are_not_asked_about_a_task_and_others_only_once_allowed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            task, artifact = await prepared(aios)
            aios.authority.asked.clear()
            for caller in (None, ROOT):
                for name, more in ABOUT_A_TASK.items():
                    if OPERATIONS[name].access is not Access.RUN:
                        try:
                            reply = await aios.reply(name, {"task_id": task, **more}, *([caller] if caller else []))
                        except AiosError as error:
                            assert error.kind.value.code == -32107, name
                        else:
                            for descriptor in reply.fds:
                                os.close(descriptor)
            assert aios.authority.asked == []
            shown = await aios.invoke("task.get", {"task_id": task}, STRANGER)
            assert shown["task_id"] == task
            assert aios.authority.asked[0][2] == {"task": task, "owner": "1000"}
            got = await aios.invoke("artifact.get", {"artifact_id": artifact}, STRANGER)
            assert "secret" in str(got)

    play(scenario())


def test_unknown_operations_and_wrong_parameters(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            assert (await aios.refused("task.destroy", {})).kind.value.code == -32601
            for name in sorted(OPERATIONS.keys() - elsewhere(aios)):
                required = [key for key, field in OPERATIONS[name].params.model_fields.items() if field.is_required()]
                for key in required:
                    error = await aios.refused(name, {})
                    assert error.kind.value.code == -32602
                    error = await aios.refused(name, {one: 1.5 for one in required})
                    assert error.field in required
                    assert "1.5" not in error.text
                    assert key

    play(scenario())


@pytest.mark.parametrize("turns", range(8))
def test_no_descriptor_is_left_when_a_caller_leaves(tmp_path: Path, turns: int) -> None:
    import asyncio

    async def scenario() -> None:
        async with core(tmp_path) as aios:
            task, artifact = await prepared(aios)
            for name, params in (("task.open_log", {"task_id": task}), ("artifact.open", {"artifact_id": artifact})):
                asking = asyncio.create_task(aios.manager.invoke(name, ROOT, params))
                for _ in range(turns * 3):
                    await asyncio.sleep(0)
                asking.cancel()
                (left,) = await asyncio.gather(asking, return_exceptions=True)
                if not isinstance(left, BaseException):
                    for descriptor in left.fds:
                        os.close(descriptor)
            await eventually(lambda: aios.supervision.watches == {})
            await eventually(lambda: not opening())

    play(scenario())


def opening() -> list[str]:
    """Files that are still being opened in a thread for somebody who has left; each is closed when that is done."""
    import asyncio

    named = [repr(task.get_coro()) for task in asyncio.all_tasks()]
    return [name for name in named if "to_thread" in name]
