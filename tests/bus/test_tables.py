"""XML, members, operations and properties say one thing in four places, and agree."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiosd.bus.interfaces import load
from aiosd.bus.members import MEMBERS
from aiosd.bus.objects import GETTERS
from aiosd.bus.paths import Place, Target, find, task_path
from aiosd.core.operations import MANAGER, OPERATIONS
from aiosd.model.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Iterator

INTERFACES = load()
METHODS = {(name, method) for name, one in INTERFACES.items() for method in one.methods}


def test_every_method_of_the_xml_is_a_member_and_the_reverse() -> None:
    assert set(MEMBERS) == METHODS


def test_every_member_is_the_operation_of_the_one_table() -> None:
    declared = {(row.bus.interface, row.bus.member): name for name, row in OPERATIONS.items() if row.bus is not None}
    assert {key: member.operation for key, member in MEMBERS.items()} == declared


@pytest.mark.parametrize("key", sorted(MEMBERS))
def test_a_members_arguments_are_those_of_the_xml(key: tuple[str, str]) -> None:
    interface, name = key
    member, method = MEMBERS[key], INTERFACES[interface].methods[name]
    names = [argument.param for argument in member.arguments]
    if member.options is not None:
        names.append("options")
    assert [argument.name for argument in method.inputs] == names


@pytest.mark.parametrize("key", sorted(MEMBERS))
def test_every_option_is_documented_in_the_xml_with_its_type(key: tuple[str, str]) -> None:
    interface, name = key
    doc = INTERFACES[interface].methods[name].doc
    elsewhere = {"capability_id", "all_users", "session_id", "parent_task_id", "tag", "uid"}
    for option, spec in (MEMBERS[key].options or {}).items():
        if name == "ListHistory" and option in elsewhere:
            continue  # "the other filters, as in ListTasks"
        assert option in doc, option
        at = doc.index(f"{option} (") + len(option) + 2
        assert doc[at:].startswith(spec.type), option


JSON_ONLY = {
    "task.list": {"filter.start_time", "filter.end_time", "pagination.cursor"},  # ListHistory; pages by offset
    "task.history": {"pagination.cursor", "sort.field", "sort.order"},  # by time, as it says
    "task.resubscribe": {"limit"},  # all that was missed
    "feed.subscribe": {"limit"},
    "task.open_log": {"offset", "limit"},  # a descriptor has a position
    "worker.heartbeat": {"timestamp"},  # taken and not gone by
}
"""Parameters that have no place on the bus, and need none."""
WHOLE = {"limits", "authentication", "auth_response", "progress", "step", "tool_call", "summary", "log", "artifact",
         "question", "approval", "diff", "tasks"}  # fmt: skip
"""What travels as one JSON text, or as a descriptor."""


def _parameters(model: type[Wire], before: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        wire = before + (field.alias or name)
        inner = [one for one in (field.annotation, *get_args(field.annotation)) if inspect.isclass(one)]
        models = [one for one in inner if issubclass(one, Wire)]
        if models and (field.alias or name) not in WHOLE:
            yield from _parameters(models[0], f"{wire}.")
        else:
            yield wire


@pytest.mark.parametrize("key", sorted(MEMBERS))
def test_what_json_callers_can_say_can_be_said_on_the_bus(key: tuple[str, str]) -> None:
    member = MEMBERS[key]
    sayable = {argument.param for argument in member.arguments}
    sayable |= {".".join(option.place) for option in (member.options or {}).values()}
    for name, value in member.fixed.items():
        sayable |= {f"{name}.{inner}" for inner in value} if isinstance(value, dict) else {name}
    sayable |= {"task_id", "session_id", "approval_id", "worker_id", "uid"} if key[0] != MANAGER else set()  # the path
    if "report" not in sayable:  # its entries are parameters
        found = _parameters(OPERATIONS[member.operation].params)
        missing = {name for name in found if not {name, name.partition(".")[0]} & sayable}
        assert missing == JSON_ONLY.get(member.operation, set())


def test_every_property_has_a_getter_and_the_reverse() -> None:
    assert {name: set(one.properties) for name, one in INTERFACES.items()} == {
        name: set(getters) for name, getters in GETTERS.items()
    }


@given(st.from_regex(r"task-[A-Za-z0-9]{1,30}(-[A-Za-z0-9_]{1,64})?", fullmatch=True))
def test_a_path_names_its_task_and_no_other(task_id: str) -> None:
    path = task_path(task_id)
    assert path == "/org/aios/TaskManager/task/" + task_id.replace("-", "_")
    assert find(path) == Target(Place.TASK, task_id=task_id)


@pytest.mark.parametrize(
    "task_id", ["", "task", "task-", "art-1", "task-1-", "task-1-a-b", "task-a.b", "task-" + "1" * 200]
)
def test_what_is_no_task_id_has_no_path(task_id: str) -> None:
    with pytest.raises(ValueError, match="task"):
        task_path(task_id)


@pytest.mark.parametrize(
    "path",
    ["/org/aios/TaskManager/", "/org/aios/TaskManager/task/", "/org/aios/TaskManager/task/x", "/org/aios/TaskManagerX"],
)
def test_other_paths_name_nothing(path: str) -> None:
    assert find(path) is None
