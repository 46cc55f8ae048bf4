"""Requests that must be refused, as data: what is sent, the error's name, and the argument that it has to name.

`by_core` rows are well-formed for the door and refused by the operation's own parameters; the rest never get past the
door. Run here against the door, and against the whole daemon on a booted system. Needs no task to exist, except rows on
`TASK_PATH`, whose faults are found before anybody looks for the task.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiosd.bus.connection import Variant

if TYPE_CHECKING:
    from aiosd.bus.message import BusValue

MANAGER_PATH = "/org/aios/TaskManager"
TASK_PATH = "/org/aios/TaskManager/task/task_01jdxg3v7m9q2w4e6r8t0y1abc"
MANAGER = "org.aios.TaskManager1"
TASK = "org.aios.TaskManager1.Task"
PROPERTIES = "org.freedesktop.DBus.Properties"
INVALID_PARAMS = "org.aios.TaskManager.Error.InvalidParams"
CAPABILITY = "org.example.search"
_STANDARD = "org.freedesktop.DBus.Error."


@dataclass(frozen=True)
class BadRequest:
    """`field`: what `error.data` names, None where the error is the D-Bus specification's own."""

    path: str
    interface: str | None
    member: str
    signature: str
    body: tuple[BusValue, ...]
    error: str
    field: str | None = None
    by_core: bool = False

    def __str__(self) -> str:
        named = f" {self.field}" if self.field else ""
        return f"{self.member}({self.signature}){named} {str(self.body)[:60]}"


def _standard(
    path: str, interface: str | None, member: str, error: str, signature: str = "", *body: BusValue
) -> BadRequest:
    return BadRequest(path, interface, member, signature, body, _STANDARD + error)


def _create(field: str, *, capability: str = CAPABILITY, arguments: str = "{}", by_core: bool = False,
            given: dict[str, Variant] | None = None, **options: Variant) -> BadRequest:  # fmt: skip
    body: tuple[BusValue, ...] = (capability, arguments, given or options)
    return BadRequest(MANAGER_PATH, MANAGER, "CreateTask", "ssa{sv}", body, INVALID_PARAMS, field, by_core)


def _list(
    member: str, field: str, *, by_core: bool = False, given: dict[str, Variant] | None = None, **options: Variant
) -> BadRequest:
    return BadRequest(MANAGER_PATH, MANAGER, member, "a{sv}", (given or options,), INVALID_PARAMS, field, by_core)


def _manager(member: str, field: str, signature: str, *body: BusValue, by_core: bool = True) -> BadRequest:
    return BadRequest(MANAGER_PATH, MANAGER, member, signature, body, INVALID_PARAMS, field, by_core)


def _task(member: str, field: str, signature: str, *body: BusValue, by_core: bool = False) -> BadRequest:
    return BadRequest(TASK_PATH, TASK, member, signature, body, INVALID_PARAMS, field, by_core)


def _s(value: str) -> Variant:
    return Variant("s", value)


def _u(value: int) -> Variant:
    return Variant("u", value)


def _t(value: int) -> Variant:
    return Variant("t", value)


def _as(*values: str) -> Variant:
    return Variant("as", list(values))


TRUE = Variant("b", True)
NUMBER = Variant("i", 1)

BAD_JSON = (
    "nonsense",
    "[]",
    "null",
    "1",
    '"text"',
    "{",
    '{"a": 1,}',
    "{'a': 1}",
    '{"a": NaN}',
    '{"a": Infinity}',
    '{"a": 1e999}',
    '{"a": 9007199254740993}',
    '{"a": 1, "a": 2}',
    '{"a": "\\u0000"}',
    '{"a": "\\ud800"}',
    '{"a":' * 40 + "1" + "}" * 40,
    '{"a": "' + "x" * (256 * 1024) + '"}',
    '{"a": 1} trailing',
)
"""RFC 8259 says no, or our bounds do: duplicate keys, depth, size, numbers that others would change."""

_JSON_ROWS = [
    *(_create("arguments", arguments=text) for text in BAD_JSON),
    *(_create("options.metadata", metadata=_s(text)) for text in BAD_JSON),
    *(_create("options.limits", limits=_s(text)) for text in BAD_JSON[:8]),
    *(_task("ProvideInput", "input", "sa{sv}", text, {}) for text in BAD_JSON),
]

