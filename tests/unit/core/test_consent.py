"""Consent through the whole core: asked the first time, kept, listed, revoked; the administrator's files; deferral."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from aiosd.auth.caller import BusSubject, Caller
from aiosd.auth.decision import Decision
from aiosd.config import Config
from aiosd.core.prompts import BURST, INTERVAL, MAX_QUEUED, Prompts
from aiosd.errors import AiosError
from tests.unit.core.rig import OPEN, OTHER, ROOT, USER, core, eventually, manifest, play, timed_out

if TYPE_CHECKING:
    from pathlib import Path

    from aiosd.model.jsontext import JsonObject
    from tests.unit.core.rig import Core

LOW, MEDIUM, HIGH, CRITICAL = "test.low.run", "test.medium.run", "test.high.run", "test.critical.run"
LEVELS = {LOW: "low", MEDIUM: "medium", HIGH: "high", CRITICAL: "critical"}
MUTE = Caller(1000, BusSubject(":1.77"))
"""The same user where nobody can be asked."""
ASK = {"run-low", "run-medium", "run-high", "run-critical"}


async def installed(aios: Core) -> None:
    """A capability of each level, for which polkit wants a person asked, who says yes."""
    for name, level in LEVELS.items():
        await aios.install(name, manifest(name, OPEN, level=level))
    aios.authority.challenge(*ASK)


def asked(aios: Core) -> list[str]:
    """What a person was asked, and nothing that was only looked at."""
    return [action for _, action, _, interactive in aios.authority.asked if interactive]


async def kinds(aios: Core) -> list[str]:
    rows = await aios.database.read(lambda db: db.execute("SELECT kind FROM audit ORDER BY seq").fetchall())
    return [str(row[0]) for row in rows]


async def grants(aios: Core, caller: Caller = USER, **params: bool) -> list[JsonObject]:
    found = (await aios.invoke("permission.list", params, caller))["grants"]
    assert isinstance(found, list)
    return [one for one in found if isinstance(one, dict)]


@pytest.mark.parametrize("capability", [LOW, MEDIUM])
def test_low_and_medium_are_asked_the_first_time_only(tmp_path: Path, capability: str) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await installed(aios)
            for _ in range(3):
                await aios.create(capability)
            await aios.create(capability, MUTE)
            assert asked(aios) == [f"run-{LEVELS[capability]}"]
            (grant,) = await grants(aios)
            assert (grant["capability_id"], grant["level"], grant["used_count"]) == (capability, LEVELS[capability], 4)
            trail = await kinds(aios)
            assert trail.count("permission.granted") == 1
            assert trail.count("permission.used") == 4

    play(scenario())


@pytest.mark.parametrize("capability", [HIGH, CRITICAL])
def test_high_and_critical_are_asked_each_time(tmp_path: Path, capability: str) -> None:
    async def scenario() -> None:
        async with core(tmp_path, schedule=False) as aios:
            await installed(aios)
            for _ in range(3):
                await aios.create(capability)
            assert len(asked(aios)) == 3
            assert await grants(aios) == []

    play(scenario())


def test_consent_is_one_user_s_and_one_capability_s(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await installed(aios)
            await aios.install("test.low.other", manifest("test.low.other", OPEN, level="low"))
            await aios.create(LOW)
            await aios.create(LOW, OTHER)
            await aios.create("test.low.other")
            assert asked(aios) == ["run-low"] * 3

    play(scenario())


def test_a_revoked_grant_asks_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await installed(aios)
            await aios.create(LOW)
            (grant,) = await grants(aios)
            revoked = await aios.invoke("permission.revoke", {"grant_id": grant["grant_id"]})
            assert "revoked_at" in revoked
            assert await grants(aios) == []
            assert len(await grants(aios, ended=True)) == 1
            await aios.create(LOW)
            assert asked(aios) == ["run-low", "run-low"]
            assert (await kinds(aios)).count("permission.revoked") == 1

    play(scenario())


def test_another_s_grant_is_not_there(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await installed(aios)
            await aios.create(LOW)
            (grant,) = await grants(aios)
            aios.authority.answers["control-others"] = Decision.DENIED
            refused = await aios.refused("permission.revoke", {"grant_id": grant["grant_id"]}, OTHER)
            missing = await aios.refused("permission.revoke", {"grant_id": "grant-none"}, OTHER)
            assert refused.wire() == missing.wire()
            assert await grants(aios, OTHER) == []
            await aios.invoke("permission.revoke", {"grant_id": grant["grant_id"]}, ROOT)
            assert await grants(aios) == []

    play(scenario())


def test_what_polkit_allows_unasked_is_nobody_s_consent(tmp_path: Path) -> None:
    """An active session is let through; the same user's programs elsewhere must not profit from it."""

    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await installed(aios)
            aios.authority.challenged.clear()
            await aios.create(LOW)
            assert await grants(aios) == []
            error = await aios.refused("permission.request", {"capability_id": LOW, "scope": "persistent"})
            assert error.reason == "nobody-asked"

    play(scenario())


