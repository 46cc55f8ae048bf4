"""The methods about workers, in the form of `cases.CASES`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiosd.bus.connection import Call, Variant
from aiosd.bus.paths import BUS_NAME, worker_path
from aiosd.core.operations import WORKER
from tests.bus.fake_core import TASK_ID, manager_call

if TYPE_CHECKING:
    from aiosd.bus.message import BusValue
    from aiosd.model.jsontext import JsonObject

WORKER_ID = "worker_mac_001"
WORKER_PATH = worker_path(1000, WORKER_ID)
WORKER_BODY: JsonObject = {
    "worker_id": WORKER_ID, "uid": 1000, "hostname": "mac-studio", "os": "macos", "shell": "zsh",
    "capabilities": ["git", "terminal", "playwright", "xcode"], "status": "idle", "current_task_id": None, "load": 0.25,
    "heartbeat_at": "2026-03-23T12:15:00.000Z", "registered_at": "2026-03-23T12:00:00.000Z",
}  # fmt: skip
"""Seed 003's worker."""
_ASSIGNMENT = "wa-01jdxg3v7m9q2w4e6r8t0y1abc"
_ABOUT: JsonObject = {"worker_id": WORKER_ID, "uid": 1000, "assignment_id": _ASSIGNMENT}
_DONE: JsonObject = {"assignment_id": _ASSIGNMENT, "task_id": TASK_ID, "status": "working"}
_STATE: JsonObject = {"tag": "00ff", "lease_ms": 60000, "assignments": []}
_STATE_TEXT = '{"tag":"00ff","lease_ms":60000,"assignments":[]}'


def worker_call(member: str, signature: str = "", *body: BusValue) -> Call:
    return Call(BUS_NAME, WORKER_PATH, WORKER, member, signature, body)


def _options(**given: tuple[str, BusValue]) -> dict[str, BusValue]:
    return {name: Variant(kind, value) for name, (kind, value) in given.items()}


WORKER_CASES: list[tuple[Call, str, JsonObject, JsonObject, tuple[BusValue, ...]]] = [
    (manager_call("ListWorkers", "a{sv}", _options(ended=("b", True), limit=("u", 10), cursor=("s", "3"))),
     "worker.list", {"ended": True, "limit": 10, "cursor": "3"},
     {"workers": [WORKER_BODY], "has_more": True, "next_cursor": "4"},
     ([[WORKER_ID, WORKER_PATH, 1000, "mac-studio", "macos", "zsh", ["git", "terminal", "playwright", "xcode"], "idle",
        "", 0.25, 1774268100000000]], "4")),
    (manager_call("GetWorker", "sa{sv}", WORKER_ID, _options(uid=("u", 1001))), "worker.get",
     {"worker_id": WORKER_ID, "uid": 1001}, {"worker_id": "w"}, ('{"worker_id":"w"}',)),
    (worker_call("Heartbeat", "sa{sv}", "0a", _options(status=("s", "busy"), load=("d", 0.25), wait_ms=("u", 500),
                                                       received=("as", ["input-1"]), known=("s", "00fe"))),
     "worker.heartbeat",
     {"worker_id": WORKER_ID, "uid": 1000, "registration": "0a", "status": "busy", "load": 0.25, "wait_ms": 500,
      "received": ["input-1"], "known": "00fe"}, _STATE, (_STATE_TEXT,)),
    (worker_call("Unregister", "sa{sv}", "0a", _options()), "worker.unregister",
     {"worker_id": WORKER_ID, "uid": 1000, "registration": "0a"}, {}, ()),
    (worker_call("Accept", "sa{sv}", _ASSIGNMENT, _options()), "worker.accept", _ABOUT, _DONE, ("working",)),
    (worker_call("Reject", "ssa{sv}", _ASSIGNMENT, "no licence", _options()), "worker.reject",
     {**_ABOUT, "reason": "no licence"}, {**_DONE, "status": "pending"}, ("pending",)),
    (worker_call("Report", "ssa{sv}", _ASSIGNMENT, '{"step":{"name":"run_tests","status":"started"}}', _options()),
     "worker.report", {**_ABOUT, "step": {"name": "run_tests", "status": "started"}}, _DONE, ("working",)),
    (worker_call("Complete", "ssa{sv}", _ASSIGNMENT, '{"cause":"retry"}', _options(summary=("s", '{"risk":"low"}'))),
     "worker.complete", {**_ABOUT, "result": {"cause": "retry"}, "summary": {"risk": "low"}},
     {**_DONE, "status": "completed"}, ("completed",)),
    (worker_call("Fail", "ssa{sv}", _ASSIGNMENT, "no such branch", _options(retryable=("b", False))),
     "worker.fail", {**_ABOUT, "message": "no such branch", "retryable": False}, {**_DONE, "status": "failed"},
     ("failed",)),
]  # fmt: skip
