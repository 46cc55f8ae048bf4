"""The methods about grants and approvals, in the form of `cases.CASES`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiosd.bus.connection import Call, Variant
from aiosd.bus.paths import BUS_NAME, approval_path
from aiosd.core.operations import APPROVAL
from tests.bus.fake_core import TASK_ID, manager_call

if TYPE_CHECKING:
    from aiosd.bus.message import BusValue
    from aiosd.model.jsontext import JsonObject

APPROVAL_ID = "apr-01jdxg3v7m9q2w4e6r8t0y1abc"
APPROVAL_BODY: JsonObject = {
    "id": APPROVAL_ID,
    "task_id": TASK_ID,
    "uid": 1000,
    "kind": "run",
    "capability_id": "system.power.reboot",
    "summary": "Reboot",
    "risk_level": "critical",
    "status": "pending",
    "arguments": {"delay": 5},
    "request_hash": "0" * 64,
    "created_at": "2026-01-05T10:00:00.000Z",
    "expires_at": "2026-01-05T10:10:00.000Z",
}
_GRANT: JsonObject = {
    "grant_id": "grant-1",
    "uid": 1000,
    "capability_id": "files.*",
    "level": "low",
    "scope": "persistent",
    "arguments": {"path": {"glob": "/usr/*"}},
    "created_at": "2026-01-05T10:00:00.000Z",
    "used_count": 3,
}


def approval_call(member: str, signature: str = "", *body: BusValue) -> Call:
    return Call(BUS_NAME, approval_path(APPROVAL_ID), APPROVAL, member, signature, body)


def _options(**given: tuple[str, BusValue]) -> dict[str, BusValue]:
    return {name: Variant(kind, value) for name, (kind, value) in given.items()}


PERMISSION_CASES: list[tuple[Call, str, JsonObject, JsonObject, tuple[BusValue, ...]]] = [
    (manager_call("RequestGrant", "sssa{sv}", "files.*", "session", '{"path":{"equals":"/usr"}}',
                  _options(session_id=("s", "ps-1"))), "permission.request",
     {"capability_id": "files.*", "scope": "session", "arguments": {"path": {"equals": "/usr"}}, "session_id": "ps-1"},
     {"grant_id": "grant-1"}, ("grant-1",)),
    (manager_call("ListGrants", "a{sv}", _options(all_users=("b", True), ended=("b", True))), "permission.list",
     {"all_users": True, "ended": True}, {"grants": [_GRANT]},
     ([["grant-1", 1000, "files.*", "low", "persistent", '{"path":{"glob":"/usr/*"}}', 1767607200000000, 0, 3, 0]],)),
    (manager_call("RevokeGrant", "sa{sv}", "grant-1", _options()), "permission.revoke",
     {"grant_id": "grant-1"}, {}, ()),
    (manager_call("ExplainPermission", "ssa{sv}", "files.checksum", "", _options(uid=("u", 1001))),
     "permission.explain",
     {"capability_id": "files.checksum", "arguments": {}, "uid": 1001}, {"outcome": "ask"}, ('{"outcome":"ask"}',)),
    (manager_call("ListApprovals", "a{sv}", _options(task_id=("s", TASK_ID), decided=("b", True))), "approval.list",
     {"task_id": TASK_ID, "decided": True}, {"approvals": [APPROVAL_BODY]},
     ([[APPROVAL_ID, approval_path(APPROVAL_ID), TASK_ID, 1000, "system.power.reboot", "Reboot", "critical", "pending",
        1767607800000000]],)),
    (approval_call("Get"), "approval.get", {"approval_id": APPROVAL_ID}, {"id": "apr-1"}, ('{"id":"apr-1"}',)),
    (approval_call("Respond", "sa{sv}", "approve_once", _options(request_hash=("s", "0" * 64), note=("s", "fine"))),
     "approval.respond",
     {"approval_id": APPROVAL_ID, "action": "approve_once", "request_hash": "0" * 64, "note": "fine"},
     {"status": "approved"}, ("approved",)),
]  # fmt: skip
