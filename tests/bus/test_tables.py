"""XML, members, operations and properties say one thing in four places, and agree."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiosd.bus.interfaces import load
from aiosd.bus.members import MEMBERS
from aiosd.bus.objects import GETTERS
from aiosd.bus.paths import Place, Target, find, task_path
from aiosd.core.operations import OPERATIONS

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
    for option, spec in (MEMBERS[key].options or {}).items():
        if name == "ListHistory" and option in ("capability_id", "all_users"):
            continue  # "the rest as in ListTasks"
        assert option in doc, option
        at = doc.index(f"{option} (") + len(option) + 2
        assert doc[at:].startswith(spec.type), option


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