_WRONG_TYPES = [
    *(_create(f"options.{name}", given={name: NUMBER}) for name in (
        "priority", "timeout_ms", "retry_max_attempts", "retry_delay_ms", "metadata", "depends_on", "not_before",
        "limits", "idempotency_key", "parent_task_id", "session_id", "execution_mode", "risk_level", "title",
        "handle_token",
    )),
    *(_list("ListTasks", f"options.{name}", given={name: NUMBER}) for name in (
        "status", "capability_id", "all_users", "limit", "offset", "sort_field", "order", "session_id",
        "parent_task_id", "tag", "uid",
    )),
    *(_list("ListHistory", f"options.{name}", given={name: NUMBER}) for name in (
        "status", "capability_id", "all_users", "limit", "offset", "start_time", "end_time", "session_id",
        "parent_task_id", "tag", "uid",
    )),
    _list("ListCapabilities", "options.filter", filter=NUMBER),
    _create("options.priority", priority=Variant("v", _s("high"))),
    _create("options.timeout_ms", timeout_ms=_u(1000)),
    _create("options.depends_on", depends_on=_s("task-1")),
    _manager("GetTask", "options.include_history", "sa{sv}", "task-1", {"include_history": _u(1)}, by_core=False),
    _manager("Subscribe", "options.all_users", "sasa{sv}", "", [], {"all_users": _s("yes")}, by_core=False),
    _manager("Resubscribe", "options.events", "ssa{sv}", "", "evt-1", {"events": _s("log")}, by_core=False),
    _task("Retry", "options.handle_token", "a{sv}", {"handle_token": NUMBER}),
    _task("Wait", "options.timeout_ms", "a{sv}", {"timeout_ms": NUMBER}),
    _task("Wait", "options.until_waiting", "a{sv}", {"until_waiting": NUMBER}),
    _task("OpenLog", "options.attempt", "sa{sv}", "stdout", {"attempt": NUMBER}),
]  # fmt: skip

_UNKNOWN_OPTIONS = [
    _create("options.prority", prority=_s("high")),
    _create("options.async", given={"async": TRUE}),
    _create("options.uid", uid=_u(0)),
    _create("options.level", level=_s("public")),
    _create("options", given={"Not A Name": TRUE}),
    _create("options", given={"": TRUE}),
    _create("options", given={"x" * 5000: TRUE}),
    _create("options", given={f"o{number}": TRUE for number in range(65)}),
    _list("ListTasks", "options.start_time", start_time=_t(0)),
    _list("ListHistory", "options.order", order=_s("asc")),
    _list("ListCapabilities", "options.level", level=_s("low")),
    _list("Reload", "options.force", force=TRUE),
    _manager("GetTask", "options.history", "sa{sv}", "task-1", {"history": TRUE}, by_core=False),
    _manager("Subscribe", "options.uid", "sasa{sv}", "", [], {"uid": _u(0)}, by_core=False),
    _manager("Resubscribe", "options.uid", "ssa{sv}", "", "evt-1", {"uid": _u(0)}, by_core=False),
    _task("Cancel", "options.force", "sa{sv}", "", {"force": TRUE}),
    _task("Pause", "options.force", "a{sv}", {"force": TRUE}),
    _task("Resume", "options.force", "a{sv}", {"force": TRUE}),
    _task("Retry", "options.priority", "a{sv}", {"priority": _s("high")}),
    _task("SetPriority", "options.force", "sa{sv}", "high", {"force": TRUE}),
    _task("ProvideInput", "options.force", "sa{sv}", "{}", {"force": TRUE}),
    _task("Wait", "options.forever", "a{sv}", {"forever": TRUE}),
    _task("OpenLog", "options.offset", "sa{sv}", "stdout", {"offset": _t(0)}),
]