def test_polkit_s_no_is_stronger_than_a_grant(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await installed(aios)
            await aios.create(LOW)
            aios.authority.challenged.clear()
            for decision in (Decision.DENIED, Decision.UNAVAILABLE):
                aios.authority.answers["run-low"] = decision
                error = await aios.refused("task.create", {"capability_id": LOW, "options": {"async": True}})
                assert error.kind.value.error_id == "AIOS-PERM-DENIED"
            assert (await kinds(aios)).count("permission.denied") == 2

    play(scenario())


@pytest.mark.parametrize(
    ("scope", "again"), [("once", True), ("task", True), ("session", True), ("timed:60", False), ("persistent", False)]
)
def test_how_long_a_first_consent_is_kept_is_configured(tmp_path: Path, scope: str, *, again: bool) -> None:
    async def scenario() -> None:
        async with core(tmp_path, config=Config(schedule_interval=30.0, first_use_low=scope)) as aios:
            await installed(aios)
            await aios.create(LOW)
            await aios.create(LOW)
            assert len(asked(aios)) == (2 if again else 1)

    play(scenario())


def test_a_task_s_consent_is_for_its_retries_and_children(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path, config=Config(schedule_interval=30.0, first_use_low="task")) as aios:
            await installed(aios)
            task = await aios.create(LOW)
            await aios.ended(task)
            await aios.invoke("task.retry", {"task_id": task})
            assert len(asked(aios)) == 1
            await aios.create(LOW)
            assert len(asked(aios)) == 2

    play(scenario())


def test_a_grant_asked_for_ahead_holds_arguments(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await installed(aios)
            params: JsonObject = {
                "capability_id": "test.low.*", "scope": "timed:60", "arguments": {"path": {"glob": "/usr/*"}},
            }  # fmt: skip
            made = await aios.invoke("permission.request", params)
            assert (made["scope"], made["level"]) == ("timed", "low")
            await aios.create(LOW, MUTE, arguments={"path": "/usr/share"})
            assert len(asked(aios)) == 1
            for wrong in ({"path": "/etc"}, {"path": "/usr/../etc"}, {}):
                params = {"capability_id": LOW, "arguments": wrong, "options": {"async": True, "defer": False}}
                error = await aios.refused("task.create", params, MUTE)
                assert error.kind.value.error_id == "AIOS-PERM-INTERACTION"

    play(scenario())


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"capability_id": HIGH}, "never-granted"),
        ({"capability_id": CRITICAL}, "never-granted"),
        ({"capability_id": MEDIUM}, "not-ahead"),
        ({"capability_id": "test.*"}, "not-ahead"),
        ({"capability_id": "nothing.*"}, None),
        ({"capability_id": LOW, "scope": "session"}, None),
        ({"capability_id": LOW, "scope": "task", "task_id": "task-none"}, None),
        ({"capability_id": LOW, "arguments": {"path": "/usr"}}, None),
        ({"capability_id": LOW, "scope": "timed:99999999"}, None),
    ],
)
def test_what_cannot_be_granted_ahead(tmp_path: Path, params: JsonObject, reason: str | None) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await installed(aios)
            error = await aios.refused("permission.request", params)
            assert error.reason == reason
            assert asked(aios) == []
            assert await aios.count("grants") == 0

    play(scenario())


