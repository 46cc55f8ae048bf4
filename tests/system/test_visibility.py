"""Proves that a task is its owner's business: for another user it does not exist, and the bus tells nothing about it.

Alice's task is asked for in every way that there is, by bob and by root; what they hear on the bus is held to what may
be heard.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from aiosd.bus.connection import Variant
from tests.rig.rootfs import PASSWORDS
from tests.system.caller import DBUS, MANAGER, MANAGER_PATH, TASK, Refused, connected, path_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiosd.bus.message import BusValue
    from tests.rig.container import Container
    from tests.system.caller import Caller, Signal

PROPERTIES = "org.freedesktop.DBus.Properties"
UNKNOWN_OBJECT = "org.freedesktop.DBus.Error.UnknownObject"
PRIVATE = "aubergine"
EX_NOINPUT = 66

ON_THE_MANAGER: dict[str, tuple[str, tuple[BusValue, ...]]] = {
    "GetTask": ("sa{sv}", ({},)),
    "Subscribe": ("sasa{sv}", ([], {})),
    "Resubscribe": ("ssa{sv}", (f"evt-{1:016d}", {})),
    "ListArtifacts": ("s", ()),
}
ON_THE_TASK: dict[str, tuple[str, tuple[BusValue, ...]]] = {
    "Cancel": ("sa{sv}", ("", {})),
    "Pause": ("a{sv}", ({},)),
    "Resume": ("a{sv}", ({},)),
    "Retry": ("a{sv}", ({},)),
    "SetPriority": ("sa{sv}", ("high", {})),
    "ProvideInput": ("sa{sv}", ("{}", {})),
    "Wait": ("a{sv}", ({},)),
    "OpenLog": ("sa{sv}", ("stdout", {})),
    "GetHistory": ("", ()),
}


@pytest.fixture
def private(alice: Caller) -> Iterator[str]:
    """A task of alice's that runs, with something in it that nobody else should learn."""
    metadata = Variant("s", json.dumps({"about": PRIVATE}))
    task_id = alice.create("test.sleep", {"seconds": 300}, metadata=metadata, title=Variant("s", PRIVATE))
    alice.until_running(task_id)
    yield task_id
    assert alice.status(task_id) in ("working", "canceled")


def _error(caller: Caller, path: str, interface: str, member: str, signature: str, *body: BusValue) -> tuple[str, str]:
    with pytest.raises(Refused) as refused:
        caller.call(path, interface, member, signature, *body)
    return refused.value.name, refused.value.message


@pytest.mark.parametrize("member", ON_THE_MANAGER)
def test_it_does_not_exist_for_another(member: str, private: str, bob: Caller) -> None:
    signature, rest = ON_THE_MANAGER[member]
    missing = "task-00000000000000000000000000"
    answers = [_error(bob, MANAGER_PATH, MANAGER, member, signature, name, *rest) for name in (private, missing)]
    assert answers[0][0] == "org.aios.TaskManager.Error.TaskNotFound"
    assert answers[0] == answers[1], "told apart from a task that is not there"


@pytest.mark.parametrize("member", ON_THE_TASK)
def test_its_object_does_nothing_for_another(member: str, private: str, bob: Caller, alice: Caller) -> None:
    signature, body = ON_THE_TASK[member]
    missing = "task-00000000000000000000000000"
    answers = [_error(bob, path_of(name), TASK, member, signature, *body) for name in (private, missing)]
    assert answers[0][0] == "org.aios.TaskManager.Error.TaskNotFound"
    assert answers[0] == answers[1], "told apart from a task that is not there"
    assert alice.status(private) == "working"


def test_its_properties_and_introspection_are_not_there(private: str, bob: Caller) -> None:
    path = path_of(private)
    calls: list[tuple[str, str, str, tuple[BusValue, ...]]] = [
        (PROPERTIES, "Get", "ss", (TASK, "Status")),
        (PROPERTIES, "GetAll", "s", (TASK,)),
        ("org.freedesktop.DBus.Introspectable", "Introspect", "", ()),
    ]
    for interface, member, signature, body in calls:
        assert _error(bob, path, interface, member, signature, *body)[0] == UNKNOWN_OBJECT, member


def test_it_is_in_no_list_of_another(private: str, bob: Caller, alice: Caller, root: Caller) -> None:
    assert private in alice.tasks()
    assert private not in bob.tasks()
    history = bob.call(MANAGER_PATH, MANAGER, "ListHistory", "a{sv}", {})[0]
    assert isinstance(history, list)
    assert private not in [row[0] for row in history if isinstance(row, list)]
    assert private in root.tasks(all_users=Variant("b", True))
    assert private not in root.tasks()


@pytest.mark.parametrize("how", ["ListTasks", "Subscribe"])
def test_everybodys_tasks_are_the_administrators(how: str, private: str, bob: Caller) -> None:
    options = {"all_users": Variant("b", True)}
    body: tuple[BusValue, ...] = (options,) if how == "ListTasks" else ("", [], options)
    name, _ = _error(bob, MANAGER_PATH, MANAGER, how, "a{sv}" if how == "ListTasks" else "sasa{sv}", *body)
    assert name == "org.aios.TaskManager.Error.InteractiveAuthorizationRequired"