_TOO_LONG = [
    _create("capability_id", capability="a" * 5000),
    _create("options.title", title=_s("a" * 5000)),
    _create("options.depends_on", depends_on=_as(*(f"task-{number}" for number in range(65)))),
    _create("options.depends_on", depends_on=_as("t" * 5000)),
    _create("options.not_before", not_before=_t(2**63)),
    _list("ListHistory", "options.start_time", start_time=_t(2**64 - 1)),
    _list("ListTasks", "options.status", status=_as(*["working"] * 65)),
    _manager("GetTask", "task_id", "sa{sv}", "t" * 5000, {}, by_core=False),
    _manager("GetCapability", "capability_id", "s", "c" * 5000, by_core=False),
    _manager("Unsubscribe", "subscription_id", "s", "s" * 5000, by_core=False),
    _manager("Subscribe", "events", "sasa{sv}", "", ["log"] * 65, {}, by_core=False),
    _task("Cancel", "reason", "sa{sv}", "r" * 5000, {}),
    _task("SetPriority", "priority", "sa{sv}", "p" * 5000, {}),
]

_WRONG_VALUES = [
    *(_create("capability_id", capability=text, by_core=True) for text in (
        "", "search", "Org.Example.Search", "org..search", ".org.search", "org.search.", "org.exa mple.x",
        "org/example/search", "../../etc/passwd", "org.example.\u00e9", "org.example.search\n", "a." + "b" * 200,
    )),
    _create("options.priority", priority=_s("highest"), by_core=True),
    _create("options.priority", priority=_s(""), by_core=True),
    _create("options.priority", priority=_s("HIGH"), by_core=True),
    _create("options.timeout_ms", timeout_ms=_t(0), by_core=True),
    _create("options.timeout_ms", timeout_ms=_t(2**63), by_core=True),
    _create("options.retry_max_attempts", retry_max_attempts=_u(0), by_core=True),
    _create("options.retry_max_attempts", retry_max_attempts=_u(101), by_core=True),
    _create("options.retry_delay_ms", retry_delay_ms=_t(2**50), by_core=True),
    _create("options.depends_on[0]", depends_on=_as(""), by_core=True),
    _create("options.depends_on[1]", depends_on=_as("task-1", "no spaces"), by_core=True),
    _create("options.idempotency_key", idempotency_key=_s(""), by_core=True),
    _create("options.idempotency_key", idempotency_key=_s("a b"), by_core=True),
    _create("options.idempotency_key", idempotency_key=_s("k" * 129), by_core=True),
    _create("options.parent_task_id", parent_task_id=_s("/"), by_core=True),
    _create("options.session_id", session_id=_s("-"), by_core=True),
    _create("options.execution_mode", execution_mode=_s("alone"), by_core=True),
    _create("options.risk_level", risk_level=_s("none"), by_core=True),
    _create("options.title", title=_s("two\nlines"), by_core=True),
    _create("options.title", title=_s("turned \u202e round"), by_core=True),
    _create("options.title", title=_s("t" * 201), by_core=True),
    _create("options.handle_token", handle_token=_s("a-b"), by_core=True),
    _create("options.handle_token", handle_token=_s(""), by_core=True),
    _create("options.handle_token", handle_token=_s("../x"), by_core=True),
    _create("options.limits.memory_max", limits=_s('{"memory_max": 1}'), by_core=True),
    _create("options.limits.memory_max", limits=_s('{"memory_max": "1G"}'), by_core=True),
    _create("options.limits.tasks_max", limits=_s('{"tasks_max": true}'), by_core=True),
    _create("options.limits.cpu_quota_percent", limits=_s('{"cpu_quota_percent": 0}'), by_core=True),
    _create("options.limits.io_weight", limits=_s('{"io_weight": 10001}'), by_core=True),
    _create("options.limits.devices", limits=_s('{"devices": []}'), by_core=True),
    _list("ListTasks", "options.limit", limit=_u(0), by_core=True),
    _list("ListTasks", "options.limit", limit=_u(101), by_core=True),
    _list("ListTasks", "options.offset", offset=_u(2**32 - 1), by_core=True),
    _list("ListTasks", "options.status[0]", status=_as("running"), by_core=True),
    _list("ListTasks", "options.status[1]", status=_as("working", "cancelled"), by_core=True),
    _list("ListTasks", "options.capability_id", capability_id=_s("'; DROP TABLE tasks; --"), by_core=True),
    _list("ListTasks", "options.sort_field", sort_field=_s("uid"), by_core=True),
    _list("ListTasks", "options.order", order=_s("random"), by_core=True),
    _list("ListHistory", "options.limit", limit=_u(1000), by_core=True),
    _list("ListHistory", "options.capability_id", capability_id=_s("A"), by_core=True),
    _list("ListCapabilities", "options.filter", filter=_s("%"), by_core=True),
    _manager("GetTask", "task_id", "sa{sv}", "", {}),
    _manager("GetTask", "task_id", "sa{sv}", "../x", {}),
    _manager("GetTask", "task_id", "sa{sv}", "task 1", {}),
    _manager("GetCapability", "capability_id", "s", "nodots"),
    _manager("GetArtifact", "artifact_id", "s", ""),
    _manager("GetArtifact", "artifact_id", "s", "/etc/passwd"),
    _manager("OpenArtifact", "part", "su", "art-1", 10_001),
    _manager("OpenArtifact", "artifact_id", "su", "a/b", 0),
    _manager("ListArtifacts", "task_id", "s", " "),
    _manager("Subscribe", "task_id", "sasa{sv}", "*", [], {}),
    _manager("Subscribe", "events[0]", "sasa{sv}", "", ["everything"], {}),
    _manager("Subscribe", "events", "sasa{sv}", "", ["log"] * 17, {}),
    _manager("Resubscribe", "last_event_id", "ssa{sv}", "", "e" * 65, {}),
    _task("Cancel", "reason", "sa{sv}", "two\nlines", {}, by_core=True),
    _task("SetPriority", "priority", "sa{sv}", "", {}, by_core=True),
    _task("SetPriority", "priority", "sa{sv}", "9", {}, by_core=True),
    _task("Wait", "options.timeout_ms", "a{sv}", {"timeout_ms": _t(0)}, by_core=True),
    _task("OpenLog", "stream", "sa{sv}", "stdin", {}, by_core=True),
    _task("OpenLog", "options.attempt", "sa{sv}", "stdout", {"attempt": _u(0)}, by_core=True),
    _task("Retry", "options.handle_token", "a{sv}", {"handle_token": _s("a.b")}, by_core=True),
]  # fmt: skip

