"""The rows of `members` for workers (dbus/org.aios.TaskManager1.Worker.xml, and the manager's)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiosd.bus.member import Argument, Member, nothing, text, whole
from aiosd.bus.paths import worker_path
from aiosd.bus.values import (
    Option,
    Reading,
    json_argument,
    number_of,
    real_of,
    rows_of,
    text_argument,
    text_of,
    time_of,
)
from aiosd.core.operations import MANAGER, WORKER
from aiosd.model.jsontext import dump

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiosd.bus.message import BusValue
    from aiosd.model.jsontext import JsonObject, JsonValue

_STATE = ("tag", "lease_ms", "assignments")


def _state(body: JsonObject) -> str:
    return dump({name: body[name] for name in _STATE if name in body})


def _registered(body: JsonObject) -> tuple[BusValue, ...]:
    """The descriptor is the first that comes with the reply."""
    path = worker_path(number_of(body, "uid"), text_of(body, "worker_id"))
    return (path, text_of(body, "registration"), _state(body), 0)


def _workers(body: JsonObject) -> tuple[BusValue, ...]:
    rows: list[BusValue] = []
    for row in rows_of(body, "workers"):
        worker_id, uid, named = text_of(row, "worker_id"), number_of(row, "uid"), row.get("capabilities")
        rows.append(
            (
                worker_id,
                worker_path(uid, worker_id),
                uid,
                text_of(row, "hostname"),
                text_of(row, "os"),
                text_of(row, "shell"),
                [str(one) for one in named] if isinstance(named, list) else [],
                text_of(row, "status"),
                text_of(row, "current_task_id"),
                real_of(row, "load"),
                time_of(row, "heartbeat_at"),
            )
        )
    return (rows, text_of(body, "next_cursor"))


class _Report(Member):
    """Its argument's entries are the operation's own parameters."""

    def params(self, body: tuple[BusValue, ...], named: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """The report's entries beside those that say which assignment it is about."""
        found = super().params(body, named)
        report = found.pop("report")
        return {**(report if isinstance(report, dict) else {}), **found}


_NO_OPTIONS: Mapping[str, Option] = {}
_REGISTRATION = Argument("registration", text_argument)
_ASSIGNMENT = Argument("assignment_id", text_argument)
_STATUS = text("status")

WORKER_ROWS = (
    Member(
        MANAGER,
        "RegisterWorker",
        "worker.register",
        _registered,
        (Argument("worker_id", text_argument),),
        {
            "hostname": Option("s", ("hostname",)),
            "os": Option("s", ("os",)),
            "shell": Option("s", ("shell",)),
            "capabilities": Option("as", ("capabilities",)),
            "capacity": Option("u", ("capacity",)),
            "serves": Option("s", ("serves",)),
            "registration": Option("s", ("registration",)),
            "metadata": Option("s", ("metadata",), Reading.JSON),
        },
        {"liveness": "descriptor"},
    ),
    Member(
        MANAGER,
        "GetWorker",
        "worker.get",
        whole,
        (Argument("worker_id", text_argument),),
        {"uid": Option("u", ("uid",))},
    ),
    Member(
        MANAGER,
        "ListWorkers",
        "worker.list",
        _workers,
        (),
        {
            "all_users": Option("b", ("all_users",)),
            "ended": Option("b", ("ended",)),
            "limit": Option("u", ("limit",)),
            "cursor": Option("s", ("cursor",)),
        },
    ),
    Member(
        WORKER,
        "Heartbeat",
        "worker.heartbeat",
        lambda body: (_state(body),),
        (_REGISTRATION,),
        {
            "status": Option("s", ("status",)),
            "load": Option("d", ("load",)),
            "current_task_id": Option("s", ("current_task_id",)),
            "capabilities": Option("as", ("capabilities",)),
            "received": Option("as", ("received",)),
            "known": Option("s", ("known",)),
            "wait_ms": Option("u", ("wait_ms",)),
            "whole": Option("b", ("whole",)),
        },
    ),
    Member(WORKER, "Unregister", "worker.unregister", nothing, (_REGISTRATION,), _NO_OPTIONS),
    Member(WORKER, "Accept", "worker.accept", _STATUS, (_ASSIGNMENT,), _NO_OPTIONS),
    Member(WORKER, "Reject", "worker.reject", _STATUS, (_ASSIGNMENT, Argument("reason", text_argument)), _NO_OPTIONS),
    _Report(WORKER, "Report", "worker.report", _STATUS, (_ASSIGNMENT, Argument("report", json_argument)), _NO_OPTIONS),
    Member(
        WORKER,
        "Complete",
        "worker.complete",
        _STATUS,
        (_ASSIGNMENT, Argument("result", json_argument)),
        {"summary": Option("s", ("summary",), Reading.JSON)},
    ),
    Member(
        WORKER,
        "Fail",
        "worker.fail",
        _STATUS,
        (_ASSIGNMENT, Argument("message", text_argument)),
        {
            "reason": Option("s", ("reason",)),
            "retryable": Option("b", ("retryable",)),
            "data": Option("s", ("data",), Reading.JSON),
        },
    ),
)
"""One row a method, in the order of the XML files."""
