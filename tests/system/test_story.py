"""Seed 003's story on the installed product: typed, told over D-Bus and told over JSON-RPC, it is one timeline.

The people are alice, who works, and root, who approves; the worker is a service of root's that takes everybody's tasks.
docs/story.svg is the picture of it (`AIOSD_WRITE_DOCS=1` draws it anew).
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from aiosd.bus.connection import Variant
from aiosd.bus.paths import approval_path, session_path, worker_path
from aiosd.core.operations import APPROVAL, SESSION, WORKER
from tests.rig import host
from tests.system.caller import MANAGER, MANAGER_PATH, connected
from tests.system.story import normal, tell

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiosd.bus.message import BusValue
    from aiosd.model.jsontext import JsonObject, JsonValue
    from tests.rig.commands import Running
    from tests.rig.container import Container
    from tests.system.caller import Caller
    from tests.system.story import Door

PICTURE = host.CHECKOUT / "docs/story.svg"
TYPES = [
    "session.created", "session.message.added", *["task.created"] * 3, "plan.created",
    "task.assigned", "worker.assignment.accepted", "task.started",
    "task.step.started", "task.step.finished", "task.progress",
    "session.message.added", "session.objective.updated", "plan.diff.generated",
    "task.created", "task.cancelled", "task.paused", "plan.updated",
    "task.blocked", "task.blocked", "approval.requested", "approval.rejected", "task.resumed",
    "task.blocked", "task.blocked", "approval.requested", "approval.approved", "task.resumed",
    "task.progress", "task.completed", "task.completed",
    "task.assigned", "worker.assignment.accepted", "task.started", "task.completed", "task.completed",
    "all_tasks_processed",
]  # fmt: skip


def objects(value: JsonValue) -> list[JsonObject]:
    """The objects of an array."""
    assert isinstance(value, list)
    return [one for one in value if isinstance(one, dict)]


# -- JSON-RPC -------------------------------------------------------------------------------------------------------


class Line:
    """One connection of somebody in the box."""

    def __init__(self, process: Running) -> None:
        self._process = process
        self._numbers = itertools.count(1)

    @classmethod
    @contextlib.contextmanager
    def of(cls, box: Container, user: str) -> Iterator[Line]:
        argv = ("python3", "-I", "/src/tests/system/programs/lines.py")
        with box.popen(*argv, user=user, stdin=subprocess.PIPE) as process:
            yield cls(process)
            assert process.stdin is not None
            process.stdin.close()
            process.wait()

    def call(self, method: str, params: JsonObject) -> JsonObject:
        """What it answers; nothing here may be refused."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        call = {"jsonrpc": "2.0", "id": next(self._numbers), "method": f"aios/{method}", "params": params}
        self._process.stdin.write(json.dumps(call).encode() + b"\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        assert "result" in answer, answer
        result: JsonObject = answer["result"]
        return result


class RpcHand:
    """The worker over JSON-RPC."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._named: JsonObject = {}

    def register(self, about: JsonObject) -> None:
        answer = self._line.call("worker.register", about)
        self._named = {"worker_id": answer["worker_id"]}
        self._registration = answer["registration"]

    def heartbeat(self, received: list[str]) -> list[JsonObject]:
        named: JsonObject = {**self._named, "registration": self._registration, "received": [*received]}
        return objects(self._line.call("worker.heartbeat", named)["assignments"])

    def say(self, word: str, assignment_id: str, about: JsonObject) -> None:
        self._line.call(f"worker.{word}", {**self._named, "assignment_id": assignment_id, **about})

    def leave(self) -> None:
        self._line.call("worker.unregister", {**self._named, "registration": self._registration})


class RpcDoor:
    """Everything over JSON-RPC."""

    def __init__(self, person: Line, administrator: Line, worker: Line) -> None:
        self._person = person
        self._administrator = administrator
        self.hand = RpcHand(worker)

    def create_session(self, title: str, objective: str) -> str:
        return str(self._person.call("session.create", {"title": title, "objective": objective})["session_id"])

    def say(self, session_id: str, content: str, diff: JsonObject | None = None) -> str:
        change: JsonObject = {} if diff is None else {"objective_change": True, "diff": diff}
        said: JsonObject = {"session_id": session_id, "role": "user", "channel": "web", "content": content}
        proposed = self._person.call("message.add", {**said, **change}).get("proposed")
        return str(proposed["diff_id"]) if isinstance(proposed, dict) else ""

    def plan(self, session_id: str, tasks: list[JsonValue]) -> list[str]:
        made = self._person.call("plan.create", {"session_id": session_id, "tasks": tasks})
        return [str(row["task_id"]) for row in objects(made["tasks"])]

    def apply(self, session_id: str, version: int, diff_id: str) -> None:
        self._person.call("plan.apply_diff", {"session_id": session_id, "version": version, "diff_id": diff_id})

    def decide(self, approval_id: str, *, yes: bool) -> None:
        action = "approve_once" if yes else "reject"
        self._administrator.call("approval.respond", {"approval_id": approval_id, "action": action})

    def timeline(self, session_id: str) -> list[JsonObject]:
        return objects(self._person.call("session.timeline", {"session_id": session_id, "limit": 1000})["events"])


# -- D-Bus ----------------------------------------------------------------------------------------------------------


class BusHand:
    """The worker over D-Bus; its connection holds the descriptor that says that it lives."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._path = ""

    def register(self, about: JsonObject) -> None:
        named = about["capabilities"]
        assert isinstance(named, list)
        options: BusValue = {
            "capabilities": Variant("as", [str(one) for one in named]),
            **{name: Variant("s", str(about[name])) for name in ("hostname", "os", "shell", "serves")},
        }
        begun = self._caller.begin(
            MANAGER_PATH, MANAGER, "RegisterWorker", "sa{sv}", str(about["worker_id"]), options, keep=True
        )
        path, registration, *_ = self._caller.finish(begun).body
        self._path, self._registration = str(path), str(registration)
        assert self._path == worker_path(0, str(about["worker_id"]))

    def heartbeat(self, received: list[str]) -> list[JsonObject]:
        options: BusValue = {"received": Variant("as", received)} if received else {}
        (state,) = self._caller.call(self._path, WORKER, "Heartbeat", "sa{sv}", self._registration, options)
        return objects(json.loads(str(state))["assignments"])

    def say(self, word: str, assignment_id: str, about: JsonObject) -> None:
        if word == "report":
            body: tuple[BusValue, ...] = (json.dumps(about), {})
        elif word == "complete":
            summary = about.get("summary")
            options: BusValue = {} if summary is None else {"summary": Variant("s", json.dumps(summary))}
            body = (json.dumps(about["result"]), options)
        else:
            body = ({},)
        signature = "sa{sv}" if len(body) == 1 else "ssa{sv}"
        self._caller.call(self._path, WORKER, word.capitalize(), signature, assignment_id, *body)

    def leave(self) -> None:
        self._caller.call(self._path, WORKER, "Unregister", "sa{sv}", self._registration, {})


class PersonsBus:
    """Everything over D-Bus."""

    def __init__(self, person: Caller, administrator: Caller, worker: Caller) -> None:
        self._person = person
        self._administrator = administrator
        self.hand = BusHand(worker)

    def _ask(self, session_id: str, member: str, signature: str, *body: BusValue) -> JsonObject:
        (answer,) = self._person.call(session_path(session_id), SESSION, member, signature, *body)
        found: JsonObject = json.loads(str(answer))
        return found

    def create_session(self, title: str, objective: str) -> str:
        options: BusValue = {"objective": Variant("s", objective)}
        return str(self._person.call(MANAGER_PATH, MANAGER, "CreateSession", "sa{sv}", title, options)[0])

    def say(self, session_id: str, content: str, diff: JsonObject | None = None) -> str:
        change: dict[str, BusValue] = {}
        if diff is not None:
            change = {"objective_change": Variant("b", True), "diff": Variant("s", json.dumps(diff))}
        options: BusValue = {"channel": Variant("s", "web"), **change}
        proposed = self._ask(session_id, "AddMessage", "ssa{sv}", "user", content, options).get("proposed")
        return str(proposed["diff_id"]) if isinstance(proposed, dict) else ""

    def plan(self, session_id: str, tasks: list[JsonValue]) -> list[str]:
        made = self._ask(session_id, "CreatePlan", "sa{sv}", json.dumps({"tasks": tasks}), {})
        return [str(row["task_id"]) for row in objects(made["tasks"])]

    def apply(self, session_id: str, version: int, diff_id: str) -> None:
        options: BusValue = {"diff_id": Variant("s", diff_id)}
        self._ask(session_id, "ApplyDiff", "usa{sv}", version, "", options)

    def decide(self, approval_id: str, *, yes: bool) -> None:
        action = "approve_once" if yes else "reject"
        self._administrator.call(approval_path(approval_id), APPROVAL, "Respond", "sa{sv}", action, {})

    def timeline(self, session_id: str) -> list[JsonObject]:
        options: BusValue = {"limit": Variant("u", 1000)}
        return objects(self._ask(session_id, "GetTimeline", "a{sv}", options)["events"])


# -- aiosctl --------------------------------------------------------------------------------------------------------


class CommandLine:
    """People type; the worker is a process of its own and speaks as it likes."""

    def __init__(self, box: Container, worker: Line) -> None:
        self._box = box
        self.hand = RpcHand(worker)

    def _type(self, *words: str, user: str = "alice", given: JsonValue = None) -> str:
        text = "" if given is None else json.dumps(given)
        return self._box.run("aiosctl", *words, user=user, input=text).stdout

    def create_session(self, title: str, objective: str) -> str:
        return self._type("session", "create", title, "--objective", objective).strip()

    def say(self, session_id: str, content: str, diff: JsonObject | None = None) -> str:
        change = () if diff is None else ("--objective-change", "--diff", "-")
        words = ("session", "say", session_id, content, "--channel", "web", *change, "--json")
        proposed = json.loads(self._type(*words, given=diff)).get("proposed")
        return str(proposed["diff_id"]) if isinstance(proposed, dict) else ""

    def plan(self, session_id: str, tasks: list[JsonValue]) -> list[str]:
        made = json.loads(self._type("plan", "create", session_id, "-", "--json", given={"tasks": tasks}))
        return [str(row["task_id"]) for row in objects(made["tasks"])]

    def apply(self, session_id: str, version: int, diff_id: str) -> None:
        self._type("plan", "apply", session_id, "--version", str(version), "--diff-id", diff_id)

    def decide(self, approval_id: str, *, yes: bool) -> None:
        self._type("approve", approval_id, "--yes" if yes else "--reject", user="root")

    def timeline(self, session_id: str) -> list[JsonObject]:
        shown = self._type("session", "timeline", session_id, "--json")
        return [json.loads(line) for line in shown.splitlines()]


@pytest.fixture
def doors(equipped: Container, alice: Caller, root: Caller) -> Iterator[dict[str, Door]]:
    """The three ways."""
    with contextlib.ExitStack() as stack:
        worker = stack.enter_context(connected(equipped, "root"))
        one, two, three, four = (
            stack.enter_context(Line.of(equipped, user)) for user in ("alice", "root", "root", "root")
        )
        yield {
            "aiosctl": CommandLine(equipped, four),
            "D-Bus": PersonsBus(alice, root, worker),
            "JSON-RPC": RpcDoor(one, two, three),
        }


def texts(svg: str) -> list[str]:
    """What a picture says, but for the times."""
    found = ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")  # noqa: S314 - our own
    said = [one.text or "" for one in found]
    return [text for text in said if not text[:2].isdigit() and ", UTC" not in text]


def test_at_each_door_it_is_the_same_timeline(doors: dict[str, Door], equipped: Container) -> None:
    told = {name: tell(door) for name, door in doors.items()}
    timelines = {name: normal(events) for name, (_, events) in told.items()}
    assert [event["type"] for event in timelines["JSON-RPC"]] == TYPES
    assert timelines["D-Bus"] == timelines["JSON-RPC"]
    assert timelines["aiosctl"] == timelines["JSON-RPC"]
    drawn = equipped.run("aiosctl", "session", "timeline", told["aiosctl"][0], "--svg", user="alice").stdout
    if os.environ.get("AIOSD_WRITE_DOCS"):
        PICTURE.write_text(drawn, encoding="utf-8")
    assert texts(PICTURE.read_text(encoding="utf-8")) == texts(drawn), "docs/story.svg is of another story"
