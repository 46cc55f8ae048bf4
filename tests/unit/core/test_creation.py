"""`task.create` and `task.retry`: what is stored, and every refusal, after which nothing is."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from aiosd.auth.decision import Decision
from aiosd.config import Config
from tests.unit.core.rig import OTHER, PLAIN, ROOT, USER, Core, core, eventually, manifest, play

if TYPE_CHECKING:
    from pathlib import Path

    from aiosd.model.jsontext import JsonObject
    from tests.unit.core.fakelauncher import FakeRun

LISTED = "test.listed.run"
STRICT = (
    'timeout = "10s"\n[limits]\nmemory_max = "64M"\n[input]\ntype = "object"\nrequired = ["path"]\n'
    'additionalProperties = false\n[input.properties.path]\ntype = "string"\n'
)

DEEP: JsonObject = {}
for _ in range(40):
    DEEP = {"a": DEEP}


def request(capability: str = PLAIN, **more: object) -> JsonObject:
    options = {"async": True, **(more.pop("options", None) or {})}  # type: ignore[dict-item]
    return {"capability_id": capability, "options": options, **more}  # type: ignore[dict-item]


REFUSED: list[tuple[str, JsonObject, int, str | None]] = [
    ("unknown capability", request("test.absent.run"), -32003, "capability_id"),
    ("no capability", {"options": {"async": True}}, -32602, "capability_id"),
    ("a path for a capability", request("../etc"), -32602, "capability_id"),
    ("an argument missing", request(LISTED, arguments={}), -32602, "arguments"),
    ("an argument of another type", request(LISTED, arguments={"path": 1}), -32602, "arguments/path"),
    ("an argument too many", request(LISTED, arguments={"path": "/", "x": 1}), -32602, "arguments"),
    ("arguments no object", request(arguments=[]), -32602, "arguments"),
    ("arguments too long", request(arguments={"a": "x" * 65536}), -32602, "arguments"),
    ("arguments with a NUL", request(arguments={"a": "\0"}), -32602, "arguments"),
    ("arguments with NaN", request(arguments={"a": float("nan")}), -32602, "arguments"),
    ("arguments too deep", request(arguments=DEEP), -32602, "arguments"),
    ("metadata too long", request(metadata={"a": "x" * 65536}), -32602, "metadata"),
    ("metadata with half a surrogate pair", request(metadata={"a": "\ud800"}), -32602, "metadata"),
    ("metadata no object", request(metadata="x"), -32602, "metadata"),
    ("together more than a packet", request(arguments={"a": "x" * 65000}, metadata={"a": "x" * 65000}), -32602,
     "metadata"),
    ("a limit looser than the manifest's", request(LISTED, arguments={"path": "/"},
     options={"limits": {"memory_max": 128 << 20}}), -32602, "options.limits.memory_max"),
    ("an unknown limit", request(options={"limits": {"swap": 1}}), -32602, "options.limits.swap"),
    ("a priority that there is not", request(options={"priority": "asap"}), -32602, "options.priority"),
    ("a time limit of nothing", request(options={"timeout_ms": 0}), -32602, "options.timeout_ms"),
    ("no attempt", request(options={"retry": {"max_attempts": 0}}), -32602, "options.retry.max_attempts"),
    ("a text for a number", request(options={"timeout_ms": "5"}), -32602, "options.timeout_ms"),
    ("not before a word", request(options={"not_before": "tomorrow"}), -32602, "options.not_before"),
    ("not before a time without offset", request(options={"not_before": "2026-01-05T10:00:00"}), -32602,
     "options.not_before"),
    ("not before a date", request(options={"not_before": "2026-01-05"}), -32602, "options.not_before"),
    ("not before the year 10000", request(options={"not_before": "9999-12-31T23:59:59-23:59"}), -32602,
     "options.not_before"),
    ("not before the epoch", request(options={"not_before": "1969-12-31T23:59:59Z"}), -32602, "options.not_before"),
    ("depends on nothing that exists", request(options={"depends_on": ["task-none"]}), -32106,
     "options.depends_on[0]"),
    ("depends on itself", request(options={"handle_token": "me", "depends_on": ["task-u1000-me"]}), -32602,
     "options.depends_on[0]"),
    ("an unknown parent", request(options={"parent_task_id": "task-none"}), -32106, None),
    ("a title of two lines", request(options={"title": "a\nb"}), -32602, "options.title"),
    ("a token that is a path", request(options={"handle_token": "a/b"}), -32602, "options.handle_token"),
]  # fmt: skip


@pytest.mark.parametrize(("params", "code", "field"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_a_refusal_names_the_field_and_stores_nothing(
    tmp_path: Path, params: JsonObject, code: int, field: str | None
) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await aios.install(LISTED, manifest(LISTED, STRICT))
            tables = ("tasks", "history", "events", "runs", "dependencies")
            before = [await aios.count(table) for table in tables]
            error = await aios.refused("task.create", params)
            assert error.kind.value.code == code
            if field is not None:
                assert error.field == field
            assert [await aios.count(table) for table in tables] == before
            # Nobody is asked about what is wrong anyway.
            assert aios.authority.asked == [] or code == -32106 or error.reason == "cycle"

    play(scenario())


def test_every_option_is_kept(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path, schedule=False) as aios:
            parent = await aios.create()
            before = await aios.create()
            options: JsonObject = {
                "async": True, "priority": "high", "timeout_ms": 120000, "retry": {"max_attempts": 3, "delay_ms": 250},
                "depends_on": [before, before], "not_before": "2100-01-05T10:00:00.250+01:00",
                "limits": {"memory_max": 32 << 20}, "idempotency_key": "k", "parent_task_id": parent,
                "execution_mode": "collaborative", "risk_level": "low", "title": "Mine",
                "handle_token": "mine_1",
            }  # fmt: skip
            answer = await aios.invoke(
                "task.create",
                {"capability_id": PLAIN, "arguments": {"a": [1]}, "metadata": {"tags": ["x"]}, "options": options},
            )
            assert answer["task_id"] == "task-u1000-mine_1"
            assert answer["status"] == "pending"
            shown = await aios.invoke("task.get", {"task_id": answer["task_id"], "include_history": True})
            assert shown["options"] == {
                "priority": "high", "timeout_ms": 120000, "retry": {"max_attempts": 3, "delay_ms": 250},
                "depends_on": [before], "not_before": "2100-01-05T09:00:00.250Z", "limits": {"memory_max": 32 << 20},
            }  # fmt: skip
            for name, value in {
                "phase": "waiting", "parent_task_id": parent, "title": "Mine",
                "execution_mode": "collaborative", "risk_level": "low", "arguments": {"a": [1]},
                "metadata": {"tags": ["x"]}, "level": "public", "uid": 1000,
            }.items():  # fmt: skip
                assert shown[name] == value, name
            found = await aios.invoke("task.list", {"filter": {"tag": "x"}})
            assert found["total"] == 1

    play(scenario())


def test_not_before_in_microseconds_is_kept_exactly(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path, schedule=False) as aios:
            task = await aios.create(not_before=4_102_444_800_000_001)
            assert (await aios.task(task)).not_before == 4_102_444_800_000_001

    play(scenario())


def test_the_tighter_time_limit_counts(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path, schedule=False) as aios:
            await aios.install(LISTED, manifest(LISTED, 'timeout = "10s"\n'))
            assert (await aios.task(await aios.create(LISTED, timeout_ms=3000))).timeout_ms == 3000
            assert (await aios.task(await aios.create(LISTED, timeout_ms=30000))).timeout_ms == 10000
            assert (await aios.task(await aios.create(LISTED))).timeout_ms == 10000

    play(scenario())


def test_an_idempotency_key_names_one_request(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            first = await aios.create(arguments={"a": 1, "b": 2}, idempotency_key="k")
            assert await aios.create(arguments={"b": 2, "a": 1}, idempotency_key="k") == first
            await aios.ended(first)
            assert await aios.create(arguments={"b": 2, "a": 1}, idempotency_key="k") == first
            error = await aios.refused("task.create", request(arguments={"a": 2}, options={"idempotency_key": "k"}))
            assert (error.kind.value.code, error.field) == (-32602, "options.idempotency_key")
            # Another user's keys are another's.
            assert await aios.create(caller=OTHER, arguments={"a": 2}, idempotency_key="k") != first
            assert await aios.count("tasks") == 2
            # Many at once with the same key are one task.
            same = await asyncio.gather(*(aios.create(idempotency_key="race") for _ in range(20)))
            assert len(set(same)) == 1

    play(scenario())


def test_the_queue_has_an_end(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path, schedule=False, config=Config(max_queue_size=3, max_queued_per_user=2)) as aios:
            await aios.create()
            await aios.create()
            error = await aios.refused("task.create", request())
            assert (error.kind.value.code, error.data()["max_queued_per_user"]) == (-32006, 2)
            await aios.create(caller=ROOT)
            error = await aios.refused("task.create", request(), ROOT)
            assert (error.kind.value.code, error.data()["max_queue_size"]) == (-32006, 3)
            assert await aios.count("tasks") == 3
            # Many at once do not slip past it either.
            for name in await _ids(aios):
                await aios.invoke("task.cancel", {"task_id": name}, ROOT)
            tried = await asyncio.gather(*(aios.create(caller=ROOT) for _ in range(9)), return_exceptions=True)
            assert sum(isinstance(one, str) for one in tried) == 3

    play(scenario())


async def _ids(aios: Core) -> list[str]:
    rows = await aios.database.read(lambda db: db.execute("SELECT id FROM tasks").fetchall())
    return [str(row[0]) for row in rows]


def test_links_to_others_tasks_are_not_found(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            foreign = await aios.create(caller=OTHER)
            error = await aios.refused("task.create", request(options={"depends_on": [foreign]}))
            unknown = await aios.refused("task.create", request(options={"depends_on": ["task-none"]}))
            assert error.wire() == unknown.wire()
            error = await aios.refused("task.create", request(options={"parent_task_id": foreign}))
            assert error.kind.value.code == -32106
            await aios.create(caller=ROOT, depends_on=[foreign])
            mine = await aios.create()
            await aios.ended(mine)
            error = await aios.refused("task.create", request(options={"parent_task_id": mine}))
            assert (error.kind.value.code, error.field) == (-32108, "options.parent_task_id")
            await aios.create(handle_token="t")  # noqa: S106  a name, not a secret
            error = await aios.refused("task.create", request(options={"handle_token": "t"}))
            assert (error.kind.value.code, error.field) == (-32602, "options.handle_token")

    play(scenario())


@pytest.mark.parametrize("level", ["public", "low", "medium", "high"])
def test_each_level_asks_for_its_own_action(tmp_path: Path, level: str) -> None:
    async def scenario() -> None:
        async with core(tmp_path, schedule=False) as aios:
            await aios.install(LISTED, manifest(LISTED, level=level))
            await aios.create(LISTED)
            asked = aios.authority.asked[-1]
            assert asked[0] == USER.subject
            assert set(aios.authority.actions) == {f"run-{level}"}
            details = {"capability": LISTED, "title": f"Title of {LISTED}", "level": level}
            assert details.items() <= asked[2].items()
            aios.authority.answers[f"run-{level}"] = Decision.DENIED
            error = await aios.refused("task.create", request(LISTED))
            assert (error.kind.value.code, error.kind.value.error_id) == (-32001, "AIOS-PERM-DENIED")
            assert error.data()["permission_required"] == f"org.aios.TaskManager.run-{level}"
            # Root is not asked.
            asked_before = len(aios.authority.asked)
            await aios.create(LISTED, ROOT)
            assert len(aios.authority.asked) == asked_before
            assert await aios.count("tasks") == 2

    play(scenario())


@pytest.mark.parametrize(
    ("decision", "error_id"),
    [
        (Decision.DENIED, "AIOS-PERM-DENIED"),
        (Decision.CHALLENGE, "AIOS-PERM-INTERACTION"),
        (Decision.DISMISSED, "AIOS-PERM-DENIED"),
        (Decision.UNAVAILABLE, "AIOS-PERM-DENIED"),
    ],
)
def test_no_answer_but_a_yes_is_one(tmp_path: Path, decision: Decision, error_id: str) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            aios.authority.otherwise = decision
            error = await aios.refused("task.create", request(options={"defer": False}))
            assert error.kind.value.error_id == error_id
            assert await aios.count("tasks") == 0

    play(scenario())


def test_urgent_has_its_own_action(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path, schedule=False) as aios:
            task = await aios.create(priority="urgent")
            assert set(aios.authority.actions) == {"run-public", "priority-urgent"}
            aios.authority.answers["priority-urgent"] = Decision.DENIED
            error = await aios.refused("task.create", request(options={"priority": "urgent"}))
            assert error.data()["permission_required"] == "org.aios.TaskManager.priority-urgent"
            normal = await aios.create()
            error = await aios.refused("task.set_priority", {"task_id": normal, "priority": "urgent"})
            assert error.kind.value.code == -32001
            assert (await aios.task(normal)).priority == 1
            answer = await aios.invoke("task.set_priority", {"task_id": normal, "priority": "high"})
            assert answer["status"] == "pending"
            assert (await aios.task(normal)).priority == 2
            # A retried one does not keep it without being asked.
            await aios.invoke("task.cancel", {"task_id": task})
            again = await aios.invoke("task.retry", {"task_id": task})
            assert (await aios.task(str(again["task_id"]))).priority == 2

    play(scenario())


def test_an_answer_about_an_older_manifest_is_stale(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await aios.install(LISTED, manifest(LISTED, level="low"))

            async def replaced() -> None:
                await aios.install(LISTED, manifest(LISTED, level="high"))

            aios.authority.meanwhile = replaced
            error = await aios.refused("task.create", request(LISTED))
            assert (error.kind.value.code, error.reason) == (-32001, "stale-authorization")

            async def removed() -> None:
                (aios.manifests / f"{LISTED}.toml").unlink(missing_ok=True)
                await aios.registry.load()

            aios.authority.meanwhile = removed
            error = await aios.refused("task.create", request(LISTED))
            assert (error.kind.value.code, error.reason) == (-32001, "stale-authorization")
            assert await aios.count("tasks") == 0

    play(scenario())


def test_a_task_that_ended_while_control_was_asked_is_told_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path, schedule=False) as aios:
            task = await aios.create(caller=OTHER)

            async def canceled() -> None:
                aios.authority.meanwhile = None
                await aios.invoke("task.cancel", {"task_id": task}, OTHER)

            aios.authority.meanwhile = canceled
            error = await aios.refused("task.set_priority", {"task_id": task, "priority": "low"})
            assert error.kind.value.code == -32107

    play(scenario())


def test_retry_makes_a_new_task_of_a_final_one_only(tmp_path: Path) -> None:
    async def fails(run: FakeRun) -> None:
        await run.go()
        run.end(1)

    async def scenario() -> None:
        async with core(tmp_path) as aios:
            aios.launcher.program = fails
            parent = await aios.create(not_before="2100-01-01T00:00:00Z")
            old = await aios.create(arguments={"a": 1}, metadata={"m": 1}, parent_task_id=parent, timeout_ms=9000)
            error = await aios.refused("task.retry", {"task_id": parent})
            assert error.kind.value.code == -32108
            await aios.ended(old)
            answer = await aios.invoke("task.retry", {"task_id": old, "handle_token": "again"})
            assert answer["task_id"] == "task-u1000-again"
            new = await aios.task("task-u1000-again")
            assert (new.retry_of, new.arguments, new.metadata, new.parent_id) == (old, {"a": 1}, {"m": 1}, parent)
            assert new.timeout_ms == 9000
            await aios.ended(new.id)
            # The parent's end does not forbid it.
            await aios.invoke("task.cancel", {"task_id": parent})
            third = await aios.invoke("task.retry", {"task_id": old})
            assert (await aios.task(str(third["task_id"]))).parent_id is None
            # The manifest of today decides.
            aios.authority.answers["run-public"] = Decision.DENIED
            assert (await aios.refused("task.retry", {"task_id": old})).kind.value.code == -32001

    play(scenario())


def test_a_blocking_create_answers_at_the_end_or_when_it_needs_somebody(tmp_path: Path) -> None:
    async def asks(run: FakeRun) -> None:
        await run.go()
        run.say("task_interaction", {"interaction": 7, "prompt": "which?", "schema": {"type": "object"}})
        await run.hear("input")
        run.end(0)

    async def scenario() -> None:
        async with core(tmp_path) as aios:
            done = await aios.invoke("task.create", {"capability_id": PLAIN})
            assert (done["status"], done["result"]) == ("completed", {"exit_status": 0})
            assert "completed_at" in done
            aios.launcher.program = asks
            error = await aios.refused("task.create", {"capability_id": PLAIN})
            data = error.data()
            assert (error.kind.value.code, data["status"]) == (-32002, "input_required")
            question = data["question"]
            assert isinstance(question, dict)
            assert (question["prompt"], question["interaction"]) == ("which?", 7)
            await aios.invoke("task.input", {"task_id": data["task_id"], "input": {}})
            assert (await aios.ended(str(data["task_id"]))).status == "completed"

    play(scenario())


def test_a_changed_limit_counts_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path, schedule=False) as aios:
            aios.settings.current = replace(aios.settings.current, max_queue_size=1)
            await aios.create()
            assert (await aios.refused("task.create", request())).kind.value.code == -32006
            await eventually(lambda: bool(aios.events))

    play(scenario())
