"""Each D-Bus method of ours as an operation: what its arguments become, and what the answer becomes.

One row a method, in the order of dbus/*.xml; tests hold the rows to those files and to core/operations.py. Pure:
decoding raises AiosError (InvalidParams with the argument's name) for what a caller got wrong, encoding raises nothing
that a caller could cause.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from aiosd.bus.member import OPTIONS, TASK_ID, Argument, Member, nothing, whole
from aiosd.bus.paths import task_path
from aiosd.bus.permission_members import PERMISSION_ROWS
from aiosd.bus.session_members import SESSION_ROWS
from aiosd.bus.values import (
    Option,
    Reading,
    json_argument,
    number_of,
    object_of,
    percent_of,
    rows_of,
    text_argument,
    text_list,
    text_of,
    time_of,
)
from aiosd.bus.worker_members import WORKER_ROWS
from aiosd.core.operations import MANAGER, TASK
from aiosd.model.jsontext import dump

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aiosd.bus.message import BusValue
    from aiosd.model.jsontext import JsonObject, JsonValue

    Encoder: TypeAlias = Callable[[JsonObject], tuple[BusValue, ...]]
    Decoder: TypeAlias = Callable[[str, BusValue], JsonValue]


def _number(field_name: str, value: BusValue) -> JsonValue:
    del field_name
    return int(str(value))


def _fingerprint(body: JsonObject) -> tuple[BusValue, ...]:
    return (text_of(body, "fingerprint"),)


def _descriptor(body: JsonObject) -> tuple[BusValue, ...]:
    del body
    return (0,)


def _new_task(body: JsonObject) -> tuple[BusValue, ...]:
    task_id = text_of(body, "task_id")
    return (task_id, task_path(task_id))


def _page(body: JsonObject) -> tuple[BusValue, ...]:
    rows: list[BusValue] = []
    for row in rows_of(body, "tasks"):
        task_id = text_of(row, "task_id")
        rows.append(
            (
                task_id,
                task_path(task_id),
                text_of(row, "capability_id"),
                text_of(row, "status"),
                text_of(row, "phase"),
                number_of(row, "uid"),
                percent_of(row),
                time_of(row, "created_at"),
            )
        )
    return (rows, number_of(body, "total"), body.get("has_more") is True)


def _capabilities(body: JsonObject) -> tuple[BusValue, ...]:
    keys = ("id", "title", "level", "description")
    return ([tuple(text_of(row, key) for key in keys) for row in rows_of(body, "capabilities")],)


def _subscription(body: JsonObject) -> tuple[BusValue, ...]:
    return (text_of(body, "subscription_id"),)


def _resubscription(body: JsonObject) -> tuple[BusValue, ...]:
    missed: list[BusValue] = [
        (text_of(row, "id"), text_of(row, "event"), dump(object_of(row, "data")))
        for row in rows_of(body, "missed_events")
    ]
    return (text_of(body, "subscription_id"), missed)


def _artifacts(body: JsonObject) -> tuple[BusValue, ...]:
    keys = ("id", "name", "type", "mime_type")
    rows = rows_of(body, "artifacts")
    return ([(*(text_of(row, key) for key in keys), number_of(row, "size")) for row in rows],)


def _artifact(body: JsonObject) -> tuple[BusValue, ...]:
    return (dump(object_of(body, "artifact")),)


def _webhook(body: JsonObject) -> tuple[BusValue, ...]:
    return (text_of(body, "webhook_id"),)


def _end(body: JsonObject) -> tuple[BusValue, ...]:
    return (text_of(body, "status"), dump(body))


def _history(body: JsonObject) -> tuple[BusValue, ...]:
    rows: list[BusValue] = [
        (
            text_of(row, "state"),
            text_of(row, "phase"),
            time_of(row, "timestamp"),
            text_of(row, "reason"),
            dump(object_of(row, "metadata")),
        )
        for row in rows_of(body, "state_history")
    ]
    return (rows,)


def _own(*names: tuple[str, str]) -> dict[str, Option]:
    """Options of CreateTask that keep their name in the parameters' `options`."""
    return {name: Option(signature, (OPTIONS, name)) for name, signature in names}


