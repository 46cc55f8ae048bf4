"""What is asked of the daemon about the audit trail and emergency stops. Every function raises `Failure`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiosd.cli.client import Option
from aiosd.cli.values import read, read_json

if TYPE_CHECKING:
    from aiosd.cli.client import Options, TaskManagerClient
    from aiosd.model.jsontext import JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditQuery:
    """Which records, oldest first. `since`, `until` in µs since the epoch, 0: open. `proof`: with keys and head."""

    task_id: str = ""
    kind: str = ""
    since: int = 0
    until: int = 0
    limit: int
    after: int = 0
    all_users: bool = False
    proof: bool = False

    def options(self) -> Options:
        """As QueryAudit takes them."""
        options: Options = {"limit": Option("u", self.limit), "after": Option("t", self.after)}
        for name, text in (("task_id", self.task_id), ("kind", self.kind)):
            if text:
                options[name] = Option("s", text)
        for name, moment in (("start_time", self.since), ("end_time", self.until)):
            if moment:
                options[name] = Option("t", moment)
        for name, wanted in (("all_users", self.all_users), ("proof", self.proof)):
            if wanted:
                options[name] = Option("b", value=True)
        return options


async def query_audit(client: TaskManagerClient, query: AuditQuery) -> JsonObject:
    """A page of the audit trail."""
    return read_json((await client.ask("QueryAudit", query.options())).body, 0)


async def rotate_audit_key(client: TaskManagerClient) -> str:
    """Sign the trail with a new key; its fingerprint."""
    return read((await client.ask("RotateAuditKey", {})).body, 0, str)


async def emergency(client: TaskManagerClient, scope: str, uid: int | None, reason: str) -> JsonObject:
    """Kill everything of the scope (`user`, `machine`); what came of it."""
    options: Options = {} if uid is None else {"uid": Option("u", uid)}
    if reason:
        options["reason"] = Option("s", reason)
    return read_json((await client.ask("Emergency", scope, options)).body, 0)


async def lift_emergency(client: TaskManagerClient, scope: str, uid: int | None) -> None:
    """Let tasks of the scope start again."""
    await client.ask("LiftEmergency", scope, {} if uid is None else {"uid": Option("u", uid)})
