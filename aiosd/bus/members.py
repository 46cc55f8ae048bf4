"""Each D-Bus method of ours as an operation: what its arguments become, and what the answer becomes.

One row a method, in the order of dbus/*.xml; tests hold the rows to those files and to core/operations.py. Pure:
decoding raises AiosError (InvalidParams with the argument's name) for what a caller got wrong, encoding raises nothing
that a caller could cause.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from aiosd.bus.paths import task_path
from aiosd.bus.values import (
    Option,
    Reading,
    json_argument,
    number_of,
    object_of,
    percent_of,
    read_options,
    rows_of,
    text_argument,
    text_list,
    text_of,
    time_of,
)
from aiosd.core.operations import MANAGER, TASK
from aiosd.model.jsontext import dump

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aiosd.bus.message import BusValue
    from aiosd.model.jsontext import JsonObject, JsonValue

    Encoder: TypeAlias = Callable[[JsonObject], tuple[BusValue, ...]]
    Decoder: TypeAlias = Callable[[str, BusValue], JsonValue]

OPTIONS = "options"


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument before `options`: the parameter that it fills, how, and whether "" means "not given"."""

    param: str
    decode: Decoder
    omit_empty: bool = False


@dataclass(frozen=True, slots=True)
class Member:
    """A method of ours. `fixed`: parameters that this door always sets."""

    interface: str
    name: str
    operation: str
    encode: Encoder
    arguments: tuple[Argument, ...] = ()
    options: Mapping[str, Option] | None = None
    fixed: Mapping[str, JsonValue] = field(default_factory=dict)

    def params(self, body: tuple[BusValue, ...], task_id: str) -> dict[str, JsonValue]:
        """The operation's parameters. `body` has the signature of the XML; `task_id`: of the object called, or ""."""
        params: dict[str, JsonValue] = {"task_id": task_id} if task_id else {}
        for key, preset in self.fixed.items():
            params[key] = dict(preset) if isinstance(preset, dict) else preset
        for argument, value in zip(self.arguments, body, strict=False):
            decoded = argument.decode(argument.param, value)
            if decoded != "" or not argument.omit_empty:
                params[argument.param] = decoded
        if self.options is not None:
            read_options(self.options, body[-1], params)
        return params

    def argument_named(self, parameter: str) -> str:
        """What a caller of this method calls an operation's parameter: `options.retry.max_attempts` of the operation is
        `options.retry_max_attempts` here."""
        for name, option in (self.options or {}).items():
            place = ".".join(option.place)
            rest = parameter.removeprefix(place)
            if parameter.startswith(place) and (rest == "" or rest[0] in ".["):
                return f"{OPTIONS}.{name}{rest}"
        return parameter


def _number(field_name: str, value: BusValue) -> JsonValue:
    del field_name
    return int(str(value))


def _nothing(body: JsonObject) -> tuple[BusValue, ...]:
    del body
    return ()


def _whole(body: JsonObject) -> tuple[BusValue, ...]:
    return (dump(body),)


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
    **_own(("title", "s"), ("handle_token", "s")),
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
    "all_users": Option("b", ("filter", "all_users")),
}
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
_TOKEN = {"handle_token": Option("s", ("handle_token",))}
_WAIT = {"timeout_ms": Option("t", ("timeout_ms",)), "until_waiting": Option("b", ("until_waiting",))}
_ATTEMPT = {"attempt": Option("u", ("attempt",))}
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
_TASK_ID = Argument("task_id", text_argument)
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
        {OPTIONS: {"async": True}},
    ),
    Member(MANAGER, "GetTask", "task.get", _whole, (_TASK_ID,), {"include_history": Option("b", ("include_history",))}),
    Member(MANAGER, "ListTasks", "task.list", _page, (), _LIST),
    Member(MANAGER, "ListCapabilities", "capability.list", _capabilities, (), {"filter": Option("s", ("filter",))}),
    Member(MANAGER, "GetCapability", "capability.get", _whole, (_CAPABILITY,)),
    Member(
        MANAGER,
        "Subscribe",
        "task.subscribe",
        _subscription,
        (_TASK_ID, Argument("events", text_list)),
        _ALL_USERS,
    ),
    Member(MANAGER, "Unsubscribe", "task.unsubscribe", _nothing, (Argument("subscription_id", text_argument),)),
    Member(
        MANAGER,
        "Resubscribe",
        "task.resubscribe",
        _resubscription,
        (_TASK_ID, Argument("last_event_id", text_argument)),
        {"events": Option("as", ("events",)), **_ALL_USERS},
    ),
    Member(MANAGER, "ListHistory", "task.history", _page, (), _HISTORY),
    Member(MANAGER, "ListArtifacts", "artifact.list", _artifacts, (_TASK_ID,)),
    Member(MANAGER, "GetArtifact", "artifact.get", _artifact, (_ARTIFACT,)),
    Member(MANAGER, "OpenArtifact", "artifact.open", _descriptor, (_ARTIFACT, Argument("part", _number))),
    Member(MANAGER, "Reload", "service.reload", _nothing, (), _NO_OPTIONS),
    Member(MANAGER, "GetStatus", "service.status", _whole),
    Member(MANAGER, "QueryAudit", "audit.query", _whole, (), _AUDIT),
    Member(MANAGER, "RotateAuditKey", "audit.rotate_key", _fingerprint, (), _NO_OPTIONS),
    Member(MANAGER, "Emergency", "emergency.stop", _whole, (_SCOPE,), {**_UID, "reason": Option("s", ("reason",))}),
    Member(MANAGER, "LiftEmergency", "emergency.lift", _nothing, (_SCOPE,), _UID),
    Member(
        MANAGER,
        "SubscribeWebhook",
        "task.subscribe_webhook",
        _webhook,
        (_TASK_ID, _WEBHOOK_URL, Argument("events", text_list)),
        _WEBHOOK,
    ),
    Member(MANAGER, "UnsubscribeWebhook", "task.unsubscribe_webhook", _nothing, (_TASK_ID, _WEBHOOK_URL), _NO_OPTIONS),
    Member(
        MANAGER,
        "ListWebhooks",
        "webhook.list",
        _whole,
        (Argument("task_id", text_argument, omit_empty=True),),
        _ALL_USERS,
    ),
    Member(MANAGER, "ResumeWebhook", "webhook.resume", _nothing, (Argument("webhook_id", text_argument),), _NO_OPTIONS),
    Member(TASK, "Cancel", "task.cancel", _nothing, (Argument("reason", text_argument, omit_empty=True),), _NO_OPTIONS),
    Member(TASK, "Pause", "task.pause", _nothing, (), _NO_OPTIONS),
    Member(TASK, "Resume", "task.resume", _nothing, (), _NO_OPTIONS),
    Member(TASK, "Retry", "task.retry", _new_task, (), _TOKEN),
    Member(TASK, "SetPriority", "task.set_priority", _nothing, (Argument("priority", text_argument),), _NO_OPTIONS),
    Member(TASK, "ProvideInput", "task.input", _nothing, (Argument("input", json_argument),), _NO_OPTIONS),
    Member(TASK, "Wait", "task.wait", _end, (), _WAIT),
    Member(TASK, "OpenLog", "task.open_log", _descriptor, (Argument("stream", text_argument),), _ATTEMPT),
    Member(TASK, "GetHistory", "task.state_history", _history),
)

MEMBERS: Mapping[tuple[str, str], Member] = {(row.interface, row.name): row for row in _ROWS}
"""Every method of ours by interface and name."""
