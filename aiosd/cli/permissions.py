"""What can be asked of the daemon about grants and approvals, typed. Beside `client.py`, which has the tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aiosd.cli.client import MANAGER_PATH, Option
from aiosd.cli.values import read, read_json, rows
from aiosd.model.jsontext import dump

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiosd.cli.client import Options, TaskManagerClient
    from aiosd.model.jsontext import JsonObject


class GrantRow(NamedTuple):
    """A row of ListGrants. Times in µs since the epoch, 0: never."""

    grant_id: str
    uid: int
    capability_id: str
    level: str
    scope: str
    arguments: str
    created: int
    expires: int
    used: int
    last_used: int


class ApprovalRow(NamedTuple):
    """A row of ListApprovals. `expires` in µs since the epoch."""

    approval_id: str
    path: str
    task_id: str
    uid: int
    capability_id: str
    summary: str
    risk_level: str
    status: str
    expires: int


def _grant(row: Sequence[object]) -> GrantRow:
    identifier, uid = read(row, 0, str), read(row, 1, int)
    capability, level, scope, arguments = (read(row, index, str) for index in range(2, 6))
    created, expires, used, last = (read(row, index, int) for index in range(6, 10))
    return GrantRow(identifier, uid, capability, level, scope, arguments, created, expires, used, last)


def _approval(row: Sequence[object]) -> ApprovalRow:
    identifier, path, task = (read(row, index, str) for index in range(3))
    capability, summary, risk, status = (read(row, index, str) for index in range(4, 8))
    return ApprovalRow(identifier, path, task, read(row, 3, int), capability, summary, risk, status, read(row, 8, int))


def _flags(**wanted: bool) -> Options:
    return {name: Option("b", value=True) for name, value in wanted.items() if value}


async def list_grants(client: TaskManagerClient, *, all_users: bool = False, ended: bool = False) -> list[GrantRow]:
    """Grants, newest first."""
    reply = await client.ask("ListGrants", _flags(all_users=all_users, ended=ended))
    return [_grant(row) for row in rows(reply.body, 0)]


async def revoke_grant(client: TaskManagerClient, grant_id: str) -> None:
    """End a grant."""
    await client.ask("RevokeGrant", grant_id, {})


async def request_grant(client: TaskManagerClient, capability: str, scope: str, arguments: JsonObject) -> str:
    """Have the person asked now; the grant's id."""
    return read((await client.ask("RequestGrant", capability, scope, dump(arguments), {})).body, 0, str)


async def explain(client: TaskManagerClient, capability: str, arguments: JsonObject, uid: int | None) -> JsonObject:
    """What would happen to a request, and why."""
    options: Options = {} if uid is None else {"uid": Option("u", uid)}
    return read_json((await client.ask("ExplainPermission", capability, dump(arguments), options)).body, 0)


async def list_approvals(client: TaskManagerClient, *, all_users: bool = False) -> list[ApprovalRow]:
    """Approvals that wait, newest first."""
    reply = await client.ask("ListApprovals", _flags(all_users=all_users))
    return [_approval(row) for row in rows(reply.body, 0)]


async def get_approval(client: TaskManagerClient, approval_id: str) -> JsonObject:
    """An approval and all that would run."""
    return read_json((await client.ask("Get", path=approval_path(approval_id))).body, 0)


async def respond(client: TaskManagerClient, approval_id: str, action: str, request_hash: str, note: str) -> str:
    """Answer; the approval's status afterwards."""
    options: Options = {"request_hash": Option("s", request_hash)}
    if note:
        options["note"] = Option("s", note)
    return read((await client.ask("Respond", action, options, path=approval_path(approval_id))).body, 0, str)


def approval_path(approval_id: str) -> str:
    """The object path of an approval (dbus/org.aios.TaskManager1.Approval.xml)."""
    return f"{MANAGER_PATH}/approval/{approval_id.replace('-', '_')}"