_CREATE = {
    **_own(("priority", "s"), ("timeout_ms", "t"), ("depends_on", "as"), ("idempotency_key", "s")),
    **_own(("parent_task_id", "s"), ("session_id", "s"), ("execution_mode", "s"), ("risk_level", "s")),
    **_own(("title", "s"), ("handle_token", "s"), ("defer", "b"), ("kind", "s"), ("goal", "s"), ("constraints", "as")),
    **_own(("shared_context_refs", "as"), ("handoff_expected", "b")),
    "retry_max_attempts": Option("u", (OPTIONS, "retry", "max_attempts")),
    "retry_delay_ms": Option("t", (OPTIONS, "retry", "delay_ms")),
    "metadata": Option("s", ("metadata",), Reading.JSON),
    "not_before": Option("t", (OPTIONS, "not_before"), Reading.TIME),
    "limits": Option("s", (OPTIONS, "limits"), Reading.JSON),
}
_PAGE = {"limit": Option("u", ("pagination", "limit")), "offset": Option("u", ("pagination", "offset"))}
_FILTER = {
    "status": Option("as", ("filter", "status")),
    "capability_id": Option("s", ("filter", "capability_id")),
    "session_id": Option("s", ("filter", "session_id")),
    "parent_task_id": Option("s", ("filter", "parent_task_id")),
    "tag": Option("s", ("filter", "tag")),
    "uid": Option("u", ("filter", "uid")),
    "all_users": Option("b", ("filter", "all_users")),
}
"""Of ListTasks and ListHistory."""
_LIST = {
    **_FILTER,
    **_PAGE,
    "sort_field": Option("s", ("sort", "field")),
    "order": Option("s", ("sort", "order")),
}
_HISTORY = {
    **_FILTER,
    **_PAGE,
    "start_time": Option("t", ("filter", "start_time"), Reading.TIME),
    "end_time": Option("t", ("filter", "end_time"), Reading.TIME),
}
_ALL_USERS = {"all_users": Option("b", ("all_users",))}
_RECURSIVE = {"recursive": Option("b", ("recursive",))}
_TOKEN = {"handle_token": Option("s", ("handle_token",))}
_WAIT = {"timeout_ms": Option("t", ("timeout_ms",)), "until_waiting": Option("b", ("until_waiting",))}
_ATTEMPT = {"attempt": Option("u", ("attempt",))}
_TREE = {"limit": Option("u", ("limit",)), "cursor": Option("s", ("cursor",))}
_NO_OPTIONS: Mapping[str, Option] = {}
_WEBHOOK = {
    "authentication": Option("h", ("authentication",)),
    "max_retries": Option("u", ("retry_policy", "max_retries")),
    "retry_delay_ms": Option("t", ("retry_policy", "retry_delay_ms")),
}

_UID = {"uid": Option("u", ("uid",))}
_AUDIT = {
    "task_id": Option("s", ("filter", "task_id")),
    "kind": Option("s", ("filter", "kind")),
    "start_time": Option("t", ("filter", "start_time"), Reading.TIME),
    "end_time": Option("t", ("filter", "end_time"), Reading.TIME),
    "uid": Option("u", ("filter", "uid")),
    "all_users": Option("b", ("filter", "all_users")),
    "after": Option("t", ("after",)),
    "limit": Option("u", ("limit",)),
    "proof": Option("b", ("proof",)),
}

_SCOPE = Argument("scope", text_argument)
_CAPABILITY = Argument("capability_id", text_argument)
_ARTIFACT = Argument("artifact_id", text_argument)
_WEBHOOK_URL = Argument("webhook_url", text_argument)

