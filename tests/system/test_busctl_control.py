"""Proves that busctl(1) alone gives consent, approves, audits, stops everything, and works with sessions and plans.

The other half of `test_busctl_parity.py`. Each busctl is a connection of its own, so root's next one is a second act.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.system.busctl import APPROVAL, LONG, SESSION, approval_of
from tests.system.caller import TASK, path_of

if TYPE_CHECKING:
    from tests.system.busctl import Busctl

PUBLIC_ADDRESS = "https://93.184.216.34/aios/webhook"
"""Never spoken to: nothing happens to the task while it is subscribed to."""


def test_authenticate(busctl: Busctl) -> None:
    task_id = busctl.create("test.authenticate", "{}")
    busctl.task(task_id, "Wait", "a{sv}", "1", "until_waiting", "b", "true")
    response = json.dumps({"type": "api_key", "api_key": "k-1"})
    busctl.call(path_of(task_id), TASK, "Authenticate", "ha{sv}", "3", "0", passed=response)
    assert busctl.task(task_id, "Wait", "a{sv}", "0")[0] == "completed"


def test_approve(as_root: Busctl) -> None:
    task_id = as_root.create("test.critical", '{"name": "root"}')
    path = approval_of(as_root, task_id)
    shown = json.loads(str(as_root.call(path, APPROVAL, "Get")[0]))
    assert (shown["task_id"], shown["arguments"]) == (task_id, {"name": "root"})
    hashed = ("1", "request_hash", "s", str(shown["request_hash"]))
    assert as_root.call(path, APPROVAL, "Respond", "sa{sv}", "approve", *hashed) == ["approved"]
    assert as_root.task(task_id, "Wait", "a{sv}", "0")[0] == "completed"


def test_grants(as_root: Busctl) -> None:
    constraint = '{"seconds": {"equals": 1}}'
    grant = str(as_root.manager("RequestGrant", "sssa{sv}", "test.sleep", "timed:60", constraint, "0")[0])
    rows = as_root.manager("ListGrants", "a{sv}", "0")[0]
    assert isinstance(rows, list)
    assert [row[:1] + row[2:3] for row in rows if isinstance(row, list)] == [[grant, "test.sleep"]]
    as_root.manager("RevokeGrant", "sa{sv}", grant, "0")
    assert as_root.manager("ListGrants", "a{sv}", "0") == [[]]


def test_explain(busctl: Busctl) -> None:
    told = busctl.manager_json("ExplainPermission", "ssa{sv}", "test.look.high", "{}", "0")
    assert (told["level"], told["outcome"]) == ("high", "refuse")
    assert told["because"]


def test_audit(as_root: Busctl, busctl: Busctl) -> None:
    task_id = busctl.create("test.sleep", '{"seconds": 0}')
    page = busctl.manager_json("QueryAudit", "a{sv}", "1", "task_id", "s", task_id)
    records = page["records"]
    assert isinstance(records, list)
    assert {record["task_id"] for record in records if isinstance(record, dict)} == {task_id}
    before = as_root.manager_json("QueryAudit", "a{sv}", "1", "proof", "b", "true")["keys"]
    fingerprint = str(as_root.manager("RotateAuditKey", "a{sv}", "0")[0])
    after = json.dumps(as_root.manager_json("QueryAudit", "a{sv}", "1", "proof", "b", "true")["keys"])
    assert fingerprint in after
    assert fingerprint not in json.dumps(before)


@pytest.mark.warns("EMERGENCY STOP of user")
def test_emergency(busctl: Busctl) -> None:
    task_id = busctl.create("test.sleep", LONG)
    busctl.until(task_id, "working")
    assert busctl.manager_json("Emergency", "sa{sv}", "user", "1", "reason", "s", "test")["stopped"] == 1
    busctl.until(task_id, "canceled")
    busctl.manager("LiftEmergency", "sa{sv}", "user", "0")
    assert busctl.create("test.sleep", '{"seconds": 0}')


def test_drain(as_root: Busctl, busctl: Busctl) -> None:
    assert as_root.manager_json("Drain", "a{sv}", "0")["draining"] is True
    task_id = busctl.create("test.sleep", '{"seconds": 0}')
    assert as_root.manager_json("Drain", "a{sv}", "1", "lift", "b", "true")["draining"] is False
    assert busctl.task(task_id, "Wait", "a{sv}", "0")[0] == "completed"


def test_webhooks(as_root: Busctl) -> None:
    task_id = as_root.create("test.sleep", LONG, "1", "not_before", "t", "2000000000000000")
    hook = str(as_root.manager("SubscribeWebhook", "ssasa{sv}", task_id, PUBLIC_ADDRESS, "1", "completed", "0")[0])
    listed = as_root.manager_json("ListWebhooks", "sa{sv}", task_id, "0")["webhooks"]
    assert isinstance(listed, list)
    assert [row["webhook_id"] for row in listed if isinstance(row, dict)] == [hook]
    as_root.manager("UnsubscribeWebhook", "ssa{sv}", task_id, PUBLIC_ADDRESS, "0")
    assert as_root.manager_json("ListWebhooks", "sa{sv}", task_id, "0")["webhooks"] == []
    as_root.task(task_id, "Cancel", "sa{sv}", "", "0")


def test_session_plan_and_tree(busctl: Busctl) -> None:
    session_id, path = map(str, busctl.manager("CreateSession", "sa{sv}", "Mine", "1", "objective", "s", "To see"))
    rows = busctl.manager("ListSessions", "a{sv}", "0")[0]
    assert isinstance(rows, list)
    assert session_id in [row[0] for row in rows if isinstance(row, list)]
    tasks = {"tasks": [{"title": "One", "capability_id": "test.sleep", "arguments": {"seconds": 0}}]}
    plan = json.loads(str(busctl.call(path, SESSION, "CreatePlan", "sa{sv}", json.dumps(tasks), "0")[0]))
    assert json.loads(str(busctl.call(path, SESSION, "GetPlan", "a{sv}", "0")[0]))["version"] == plan["version"]
    tree = json.loads(str(busctl.call(path, SESSION, "GetTaskTree", "a{sv}", "0")[0]))["tasks"]
    assert [(row["title"], row["depth"]) for row in tree] == [("One", 0)]
    task_id = tree[0]["task_id"]
    assert busctl.task(task_id, "Wait", "a{sv}", "0")[0] == "completed"
    assert json.loads(str(busctl.task(task_id, "GetTree", "a{sv}", "0")[0]))["tasks"][0]["task_id"] == task_id
    busctl.call(path, SESSION, "Close", "a{sv}", "0")
    assert busctl.property(path, SESSION, "Status") == "closed"


def test_workers(as_root: Busctl) -> None:
    """A worker is there while its descriptor is open, so busctl's is gone with the busctl that registered it."""
    worker = "worker_busctl"
    skills = ("hostname", "s", "box", "capabilities", "as", "2", "git", "terminal")
    path = str(as_root.manager("RegisterWorker", "sa{sv}", worker, "2", *skills)[0])
    rows = as_root.manager("ListWorkers", "a{sv}", "1", "ended", "b", "true")[0]
    assert isinstance(rows, list)
    ((_, shown, uid, host, _, _, capabilities, *_),) = [
        row for row in rows if isinstance(row, list) if row[0] == worker
    ]
    assert (shown, uid, host, capabilities) == (path, 0, "box", ["git", "terminal"])
    found = as_root.manager_json("GetWorker", "sa{sv}", worker, "0")
    assert (found["worker_id"], found["capabilities"]) == (worker, ["git", "terminal"])
    since = ("1", "last_event_id", "s", f"evt-{0:016d}")
    missed = as_root.manager("SubscribeFeed", "ssa{sv}", "worker_feed", worker, *since)[1]
    assert isinstance(missed, list)
    assert isinstance(missed[0], list)
    told = json.loads(str(missed[0][2]))
    assert (missed[0][1], told["type"], told["payload"]["worker_id"]) == (*["worker.registered"] * 2, worker)
