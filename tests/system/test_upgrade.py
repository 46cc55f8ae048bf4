"""The daemon is replaced under load (`systemctl restart`, as an upgrade does): nothing is lost and nobody is refused.

Twenty tasks tell of every step to twenty clients, fifty wait in the queue, a webhook's delivery is in flight. Between
the old daemon and the new one callers come by every door: they wait in the sockets and in the bus and are answered by
the new one. What each client heard is held against what the store has.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from aiosd.client import AsyncClient, Client
from tests.outcomes import note
from tests.system.caller import MANAGER, MANAGER_PATH, MARKS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aiosd.client import Event
    from aiosd.model.jsontext import JsonObject
    from tests.rig.container import Container
    from tests.system.caller import Caller

RUNNING, QUEUED, STEPS = 20, 50, 100
SETTINGS = "/run/aios/aiosd.conf.d/90-upgrade.conf"
DROP_IN = "/run/systemd/system/aiosd.service.d/gap.conf"
GAP = 3
"""Seconds that nobody serves, so that the callers of the test come in them however slow they are."""
PORT = 18098
HOLD, NOTES = "/run/upgrade-hold", "/run/upgrade-notes"
RECEIVER = "test-slow-receiver"
PATIENCE = 120.0
BEGINNING = "evt-0000000000000000"

pytestmark = pytest.mark.warns("connection of the daemon ends|an answer was not delivered|launcher.*(gone|closed)")


@pytest.fixture
def roomy(equipped: Container) -> Iterator[Container]:
    """The box with places for twenty tasks, a receiver of webhooks that keeps its first delivery, and a gap."""
    equipped.write(
        SETTINGS,
        f"[Scheduler]\nmax_concurrent_tasks={RUNNING}\nmax_tasks_per_tool={RUNNING}\n"
        "[Webhooks]\nallow_private_addresses=yes\ndelivery_timeout=60\n",
    )
    equipped.sh(f"mkdir -p {DROP_IN.rpartition('/')[0]}; rm -f {NOTES} {MARKS}; touch {HOLD}")
    equipped.write(DROP_IN, f"[Service]\nExecStartPre=/usr/bin/sleep {GAP}\n")
    equipped.run("systemctl", "daemon-reload")
    equipped.run("systemctl", "reload", "aiosd.service")
    program = ("/usr/bin/python3", "/src/tests/system/programs/slow_receiver.py", str(PORT), HOLD, NOTES)
    equipped.run("systemd-run", "--quiet", f"--unit={RECEIVER}", "--collect", *program)
    yield equipped
    equipped.sh(f"rm -f {SETTINGS} {DROP_IN} {HOLD}; systemctl stop {RECEIVER} || true; systemctl daemon-reload")
    equipped.run("systemctl", "reload", "aiosd.service")


@dataclass
class Listener:
    """A client that follows one task to its end, on a thread of its own."""

    socket: str
    task_id: str
    heard: list[Event] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begin."""
        self.thread = threading.Thread(target=self._listen, daemon=True)
        self.thread.start()

    def _listen(self) -> None:
        with Client(self.socket) as client:
            for event in client.events(self.task_id):
                self.heard.append(event)
                self.times.append(time.monotonic())
                if event.kind == "task.result":
                    return

    def silence(self, begin: float) -> float:
        """The longest pause between two events, of which one came after `begin`."""
        pairs = zip(self.times, self.times[1:], strict=False)
        return max((after - before for before, after in pairs if after > begin), default=0.0)


