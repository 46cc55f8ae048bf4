"""The JSON-RPC door of the installed product: curl tells seed 000's story, streams outlive the daemon, polkit decides.

What runs on the host reaches the box's sockets through the root directory of its init, as root.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aiosd.client import CallError, Client
from tests import prerequisites
from tests.rig.rootfs import PASSWORDS
from tests.rpc.serving import EventParser, Json
from tests.rpc.story import EVENTS, REQUESTS

if TYPE_CHECKING:
    from aiosd.client import Event
    from tests.rig.container import Container

COUNT = 25
HIGH = "test.look.high"


@pytest.fixture
def http(equipped: Container) -> str:
    """The HTTP socket, as the host reaches it."""
    return f"/proc/{equipped.leader.pid}/root/run/aios/aios.sock"


class Curl:
    """Nothing but curl."""

    def __init__(self, socket: str) -> None:
        self._curl = [prerequisites.require_program("curl"), "--silent", "--show-error", "--unix-socket", socket]

    def call(self, method: str, params: Json) -> Json:
        body = json.dumps({"jsonrpc": "2.0", "id": "1", "method": method, "params": params})
        done = subprocess.run(
            [*self._curl, "--header", "Content-Type: application/json", "--data-binary", "@-", "http://localhost/rpc"],
            input=body, capture_output=True, text=True, check=True,
        )  # fmt: skip
        answer: Json = json.loads(done.stdout)
        assert "result" in answer, answer
        result: Json = answer["result"]
        return result

    def stream(self, query: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self._curl, "--no-buffer", "--header", "Last-Event-ID: evt-0000000000000000",
             f"http://localhost/events?{query}"], stdout=subprocess.PIPE, text=True,
        )  # fmt: skip


def test_curl_tells_the_story_of_the_document(http: str) -> None:
    curl = Curl(http)
    task_id = curl.call("aios/task.create", REQUESTS["aios/task.create"])["task_id"]
    parser, seen = EventParser(), []
    with curl.stream(f"task_id={task_id}&last_event_id=evt-0000000000000000") as stream:  # it may have begun already
        assert stream.stdout is not None
        for line in stream.stdout:
            for event in parser.feed(line.encode()):
                seen.append(event)
                if event.type == "task.input_required":
                    curl.call("aios/task.input", {**REQUESTS["aios/task.input"], "task_id": task_id})
            if seen and seen[-1].type == "task.result":
                break
        stream.kill()
    rest = iter(seen)
    for kind, said in EVENTS[:-1]:
        assert any(one.type == kind and _says(one.json, said) for one in rest), (kind, said)
    assert seen[-1].json["result"] == {"product": "product-123", "cheapest": "taobao"}
    assert [one["name"] for one in seen[-1].json["artifacts"]] == ["京东搜索结果", "价格对比报告"]
    task = curl.call("aios/task.get", {"task_id": task_id, "include_history": True})
    states = [row["state"] for row in task["state_history"] if row["phase"] != "assigned"]
    assert states == ["pending", "working", "input_required", "working", "completed"]


def _says(data: object, expected: object) -> bool:
    """Whether `data` says at least what `expected` says."""
    if isinstance(expected, dict):
        return isinstance(data, dict) and all(_says(data.get(key), value) for key, value in expected.items())
    return data == expected


@pytest.mark.warns("")
@pytest.mark.parametrize("how", [("restart",), ("kill", "--signal=KILL")], ids=["restarted", "killed"])
def test_a_stream_goes_on_when_the_daemon_is_replaced(http: str, equipped: Container, how: tuple[str, ...]) -> None:
    with Client(http) as client:
        task_id = str(client.create("test.talk", {"count": COUNT})["task_id"])
        made = str(client.call("aios/task.subscribe", {"task_id": task_id})["subscription_id"])
        seen: list[Event] = []

        def listen() -> None:
            for event in client.events(task_id):
                seen.append(event)
                if event.kind == "task.result":
                    return

        listening = threading.Thread(target=listen)
        listening.start()
        for _ in range(2):
            time.sleep(0.7)
            equipped.run("systemctl", *how, "aiosd.service")
        listening.join(60)
        assert not listening.is_alive()
        steps = [event.data["progress"]["current_step"] for event in seen if event.kind == "task.progress"]  # type: ignore[call-overload,index]  # the test fails when it is not so
        assert steps == list(range(1, COUNT + 1))
        ids = [event.id for event in seen]
        assert ids == sorted(set(ids))
        with Client(http) as other:
            log = other.call("aios/task.resubscribe", {"task_id": task_id, "last_event_id": "evt-0000000000000000"})
            missed = log["missed_events"]
            assert isinstance(missed, list)
            assert [one["id"] for one in missed if isinstance(one, dict)] == ids
        parser, again = EventParser(), list[str]()
        with Curl(http).stream(f"subscription_id={made}") as stream:  # made two daemons ago
            assert stream.stdout is not None
            while len(again) < len(ids):
                again += [event.id for event in parser.feed(stream.stdout.readline().encode())]
            stream.kill()
        assert again == ids


def test_nobody_is_refused_while_the_daemon_is_replaced(http: str, equipped: Container) -> None:
    over = threading.Event()
    answers: list[object] = []
    cut_off: list[ConnectionError] = []

    def ask() -> None:
        while not over.is_set():
            try:
                with Client(http, timeout=30) as client:
                    answers.append(client.call("aios/service.status")["state"])
            except ConnectionRefusedError as error:
                answers.append(str(error))
            except ConnectionError as error:
                cut_off.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        for _ in range(2):
            # What is being answered when the daemon stops is cut off; who comes afterwards waits.
            equipped.run("systemctl", "restart", "aiosd.service")
            before = len(answers)
            deadline = time.monotonic() + 60
            while len(answers) < before + 5 and time.monotonic() < deadline and asking.is_alive():
                time.sleep(0.02)
    finally:
        over.set()
        asking.join(30)
    assert len(answers) >= 10
    # The one that is about to end may say so; nobody hears that there is no service.
    assert {"running"} <= set(answers) <= {"running", "draining"}
    assert len(cut_off) <= 2, "one client, cut off at most once by each restart"


def call_as(box: Container, user: str, method: str, params: Json, *, seat: str | None = None) -> Json:
    """`aiosctl rpc` as that user; the whole error when it is refused."""
    words = ("aiosctl", "rpc", "--no-ask-password", "--json", method, json.dumps(params))
    answer: Json = json.loads(box.run(*words, user=user, seat=seat, check=False).stdout)
    return answer


def test_polkit_decides_by_the_process_at_the_other_end(equipped: Container) -> None:
    create: Json = {"capability_id": HIGH, "options": {"async": True}}
    nobody_to_ask = call_as(equipped, "alice", "task.create", create)["error"]
    assert nobody_to_ask["data"]["error_id"] == "AIOS-PERM-DENIED"
    somebody = call_as(equipped, "alice", "task.create", create, seat="seat0")
    assert somebody["status"] == "auth_required"  # it waits until somebody who is asked says yes
    assert call_as(equipped, "root", "task.create", create)["status"] == "pending"


def test_a_person_is_asked_for_a_call_over_the_socket(equipped: Container) -> None:
    """pkttyagent(1) on a terminal, real PAM; polkit knows the process by its pidfd."""
    ask = ("python3", "/src/tests/system/programs/on_terminal.py", PASSWORDS["carol"])
    call = ("aiosctl", "rpc", "task.create", json.dumps({"capability_id": HIGH}))
    done = equipped.run(*ask, *call, user="alice", seat="seat0", check=False)
    assert "AUTHENTICATING FOR org.aios.TaskManager.run-high" in done.stdout
    assert '"status": "completed"' in done.stdout
    assert done.returncode == 0, done.stdout


def test_another_users_task_is_not_there(equipped: Container) -> None:
    create: Json = {"capability_id": "test.sleep", "arguments": {"seconds": 60}, "options": {"async": True}}
    task_id = call_as(equipped, "alice", "task.create", create)["task_id"]
    for method in ("task.get", "task.cancel", "task.subscribe", "task.logs", "artifact.list"):
        error = call_as(equipped, "bob", method, {"task_id": task_id})["error"]
        assert (error["code"], error["data"]["error_id"]) == (-32106, "AIOS-TASK-NOT-FOUND"), method
    assert task_id not in [row["task_id"] for row in call_as(equipped, "bob", "task.list", {})["tasks"]]
    assert call_as(equipped, "alice", "task.cancel", {"task_id": task_id})["status"] == "canceled"


def test_what_is_asked_for_is_held_by_systemd(equipped: Container) -> None:
    for path, unit in (("aios.sock", "aiosd.socket"), ("aios-lines.sock", "aiosd-lines.socket")):
        assert equipped.run("stat", "-c", "%U %a", f"/run/aios/{path}").stdout.strip() == "root 666"
        assert equipped.run("systemctl", "is-enabled", unit).stdout.strip() == "enabled"
        assert equipped.run("systemctl", "show", "-P", "Triggers", unit).stdout.strip() == "aiosd.service"


def test_the_first_http_client_costs_what_it_costs(http: str, equipped: Container) -> None:
    """aiohttp is only loaded when somebody speaks HTTP; all else that is not there at the start comes by itself."""
    equipped.run("systemctl", "restart", "aiosd.service")
    deadline = time.monotonic() + 60
    while "rpds" not in equipped.sh("cat /proc/$(systemctl show -P MainPID aiosd.service)/maps"):  # of schemas
        assert time.monotonic() < deadline, "it does not come to rest"
        time.sleep(0.1)
    before = _rss(equipped)
    with Client(http) as client:
        client.call("aios/service.status")
        after = _rss(equipped)
    print(f"RSS {before / 1024:.1f} MiB, {after / 1024:.1f} MiB after the first HTTP client")
    assert 1024 < after - before < 16 * 1024
    with Client(http) as client, pytest.raises(CallError):
        client.call("aios/nothing")


def _rss(box: Container) -> int:
    """In KiB."""
    status = box.sh("cat /proc/$(systemctl show -P MainPID aiosd.service)/status")
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:")))


def test_the_page_for_people_is_right_about_curl(equipped: Container) -> None:
    page = (Path(__file__).parents[2] / "docs/protocol.md").read_text("utf-8")
    assert "curl --unix-socket /run/aios/aios.sock" in page
    done = equipped.run("aiosctl", "rpc", "task.list", user="alice")
    assert json.loads(done.stdout)["tasks"] is not None
