"""Tasks that work together: what one may read of others reaches its program; research may change nothing."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import TYPE_CHECKING

from aiosd.core.context import MAX_FILES
from tests.unit.core.fakelauncher import FakeRun, exits_at_once
from tests.unit.core.rig import OTHER, PLAIN, ROOT, Core, core, manifest, play
from tests.unit.core.session_rig import plan, session

if TYPE_CHECKING:
    from pathlib import Path

    from aiosd.model.jsontext import JsonObject, JsonValue

REPORT = b"the loop begins at a 401\n" * 5000


def files_of(run: FakeRun) -> dict[str, bytes]:
    """What the shim was given before the gate opened."""
    found: dict[str, bytes] = {}
    for kind, message in run.heard:
        assert kind in ("context", "go")
        if kind == "go":
            return found
        piece = base64.b64decode(str(message["data"]))
        name = str(message["name"])
        assert (message["first"] is True) == (name not in found)
        found[name] = found.get(name, b"") + piece
    raise AssertionError("the gate was not opened")


def index_of(run: FakeRun) -> JsonObject:
    found = json.loads(files_of(run)["context.json"])
    assert isinstance(found, dict)
    return found


async def researches(run: FakeRun) -> None:
    """Finds something out: a summary, a text, a file."""
    await run.go()
    run.say("processing", {"summary": {"summary": "retry loops on 401", "progress_percent": 100}})
    parts: list[JsonValue] = [{"text": "see the file"}, {"file": {"blob": run.blob(REPORT), "name": "report.txt"}}]
    run.say("artifact", {"key": "report", "name": "report", "type": "report", "parts": parts})
    run.say("task_completion", {"result": {"cause": "401"}})
    run.end(0)


async def researched(aios: Core) -> tuple[str, str]:
    """A finished task with a summary and an artifact; their ids."""
    aios.launcher.program = researches
    task = await aios.create()
    await aios.ended(task)
    (artifact,) = await artifacts_of(aios, task)
    aios.launcher.program = exits_at_once
    return task, artifact


async def artifacts_of(aios: Core, task: str) -> list[str]:
    """Their ids."""
    shown = (await aios.invoke("task.get", {"task_id": task}))["artifacts"]
    assert isinstance(shown, list)
    return [str(one["id"]) for one in shown if isinstance(one, dict)]


async def run_of(aios: Core, task: str) -> FakeRun:
    await aios.ended(task)
    return next(run for run in aios.launcher.runs.values() if run.request.task == task)


def test_shared_artifacts_and_summaries_are_there_when_the_program_starts(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            found, artifact = await researched(aios)
            task = await aios.create(
                execution_mode="collaborative", shared_context_refs=[artifact, f"{found}.summary"], goal="fix it",
                constraints=["tests first"],
            )  # fmt: skip
            run = await run_of(aios, task)
            index = index_of(run)
            assert (index["goal"], index["constraints"]) == ("fix it", ["tests first"])
            shared = index["shared"]
            assert isinstance(shared, list)
            first, second = shared
            assert isinstance(first, dict)
            assert isinstance(second, dict)
            assert second["summary"] == {"summary": "retry loops on 401", "progress_percent": 100}
            assert second["result"] == {"cause": "401"}
            parts = first["artifact"]["parts"]
            assert parts[0]["text"] == "see the file"
            assert files_of(run)[parts[1]["path"]] == REPORT

    play(scenario())


def test_what_a_program_calls_a_digest_hands_over_no_file(tmp_path: Path) -> None:
    """Neither somebody else's, by its name, nor one that cannot be a file's, which had kept the next from starting."""

    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await researched(aios)
            digest = hashlib.sha256(REPORT).hexdigest()

            async def claims(run: FakeRun) -> None:
                await run.go()
                parts: list[JsonValue] = [{"data": {"sha256": one, "size": 1}} for one in (digest, "none")]
                run.say("artifact", {"key": "k", "parts": parts})
                run.end(0)

            aios.launcher.program = claims
            task = await aios.create()
            await aios.ended(task)
            (artifact,) = await artifacts_of(aios, task)
            aios.launcher.program = exits_at_once
            run = await run_of(aios, await aios.create(execution_mode="collaborative", shared_context_refs=[artifact]))
            assert list(files_of(run)) == ["context.json"]

    play(scenario())


def test_a_handoff_goes_to_those_that_depend_on_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            first = await session(aios, objective="log in again")
            aios.launcher.program = researches
            step: JsonObject = {"capability_id": PLAIN, "execution_mode": "collaborative"}
            steps: list[JsonObject] = [
                {"ref": "look", "title": "look", "handoff_expected": True, **step},
                {"title": "fix", "kind": "implementation", "capability_id": PLAIN, "depends_on": ["look"]},
                {"title": "other", "capability_id": PLAIN},
            ]
            ids = await plan(aios, first, *steps)
            run = await run_of(aios, ids["fix"])
            index = index_of(run)
            assert index["objective"] == "log in again"
            handed = index["handed_over"]
            assert isinstance(handed, list)
            assert isinstance(handed[0], dict)
            assert handed[0]["task_id"] == ids["look"]
            artifacts = handed[0]["artifacts"]
            assert isinstance(artifacts, list)
            assert [one["name"] for one in artifacts if isinstance(one, dict)] == ["report"]
            assert REPORT in files_of(run).values()
            assert files_of(await run_of(aios, ids["other"])) == {}, "who has no context gets none"

    play(scenario())


def test_what_is_not_ones_own_cannot_be_shared(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            found, artifact = await researched(aios)
            for reference, name in ((artifact, "ArtifactNotFound"), (f"{found}.summary", "TaskNotFound")):
                options: JsonObject = {
                    "async": True, "execution_mode": "collaborative", "shared_context_refs": [reference]
                }  # fmt: skip
                request: JsonObject = {"capability_id": PLAIN, "options": options}
                refused = await aios.refused("task.create", request, OTHER)
                assert refused.kind.value.dbus == name
                assert refused.field == "options.shared_context_refs[0]"
                await aios.invoke("task.create", request, ROOT)
            refused = await aios.refused(
                "task.create", {"capability_id": PLAIN, "options": {"async": True, "shared_context_refs": [artifact]}}
            )
            assert "collaborative" in refused.detail

    play(scenario())


def test_what_is_gone_by_then_is_said_to_be_gone(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            found, artifact = await researched(aios)
            task = await aios.create(
                execution_mode="collaborative", shared_context_refs=[artifact, f"{found}.summary"],
                not_before="2100-01-01T00:00:00Z",
            )  # fmt: skip

            def remove(transaction: object) -> None:
                run = transaction.execute  # type: ignore[attr-defined]  # a Transaction
                run("DELETE FROM artifacts WHERE id = ?", (artifact,))
                run("DELETE FROM tasks WHERE id = ?", (found,))
                run("UPDATE tasks SET not_before = NULL WHERE id = ?", (task,))

            await aios.database.write(remove)
            aios.scheduler.wake()
            shared = index_of(await run_of(aios, task))["shared"]
            assert shared == [{"ref": artifact, "gone": True}, {"ref": f"{found}.summary", "gone": True}]

    play(scenario())


def test_files_beyond_the_limit_are_named_and_left_out(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            _, artifact = await researched(aios)

            def grow(transaction: object) -> None:
                parts = [
                    {"type": "file", "file": {"uri": "aios-artifact:x/0", "size": MAX_FILES + 1, "sha256": "0" * 64}}
                ]
                transaction.execute("UPDATE artifacts SET parts = ?", (json.dumps(parts),))  # type: ignore[attr-defined]

            await aios.database.write(grow)
            task = await aios.create(execution_mode="collaborative", shared_context_refs=[artifact])
            run = await run_of(aios, task)
            assert list(files_of(run)) == ["context.json"]
            assert "left_out" in files_of(run)["context.json"].decode()

    play(scenario())


def test_research_is_asked_of_the_launcher_and_never_of_a_critical_capability(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            for mode in ("research_only", "independent"):
                run = await run_of(aios, await aios.create(execution_mode=mode))
                assert run.request.read_only is (mode == "research_only")
            await aios.install("compat.command.run", manifest("compat.command.run", level="critical"))
            options: JsonObject = {"async": True, "execution_mode": "research_only"}
            refused = await aios.refused(
                "task.create", {"capability_id": "compat.command.run", "options": options}, ROOT
            )
            assert refused.field == "options.execution_mode"

    play(scenario())
