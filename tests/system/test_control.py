"""Proves what holds a task and what ends it: cancel, time limits, retries, and who may start when.

With real programs in real scopes: one that ends when asked, one that never does, one that is frozen.
"""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from aiosd.bus.connection import Variant
from tests.system.caller import MANAGER, MANAGER_PATH, Refused, field_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiosd.model.jsontext import JsonObject, JsonValue
    from tests.rig.container import Container
    from tests.system.caller import Caller

LONG = {"seconds": 300}
CONFIGURATION = "/run/aios/aiosd.conf.d/test.conf"


def _ms(value: int) -> Variant:
    return Variant("t", value)


def _error(task: JsonObject, *keys: str) -> object:
    return field_of(task, "error", *keys)


def _between(earlier: JsonValue, later: JsonValue) -> timedelta:
    """From the end of one attempt to the start of the next."""
    ended, started = str(field_of(earlier, "ended_at")), str(field_of(later, "started_at"))
    return datetime.fromisoformat(started) - datetime.fromisoformat(ended)


def _exists(box: Container, pid: int) -> bool:
    return box.run("test", "-e", f"/proc/{pid}", check=False).returncode == 0


@contextmanager
def _configured(box: Container, *settings: str) -> Iterator[None]:
    """The daemon with other settings, for a while."""
    box.write(CONFIGURATION, "[Scheduler]\n" + "\n".join(settings) + "\n")
    box.run("systemctl", "reload", "aiosd.service")
    try:
        yield
    finally:
        box.run("rm", CONFIGURATION)
        box.run("systemctl", "reload", "aiosd.service")


# -- cancel ----------------------------------------------------------------------------------------------------------


def test_cancel_lets_the_program_end_by_itself(alice: Caller) -> None:
    task_id = alice.create("test.sleep", LONG)
    alice.until_running(task_id)
    alice.cancel(task_id, "no longer wanted")
    task = alice.get(task_id, history=True)
    assert (task["status"], task["phase"]) == ("canceled", "canceled")
    assert field_of(task, "exit", "signal") == "SIGTERM", "sleep(1) ends by itself, before its grace of 5 s is over"


def test_cancel_kills_what_does_not_end(alice: Caller, equipped: Container) -> None:
    task_id = alice.create("test.stubborn")
    alice.until(task_id, lambda _: len(alice.log(task_id).split()) == 2)
    pids = [pid for pid in _scope_pids(equipped, alice.get(task_id))]
    assert len(pids) == 3, "the shim, the program, and its child in a session of its own"
    begun = time.monotonic()
    alice.cancel(task_id)
    assert time.monotonic() - begun >= 0.3, "its manifest gives it 300 ms"
    task = alice.get(task_id)
    assert task["status"] == "canceled"
    assert field_of(task, "exit", "signal") == "SIGKILL"
    assert [pid for pid in pids if _exists(equipped, pid)] == []


def test_cancel_of_a_frozen_task(alice: Caller, equipped: Container) -> None:
    task_id = alice.create("test.sleep", LONG)
    unit = str(field_of(alice.until_running(task_id), "run", "unit"))
    alice.on_task(task_id, "Pause", "a{sv}", {})
    assert equipped.run("systemctl", "show", unit, "--property=FreezerState", "--value").stdout == "frozen\n"
    assert alice.status(task_id) == "paused"
    alice.cancel(task_id)
    assert alice.status(task_id) == "canceled"
    assert equipped.run("systemctl", "is-active", unit, check=False).stdout == "inactive\n"


def test_a_frozen_task_goes_on_where_it_was(alice: Caller) -> None:
    task_id = alice.create("test.lines", {"count": 25})
    alice.until(task_id, lambda _: "out 2\n" in alice.log(task_id))
    alice.on_task(task_id, "Pause", "a{sv}", {})
    before = alice.log(task_id)
    time.sleep(0.5)
    assert alice.log(task_id) == before
    alice.on_task(task_id, "Resume", "a{sv}", {})
    assert alice.wait(task_id)["status"] == "failed"
    assert alice.log(task_id) == "".join(f"out {number}\n" for number in range(1, 26))


def test_cancel_of_a_waiting_task_is_at_once(alice: Caller) -> None:
    task_id = alice.create("test.sleep", LONG, not_before=_ms(2_000_000_000_000_000))
    alice.cancel(task_id)
    task = alice.get(task_id)
    assert task["status"] == "canceled"
    assert "run" not in task
    with pytest.raises(Refused) as refused:
        alice.cancel(task_id)
    assert refused.value.short == "TaskAlreadyCanceled"


# -- time limits -----------------------------------------------------------------------------------------------------


