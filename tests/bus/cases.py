"""Every method once or more: the call, the operation and parameters that it becomes, the core's answer, the reply."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiosd.bus.connection import Call, Variant
from aiosd.bus.paths import task_path
from tests.bus.fake_core import TASK_ID, manager_call, task_call

if TYPE_CHECKING:
    from aiosd.bus.message import BusValue
    from aiosd.model.jsontext import JsonObject

NO_OPTIONS: dict[str, BusValue] = {}
ROW: JsonObject = {
    "task_id": TASK_ID,
    "capability_id": "org.example.search",
    "title": "Search",
    "uid": 1000,
    "status": "working",
    "phase": "running",
    "priority": "normal",
    "progress": {"percent": 40.5},
    "created_at": "2026-01-05T10:00:00.000Z",
}
PATH = task_path(TASK_ID)
BUS_ROW: tuple[str | int, ...] = (TASK_ID, PATH, "org.example.search", "working", "running", 1000, 40, 1767607200000000)
PAGE: JsonObject = {"tasks": [ROW], "total": 7, "has_more": True}


def _options(**given: tuple[str, BusValue]) -> dict[str, BusValue]:
    return {name: Variant(kind, value) for name, (kind, value) in given.items()}


CREATE = _options(
    priority=("s", "high"),
    timeout_ms=("t", 60000),
    retry_max_attempts=("u", 3),
    retry_delay_ms=("t", 500),
    metadata=("s", '{"tag":"x"}'),
    depends_on=("as", ["task-1"]),
    not_before=("t", 1767607200000001),
    limits=("s", '{"tasks_max":16}'),
)

# call, the operation, its parameters, the core's answer, the door's answer
CASES: list[tuple[Call, str, JsonObject, JsonObject, tuple[BusValue, ...]]] = [
    (
        manager_call("CreateTask", "ssa{sv}", "org.example.search", '{"query":"x"}', CREATE),
        "task.create",
        {
            "capability_id": "org.example.search",
            "arguments": {"query": "x"},
            "metadata": {"tag": "x"},
            "options": {
                "async": True,
                "defer": False,
                "priority": "high",
                "timeout_ms": 60000,
                "retry": {"max_attempts": 3, "delay_ms": 500},
                "depends_on": ["task-1"],
                "not_before": "2026-01-05T10:00:00.000001+00:00",
                "limits": {"tasks_max": 16},
            },
        },
        {"task_id": TASK_ID, "status": "pending", "created_at": "2026-01-05T10:00:00.000Z"},
        (TASK_ID, PATH),
    ),
    (
        manager_call("CreateTask", "ssa{sv}", "org.example.search", "", NO_OPTIONS),
        "task.create",
        {"capability_id": "org.example.search", "arguments": {}, "options": {"async": True, "defer": False}},
        {"task_id": "task-u1000-my_token"},
        ("task-u1000-my_token", "/org/aios/TaskManager/task/task_u1000_my_token"),
    ),
    (
        manager_call(
            "ListTasks", "a{sv}",
            _options(
                status=("as", ["working"]), limit=("u", 1), order=("s", "asc"), session_id=("s", "ps-1"),
                parent_task_id=("s", "task-1"), tag=("s", "shopping"), uid=("u", 1001),
            ),
        ),
        "task.list",
        {
            "filter": {
                "status": ["working"], "session_id": "ps-1", "parent_task_id": "task-1", "tag": "shopping", "uid": 1001
            },
            "pagination": {"limit": 1}, "sort": {"order": "asc"},
        },
        PAGE,
        ([BUS_ROW], 7, True),
    ),
    (
        manager_call("ListHistory", "a{sv}", _options(start_time=("t", 0), all_users=("b", True))),
        "task.history",
        {"filter": {"start_time": "1970-01-01T00:00:00.000000+00:00", "all_users": True}},
        {"tasks": [{**ROW, "progress": None}], "total": 1, "has_more": False},
        ([(*BUS_ROW[:6], -1, BUS_ROW[7])], 1, False),
    ),
    (
        manager_call("ListCapabilities", "a{sv}", _options(filter=("s", "org.*"))),
        "capability.list",
        {"filter": "org.*"},
        {"capabilities": [{"id": "org.example.search", "title": "Search", "level": "low", "description": "Finds"}]},
        ([["org.example.search", "Search", "low", "Finds"]],),
    ),
    (
        manager_call("GetCapability", "s", "org.example.search"),
        "capability.get",
        {"capability_id": "org.example.search"},
        {"id": "org.example.search"},
        ('{"id":"org.example.search"}',),
    ),
    (
        manager_call("ListArtifacts", "s", TASK_ID),
        "artifact.list",
        {"task_id": TASK_ID},
        {"artifacts": [{"id": "art-1", "name": "r", "type": "text", "mime_type": "text/plain", "size": 5}]},
        ([["art-1", "r", "text", "text/plain", 5]],),
    ),
    (manager_call("GetArtifact", "s", "art-1"), "artifact.get", {"artifact_id": "art-1"},
     {"artifact": {"id": "art-1"}}, ('{"id":"art-1"}',)),
    (manager_call("Reload", "a{sv}", NO_OPTIONS), "service.reload", {}, {}, ()),
    (manager_call("Drain", "a{sv}", _options(lift=("b", True))), "service.drain", {"lift": True},
     {"draining": False, "running": 1}, ('{"draining":false,"running":1}',)),
    (manager_call("GetStatus"), "service.status", {}, {"state": "running"}, ('{"state":"running"}',)),
    (manager_call("SubscribeWebhook", "ssasa{sv}", TASK_ID, "https://client.example.com/", ["status"],
                  _options(max_retries=("u", 5), retry_delay_ms=("t", 200))), "task.subscribe_webhook",
     {"task_id": TASK_ID, "webhook_url": "https://client.example.com/", "events": ["status"],
      "retry_policy": {"max_retries": 5, "retry_delay_ms": 200}}, {"webhook_id": "hook-1"}, ("hook-1",)),
    (manager_call("UnsubscribeWebhook", "ssa{sv}", TASK_ID, "https://client.example.com/", NO_OPTIONS),
     "task.unsubscribe_webhook", {"task_id": TASK_ID, "webhook_url": "https://client.example.com/"}, {}, ()),
    (manager_call("ListWebhooks", "sa{sv}", "", NO_OPTIONS), "webhook.list", {}, {"webhooks": []},
     ('{"webhooks":[]}',)),
    (manager_call("ResumeWebhook", "sa{sv}", "hook-1", NO_OPTIONS), "webhook.resume", {"webhook_id": "hook-1"}, {}, ()),
    (task_call("Cancel", "sa{sv}", "enough", NO_OPTIONS), "task.cancel",
     {"task_id": TASK_ID, "reason": "enough"}, {}, ()),
    (task_call("Cancel", "sa{sv}", "", NO_OPTIONS), "task.cancel", {"task_id": TASK_ID}, {}, ()),
    (task_call("Pause", "a{sv}", NO_OPTIONS), "task.pause", {"task_id": TASK_ID}, {}, ()),
    (task_call("Resume", "a{sv}", NO_OPTIONS), "task.resume", {"task_id": TASK_ID}, {}, ()),
    (task_call("Retry", "a{sv}", _options(handle_token=("s", "again"))), "task.retry",
     {"task_id": TASK_ID, "handle_token": "again"}, {"task_id": "task-u0-again"},
     ("task-u0-again", "/org/aios/TaskManager/task/task_u0_again")),
    (task_call("SetPriority", "sa{sv}", "low", NO_OPTIONS), "task.set_priority",
     {"task_id": TASK_ID, "priority": "low"}, {}, ()),
    (task_call("ProvideInput", "sa{sv}", '{"yes":true}', NO_OPTIONS), "task.input",
     {"task_id": TASK_ID, "input": {"yes": True}}, {}, ()),
    (task_call("Wait", "a{sv}", _options(timeout_ms=("t", 9), until_waiting=("b", True))), "task.wait",
     {"task_id": TASK_ID, "timeout_ms": 9, "until_waiting": True}, {"status": "failed"},
     ("failed", '{"status":"failed"}')),
    (task_call("GetHistory"), "task.state_history", {"task_id": TASK_ID},
     {"state_history": [{"state": "pending", "phase": "queued", "timestamp": "2026-01-05T10:00:00.000Z"}]},
     ([["pending", "queued", 1767607200000000, "", "{}"]],)),
]  # fmt: skip