def until(check: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not check():
        assert time.monotonic() < deadline, f"it does not come: {what}"
        time.sleep(0.02)


def _property(box: Container, name: str) -> str:
    return box.run("systemctl", "show", "aiosd.service", f"--property={name}", "--value").stdout.strip()


async def _by_lines(socket: str) -> str:
    async with AsyncClient(socket) as client:
        return str((await client.create("test.mark"))["task_id"])


def test_a_restart_under_load_loses_nothing_and_refuses_nobody(roomy: Container, root: Caller) -> None:
    sockets = f"/proc/{roomy.leader.pid}/root/run/aios"
    http, lines = f"{sockets}/aios.sock", f"{sockets}/aios-lines.sock"
    with Client(http) as client:
        talking = [str(client.create("test.talk", {"count": STEPS})["task_id"]) for _ in range(RUNNING)]
        marking = [str(client.create("test.mark")["task_id"]) for _ in range(QUEUED)]
        hook: JsonObject = {
            "task_id": talking[0],
            "webhook_url": f"http://127.0.0.1:{PORT}/",
            "events": ["log", "result"],
        }
        client.call("aios/task.subscribe_webhook", hook)
        listeners = [Listener(http, task) for task in talking]
        until(lambda: all(len(one.heard) > 4 for one in listeners), "every client hears of its task")
        until(lambda: roomy.sh(f"cat {NOTES} 2>/dev/null || true") != "", "a delivery is in flight")
        load = client.call("aios/service.status")["tasks"]
    assert isinstance(load, dict)
    assert min(load["running"], load["queued"]) > 0, "a machine so slow that it is not under load any more"

    begun, old = time.monotonic(), _property(roomy, "MainPID")
    with roomy.popen("systemctl", "restart", "aiosd.service") as restart:
        until(lambda: _property(roomy, "MainPID") == "0", "nobody serves")
        came = time.monotonic()
        answers: list[str] = []

        def call(how: Callable[[], str]) -> threading.Thread:
            thread = threading.Thread(target=lambda: answers.append(how()), daemon=True)
            thread.start()
            return thread

        def by_http() -> str:
            with Client(http) as another:
                return str(another.create("test.mark")["task_id"])

        callers = [call(by_http), call(by_http), call(lambda: asyncio.run(_by_lines(lines)))]
        root.call(MANAGER_PATH, MANAGER, "GetStatus")  # activates by the bus name, and waits
        for caller in callers:
            caller.join(PATIENCE)
        assert restart.wait(PATIENCE) == 0
    assert _property(roomy, "MainPID") not in ("0", old)
    assert _property(roomy, "NRestarts") == "0", "nobody had to bring it back"
    ready = int(_property(roomy, "ActiveEnterTimestampMonotonic")) / 1_000_000
    assert came < ready, "the callers came while nobody served"
    assert len(answers) == len(callers), "a caller was refused"
    roomy.run("rm", HOLD)

    for one in listeners:
        one.thread.join(PATIENCE)
        assert not one.thread.is_alive(), f"{one.task_id} was not told to its end"
    with Client(http) as client:
        for one in listeners:
            _heard_all(client, one)
        marked = [*marking, *answers]
        ended = [client.wait(task) for task in marked]
        assert {(task["status"], task["attempt"]) for task in ended} == {("completed", 1)}
    assert sorted(roomy.read(MARKS).split()) == sorted(marked), "each ran once"
    _delivered_all(roomy, talking[0], listeners[0])
    note(
        "faults", "`systemctl restart` under load",
        f"{load['running']} tasks stream to {len(listeners)} clients, {load['queued']} queued, a delivery in flight, "
        f"{len(answers)} creations and a D-Bus call while nobody serves: 0 events lost or repeated, 0 callers refused, "
        f"{len(marked)} tasks ran once",
    )  # fmt: skip
    silences = sorted(one.silence(begun) for one in listeners)
    print(
        f"{load}; silence of {RUNNING} clients, {GAP} s of it the test's gap: {silences[0]:.2f} to {silences[-1]:.2f} s"
    )


def _heard_all(client: Client, one: Listener) -> None:
    """What it heard is what the store has, in order, each once; and the task said all."""
    stored = client.call("aios/task.resubscribe", {"task_id": one.task_id, "last_event_id": BEGINNING})
    missed = stored["missed_events"]
    assert isinstance(missed, list)
    assert [event.id for event in one.heard] == [row["id"] for row in missed if isinstance(row, dict)]
    said = [event.data.get("message") for event in one.heard if event.kind == "task.log" and "message" in event.data]
    assert said == [f"log {number}" for number in range(1, STEPS + 1)]
    task = client.get(one.task_id)
    assert (task["status"], task["attempt"]) == ("completed", 1)


def _delivered_all(box: Container, task_id: str, one: Listener) -> None:
    """The receiver was told every event in order; the delivery that was in flight may have come twice."""
    wanted = [event.id for event in one.heard if event.kind in ("task.log", "task.result")]

    def taken() -> list[str]:
        rows = [line.split() for line in box.read(NOTES).splitlines()]
        assert {row[2] for row in rows} == {task_id}
        return list(dict.fromkeys(row[0] for row in rows))

    since = {"id": ""}

    def all_there() -> bool:
        got = taken()
        assert got == sorted(got)
        since["id"] = got[-1]
        return got[-1] == wanted[-1]

    until(all_there, json.dumps(since))
    got = taken()
    assert got == wanted[wanted.index(got[0]) :], "an event was left out"
    repeated = len(box.read(NOTES).splitlines()) - len(got)
    assert repeated <= 1, "only what was in flight is sent again"
