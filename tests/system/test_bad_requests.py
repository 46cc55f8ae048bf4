"""Proves that nothing that anybody sends over the bus does the daemon harm: 262 and more wrong requests, one by one.

The table of `tests.bus.bad_requests` at the door of the whole daemon, and requests whose faults only the core and the
capabilities' own schemas can find. Each is refused by name, with the field; afterwards the store is unchanged, and the
daemon's memory and descriptors are where they were.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from aiosd.bus.connection import Variant
from tests.bus.bad_requests import BAD_REQUESTS, CAPABILITY, INVALID_PARAMS, MANAGER, MANAGER_PATH, BadRequest
from tests.system.caller import Refused, connected

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiosd.bus.message import BusValue
    from aiosd.model.jsontext import JsonObject, JsonValue
    from tests.rig.container import Container
    from tests.system.caller import Caller

INSTALLED = "files.checksum"
MEBIBYTE = 1024  # in KiB, as the kernel counts (proc_pid_status(5))
REPEATS = 3


def _create(field: str, capability: str, arguments: JsonObject, **options: Variant) -> BadRequest:
    body: tuple[BusValue, ...] = (capability, json.dumps(arguments), options)
    return BadRequest(MANAGER_PATH, MANAGER, "CreateTask", "ssa{sv}", body, INVALID_PARAMS, field, by_core=True)


def _arguments(field: str, arguments: JsonObject, capability: str = INSTALLED) -> BadRequest:
    return _create(f"arguments{field}", capability, arguments)


def _limits(field: str, limits: JsonObject) -> BadRequest:
    wanted = Variant("s", json.dumps(limits))
    return _create(f"options.limits.{field}", "test.look.public", {}, limits=wanted)


def _deep(depth: int) -> JsonValue:
    value: JsonValue = 1
    for _ in range(depth):
        value = [value]
    return value


TOO_LONG = "/" + "x" * 4096
WRONG: dict[tuple[str, str], list[JsonValue]] = {
    ("files.checksum", "path"): [
        1, -1, 1.5, True, None, [], ["/usr"], {}, {"path": "/usr"}, "", "usr", "./usr", "~", " /usr", TOO_LONG,
    ],
    ("files.checksum", "algorithm"): ["md5", "SHA256", "", "sha256 ", 256, None, ["sha256"]],
    ("files.checksum", "pattern"): ["", "x" * 256, 1, ["*"]],
    ("files.checksum", "one_file_system"): ["true", 0, 1, None],
    ("test.sleep", "seconds"): [-1, "1", None, -1e300, True, [1]],
    ("test.fail", "status"): [-1, 256, 1.5, 2**53 - 1, "0"],
    ("compat.command.run", "argv"): [[], "true", {}, None],
    ("compat.command.run", "cwd"): ["", "tmp", 1],
    ("system.unit.restart", "unit"): [
        "", "cron", "cron.mount", "../x.service", "a b.service", "-x.service", "x.service\n", "x" * 300 + ".service",
    ],
    ("system.journal.errors", "hours"): [0, -5, 8761, 1.5, "1", 1e300],
}  # fmt: skip
"""Capability and argument -> values that its schema forbids."""

OTHERS: dict[str, JsonObject] = {
    "files.checksum": {"path": "/usr"}, "compat.command.run": {"argv": ["true"]}
}  # fmt: skip
"""What else has to be there, so that nothing else is wrong."""

IN_ARGV: list[JsonValue] = [1, None, ["x"], True]

BY_SCHEMA = [
    *(
        _arguments(f"/{name}", {**OTHERS.get(capability, {}), name: value}, capability)
        for (capability, name), values in WRONG.items()
        for value in values
    ),
    *(_arguments("/argv/1", {"argv": ["true", value]}, "compat.command.run") for value in IN_ARGV),
    _arguments("/argv/0", {"argv": [""]}, "compat.command.run"),
    _arguments("", {}),
    *(_arguments("", {"path": "/usr", name: 1}) for name in ("Path", "depth", "uid", "exec", "__proto__", "")),
    _arguments("", {"surplus": _deep(20)}, "system.info.read"),
]
"""Refused by the schemas of installed capabilities: the field is the argument."""

BY_LIMITS = [
    _limits("memory_max", {"memory_max": 257 << 20}),
    _limits("tasks_max", {"tasks_max": 17}),
    _limits("cpu_quota_percent", {"cpu_quota_percent": 21}),
    _limits("memory_max", {"memory_max": 2**53 - 1}),
    _limits("memory_max", {"memory_max": -1}),
    _limits("tasks_max", {"tasks_max": 1.5}),
]
"""Looser than the capability allows, or no limits at all."""

ALL = [*BAD_REQUESTS, *BY_SCHEMA, *BY_LIMITS]


@pytest.fixture(scope="module")
def sender(equipped: Container) -> Iterator[Caller]:
    """Root: who is not limited in calls a second, and whom polkit refuses nothing, so that the fault is what counts."""
    with connected(equipped, "root") as caller:
        yield caller


def _problem(sender: Caller, bad: BadRequest) -> str:
    """What is wrong with the answer, "" when it is right."""
    body = tuple(INSTALLED if value == CAPABILITY else value for value in bad.body)
    try:
        answer = sender.call(bad.path, bad.interface, bad.member, bad.signature, *body)
    except Refused as refused:
        return _wrong_refusal(bad, refused)
    return f"{bad}: answered {answer}"


def _wrong_refusal(bad: BadRequest, refused: Refused) -> str:
    expected = {bad.error}
    if bad.error.startswith("org.freedesktop.") and bad.interface not in _LET_THROUGH:
        expected.add("org.freedesktop.DBus.Error.AccessDenied")  # by the bus itself, whose policy names the interfaces
    if refused.name not in expected:
        return f"{bad}: {refused.name} instead of {bad.error}"
    if "Traceback" in refused.message or len(refused.message) > 500:
        return f"{bad}: said {refused.message[:600]}"
    if bad.error == INVALID_PARAMS and refused.data.get("field") != bad.field:
        return f"{bad}: names {refused.data.get('field')}, not {bad.field}"
    return ""


_LET_THROUGH = {
    MANAGER, f"{MANAGER}.Task", *(f"org.freedesktop.DBus.{name}" for name in ("Properties", "Introspectable", "Peer"))
}  # fmt: skip


def _footprint(box: Container) -> tuple[int, int]:
    """Memory of the daemon in KiB, and how many descriptors it has open."""
    pid = box.run("systemctl", "show", "aiosd.service", "--property=MainPID", "--value").stdout.strip()
    resident = next(line for line in box.read(f"/proc/{pid}/status").splitlines() if line.startswith("VmRSS"))
    return int(resident.split()[1]), len(box.run("ls", f"/proc/{pid}/fd").stdout.split())


def test_there_are_many_and_none_twice() -> None:
    assert len(ALL) >= 300
    assert len({repr(bad) for bad in ALL}) == len(ALL)


def test_each_is_refused_by_name_and_nothing_changes(sender: Caller, equipped: Container) -> None:
    for bad in ALL:  # once before measuring: what is learnt once (parsed signatures, compiled schemas) is no leak
        _problem(sender, bad)
    tasks, before = sender.total(), _footprint(equipped)
    wrong = [_problem(sender, bad) for _ in range(REPEATS) for bad in ALL]
    assert sorted(set(filter(None, wrong))) == []
    after = _footprint(equipped)
    assert sender.total() == tasks
    assert after[0] - before[0] < 2 * MEBIBYTE, f"from {before[0]} to {after[0]} KiB in {REPEATS * len(ALL)} requests"
    assert after[1] <= before[1]


@pytest.mark.parametrize(
    ("arguments", "named"), [({}, "path"), ({"path": "/usr", "depth": 1}, "depth")], ids=["missing", "unknown"]
)
def test_an_argument_that_has_no_place_is_named_in_the_text(sender: Caller, arguments: JsonObject, named: str) -> None:
    with pytest.raises(Refused, match=rf"\b{named}\b"):
        sender.create(INSTALLED, arguments)


def test_a_capability_that_is_not_there(sender: Caller) -> None:
    with pytest.raises(Refused) as refused:
        sender.create("org.example.missing")
    assert refused.value.short == "CapabilityNotFound"


def test_nobody_can_have_an_answer_that_costs_the_daemon_its_connection(equipped: Container) -> None:
    """40 MiB of messages in one session: more than the bus takes in one message, so they come in pages."""
    pid = equipped.run("systemctl", "show", "-P", "MainPID", "aiosd.service").stdout
    with connected(equipped, "alice") as alice:
        made = alice.call(MANAGER_PATH, MANAGER, "CreateSession", "sa{sv}", "talk", {})
        path, interface = f"{MANAGER_PATH}/session/{str(made[0]).replace('-', '_')}", f"{MANAGER}.Session"
        for _ in range(330):
            alice.call(path, interface, "AddMessage", "ssa{sv}", "user", "é" * 65_000, {})
        seen, last = 0, Variant("s", "evt-0000000000000000")
        while True:
            asked = {"limit": Variant("u", 1000), "last_event_id": last}
            page = json.loads(str(alice.call(path, interface, "GetTimeline", "a{sv}", asked)[0]))
            seen += len(page["events"])
            last = Variant("s", page["last_event_id"])
            if not page["has_more"]:
                break
        assert seen == 331
    assert equipped.run("systemctl", "show", "-P", "MainPID", "aiosd.service").stdout == pid


def test_requests_by_the_hundred_are_put_off(equipped: Container, root: Caller) -> None:
    """One user's connection may have 64 calls in progress; the next is told so, and nobody else is disturbed."""
    with connected(equipped, "alice") as alice:
        task_id = alice.create("test.sleep", {"seconds": 300})
        path = f"{MANAGER_PATH}/task/{task_id.replace('-', '_')}"
        waits: tuple[BusValue, ...] = ({},)
        begun = [alice.begin(path, f"{MANAGER}.Task", "Wait", "a{sv}", *waits) for _ in range(80)]
        refused = []
        for number in begun[64:]:
            with pytest.raises(Refused) as one:
                alice.finish(number)
            refused.append(one.value.short)
        assert refused == ["RateLimited"] * 16
        assert root.run("test.sleep", {"seconds": 0})["status"] == "completed"
        root.cancel(task_id)
        for number in begun[:64]:
            assert alice.finish(number).body[0] == "canceled"