def test_timeout(alice: Caller) -> None:
    task = alice.run("test.sleep", LONG, timeout_ms=_ms(400))
    assert (task["status"], task["reason"], _error(task, "code")) == ("failed", "timeout", -32005)
    assert _error(task, "data", "capability_id") == "test.sleep"
    assert _error(task, "data", "timeout_ms") == 400
    elapsed = _error(task, "data", "elapsed_ms")
    assert isinstance(elapsed, int)
    assert 400 <= elapsed < 60_000


def test_a_program_that_is_to_speak_and_does_not_is_stopped(alice: Caller, equipped: Container) -> None:
    with _configured(equipped, "stream_first_frame_timeout=1s"):
        plain = alice.create("test.sleep", LONG)
        silent = alice.run("test.silent")
        assert (silent["status"], silent["reason"], _error(silent, "code")) == ("failed", "first-frame-timeout", -32005)
        assert _error(silent, "data", "timeout_ms") == 1000
        assert alice.status(plain) in ("pending", "working"), "nobody expects it to speak"
        alice.cancel(plain)


# -- retries ---------------------------------------------------------------------------------------------------------


def test_retry_with_delay_and_reason(alice: Caller) -> None:
    options = {"retry_max_attempts": Variant("u", 3), "retry_delay_ms": _ms(300)}
    task = alice.run("test.fail", {"status": 5}, **options)
    assert (task["status"], task["reason"], task["attempt"], task["retry_count"]) == ("failed", "exit-status", 3, 2)
    attempts = task["attempts"]
    assert isinstance(attempts, list)
    assert [field_of(one, "reason") for one in attempts] == ["exit-status"] * 3
    for before, after in pairwise(attempts):
        assert _between(before, after) >= timedelta(milliseconds=300)
    history = alice.get(str(task["task_id"]), history=True)["state_history"]
    assert isinstance(history, list)
    assert [field_of(row, "state") for row in history] == ["pending", "working", "failed"], "a retry is no transition"


def test_no_retry_unless_it_is_asked_for(alice: Caller) -> None:
    task = alice.run("test.fail", {"status": 5})
    assert (task["status"], task["attempt"]) == ("failed", 1)


def test_cancel_between_two_attempts(alice: Caller) -> None:
    options = {"retry_max_attempts": Variant("u", 3), "retry_delay_ms": _ms(60_000)}
    task_id = alice.create("test.fail", {"status": 5}, **options)
    alice.until(task_id, lambda task: task["phase"] == "retry_wait")
    alice.cancel(task_id)
    assert alice.status(task_id) == "canceled"


def test_retry_of_a_finished_task_is_a_new_one(alice: Caller) -> None:
    old = str(alice.run("test.fail", {"status": 9})["task_id"])
    new, _ = alice.on_task(old, "Retry", "a{sv}", {})
    task = alice.wait(str(new))
    assert (task["retry_of"], task["arguments"]) == (old, {"status": 9})
    assert field_of(task, "exit", "exit_status") == 9
    assert alice.status(old) == "failed"


# -- who starts when -------------------------------------------------------------------------------------------------


def test_priorities_and_first_come_first_served(alice: Caller) -> None:
    holder = alice.create("test.single", LONG)
    alice.until_running(holder)
    asked = ["low", "normal", "high", "normal", "high", "low"]
    created = [alice.create("test.single", {"seconds": 0}, priority=Variant("s", name)) for name in asked]
    alice.cancel(holder)
    started = {task_id: str(alice.wait(task_id)["started_at"]) for task_id in created}
    order = [created.index(task_id) for task_id in sorted(created, key=lambda task_id: started[task_id])]
    assert order == [2, 4, 1, 3, 0, 5]


def test_a_priority_can_be_changed_while_it_waits(alice: Caller) -> None:
    holder = alice.create("test.single", LONG)
    alice.until_running(holder)
    first, second = (alice.create("test.single", {"seconds": 0}) for _ in range(2))
    alice.on_task(second, "SetPriority", "sa{sv}", "high", {})
    alice.cancel(holder)
    ended = [alice.wait(task_id) for task_id in (first, second)]
    assert str(ended[1]["started_at"]) < str(ended[0]["started_at"])


def test_at_most_so_many_of_one_capability(alice: Caller) -> None:
    created = [alice.create("test.sleep", LONG) for _ in range(4)]
    for task_id in created[:3]:
        alice.until_running(task_id)
    waiting = alice.get(created[3])
    assert (waiting["status"], waiting["phase"]) == ("pending", "queued")
    assert waiting["waiting_for"]
    alice.cancel(created[0])
    alice.until_running(created[3])


