"""Workers on the installed product: in Python, in shell and on D-Bus; killed in the middle, and over a restart."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.system.caller import MANAGER, MANAGER_PATH, Refused
from tests.system.rules import polkit_rules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aiosd.model.jsontext import JsonObject
    from tests.rig.commands import Running
    from tests.rig.container import Container
    from tests.system.caller import Caller

YES = """
polkit.addRule(function(action, subject) {
    if (action.id == "org.aios.TaskManager.register-worker" && subject.user == "alice"
        && action.lookup("serves") == "own") return polkit.Result.YES;
});
"""
PLACE = "/run/worker"
PROGRAMS = "/src/tests/system/programs"
PYTHON = ("python3", "-B", f"{PROGRAMS}/worker.py")
BUS = ("python3", "-B", f"{PROGRAMS}/bus_worker.py")
GOAL = "find the cause of the failed login"
PATIENCE = 60.0


@pytest.fixture
def allowed(equipped: Container) -> Iterator[Container]:
    """The box, where alice may register workers for herself, and a directory for them to speak by."""
    equipped.sh(f"rm -rf {PLACE} && mkdir -m 777 {PLACE}")
    with polkit_rules(equipped, "10-aiosd-worker", YES):
        yield equipped


@contextmanager
def shell(box: Container, worker_id: str) -> Iterator[Running]:
    """The shell's worker, as alice."""
    run = ("aios-task", "worker", "run", worker_id, "--capability", "git", "--capability", "terminal", "--")
    with box.popen(*run, f"{PROGRAMS}/worker.sh", PLACE, user="alice") as process:
        yield process


@contextmanager
def program(box: Container, worker_id: str, argv: tuple[str, ...] = PYTHON) -> Iterator[Running]:
    """A worker in Python, as alice."""
    with box.popen("env", "PYTHONPATH=/src", *argv, worker_id, PLACE, user="alice") as process:
        yield process


def until(check: Callable[[], bool], what: str) -> None:
    """Wait for it."""
    deadline = time.monotonic() + PATIENCE
    while not check():
        assert time.monotonic() < deadline, f"in vain: {what}"
        time.sleep(0.1)


def exists(box: Container, name: str) -> bool:
    return box.run("test", "-e", f"{PLACE}/{name}", check=False).returncode == 0


def shown(box: Container, *words: str) -> JsonObject:
    """What aiosctl says to alice, as JSON."""
    found: JsonObject = json.loads(box.run("aiosctl", *words, "--json", user="alice").stdout)
    return found


def planned(box: Container) -> tuple[str, str]:
    """A session of alice's with one task that a worker is to take."""
    session = box.run("aiosctl", "session", "create", "Fix the login", user="alice").stdout.strip()
    tasks = [{"title": "look", "goal": GOAL, "requires": ["git"], "kind": "investigation"}]
    box.write(f"{PLACE}/plan.json", json.dumps({"tasks": tasks}))
    box.run("aiosctl", "plan", "create", session, f"{PLACE}/plan.json", user="alice")
    rows = shown(box, "plan", "show", session)["tasks"]
    assert isinstance(rows, list)
    assert isinstance(rows[0], dict)
    return session, str(rows[0]["task_id"])


def status(box: Container, task_id: str) -> str:
    task = shown(box, "show", task_id)
    return f"{task['status']}/{task['phase']}"


def events(box: Container, session: str) -> list[JsonObject]:
    text = box.run("aiosctl", "session", "timeline", session, "--json", user="alice").stdout
    return [json.loads(line) for line in text.splitlines()]


def test_registering_is_asked_of_polkit(equipped: Container, alice: Caller) -> None:
    refused = equipped.run("aios-task", "worker", "run", "worker_sh", "--", "true", user="alice", check=False)
    assert refused.returncode == 1
    assert "register-worker" in refused.stderr
    with pytest.raises(Refused) as told:
        alice.call(MANAGER_PATH, MANAGER, "RegisterWorker", "sa{sv}", "worker_bus", {})
    assert told.value.name == "org.aios.TaskManager.Error.PermissionDenied"


@pytest.mark.parametrize("kind", ["python", "shell", "bus"])
def test_a_worker_does_a_task_of_a_plan(allowed: Container, kind: str) -> None:
    box, worker_id = allowed, f"worker_{kind}"
    session, task_id = planned(box)
    box.sh(f"touch {PLACE}/go")
    with shell(box, worker_id) if kind == "shell" else program(box, worker_id, BUS if kind == "bus" else PYTHON):
        until(lambda: status(box, task_id) == "completed/completed", "the task's end")
        listed = shown(box, "worker", "list")["workers"]
        assert isinstance(listed, list)
        assert [row["worker_id"] for row in listed if isinstance(row, dict)] == [worker_id]
    done = shown(box, "show", task_id)
    assert (done["result"], done["worker_id"]) == ({"attempt": 1, "by": worker_id}, worker_id)
    told = [str(event["type"]) for event in events(box, session) if event.get("worker_id") == worker_id]
    assert told[:4] == ["task.assigned", "worker.assignment.accepted", "task.started", "task.step.started"]
    until(lambda: shown(box, "worker", "list")["workers"] == [], "the worker's end")


@pytest.mark.parametrize("kind", ["shell", "bus"])
def test_who_is_killed_in_the_middle_is_replaced_and_not_heard_any_more(allowed: Container, kind: str) -> None:
    box = allowed
    session, task_id = planned(box)
    with shell(box, "worker_1") if kind == "shell" else program(box, "worker_1", BUS):
        until(lambda: exists(box, "begun-1"), "the first attempt")
        box.sh("pkill -KILL -u alice -f '[w]orker run worker_1|[b]us_worker.py worker_1'")
        until(lambda: status(box, task_id) == "working/retry_wait", "the worker's loss")
        with program(box, "worker_2"):
            until(lambda: exists(box, "begun-2"), "the second attempt")
            box.sh(f"touch {PLACE}/go")
            until(lambda: status(box, task_id) == "completed/completed", "the task's end")
            if kind == "shell":
                until(lambda: exists(box, "ended-1"), "the late report of the first attempt's script")
                assert box.read(f"{PLACE}/ended-1") == "1\n"
                assert "late reports are refused" in box.read(f"{PLACE}/refused")
    done = shown(box, "show", task_id)
    assert (done["result"], done["retry_count"]) == ({"attempt": 2, "by": "worker_2"}, 1)
    lost = [event["payload"] for event in events(box, session) if event["type"] == "worker.assignment.lost"]
    assert [one["reason"] for one in lost if isinstance(one, dict)] == ["worker-lost"]
    gone = shown(box, "worker", "show", "worker_1")
    assert gone["status"] == "gone"


def test_a_worker_keeps_its_task_over_a_restart_of_the_daemon(allowed: Container) -> None:
    box = allowed
    _, task_id = planned(box)
    with program(box, "worker_py"):
        until(lambda: exists(box, "begun-1"), "the attempt")
        box.run("systemctl", "restart", "aiosd.service")
        assert status(box, task_id) == "working/running"
        box.sh(f"touch {PLACE}/go")
        until(lambda: status(box, task_id) == "completed/completed", "the task's end")
    assert shown(box, "show", task_id)["result"] == {"attempt": 1, "by": "worker_py"}