def test_medium_ahead_where_it_is_configured(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path, config=Config(schedule_interval=30.0, grant_medium_ahead=True)) as aios:
            await installed(aios)
            await aios.invoke("permission.request", {"capability_id": "test.*", "scope": "once"})
            assert asked(aios) == ["run-medium"]
            await aios.create(MEDIUM, MUTE)
            error = await aios.refused("task.create", {"capability_id": MEDIUM, "options": {}}, MUTE)
            assert error.kind.value.error_id == "AIOS-PERM-INTERACTION"

    play(scenario())


def test_the_administrator_s_ceiling(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await installed(aios)
            file = tmp_path / "permission-policy.toml"
            file.write_text('max_permission_level = "medium"\nalways_deny = ["test.low.*"]\n')
            await aios.policies.load()
            for capability, caller in ((LOW, USER), (LOW, ROOT), (HIGH, USER), (CRITICAL, ROOT)):
                error = await aios.refused("task.create", {"capability_id": capability, "options": {}}, caller)
                assert (error.kind.value.error_id, error.reason) == ("AIOS-PERM-DENIED", "policy")
            assert aios.authority.asked == []
            file.write_text('auto_grant = ["test.*"]\n')
            await aios.policies.load()
            await aios.create(MEDIUM, MUTE)
            error = await aios.refused("task.create", {"capability_id": HIGH, "options": {}}, MUTE)
            assert error.kind.value.error_id == "AIOS-PERM-INTERACTION"
            assert await grants(aios) == []

    play(scenario())


def test_a_policy_that_came_while_a_person_thought_counts(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await installed(aios)

            async def tighten() -> None:
                (tmp_path / "permission-policy.toml").write_text('max_permission_level = "public"\n')
                await aios.policies.load()

            aios.authority.meanwhile = tighten
            error = await aios.refused("task.create", {"capability_id": LOW, "options": {}})
            assert error.reason == "policy"
            assert await aios.count("tasks") == await aios.count("grants") == 0

    play(scenario())


def test_a_grant_revoked_while_it_was_to_be_used_is_no_grant(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await installed(aios)
            await aios.create(LOW)
            (grant,) = await grants(aios)

            async def revoke() -> None:
                aios.authority.meanwhile = None
                await aios.invoke("permission.revoke", {"grant_id": grant["grant_id"]})

            aios.authority.answers["priority-urgent"] = Decision.ALLOWED
            original = aios.authority.check

            async def check(subject, action_id, details, *, interactive):  # type: ignore[no-untyped-def]
                if action_id.endswith("priority-urgent"):
                    await revoke()
                return await original(subject, action_id, details, interactive=interactive)

            aios.authority.check = check  # type: ignore[method-assign]
            params: JsonObject = {"capability_id": LOW, "options": {"async": True, "priority": "urgent"}}
            error = await aios.refused("task.create", params)
            assert error.reason == "stale-authorization"
            assert await aios.count("tasks") == 1

    play(scenario())


def test_explain_says_what_create_does(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await installed(aios)
            before = await aios.invoke("permission.explain", {"capability_id": LOW})
            assert before["outcome"] == "ask"
            await aios.create(LOW)
            after = await aios.invoke("permission.explain", {"capability_id": LOW})
            (grant,) = await grants(aios)
            assert (after["outcome"], after["grant_id"]) == ("allow", grant["grant_id"])
            critical = await aios.invoke("permission.explain", {"capability_id": CRITICAL}, ROOT)
            assert (critical["outcome"], critical["needs_approval"]) == ("allow", True)
            aios.authority.answers["view-others"] = Decision.DENIED
            error = await aios.refused("permission.explain", {"capability_id": LOW, "uid": 1000}, OTHER)
            assert error.kind.value.error_id == "AIOS-PERM-DENIED"
            assert (await grants(aios))[0]["used_count"] == 1

    play(scenario())


# -- deferred consent -----------------------------------------------------------------------------------------------


def test_a_request_whose_person_cannot_be_asked_is_not_lost(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await installed(aios)
            task = await aios.create(HIGH, MUTE)
            found = await aios.task(task)
            assert (found.status, found.phase) == ("auth_required", "waiting_auth")
            assert found.auth_request is not None
            assert (found.auth_request["type"], found.auth_request["action"]) == (
                "polkit", "org.aios.TaskManager.run-high"
            )  # fmt: skip
            assert asked(aios) == []
            assert await aios.count("runs") == 0
            (told,) = [event for event in await aios.log(task) if event.kind == "task.auth_required"]
            assert told.data() == {"task_id": task, "status": "auth_required", "auth_request": found.auth_request}
            mute = await aios.refused("task.authenticate", {"task_id": task}, MUTE)
            assert mute.kind.value.error_id == "AIOS-PERM-INTERACTION"
            await aios.invoke("task.authenticate", {"task_id": task, "auth_response": {"type": "polkit"}}, USER)
            after = await aios.ended(task)
            assert (after.status, asked(aios)) == ("completed", ["run-high"])
            assert await aios.history(task) == ["auth_required", "working", "completed"]

    play(scenario())


def test_a_deferred_task_waits_when_its_person_says_no(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await installed(aios)
            task = await aios.create(HIGH, MUTE)
            aios.authority.answers["run-high"] = Decision.DISMISSED
            error = await aios.refused("task.authenticate", {"task_id": task}, USER)
            assert error.reason == "dismissed"
            assert (await aios.task(task)).status == "auth_required"
            await aios.invoke("task.cancel", {"task_id": task}, MUTE)
            assert (await aios.task(task)).status == "canceled"

    play(scenario())


def test_nobody_consents_for_somebody_else(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await installed(aios)
            task = await aios.create(HIGH, MUTE)
            error = await aios.refused("task.authenticate", {"task_id": task}, OTHER)
            assert error.reason == "not-owner"
            await aios.invoke("task.authenticate", {"task_id": task}, ROOT)
            assert (await aios.ended(task)).status == "completed"

    play(scenario())


def test_a_deferred_task_ends_at_its_time_limit(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path, config=Config(schedule_interval=30.0, auth_timeout=1.0)) as aios:
            await installed(aios)
            task = await aios.ended(await aios.create(HIGH, MUTE))
            assert (task.status, task.reason) == ("failed", "auth-timeout")
            assert timed_out(task, 1000)

    play(scenario())


def test_a_blocking_or_a_plain_request_is_answered_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await installed(aios)
            for options in ({}, {"async": True, "defer": False}):
                error = await aios.refused("task.create", {"capability_id": HIGH, "options": options}, MUTE)
                assert error.kind.value.error_id == "AIOS-PERM-INTERACTION"
            assert await aios.count("tasks") == 0

    play(scenario())


def test_a_capability_of_a_higher_level_by_then_is_another_question(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await installed(aios)
            task = await aios.create(LOW, MUTE)
            await aios.install(LOW, manifest(LOW, OPEN, level="high"))
            error = await aios.refused("task.authenticate", {"task_id": task}, USER)
            assert error.reason == "stale-authorization"
            assert asked(aios) == []

    play(scenario())


def test_a_user_s_waiting_tasks_are_bounded(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path, config=Config(schedule_interval=30.0, max_unauthorized_per_user=2)) as aios:
            await installed(aios)
            for _ in range(2):
                await aios.create(HIGH, MUTE)
            error = await aios.refused("task.create", {"capability_id": HIGH, "options": {"async": True}}, MUTE)
            assert (error.kind.value.error_id, error.reason) == ("AIOS-QUEUE-FULL", "unauthorized")
            await aios.create(HIGH, Caller(1001, BusSubject(":1.78")))

    play(scenario())


# -- a flood of questions -------------------------------------------------------------------------------------------


def test_one_dialog_at_a_time_for_each_person(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path, schedule=False) as aios:
            await installed(aios)
            open_, most = 0, 0

            async def think() -> None:
                nonlocal open_, most
                if aios.authority.asked[-1][3]:
                    open_ += 1
                    most = max(most, open_)
                    await asyncio.sleep(0.02)
                    open_ -= 1

            aios.authority.meanwhile = think
            async with asyncio.TaskGroup() as group:
                for _ in range(5):
                    group.create_task(aios.create(HIGH))
            assert (most, len(asked(aios))) == (1, 5)

    play(scenario())


def test_the_first_answer_is_everybody_s_who_waited_with_the_same_question(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path, schedule=False) as aios:
            await installed(aios)
            gate = asyncio.Event()

            async def think() -> None:
                if aios.authority.asked[-1][3]:
                    await gate.wait()

            aios.authority.meanwhile = think
            first = asyncio.create_task(aios.create(LOW))
            await eventually(lambda: len(asked(aios)) == 1)
            others = [asyncio.create_task(aios.create(LOW)) for _ in range(4)]
            await asyncio.sleep(0.05)
            gate.set()
            await asyncio.gather(first, *others)
            assert len(asked(aios)) <= 2

    play(scenario())


def test_too_many_questions_are_refused() -> None:
    async def scenario() -> None:
        now = 0.0
        prompts = Prompts(lambda: now)
        for _ in range(BURST):
            async with prompts.turn(1000):
                prompts.spend(1000)
        async with prompts.turn(1000):
            with pytest.raises(AiosError, match="too often") as refused:
                prompts.spend(1000)
        assert refused.value.extra == {"retry_after_ms": INTERVAL * 1000}
        async with prompts.turn(1001):
            prompts.spend(1001)
        now += INTERVAL
        async with prompts.turn(1000):
            prompts.spend(1000)

    asyncio.run(scenario())


def test_who_says_yes_is_not_worn_down() -> None:
    async def scenario() -> None:
        prompts = Prompts(lambda: 0.0)
        for _ in range(3 * BURST):
            async with prompts.turn(1000):
                prompts.spend(1000)
                prompts.welcome(1000)

    asyncio.run(scenario())


def test_a_queue_of_questions_is_bounded_and_leaves_nothing() -> None:
    async def scenario() -> None:
        now = 0.0
        prompts = Prompts(lambda: now)

        async def wait() -> None:
            async with prompts.turn(1000):
                await asyncio.sleep(3600)

        waiting = [asyncio.create_task(wait()) for _ in range(MAX_QUEUED)]
        await asyncio.sleep(0)
        with pytest.raises(AiosError, match="wait for this person"):
            async with prompts.turn(1000):
                pass
        async with prompts.turn(1001):
            pass
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        async with prompts.turn(1000):
            pass
        assert prompts._people == {}

    asyncio.run(scenario())


def test_that_another_policy_holds_is_recorded(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await aios.policies.load_again(aios.database)
            assert "policy.reloaded" not in await kinds(aios)
            (tmp_path / "permission-policy.toml").write_text('max_permission_level = "low"\n')
            await aios.policies.load_again(aios.database)
            await aios.policies.load_again(aios.database)
            assert (await kinds(aios)).count("policy.reloaded") == 1

    play(scenario())


def test_a_wrong_policy_file_is_shown_where_an_administrator_looks(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            (tmp_path / "permission-policy.toml").write_text('\nmax_permission_level = "hihg"\n')
            await aios.policies.load()
            problems = (await aios.invoke("service.status", {}))["problems"]
            assert isinstance(problems, list)
            assert "permission-policy.toml:2: error: max_permission_level" in str(problems[0])
            assert (await aios.invoke("capability.list", {}))["problems"] == []

    play(scenario())