def test_at_most_so_many_at_all(alice: Caller, equipped: Container) -> None:
    with _configured(equipped, "max_concurrent_tasks=2"):
        created = [alice.create(name, LONG) for name in ("test.sleep", "test.single", "test.sleep")]
        for task_id in created[:2]:
            alice.until_running(task_id)
        assert alice.status(created[2]) == "pending"
        for task_id in created:
            alice.cancel(task_id)


def test_a_full_queue_stores_nothing(alice: Caller, root: Caller, equipped: Container) -> None:
    with _configured(equipped, "max_queue_size=2", "[Limits]", "max_queued_per_user=infinity"):
        later = _ms(2_000_000_000_000_000)
        created = [alice.create("test.sleep", LONG, not_before=later) for _ in range(2)]
        before = root.total()
        with pytest.raises(Refused) as refused:
            alice.create("test.sleep", LONG)
        assert (refused.value.short, refused.value.data["max_queue_size"]) == ("QueueFull", 2)
        assert root.total() == before
        alice.cancel(created[0])
        alice.cancel(alice.create("test.sleep", LONG))


def test_limits_of_the_daemon_are_properties(alice: Caller) -> None:
    get = ("org.freedesktop.DBus.Properties", "GetAll", "s", MANAGER)
    found = alice.call(MANAGER_PATH, *get)[0]
    assert isinstance(found, dict)
    assert [found[name] for name in ("MaxConcurrentTasks", "MaxTasksPerTool", "MaxQueueSize")] == [10, 3, 100]


def test_it_waits_for_what_it_depends_on(alice: Caller) -> None:
    first = alice.create("test.sleep", {"seconds": 0.5})
    second = alice.create("test.sleep", {"seconds": 0}, depends_on=Variant("as", [first]))
    assert (alice.get(second)["status"], alice.get(second)["phase"]) == ("pending", "waiting")
    ended = alice.wait(second)
    assert ended["status"] == "completed"
    assert str(ended["started_at"]) >= str(alice.get(first)["ended_at"])


def test_it_fails_with_what_it_depends_on(alice: Caller) -> None:
    first = alice.create("test.fail", {"status": 1})
    second = alice.create("test.sleep", {"seconds": 0}, depends_on=Variant("as", [first]))
    ended = alice.wait(second)
    assert (ended["status"], ended["reason"]) == ("failed", "dependency-failed")
    assert "run" not in ended


def test_no_circle_can_be_made(alice: Caller) -> None:
    token = f"circle{time.monotonic_ns()}"
    uid = field_of(alice.run("test.sleep", {"seconds": 0}), "uid")
    own = f"task-u{uid}-{token}"
    with pytest.raises(Refused) as refused:
        alice.create("test.sleep", LONG, handle_token=Variant("s", token), depends_on=Variant("as", [own]))
    assert (refused.value.short, refused.value.data["field"]) == ("InvalidParams", "options.depends_on[0]")
    assert refused.value.data["reason"] == "cycle"


def test_not_before(alice: Caller) -> None:
    moment = int((time.time() + 1) * 1_000_000)
    task = alice.run("test.sleep", {"seconds": 0}, not_before=_ms(moment))
    assert task["status"] == "completed"
    started = alice.call(
        f"{MANAGER_PATH}/task/{str(task['task_id']).replace('-', '_')}",
        "org.freedesktop.DBus.Properties",
        "Get",
        "ss",
        "org.aios.TaskManager1.Task",
        "StartedAt",
    )[0]
    assert isinstance(started, int)
    assert moment <= started < moment + 2_000_000


# -- questions -------------------------------------------------------------------------------------------------------


def test_a_question_is_answered_by_its_schema(alice: Caller) -> None:
    task_id = alice.create("test.ask")
    task = alice.until(task_id, lambda task: task["status"] == "input_required")
    assert (field_of(task, "question", "prompt"), task["phase"]) == ("Which colour?", "waiting_input")
    with pytest.raises(Refused) as refused:
        alice.on_task(task_id, "ProvideInput", "sa{sv}", json.dumps({"colour": "blue"}), {})
    assert refused.value.short == "InvalidInput"
    alice.on_task(task_id, "ProvideInput", "sa{sv}", json.dumps({"colour": "green"}), {})
    ended = alice.wait(task_id)
    assert (ended["status"], ended["result"]) == ("completed", {"colour": "green"})


def _scope_pids(box: Container, task: JsonObject) -> list[int]:
    path = f"/sys/fs/cgroup{field_of(task, 'run', 'control_group')}/cgroup.procs"
    return [int(line) for line in box.read(path).split()]
