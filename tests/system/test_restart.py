"""Proves that tasks do not notice what happens to the daemon, the launcher or systemd: nothing of them is lost.

A program that speaks and one that does not run on through each kind of restart; afterwards their output, progress, log,
artifact, exit status and result are complete, each once. What was queued still is, and time limits hold meanwhile.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from aiosd.bus.connection import Variant
from tests.system.caller import MANAGER, MANAGER_PATH, MARKS, Refused, field_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiosd.bus.message import BusValue
    from aiosd.model.jsontext import JsonObject
    from tests.rig.container import Container
    from tests.system.caller import Caller

COUNT = 25
LONG = {"seconds": 300}
RUNS = "/var/lib/aios-launcher/runs"

pytestmark = [
    pytest.mark.warns(r"launcher.*(gone|closed|connection|reach)|could not be launched"),
    pytest.mark.warns("connection of the daemon ends|an answer was not delivered"),
]

DISTURBANCES = {
    "daemon killed": ("systemctl", "kill", "--signal=KILL", "aiosd.service"),
    "daemon restarted": ("systemctl", "restart", "aiosd.service"),
    "launcher killed": ("systemctl", "kill", "--signal=KILL", "aios-launcher.service"),
    "launcher restarted": ("systemctl", "restart", "aios-launcher.service"),
    "both killed": ("systemctl", "kill", "--signal=KILL", "aiosd.service", "aios-launcher.service"),
    "systemd executed again": ("systemctl", "daemon-reexec"),
    "systemd reloaded": ("systemctl", "daemon-reload"),
}


def answers(caller: Caller, *, within: float = 30) -> None:
    """Wait until the daemon answers and has its launcher."""
    deadline = time.monotonic() + within
    while True:
        try:
            status = json.loads(str(caller.call(MANAGER_PATH, MANAGER, "GetStatus")[0]))
        except Refused:
            status = None  # it was just being killed
        if status is not None and status["launcher"]["connected"]:
            return
        assert time.monotonic() < deadline, f"aiosd does not come back: {status}"
        time.sleep(0.05)


@pytest.fixture(autouse=True)
def restarts_at_once(equipped: Container) -> Iterator[None]:
    """Each test begins with the short pause before a restart, which grows with every one (RestartSteps=)."""
    yield
    equipped.run("systemctl", "reset-failed", "aiosd.service", "aios-launcher.service")


def _events(caller: Caller, task_id: str) -> list[tuple[str, JsonObject]]:
    """Every event that the store has of the task: kind and data."""
    body: tuple[BusValue, ...] = (task_id, f"evt-{0:016d}", {})
    subscription, missed = caller.call(MANAGER_PATH, MANAGER, "Resubscribe", "ssa{sv}", *body)
    caller.call(MANAGER_PATH, MANAGER, "Unsubscribe", "s", str(subscription))
    assert isinstance(missed, list)
    return [(str(row[1]), json.loads(str(row[2]))) for row in missed if isinstance(row, list)]


def _expect_talk(alice: Caller, task_id: str) -> None:
    """test.talk has said everything, once."""
    task = alice.wait(task_id)
    assert (task["status"], task["attempt"]) == ("completed", 1), task
    assert field_of(task, "result", "counted") == COUNT
    lines = range(1, COUNT + 1)
    assert alice.log(task_id) == "".join(f"out {number}\n" for number in lines)
    assert alice.log(task_id, "stderr") == "".join(f"err {number}\n" for number in lines)
    events = _events(alice, task_id)
    said = [data["message"] for kind, data in events if kind == "task.log" and "message" in data]
    assert said == [f"log {number}" for number in lines]
    told = [field_of(data, "progress", "current_step") for kind, data in events if kind == "task.progress"]
    steps = [step for step in told if isinstance(step, int)]
    assert steps == sorted(set(steps))
    assert steps[-1] == COUNT
    assert [kind for kind, _ in events].count("task.result") == 1
    rows = alice.call(MANAGER_PATH, MANAGER, "ListArtifacts", "s", task_id)[0]
    assert isinstance(rows, list)
    assert [row[1] for row in rows if isinstance(row, list)] == ["counted"]


def _expect_lines(alice: Caller, task_id: str) -> None:
    """test.lines has written everything, and its exit status is known."""
    task = alice.wait(task_id)
    assert (task["status"], task["reason"], task["attempt"]) == ("failed", "exit-status", 1), task
    assert field_of(task, "exit", "exit_status") == 7
    for stream, word in (("stdout", "out"), ("stderr", "err")):
        assert alice.log(task_id, stream) == "".join(f"{word} {number}\n" for number in range(1, COUNT + 1))


@pytest.mark.parametrize("disturbance", DISTURBANCES)
def test_tasks_run_on(disturbance: str, alice: Caller, equipped: Container) -> None:
    talk, lines = alice.create("test.talk", {"count": COUNT}), alice.create("test.lines", {"count": COUNT})
    alice.until(talk, lambda _: "out 3\n" in alice.log(talk))
    output = f"{RUNS}/{field_of(alice.get(talk), 'run', 'run_id')}/stdout"
    said = equipped.run("sh", "-c", 'wc -l <"$0"; exec "$@"', output, *DISTURBANCES[disturbance]).stdout
    assert 3 <= int(said.split()[0]) < COUNT, "it was to be disturbed while it runs"
    answers(alice)
    _expect_talk(alice, talk)
    _expect_lines(alice, lines)


def test_tasks_end_while_the_daemon_is_away(alice: Caller, equipped: Container) -> None:
    talk, lines = alice.create("test.talk", {"count": COUNT}), alice.create("test.lines", {"count": COUNT})
    alice.until(lines, lambda _: "out 2\n" in alice.log(lines))
    equipped.run("systemctl", "stop", "aiosd.service")
    _until_no_scope(equipped)
    equipped.run("systemctl", "start", "aiosd.service")
    _expect_talk(alice, talk)
    _expect_lines(alice, lines)


def test_tasks_are_still_steered_after_both_were_killed(alice: Caller, equipped: Container) -> None:
    frozen, talking = alice.create("test.sleep", LONG), alice.create("test.talk", {"count": 500})
    for task_id in (frozen, talking):
        alice.until_running(task_id)
    alice.on_task(frozen, "Pause", "a{sv}", {})
    equipped.run(*DISTURBANCES["both killed"])
    answers(alice)
    assert alice.status(frozen) == "paused"
    alice.on_task(frozen, "Resume", "a{sv}", {})
    alice.on_task(talking, "Pause", "a{sv}", {})
    before = alice.log(talking)
    time.sleep(0.3)
    assert alice.log(talking) == before
    for task_id in (frozen, talking):
        alice.cancel(task_id)
        assert alice.status(task_id) == "canceled"
    _until_no_scope(equipped)


def test_the_queue_survives(alice: Caller, equipped: Container) -> None:
    holder = alice.create("test.single", LONG)
    alice.until_running(holder)
    waiting = [alice.create("test.single", {"seconds": 0}) for _ in range(3)]
    equipped.run(*DISTURBANCES["daemon killed"])
    answers(alice)
    assert [alice.status(task_id) for task_id in waiting] == ["pending"] * 3
    alice.cancel(holder)
    started = [str(alice.wait(task_id)["started_at"]) for task_id in waiting]
    assert started == sorted(started)


def test_a_task_that_was_promised_runs_once(root: Caller, equipped: Container) -> None:
    """The daemon is killed at moments from the reply to CreateTask to the end of the run."""
    equipped.run("rm", "-f", MARKS)  # those of other files' tests, whose box this may have been
    created = []
    for delay in (0, 0.01, 0.02, 0.04, 0.08):
        created.append(root.create("test.mark"))
        time.sleep(delay)
        equipped.run(*DISTURBANCES["daemon killed"])
        equipped.run("systemctl", "reset-failed", "aiosd.service")
        answers(root)
    ended = [root.wait(task_id) for task_id in created]
    assert [task["status"] for task in ended] == ["completed"] * len(created)
    assert sorted(equipped.read(MARKS).split()) == sorted(created)


def test_a_time_limit_that_passed_meanwhile(alice: Caller, equipped: Container) -> None:
    task_id = alice.create("test.sleep", LONG, timeout_ms=Variant("t", 1000))
    alice.until_running(task_id)
    equipped.run("systemctl", "stop", "aiosd.service")
    time.sleep(1)
    equipped.run("systemctl", "start", "aiosd.service")
    task = alice.wait(task_id)
    assert (task["status"], task["reason"], field_of(task, "error", "code")) == ("failed", "timeout", -32005)


def test_systemd_ends_what_is_over_time_while_the_daemon_is_away(alice: Caller, equipped: Container) -> None:
    task_id = alice.create("test.stubborn", timeout_ms=Variant("t", 100))
    alice.until_running(task_id)
    equipped.run("systemctl", "stop", "aiosd.service")
    _until_no_scope(equipped, within=30)  # the daemon's own limit has a margin of ten seconds before systemd acts
    equipped.run("systemctl", "start", "aiosd.service")
    task = alice.wait(task_id)
    assert (task["status"], task["reason"], field_of(task, "error", "code")) == ("failed", "timeout", -32005)
    assert field_of(task, "error", "data", "timeout_ms") == 100


def _until_no_scope(box: Container, *, within: float = 20) -> None:
    deadline = time.monotonic() + within
    while scopes := box.run("systemctl", "list-units", "--plain", "--no-legend", "aios-task-*.scope").stdout:
        assert time.monotonic() < deadline, f"still there: {scopes}"
        time.sleep(0.1)