_SPECIFICATION = [
    _standard(MANAGER_PATH, MANAGER, "CreateTask", "InvalidArgs"),
    _standard(MANAGER_PATH, MANAGER, "CreateTask", "InvalidArgs", "ss", CAPABILITY, "{}"),
    _standard(MANAGER_PATH, MANAGER, "CreateTask", "InvalidArgs", "ssa{ss}", CAPABILITY, "{}", {"priority": "high"}),
    _standard(MANAGER_PATH, MANAGER, "CreateTask", "InvalidArgs", "sa{sv}a{sv}", CAPABILITY, {}, {}),
    _standard(MANAGER_PATH, MANAGER, "GetTask", "InvalidArgs", "s", "task-1"),
    _standard(MANAGER_PATH, MANAGER, "ListTasks", "InvalidArgs"),
    _standard(MANAGER_PATH, MANAGER, "ListHistory", "InvalidArgs", "a{ss}", {}),
    _standard(MANAGER_PATH, MANAGER, "ListCapabilities", "InvalidArgs", "s", ""),
    _standard(MANAGER_PATH, MANAGER, "GetCapability", "InvalidArgs", "as", [CAPABILITY]),
    _standard(MANAGER_PATH, MANAGER, "Subscribe", "InvalidArgs", "ssa{sv}", "", "log", {}),
    _standard(MANAGER_PATH, MANAGER, "Unsubscribe", "InvalidArgs", "u", 1),
    _standard(MANAGER_PATH, MANAGER, "Resubscribe", "InvalidArgs", "sa{sv}", "", {}),
    _standard(MANAGER_PATH, MANAGER, "ListArtifacts", "InvalidArgs", "o", "/"),
    _standard(MANAGER_PATH, MANAGER, "GetArtifact", "InvalidArgs", "ss", "art-1", "art-2"),
    _standard(MANAGER_PATH, MANAGER, "OpenArtifact", "InvalidArgs", "si", "art-1", 0),
    _standard(MANAGER_PATH, MANAGER, "Reload", "InvalidArgs"),
    _standard(MANAGER_PATH, MANAGER, "GetStatus", "InvalidArgs", "a{sv}", {}),
    _standard(MANAGER_PATH, MANAGER, "Cancel", "UnknownMethod", "sa{sv}", "", {}),
    _standard(MANAGER_PATH, MANAGER, "createTask", "UnknownMethod", "ssa{sv}", CAPABILITY, "{}", {}),
    _standard(MANAGER_PATH, MANAGER, "StateChanged", "UnknownMethod"),
    _standard(MANAGER_PATH, TASK, "Cancel", "UnknownInterface", "sa{sv}", "", {}),
    _standard(MANAGER_PATH, "org.aios.TaskManager2", "CreateTask", "UnknownInterface"),
    _standard(MANAGER_PATH, "org.freedesktop.DBus.ObjectManager", "GetManagedObjects", "UnknownInterface"),
    _standard(MANAGER_PATH, None, "NoSuchMethod", "UnknownMethod"),
    _standard(TASK_PATH, TASK, "Cancel", "InvalidArgs", "a{sv}", {}),
    _standard(TASK_PATH, TASK, "Pause", "InvalidArgs"),
    _standard(TASK_PATH, TASK, "Resume", "InvalidArgs", "s", ""),
    _standard(TASK_PATH, TASK, "Retry", "InvalidArgs"),
    _standard(TASK_PATH, TASK, "SetPriority", "InvalidArgs", "ua{sv}", 1, {}),
    _standard(TASK_PATH, TASK, "ProvideInput", "InvalidArgs", "a{sv}", {}),
    _standard(TASK_PATH, TASK, "Wait", "InvalidArgs", "t", 1000),
    _standard(TASK_PATH, TASK, "OpenLog", "InvalidArgs", "s", "stdout"),
    _standard(TASK_PATH, TASK, "GetHistory", "InvalidArgs", "a{sv}", {}),
    _standard(TASK_PATH, MANAGER, "GetStatus", "UnknownInterface"),
    _standard(TASK_PATH, TASK, "Delete", "UnknownMethod"),
    _standard("/org/aios/TaskManager/task", TASK, "Cancel", "UnknownInterface", "sa{sv}", "", {}),
    _standard("/org/aios/TaskManager/task/nothing", TASK, "Pause", "UnknownObject", "a{sv}", {}),
    _standard("/org/aios/TaskManager/task/task_", TASK, "Pause", "UnknownObject", "a{sv}", {}),
    _standard("/org/aios/TaskManager/task/task_" + "a" * 200, TASK, "Pause", "UnknownObject", "a{sv}", {}),
    _standard("/org/aios/TaskManager/tasks", None, "Ping", "UnknownObject"),
    _standard("/org/freedesktop/DBus", None, "Ping", "UnknownObject"),
    _standard("/", MANAGER, "GetStatus", "UnknownInterface"),
    _standard(MANAGER_PATH, PROPERTIES, "Get", "InvalidArgs", "s", "Version"),
    _standard(MANAGER_PATH, PROPERTIES, "Get", "UnknownProperty", "ss", MANAGER, "NoSuchProperty"),
    _standard(MANAGER_PATH, PROPERTIES, "Get", "UnknownInterface", "ss", TASK, "Status"),
    _standard(MANAGER_PATH, PROPERTIES, "Get", "UnknownProperty", "ss", PROPERTIES, "Version"),
    _standard(MANAGER_PATH, PROPERTIES, "GetAll", "UnknownInterface", "s", "org.example.Nothing"),
    _standard(MANAGER_PATH, PROPERTIES, "Set", "PropertyReadOnly", "ssv", MANAGER, "State", _s("stopped")),
    _standard(MANAGER_PATH, PROPERTIES, "Set", "UnknownProperty", "ssv", MANAGER, "NoSuchProperty", _s("")),
    _standard(TASK_PATH, PROPERTIES, "Set", "PropertyReadOnly", "ssv", TASK, "Uid", _u(0)),
    _standard(TASK_PATH, PROPERTIES, "Get", "UnknownProperty", "ss", TASK, "Password"),
    _standard("/", PROPERTIES, "GetAll", "UnknownInterface", "s", MANAGER),
]

BAD_REQUESTS = [*_SPECIFICATION, *_JSON_ROWS, *_WRONG_TYPES, *_UNKNOWN_OPTIONS, *_TOO_LONG, *_WRONG_VALUES]
