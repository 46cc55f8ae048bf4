"""Proves the main job: a user has a real capability run over /usr, follows it, pauses it, and gets a right result.

What runs is held to what systemd and the kernel say about it, and the result to sha256sum(1).
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.system.caller import MANAGER, MANAGER_PATH, Signal, field_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiosd.model.jsontext import JsonObject
    from tests.rig.container import Container
    from tests.system.caller import Caller

TREE = "/usr"
PROGRAM = "aiosd.capabilities.files_checksum"
BIG = f"{TREE}/share/aiosd-test-big"
LISTING = f"cd {TREE} && find . -xdev -type f -printf '%P\\0' | sort -z | xargs -0 sha256sum"


@dataclass(frozen=True)
class Job:
    """The one task of these tests: what was seen of it while it ran, and what it is now."""

    task_id: str
    running: JsonObject
    unit: dict[str, str]
    process: dict[str, str]
    cgroup: str
    stood_still: bool
    resumed: JsonObject
    ended: JsonObject
    progress: tuple[float, ...]


def _properties(box: Container, unit: str) -> dict[str, str]:
    shown = box.run("systemctl", "show", unit).stdout
    return {name: value for name, _, value in (line.partition("=") for line in shown.splitlines())}


def _status(box: Container, pid: str) -> dict[str, str]:
    lines = box.read(f"/proc/{pid}/status").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _percent(signal: Signal) -> float | None:
    if signal.member != "Event" or signal.body[2] != "task.progress":
        return None
    value = field_of(json.loads(str(signal.body[3])), "progress", "percent")
    assert isinstance(value, int | float)
    return value


def _stands_still(box: Container, pid: str) -> bool:
    """Whether the program uses no processor time for half a second (fields 14 and 15 of proc_pid_stat(5))."""

    def used() -> list[str]:
        return box.read(f"/proc/{pid}/stat").rpartition(")")[2].split()[11:13]

    before = used()
    time.sleep(0.5)
    return used() == before


@pytest.fixture(scope="module")
def job(equipped: Container, alice_at_seat: Caller) -> Iterator[Job]:
    """files.checksum over /usr, paused at its first sign of life and resumed."""
    alice, box = alice_at_seat, equipped
    alice.come_to_the_front()
    box.run("truncate", "-s", "1G", BIG)  # what is in the box's /usr alone would be done before anybody looks
    alice.call(MANAGER_PATH, MANAGER, "Subscribe", "sasa{sv}", "", ["progress"], {})
    task_id = alice.create("files.checksum", {"path": TREE})
    alice.wait_signal(lambda signal: _percent(signal) is not None)
    alice.on_task(task_id, "Pause", "a{sv}", {})
    running = alice.get(task_id)
    unit = str(field_of(running, "run", "unit"))
    pid = box.run("pgrep", "-f", PROGRAM).stdout.strip()
    seen = (_properties(box, unit), _status(box, pid), box.read(f"/proc/{pid}/cgroup"), _stands_still(box, pid))
    alice.on_task(task_id, "Resume", "a{sv}", {})
    resumed = alice.get(task_id)
    ended = alice.wait(task_id, within=60)
    alice.wait_signal(lambda signal: _percent(signal) == 100)
    progress = tuple(found for found in map(_percent, alice.signals) if found is not None)
    yield Job(task_id, running, *seen, resumed, ended, progress)
    box.run("rm", BIG)


def test_progress_is_live_and_only_grows(job: Job) -> None:
    assert len(job.progress) >= 3
    assert list(job.progress) == sorted(job.progress)
    assert job.progress[-1] == 100


def test_pause_and_resume(job: Job) -> None:
    assert (job.running["status"], job.running["phase"]) == ("paused", "paused")
    assert job.stood_still
    assert job.unit["FreezerState"] == "running", "it was asked to pause, not frozen"
    assert job.resumed["status"] == "working"


def test_states_in_order(job: Job, alice_at_seat: Caller) -> None:
    history = alice_at_seat.get(job.task_id, history=True)["state_history"]
    assert isinstance(history, list)
    states = [str(field_of(row, "state")) for row in history]
    assert states[0] == "pending"
    changes = [state for before, state in zip(["", *states], states, strict=False) if state != before]
    assert changes == ["pending", "working", "paused", "working", "completed"]


def test_systemd_holds_it_to_the_manifest(job: Job, alice_at_seat: Caller) -> None:
    manifest = json.loads(str(alice_at_seat.call(MANAGER_PATH, MANAGER, "GetCapability", "s", "files.checksum")[0]))
    limits = manifest["limits"]
    assert job.unit["Slice"] == "aios-tasks.slice"
    assert job.unit["ControlGroup"] == field_of(job.running, "run", "control_group")
    assert job.unit["ControlGroup"] == f"/aios.slice/aios-tasks.slice/{field_of(job.running, 'run', 'unit')}"
    assert int(job.unit["MemoryMax"]) == limits["memory_max"] == 512 << 20
    assert int(job.unit["TasksMax"]) == limits["tasks_max"] == 16
    assert job.unit["CPUQuotaPerSecUSec"] == "500ms"
    assert limits["cpu_quota_percent"] == 50


def test_the_program_is_its_callers_and_no_more(job: Job, equipped: Container) -> None:
    uid = equipped.run("id", "-u", "alice").stdout.strip()
    assert job.process["Uid"].split() == [uid] * 4
    assert job.process["NoNewPrivs"] == "1"
    assert {job.process[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert job.cgroup.strip().endswith(job.unit["ControlGroup"])


def test_the_result_is_what_sha256sum_says(job: Job, equipped: Container, alice_at_seat: Caller) -> None:
    assert job.ended["status"] == "completed"
    expected = equipped.sh(LISTING, user="alice", check=False, timeout=120).splitlines()
    rows = alice_at_seat.call(MANAGER_PATH, MANAGER, "ListArtifacts", "s", job.task_id)[0]
    assert isinstance(rows, list)
    artifact = next(str(row[0]) for row in rows if isinstance(row, list) and row[1] == "checksums")
    content = equipped.run("aiosctl", "artifact", "cat", artifact, user="alice").stdout
    assert sorted(content.splitlines()) == sorted(expected)
    assert field_of(job.ended, "result", "files") == len(expected)
    check = equipped.run("sh", "-c", f"cd {TREE} && sha256sum --check --quiet --strict", user="alice", input=content)
    assert check.stdout == ""


def test_the_digest_of_the_whole_is_that_of_the_list(job: Job, equipped: Container, alice_at_seat: Caller) -> None:
    number = alice_at_seat.begin(MANAGER_PATH, MANAGER, "OpenArtifact", "su", _artifact(job, "checksums"), 0)
    content = alice_at_seat.finish(number).contents[0]
    assert (
        field_of(job.ended, "result", "digest")
        == hashlib.sha256(content.encode("utf-8", "surrogateescape")).hexdigest()
    )


def test_nothing_of_it_is_left_running(job: Job, equipped: Container) -> None:
    assert equipped.run("pgrep", "-f", PROGRAM, check=False).stdout == ""
    unit = str(field_of(job.running, "run", "unit"))
    assert equipped.run("systemctl", "is-active", unit, check=False).stdout.strip() == "inactive"


def _artifact(job: Job, name: str) -> str:
    found = job.ended["artifacts"]
    assert isinstance(found, list)
    return next(str(field_of(one, "id")) for one in found if field_of(one, "name") == name)
