"""Properties of our objects, made from what `service.status` and the `get`s of tasks and others answer. Pure.

Who may not see a task gets no body, so no property either; whoever sees it sees all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from aiosd.bus.connection import Variant
from aiosd.bus.values import number_of, object_of, percent_of, real_of, text_of, time_of
from aiosd.core.operations import APPROVAL, MANAGER, SESSION, TASK, WORKER
from aiosd.model.jsontext import dump

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aiosd.bus.interfaces import Interface
    from aiosd.bus.message import BusValue
    from aiosd.model.jsontext import JsonObject

    Getter: TypeAlias = Callable[[JsonObject], BusValue]


def _text(key: str) -> Getter:
    return lambda body: text_of(body, key)


def _time(key: str) -> Getter:
    return lambda body: time_of(body, key)


def _json(key: str) -> Getter:
    """The object as JSON text; "" while there is none."""
    return lambda body: dump(object_of(body, key)) if key in body else ""


def _within(key: str, inner: Getter) -> Getter:
    return lambda body: inner(object_of(body, key))


def _number(key: str) -> Getter:
    return lambda body: number_of(body, key)


def _progress(body: JsonObject) -> BusValue:
    return (percent_of(body), text_of(object_of(body, "progress"), "message"))


_TASK: Mapping[str, Getter] = {
    "Id": _text("task_id"),
    "CapabilityId": _text("capability_id"),
    "Title": _text("title"),
    "Uid": _number("uid"),
    "Level": _text("level"),
    "CreatedAt": _time("created_at"),
    "Status": _text("status"),
    "Phase": _text("phase"),
    "Priority": _text("priority"),
    "Attempt": _number("attempt"),
    "StartedAt": _time("started_at"),
    "EndedAt": _time("ended_at"),
    "Unit": _within("run", _text("unit")),
    "ControlGroup": _within("run", _text("control_group")),
    "Progress": _progress,
    "Reason": _text("reason"),
    "Arguments": _json("arguments"),
    "Metadata": _json("metadata"),
    "Result": _json("result"),
    "Error": _json("error"),
    "ParentTaskId": _text("parent_task_id"),
    "SessionId": _text("session_id"),
    "RetryOf": _text("retry_of"),
}

_MANAGER: Mapping[str, Getter] = {
    "Version": _text("version"),
    "ProtocolVersion": _text("protocol_version"),
    "State": _text("state"),
    "MaxConcurrentTasks": _within("limits", _number("max_concurrent_tasks")),
    "MaxTasksPerTool": _within("limits", _number("max_tasks_per_tool")),
    "MaxQueueSize": _within("limits", _number("max_queue_size")),
    "TasksRunning": _within("tasks", _number("running")),
    "TasksQueued": _within("tasks", _number("queued")),
}

_SESSION: Mapping[str, Getter] = {
    "Id": _text("session_id"),
    "Uid": _number("uid"),
    "CreatedAt": _time("created_at"),
    "Title": _text("title"),
    "Status": _text("status"),
    "ActiveObjective": _text("active_objective"),
}

_APPROVAL: Mapping[str, Getter] = {
    "Id": _text("id"),
    "TaskId": _text("task_id"),
    "SessionId": _text("session_id"),
    "Uid": _number("uid"),
    "Kind": _text("kind"),
    "CapabilityId": _text("capability_id"),
    "Summary": _text("summary"),
    "RiskLevel": _text("risk_level"),
    "Arguments": _json("arguments"),
    "RequestHash": _text("request_hash"),
    "CreatedAt": _time("created_at"),
    "ExpiresAt": _time("expires_at"),
    "Status": _text("status"),
    "Decision": _text("decision"),
}


def _texts(key: str) -> Getter:
    def get(body: JsonObject) -> BusValue:
        found = body.get(key)
        return [str(one) for one in found] if isinstance(found, list) else []

    return get


_WORKER: Mapping[str, Getter] = {
    "Id": _text("worker_id"),
    "Uid": _number("uid"),
    "Hostname": _text("hostname"),
    "Os": _text("os"),
    "Shell": _text("shell"),
    "Capabilities": _texts("capabilities"),
    "Status": _text("status"),
    "CurrentTaskId": _text("current_task_id"),
    "Load": lambda body: real_of(body, "load"),
    "RegisteredAt": _time("registered_at"),
    "HeartbeatAt": _time("heartbeat_at"),
}

GETTERS: Mapping[str, Mapping[str, Getter]] = {
    MANAGER: _MANAGER,
    TASK: _TASK,
    SESSION: _SESSION,
    APPROVAL: _APPROVAL,
    WORKER: _WORKER,
}
"""How each property is found in its object's body; a test holds this to dbus/*.xml."""


def read(interface: Interface, name: str, body: JsonObject) -> Variant:
    """One property. KeyError when there is none of that name."""
    spec = interface.properties[name]
    return Variant(spec.type, GETTERS[interface.name][name](body))


def read_all(interface: Interface, body: JsonObject) -> dict[str, BusValue]:
    """All of them, as GetAll answers."""
    return {name: read(interface, name, body) for name in interface.properties}
