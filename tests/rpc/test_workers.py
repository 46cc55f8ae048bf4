"""Workers over JSON-RPC: known by their connection, or by their heartbeats alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.rpc.serving import Http, Json, door
from tests.rpc.test_lines import Line
from tests.unit.core.rig import core, play

if TYPE_CHECKING:
    from pathlib import Path

WORKER: Json = {"worker_id": "worker_mac_001", "hostname": "mac-studio", "os": "macos", "shell": "zsh"}


def test_a_worker_is_there_as_long_as_its_connection(place: Path) -> None:
    async def scenario() -> None:
        async with core(place) as aios, door(place, aios.manager, aios.hub) as (paths, _):
            async with Line.connect(paths.lines) as other:
                async with Line.connect(paths.lines) as line:
                    made = await line.call("aios/worker.register", {**WORKER, "liveness": "descriptor"})
                    assert made["result"]["assignments"] == []
                    listed = await other.call("aios/worker.list")
                    assert [row["status"] for row in listed["result"]["workers"]] == ["idle"]
                    (member,) = aios.services.crew.present.values()
                await member.changed.wait()
                while not member.gone:
                    member.changed.clear()
                    await member.changed.wait()
                beat = {"worker_id": "worker_mac_001", "registration": made["result"]["registration"]}
                gone = await other.call("aios/worker.heartbeat", beat)
                assert gone["error"]["data"]["error_id"] == "AIOS-WORKER-NOT-FOUND"

    play(scenario())


def test_over_http_a_worker_is_known_by_its_heartbeats(place: Path) -> None:
    async def scenario() -> None:
        async with core(place) as aios, door(place, aios.manager, aios.hub) as (paths, _):
            async with Http.connect(paths.http) as http:
                refused = await http.call("aios/worker.register", {**WORKER, "liveness": "descriptor"})
                assert refused["error"]["data"]["field"] == "liveness"
                made = (await http.call("aios/worker.register", WORKER))["result"]
            async with Http.connect(paths.http) as http:
                beat = {"worker_id": "worker_mac_001", "registration": made["registration"], "load": 0.25}
                answer = (await http.call("aios/worker.heartbeat", beat))["result"]
                assert (answer["tag"], answer["assignments"]) == (made["tag"], [])
                shown = (await http.call("aios/worker.get", {"worker_id": "worker_mac_001"}))["result"]
                assert (shown["status"], shown["load"], shown["current_task_id"]) == ("idle", 0.25, None)

    play(scenario())


def test_what_is_too_much_or_wrong_is_refused_with_its_field(place: Path) -> None:
    async def scenario() -> None:
        async with core(place) as aios, door(place, aios.manager, aios.hub) as (paths, _):
            async with Http.connect(paths.http) as http:
                about: Json = {"worker_id": "w", "assignment_id": "wa-1"}
                for method, params, field in (
                    ("register", {"worker_id": "no spaces"}, "worker_id"),
                    ("register", {"worker_id": "w", "hostname": "h" * 201}, "hostname"),
                    ("register", {"worker_id": "w", "capabilities": ["git"] * 65}, "capabilities"),
                    ("register", {"worker_id": "w", "capabilities": ["a b"]}, "capabilities[0]"),
                    ("register", {"worker_id": "w", "capacity": 0}, "capacity"),
                    ("register", {"worker_id": "w", "metadata": {"x": "y" * 70_000}}, "metadata"),
                    ("register", {"worker_id": "w", "serves": "root"}, "serves"),
                    ("heartbeat", {"worker_id": "w", "registration": "r", "load": -1.0}, "load"),
                    ("heartbeat", {"worker_id": "w", "registration": "r", "wait_ms": 20_001}, "wait_ms"),
                    ("heartbeat", {"worker_id": "w", "registration": "r", "status": "asleep"}, "status"),
                    ("reject", {**about, "reason": ""}, "reason"),
                    ("report", {**about, "progress": {"percent": 101.0}}, "progress.percent"),
                    ("report", {**about, "step": {"name": "s", "status": "done"}}, "step.status"),
                    ("report", {**about, "summary": {"summary": "s" * 4001}}, "summary.summary"),
                    ("report", {**about, "log": {"message": "m" * 4001}}, "log.message"),
                    ("report", {**about, "artifact": {"key": "k", "parts": [{"file": {"path": "/etc/shadow"}}]}},
                     "artifact.parts[0]"),
                    ("report", {**about, "artifact": {"key": "k", "parts": [{"text": "t" * 65_537}]}},
                     "artifact.parts[0].text"),
                    ("report", {**about, "artifact": {"key": "k", "parts": [{"text": "t" * 60_000}] * 3}}, "report"),
                    ("report", {**about, "question": {"prompt": ""}}, "question.prompt"),
                    ("report", {**about, "approval": {"kind": "Rm", "summary": "x"}}, "approval.kind"),
                    ("complete", {**about, "result": {"x": "y" * 70_000}}, "result"),
                    ("fail", {**about, "message": ""}, "message"),
                    ("fail", {**about, "message": "m", "data": {"x": "y" * 70_000}}, "data"),
                ):  # fmt: skip
                    answer = await http.call(f"aios/worker.{method}", params)
                    assert answer["error"]["code"] == -32602, (method, field, answer)
                    assert answer["error"]["data"]["field"] == field, (method, answer)

    play(scenario())
