"""Seed 003's own story, once: a person, a manager, a worker and an administrator, whichever door each of them uses.

`tell` is the story; a `Door` is how its people ask, a `Hand` how its worker does. `normal` takes from a timeline what
differs between two tellings (ids, times), so that everything else can be compared.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonObject, JsonValue

PATIENCE = 40.0
"""Seconds that anything may take on a busy machine."""
TITLE = "Fix the login and the cache"
OBJECTIVE = "find the cause before changing code"
FIRST_WORD = "Look into the failing login first; do not change code yet"
SECOND_WORD = "The retry of the interface first; leave the cache alone"
COMMAND = "rm -rf build-cache"
WORKER: JsonObject = {
    "worker_id": "worker_mac_001", "hostname": "mac-studio", "os": "macos", "shell": "zsh",
    "capabilities": ["git", "terminal"],
}  # fmt: skip
PLAN: list[JsonValue] = [
    {"title": "Repair the cache", "kind": "implementation", "requires": ["redis"]},
    {"title": "Touch up the login page", "kind": "implementation", "requires": ["playwright"]},
    {
        "title": "Find out why the login fails", "kind": "investigation", "priority": "high", "requires": ["git"],
        "goal": "the cause, and how to remove it", "constraints": ["no changes yet", "tests and logs first"],
        "workspace": {
            "repo": "git@github.com:org/repo.git", "branch": "boss/task-102",
            "worktree_path": "/workers/worktrees/task-102",
        },
    },
]  # fmt: skip
SUMMARY: JsonObject = {
    "summary": "the retry goes round in circles on 401", "progress_percent": 60.0,
    "current_step": "analyze_retry_logic", "next_step": "the smallest change, and the tests", "risk": "medium",
}  # fmt: skip

_ID = re.compile(r"\b([a-z]+)-[0-9a-z]{26}\b")
_MOMENTS = frozenset({"timestamp", "created_at", "expires_at", "retry_at", "uid"})


class Hand(Protocol):
    """A worker's side of a door."""

    def register(self, about: JsonObject) -> None:
        """Be there from now on, for everybody's tasks."""

    def heartbeat(self, received: list[str]) -> list[JsonObject]:
        """The assignments that it has. `received`: deliveries that have arrived."""

    def say(self, word: str, assignment_id: str, about: JsonObject) -> None:
        """accept, report or complete."""

    def leave(self) -> None:
        """Take no more."""


class Door(Protocol):
    """How people ask."""

    @property
    def hand(self) -> Hand:
        """The worker."""

    def create_session(self, title: str, objective: str) -> str:
        """Its id."""

    def say(self, session_id: str, content: str, diff: JsonObject | None = None) -> str:
        """A message on channel web; with a diff it is a change of objective, and the proposed diff's id comes back."""

    def plan(self, session_id: str, tasks: list[JsonValue]) -> list[str]:
        """The ids of its tasks."""

    def apply(self, session_id: str, version: int, diff_id: str) -> None:
        """What was proposed."""

    def decide(self, approval_id: str, *, yes: bool) -> None:
        """The administrator's word, this once."""

    def timeline(self, session_id: str) -> list[JsonObject]:
        """All of it."""


def tell(door: Door) -> tuple[str, list[JsonObject]]:
    """The story; the session and its timeline."""
    session = door.create_session(TITLE, OBJECTIVE)
    door.say(session, FIRST_WORD)
    cache, page, login = door.plan(session, PLAN)
    hand = door.hand
    hand.register({**WORKER, "serves": "all"})
    offer = _assignment(hand, login, "offered")
    hand.say("accept", offer, {})
    hand.say("report", offer, {"step": {"name": "run_tests", "status": "started", "summary": "the login's tests"}})
    hand.say("report", offer, {"step": {"name": "run_tests", "status": "finished"}})
    hand.say("report", offer, {"summary": SUMMARY})
    diff: JsonObject = {
        "change_reason": "the person wants the retry first", "cancel_tasks": [cache], "pause_tasks": [page],
        "continue_tasks": [login],
        "create_tasks": [{"title": "Repair the retry", "kind": "implementation", "priority": "high",
                          "requires": ["git"]}],
    }  # fmt: skip
    door.apply(session, 1, door.say(session, SECOND_WORD, diff))
    for interaction, yes in ((1, False), (2, True)):
        wish: JsonObject = {
            "interaction": interaction, "kind": "dangerous_command", "summary": COMMAND, "risk_level": "high"
        }  # fmt: skip
        hand.say("report", offer, {"approval": wish})
        door.decide(_last_approval(door, session), yes=yes)
        assert _answer(hand, offer, interaction) is yes
    hand.say("complete", offer, {"result": {"cause": "the retry ignores 401"}, "summary": {**SUMMARY, "risk": "low"}})
    last = _assignment(hand, _created_last(door, session), "offered")
    hand.say("accept", last, {})
    hand.say("complete", last, {"result": {"changed": ["retry.py"]}})
    hand.leave()
    return session, door.timeline(session)


def _assignment(hand: Hand, task_id: str, state: str) -> str:
    """Wait for an assignment of that task."""
    deadline = time.monotonic() + PATIENCE
    while True:
        for one in hand.heartbeat([]):
            if (one["task_id"], one["state"]) == (task_id, state):
                return str(one["assignment_id"])
        assert time.monotonic() < deadline, f"{task_id} never came"
        time.sleep(0.05)


def _answer(hand: Hand, assignment_id: str, interaction: int) -> bool:
    """Wait for the answer to a question, and confirm that it is there."""
    deadline = time.monotonic() + PATIENCE
    while True:
        for one in hand.heartbeat([]):
            given = one.get("input")
            if (
                one["assignment_id"] == assignment_id
                and isinstance(given, dict)
                and given["interaction"] == interaction
            ):
                said = given["input"]
                assert isinstance(said, dict)
                hand.heartbeat([str(given["delivery"])])
                return said["approved"] is True
        assert time.monotonic() < deadline, "no answer came"
        time.sleep(0.05)


def _payloads(door: Door, session: str, kind: str) -> list[JsonObject]:
    return [_object(event["payload"]) for event in door.timeline(session) if event["type"] == kind]


def _last_approval(door: Door, session: str) -> str:
    return str(_payloads(door, session, "approval.requested")[-1]["approval_id"])


def _created_last(door: Door, session: str) -> str:
    return str([event["task_id"] for event in door.timeline(session) if event["type"] == "task.created"][-1])


def _object(value: JsonValue) -> JsonObject:
    assert isinstance(value, dict)
    return value


def normal(events: list[JsonObject]) -> list[JsonObject]:
    """The same timeline for each telling: ids by the order in which they appear, and no times."""
    known: dict[str, str] = {}

    def name(found: re.Match[str]) -> str:
        return known.setdefault(found[0], f"{found[1]}#{len(known)}")

    def plain(value: JsonValue) -> JsonValue:
        if isinstance(value, dict):
            return {key: plain(inner) for key, inner in value.items() if key not in _MOMENTS}
        if isinstance(value, list):
            return [plain(inner) for inner in value]
        return _ID.sub(name, value) if isinstance(value, str) else value

    return [_object(plain({key: inner for key, inner in event.items() if key != "id"})) for event in events]