def test_an_administrators_password_shows_it(private: str, equipped: Container) -> None:
    """view-others, granted by real PAM to bob's session at the machine."""
    with connected(equipped, "bob", seat="seat0") as bob:
        bob.become_agent()
        begun = bob.begin(
            MANAGER_PATH, MANAGER, "ListTasks", "a{sv}", {"all_users": Variant("b", True)}, interactive=True
        )
        dialog = bob.next_dialog()
        assert (dialog.action, dialog.asked) == ("org.aios.TaskManager.view-others", ["carol"])
        bob.answer(dialog, PASSWORDS["carol"])
        rows = bob.finish(begun).body[0]
        assert isinstance(rows, list)
        assert private in [row[0] for row in rows if isinstance(row, list)]


def test_an_artifact_is_the_owners_too(alice: Caller, bob: Caller) -> None:
    task_id = str(alice.run("test.talk", {"count": 1})["task_id"])
    rows = alice.call(MANAGER_PATH, MANAGER, "ListArtifacts", "s", task_id)[0]
    assert isinstance(rows, list)
    artifact = str(rows[0][0]) if isinstance(rows[0], list) else ""
    assert alice.call(MANAGER_PATH, MANAGER, "GetArtifact", "s", artifact)
    for member, signature, body in (("GetArtifact", "s", ()), ("OpenArtifact", "su", (0,))):
        name, _ = _error(bob, MANAGER_PATH, MANAGER, member, signature, artifact, *body)
        assert name == "org.aios.TaskManager.Error.ArtifactNotFound", member


@pytest.mark.parametrize("verb", ["show", "cancel", "pause", "resume", "logs", "wait", "retry", "artifact list"])
def test_aiosctl_says_that_there_is_none(verb: str, private: str, equipped: Container) -> None:
    done = equipped.run("aiosctl", *verb.split(), private, user="bob", check=False)
    assert done.returncode == EX_NOINPUT, done
    assert "not found" in done.stderr
    assert PRIVATE not in done.stdout + done.stderr


def test_root_sees_and_stops_it(private: str, root: Caller) -> None:
    assert root.get(private)["title"] == PRIVATE
    assert root.log(private) == ""
    root.cancel(private, "by root")
    assert root.status(private) == "canceled"


def test_what_the_bus_tells_everybody(alice: Caller, equipped: Container) -> None:
    """Bob hears every signal that he can get; alice subscribes. Hers has the content, his ids, uid and states."""
    with connected(equipped, "bob") as bob, connected(equipped, "alice") as listener:
        bob.match("type='signal',sender='org.aios.TaskManager'")
        listener.call(MANAGER_PATH, MANAGER, "Subscribe", "sasa{sv}", "", [], {})
        metadata = Variant("s", json.dumps({"about": PRIVATE}))
        task_id = str(alice.run("test.talk", {"count": 3}, metadata=metadata, title=Variant("s", PRIVATE))["task_id"])
        listener.wait_signal(lambda signal: signal.member == "Event" and signal.body[2] == "task.result")
        bob.wait_signal(lambda signal: signal.member == "StateChanged" and "completed" in signal.body)
        time.sleep(0.2)  # for anything more that may come
        bob.answered(-1)
        heard = [signal for signal in bob.signals if signal.interface != "org.freedesktop.DBus"]
    kinds = {str(signal.body[2]) for signal in listener.signals if signal.member == "Event"}
    assert kinds >= {"task.status", "task.progress", "task.log", "task.artifact", "task.result"}
    assert {signal.member for signal in heard} == {"TaskNew", "StateChanged", "PropertiesChanged"}
    uid = int(equipped.run("id", "-u", "alice").stdout)
    for signal in heard:
        assert PRIVATE not in json.dumps(signal.body)
        _expect_public(signal, task_id, uid)


def test_the_bus_lets_nobody_listen_in(bob: Caller) -> None:
    with pytest.raises(Refused, match="AccessDenied"):
        bob.match("type='signal',eavesdrop='true',sender='org.aios.TaskManager'")
    monitoring: tuple[BusValue, ...] = ([], 0)
    with pytest.raises(Refused, match="AccessDenied"):
        bob.call("/org/freedesktop/DBus", f"{DBUS}.Monitoring", "BecomeMonitor", "asu", *monitoring, destination=DBUS)


def _expect_public(signal: Signal, task_id: str, uid: int) -> None:
    """The signal carries ids, uid and state, and nothing else (docs/dbus.md, "In the open")."""
    if signal.member == "PropertiesChanged":
        interface, changed, invalidated = signal.body
        assert isinstance(changed, dict)
        assert isinstance(invalidated, list)
        assert set(changed) <= {"Status", "Phase", "State", "MaxConcurrentTasks", "MaxTasksPerTool", "MaxQueueSize"}
        assert interface in (TASK, MANAGER)
        return
    assert signal.body[:3] == [task_id, path_of(task_id), uid]
    words = signal.body[3:]
    assert all(isinstance(word, str) and word.replace("_", "").isalpha() for word in words), words
