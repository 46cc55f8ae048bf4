"""What the core puts into the audit trail, and who may read it."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aiosd.model.audit import MESSAGE_IDS, SENTENCES, AuditKind
from aiosd.model.jsontext import dump
from aiosd.model.redact import is_secret_name, redacted
from aiosd.store import audit
from aiosd.store.errors import StoreError, StoreFailure
from tests.unit.core.fakelauncher import FakeLauncher, FakeRun
from tests.unit.core.rig import OTHER, PLAIN, ROOT, Core, Decision, core, daemon, manifest, play
from tests.unit.core.test_approval import ADMIN, answer, waiting

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonObject
    from aiosd.run.client import StartedRun, StartRequest

ROOT_FOLDER = Path(__file__).parents[3]


async def kinds(aios: Core, task: str | None = None) -> list[str]:
    """Kinds of all records, or of those of a task."""
    wanted = audit.AuditFilter(task_id=task)
    return [row.kind for row in await aios.database.read(lambda db: audit.page(db, wanted)[0])]


def test_a_tasks_life_is_all_there(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            task = await aios.create(arguments={"a": 1})
            await aios.ended(task)
            found = await kinds(aios, task)
            assert [kind for kind in found if kind.startswith("task.")] == [
                "task.created", "task.launch", "task.status", "task.status", "task.ended"
            ]  # fmt: skip
            page = json.loads(dump(await aios.invoke("audit.query", {"filter": {"task_id": task}})))
            rows = {row["kind"]: row for row in page["records"]}
            created, ended = rows["task.created"]["details"], rows["task.ended"]["details"]
            assert created["arguments"] == {"a": 1}
            assert created["creator"]["uid"] == 1000
            assert ended["status"] == "completed"
            assert ended["result"] == '{"exit_status":0}'
            assert isinstance(ended["elapsed_ms"], int)

    play(scenario())


def test_a_launch_is_on_disk_before_the_launcher_is_asked(tmp_path: Path) -> None:
    seen: list[list[str]] = []

    class Looks(FakeLauncher):
        async def start(self, request: StartRequest) -> StartedRun:
            with closing(sqlite3.connect(tmp_path / "aiosd.db")) as other:
                found = other.execute("SELECT kind FROM audit WHERE task_id = ? ORDER BY seq", (request.task,))
                seen.append([row[0] for row in found])
            return await super().start(request)

    async def scenario() -> None:
        launcher = Looks(tmp_path / "launcher")
        async with launcher.serving(), daemon(tmp_path, launcher) as aios:
            await aios.ended(await aios.create())

    play(scenario())
    assert [kind for kind in seen[0] if kind.startswith("task.")] == ["task.created", "task.launch"]


# Seed 000, the table of what is recorded: creation (parameters, creator, time), change of state (old, new, reason),
# permission (what was asked for, what was answered), end (a summary of the result, the time that it took).
SEED_000 = {
    "task.created": {"arguments", "creator"},
    "task.status": {"old", "new", "reason"},
    "permission.answered": {"action", "decision"},
    "task.ended": {"result", "elapsed_ms"},
}


def test_each_record_holds_what_seed_000_says(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await aios.install("test.medium.run", manifest("test.medium.run", level="medium"))
            await aios.ended(await aios.create("test.medium.run"))
            page = json.loads(dump(await aios.invoke("audit.query", {})))
            found = {row["kind"]: row for row in page["records"]}
            for kind, fields in SEED_000.items():
                assert fields <= found[kind]["details"].keys(), kind
                assert found[kind]["time"]
            assert found["permission.answered"]["details"]["action"] == "org.aios.TaskManager.run-medium"

    play(scenario())


def test_a_critical_launch_is_preceded_on_disk_by_its_permission_and_its_approval(tmp_path: Path) -> None:
    seen: list[list[str]] = []

    class Looks(FakeLauncher):
        async def start(self, request: StartRequest) -> StartedRun:
            with closing(sqlite3.connect(tmp_path / "aiosd.db")) as other:
                found = other.execute("SELECT kind FROM audit WHERE task_id = ? ORDER BY seq", (request.task,))
                seen.append([row[0] for row in found])
            return await super().start(request)

    async def scenario() -> None:
        launcher = Looks(tmp_path / "launcher")
        async with launcher.serving(), daemon(tmp_path, launcher) as aios:
            task, approval = await waiting(aios)
            assert seen == []
            await answer(aios, approval, "approve", ADMIN)
            await aios.ended(task)

    play(scenario())
    wanted = ["task.created", "permission.answered", "approval.requested", "approval.answered", "task.launch"]
    assert [kind for kind in seen[0] if kind in wanted] == wanted


def test_the_gate_opens_after_the_record_that_it_is_at_work(tmp_path: Path) -> None:
    seen: list[str] = []

    async def program(run: FakeRun) -> None:
        await run.go()
        with closing(sqlite3.connect(tmp_path / "aiosd.db")) as other:
            row = other.execute("SELECT details FROM audit WHERE kind = 'task.status' ORDER BY seq DESC").fetchone()
            seen.append(json.loads(row[0])["new"])
        run.end(0)

    async def scenario() -> None:
        async with core(tmp_path) as aios:
            aios.launcher.program = program
            await aios.ended(await aios.create())

    play(scenario())
    assert seen == ["working"]


SECRETIVE = """
[input]
type = "object"
additionalProperties = false
[input.properties.note]
type = "string"
writeOnly = true
[input.properties.who]
type = "string"
"""


@pytest.mark.parametrize("level", ["public", "critical"])
def test_what_the_schema_calls_a_secret_is_in_no_record(tmp_path: Path, level: str) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await aios.install("test.secretive.run", manifest("test.secretive.run", SECRETIVE, level=level))
            task = await aios.create("test.secretive.run", arguments={"note": "hunter2", "who": "alice"})
            if level == "critical":  # the request for its approval is a record, too
                await aios.invoke("task.cancel", {"task_id": task})
            await aios.ended(task)
            rows = await aios.database.read(lambda db: [row.details for row in audit.all_rows(db)])
            assert not any("hunter2" in row for row in rows)
            shown = [row for row in rows if '"who":"alice"' in row]
            assert len(shown) == (2 if level == "critical" else 1)
            assert all('"note":"[redacted]"' in row for row in shown)

    play(scenario())


@pytest.mark.parametrize("name", ["password", "apiKey", "API_KEY", "db-passwd", "X-Auth-Token", "privateKey", "PIN"])
def test_names_of_secrets(name: str) -> None:
    assert is_secret_name(name)
    assert redacted({name: {"in": ["it"]}}) == {name: "[redacted]"}


@pytest.mark.parametrize("name", ["monkey", "key", "pinned", "path", "secretary", "compass", "tokenizer"])
def test_names_of_other_things(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"x": {"format": "password"}}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"x": {"writeOnly": True}}}}},
        {"oneOf": [{}, {"properties": {"x": {"writeOnly": True}}}]},
        {"additionalProperties": {"format": "password"}},
        {"properties": {"x": {"anyOf": [{"type": "null"}, {"format": "password"}]}}},
    ],
)
def test_a_secret_in_any_part_of_a_schema_is_one(schema: JsonObject) -> None:
    assert redacted({"x": "hunter2"}, schema) == {"x": "[redacted]"}


def test_everyone_reads_their_own_records_and_managers_all(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            mine, theirs = await aios.create(), await aios.create(caller=OTHER)
            own = json.loads(dump(await aios.invoke("audit.query", {})))
            assert {row["task_id"] for row in own["records"]} <= {mine, None}
            aios.authority.answers["manage"] = Decision.DENIED
            forbidden: list[JsonObject] = [
                {"filter": {"all_users": True}},
                {"filter": {"uid": OTHER.uid}},
                {"proof": True},
            ]
            for params in forbidden:
                assert (await aios.refused("audit.query", params)).kind.name == "PERMISSION_DENIED"
            whole = json.loads(
                dump(await aios.invoke("audit.query", {"filter": {"all_users": True}, "proof": True}, ROOT))
            )
            assert {mine, theirs} <= {row["task_id"] for row in whole["records"]}
            assert len(whole["keys"]) == 1
            assert whole["head"]["seq"] <= whole["issued"]

    play(scenario())


def test_pages_follow_each_other(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            for _ in range(3):
                await aios.ended(await aios.create())
            after, numbers = 0, list[int]()
            while True:
                asked: JsonObject = {"filter": {"all_users": True}, "after": after, "limit": 4}
                page = json.loads(dump(await aios.invoke("audit.query", asked, ROOT)))
                numbers += [row["seq"] for row in page["records"]]
                if not page["has_more"]:
                    break
                after = numbers[-1]
            assert numbers == list(range(1, len(numbers) + 1))

    play(scenario())


def test_an_answer_of_polkit_is_recorded_and_a_look_that_nobody_was_asked_about_is_not(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            aios.authority.answers["manage"] = Decision.DENIED
            await aios.refused("service.reload", {})
            aios.authority.answers["view-others"] = Decision.DENIED
            await aios.refused("task.list", {"filter": {"all_users": True}})
            page = json.loads(dump(await aios.invoke("audit.query", {"filter": {"kind": "permission.answered"}})))
            rows = [row["details"] for row in page["records"]]
            assert [(row["action"].rpartition(".")[2], row["decision"]) for row in rows] == [("manage", "denied")]

    play(scenario())


def test_a_trail_put_back_is_doubted_at_the_next_start(tmp_path: Path) -> None:
    async def life() -> None:
        async with core(tmp_path) as aios:
            await aios.ended(await aios.create())

    play(life())
    with closing(sqlite3.connect(tmp_path / "aiosd.db")) as db, db:
        db.execute("DELETE FROM audit WHERE seq > 2")

    async def again() -> None:
        async with core(tmp_path) as aios:
            assert AuditKind.AUDIT_DOUBT in await kinds(aios)

    play(again())


def test_a_rotated_key_signs_from_then_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            fingerprint = str((await aios.invoke("audit.rotate_key", {}, ROOT))["fingerprint"])
            await aios.create()
            page = json.loads(dump(await aios.invoke("audit.query", {"proof": True}, ROOT)))
            assert page["keys"][-1]["id"] == fingerprint
            assert page["keys"][-1]["endorser"] == page["keys"][0]["id"]
            rows = await aios.database.read(lambda db: list(audit.all_rows(db)))
            assert rows[-1].key_id == fingerprint
            await asyncio.sleep(0)

    play(scenario())


def test_a_rotation_that_a_full_disk_stopped_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it is recorded the key that the trail knows signs; and the new one is then endorsed by it."""

    async def scenario() -> None:
        async with core(tmp_path) as aios:
            (first,) = {one.key_id for one in await aios.database.read(lambda db: list(audit.all_rows(db)))} - {None}

            async def full(_: object) -> None:
                raise StoreError(StoreFailure.FULL)

            with monkeypatch.context() as disk:
                disk.setattr(aios.database, "write", full)
                refused = await aios.refused("audit.rotate_key", {}, ROOT)
                assert refused.reason == "store-full"
            await aios.create()
            rows = await aios.database.read(lambda db: list(audit.all_rows(db)))
            assert rows[-1].key_id == first
            fingerprint = str((await aios.invoke("audit.rotate_key", {}, ROOT))["fingerprint"])
            page = json.loads(dump(await aios.invoke("audit.query", {"proof": True}, ROOT)))
            assert [one["id"] for one in page["keys"]] == [first, fingerprint]
            assert page["keys"][-1]["endorser"] == first

    play(scenario())


def test_every_kind_has_its_number_its_sentence_and_its_explanation() -> None:
    assert set(MESSAGE_IDS) == set(AuditKind) == set(SENTENCES)
    assert len(set(MESSAGE_IDS.values())) == len(MESSAGE_IDS)
    catalog = (ROOT_FOLDER / "systemd/aiosd.catalog").read_text()
    assert re.findall(r"(?m)^-- ([0-9a-f]{32})$", catalog) == list(MESSAGE_IDS.values())


def test_every_kind_that_the_source_names_is_known() -> None:
    pattern = re.compile(r'(?:audit|append_audit)\([^"]*?"([a-z]+\.[a-z_]+)"|kind = "([a-z]+\.[a-z_]+)"')
    named = {
        one or other
        for path in (ROOT_FOLDER / "aiosd/core").glob("*.py")
        for one, other in pattern.findall(path.read_text())
    }
    assert named
    assert named <= {kind.value for kind in AuditKind}
    assert PLAIN
