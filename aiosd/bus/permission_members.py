"""The rows of `members` for grants and approvals (dbus/org.aios.TaskManager1.Approval.xml, and the manager's)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiosd.bus.member import Argument, Member, nothing, text, whole
from aiosd.bus.paths import approval_path
from aiosd.bus.values import Option, json_argument, number_of, object_of, rows_of, text_argument, text_of, time_of
from aiosd.core.operations import APPROVAL, MANAGER
from aiosd.model.jsontext import dump

if TYPE_CHECKING:
    from aiosd.bus.message import BusValue
    from aiosd.model.jsontext import JsonObject


def _grants(body: JsonObject) -> tuple[BusValue, ...]:
    rows: list[BusValue] = [
        (
            text_of(row, "grant_id"),
            number_of(row, "uid"),
            text_of(row, "capability_id"),
            text_of(row, "level"),
            text_of(row, "scope"),
            dump(object_of(row, "arguments")),
            time_of(row, "created_at"),
            time_of(row, "expires_at"),
            number_of(row, "used_count"),
            time_of(row, "last_used_at"),
        )
        for row in rows_of(body, "grants")
    ]
    return (rows,)


def _approvals(body: JsonObject) -> tuple[BusValue, ...]:
    rows: list[BusValue] = [
        (
            text_of(row, "id"),
            approval_path(text_of(row, "id")),
            text_of(row, "task_id"),
            number_of(row, "uid"),
            text_of(row, "capability_id"),
            text_of(row, "summary"),
            text_of(row, "risk_level"),
            text_of(row, "status"),
            time_of(row, "expires_at"),
        )
        for row in rows_of(body, "approvals")
    ]
    return (rows,)


_ALL_USERS = {"all_users": Option("b", ("all_users",))}
_SESSION = {"session_id": Option("s", ("session_id",))}
_TASK = {"task_id": Option("s", ("task_id",))}
_CAPABILITY = Argument("capability_id", text_argument)
_ARGUMENTS = Argument("arguments", json_argument)

PERMISSION_ROWS = (
    Member(
        MANAGER,
        "RequestGrant",
        "permission.request",
        text("grant_id"),
        (_CAPABILITY, Argument("scope", text_argument), _ARGUMENTS),
        {**_SESSION, **_TASK},
    ),
    Member(MANAGER, "ListGrants", "permission.list", _grants, (), {**_ALL_USERS, "ended": Option("b", ("ended",))}),
    Member(MANAGER, "RevokeGrant", "permission.revoke", nothing, (Argument("grant_id", text_argument),), {}),
    Member(
        MANAGER,
        "ExplainPermission",
        "permission.explain",
        whole,
        (_CAPABILITY, _ARGUMENTS),
        {**_SESSION, "uid": Option("u", ("uid",))},
    ),
    Member(
        MANAGER,
        "ListApprovals",
        "approval.list",
        _approvals,
        (),
        {**_ALL_USERS, **_SESSION, **_TASK, "decided": Option("b", ("decided",))},
    ),
    Member(APPROVAL, "Get", "approval.get", whole),
    Member(
        APPROVAL,
        "Respond",
        "approval.respond",
        text("status"),
        (Argument("action", text_argument),),
        {"request_hash": Option("s", ("request_hash",)), "note": Option("s", ("note",))},
    ),
)