_ROWS = (
    Member(
        MANAGER,
        "CreateTask",
        "task.create",
        _new_task,
        (_CAPABILITY, Argument("arguments", json_argument)),
        _CREATE,
        {OPTIONS: {"async": True, "defer": False}},
    ),
    Member(MANAGER, "GetTask", "task.get", whole, (TASK_ID,), {"include_history": Option("b", ("include_history",))}),
    Member(MANAGER, "ListTasks", "task.list", _page, (), _LIST),
    Member(MANAGER, "ListCapabilities", "capability.list", _capabilities, (), {"filter": Option("s", ("filter",))}),
    Member(MANAGER, "GetCapability", "capability.get", whole, (_CAPABILITY,)),
    Member(
        MANAGER,
        "Subscribe",
        "task.subscribe",
        _subscription,
        (TASK_ID, Argument("events", text_list)),
        _ALL_USERS,
    ),
    Member(MANAGER, "Unsubscribe", "task.unsubscribe", nothing, (Argument("subscription_id", text_argument),)),
    Member(
        MANAGER,
        "Resubscribe",
        "task.resubscribe",
        _resubscription,
        (TASK_ID, Argument("last_event_id", text_argument)),
        {"events": Option("as", ("events",)), **_ALL_USERS},
    ),
    Member(MANAGER, "ListHistory", "task.history", _page, (), _HISTORY),
    Member(MANAGER, "ListArtifacts", "artifact.list", _artifacts, (TASK_ID,)),
    Member(MANAGER, "GetArtifact", "artifact.get", _artifact, (_ARTIFACT,)),
    Member(MANAGER, "OpenArtifact", "artifact.open", _descriptor, (_ARTIFACT, Argument("part", _number))),
    Member(MANAGER, "Reload", "service.reload", nothing, (), _NO_OPTIONS),
    Member(MANAGER, "Drain", "service.drain", whole, (), {"lift": Option("b", ("lift",))}),
    Member(MANAGER, "GetStatus", "service.status", whole),
    Member(MANAGER, "QueryAudit", "audit.query", whole, (), _AUDIT),
    Member(MANAGER, "RotateAuditKey", "audit.rotate_key", _fingerprint, (), _NO_OPTIONS),
    Member(MANAGER, "Emergency", "emergency.stop", whole, (_SCOPE,), {**_UID, "reason": Option("s", ("reason",))}),
    Member(MANAGER, "LiftEmergency", "emergency.lift", nothing, (_SCOPE,), _UID),
    Member(
        MANAGER,
        "SubscribeWebhook",
        "task.subscribe_webhook",
        _webhook,
        (TASK_ID, _WEBHOOK_URL, Argument("events", text_list)),
        _WEBHOOK,
    ),
    Member(MANAGER, "UnsubscribeWebhook", "task.unsubscribe_webhook", nothing, (TASK_ID, _WEBHOOK_URL), _NO_OPTIONS),
    Member(
        MANAGER,
        "ListWebhooks",
        "webhook.list",
        whole,
        (Argument("task_id", text_argument, omit_empty=True),),
        _ALL_USERS,
    ),
    Member(MANAGER, "ResumeWebhook", "webhook.resume", nothing, (Argument("webhook_id", text_argument),), _NO_OPTIONS),
    Member(TASK, "Cancel", "task.cancel", nothing, (Argument("reason", text_argument, omit_empty=True),), _RECURSIVE),
    Member(TASK, "Pause", "task.pause", nothing, (), _RECURSIVE),
    Member(TASK, "Resume", "task.resume", nothing, (), _RECURSIVE),
    Member(TASK, "Retry", "task.retry", _new_task, (), _TOKEN),
    Member(TASK, "SetPriority", "task.set_priority", nothing, (Argument("priority", text_argument),), _RECURSIVE),
    Member(TASK, "ProvideInput", "task.input", nothing, (Argument("input", json_argument),), _NO_OPTIONS),
    Member(TASK, "Authenticate", "task.authenticate", nothing, (Argument("auth_response", _number),), _NO_OPTIONS),
    Member(TASK, "Wait", "task.wait", _end, (), _WAIT),
    Member(TASK, "OpenLog", "task.open_log", _descriptor, (Argument("stream", text_argument),), _ATTEMPT),
    Member(TASK, "GetHistory", "task.state_history", _history),
    Member(TASK, "GetTree", "task.tree", whole, (), _TREE),
)

MEMBERS: Mapping[tuple[str, str], Member] = {
    (row.interface, row.name): row for row in (*_ROWS, *SESSION_ROWS, *PERMISSION_ROWS, *WORKER_ROWS)
}
"""Every method of ours by interface and name."""
