"""Proves that busctl(1) alone does everything that aiosctl does, and sees exactly what the XML files say.

Every verb of aiosctl has its row in `DONE_BY`, with the test that does it, here or in `test_busctl_control.py`; a verb
without one fails. What busctl cannot print is the content behind a descriptor: it prints where that is and how large.
An administrator reads it there, and everyone reads a task's output with journalctl(1), under its unit, a property.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from aiosd.cli.main import VERBS
from tests.rig import host
from tests.system import test_busctl_control
from tests.system.busctl import APPROVAL, LONG, SERVICE, SESSION, approval_of
from tests.system.caller import MANAGER, MANAGER_PATH, TASK, connected, path_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.rig.container import Container
    from tests.system.busctl import Busctl

DONE_BY = {
    "run": "test_create_and_wait",
    "wait": "test_create_and_wait",
    "exec": "test_exec",
    "list": "test_list_and_show",
    "show": "test_list_and_show",
    "watch": "test_watch",
    "logs": "test_logs",
    "cancel": "test_pause_resume_cancel_retry",
    "pause": "test_pause_resume_cancel_retry",
    "resume": "test_pause_resume_cancel_retry",
    "retry": "test_pause_resume_cancel_retry",
    "priority": "test_priority",
    "answer": "test_answer",
    "capability": "test_capabilities",
    "artifact": "test_artifacts",
    "auth": "test_authenticate",
    "approve": "test_approve",
    "grant": "test_grants",
    "policy": "test_explain",
    "audit": "test_audit",
    "kill-all": "test_emergency",
    "drain": "test_drain",
    "webhook": "test_webhooks",
    "session": "test_session_plan_and_tree",
    "plan": "test_session_plan_and_tree",
    "tree": "test_session_plan_and_tree",
    "worker": "test_workers",
    "status": "test_status_and_top",
    "top": "test_status_and_top",
    "reload": "test_reload",
    "bug-report": "",  # a file of what GetStatus, ListTasks, ListCapabilities, systemctl and journalctl say
    "completion": "",  # a text of aiosctl's own, about itself
    "state": "",  # works on the database's file, also when there is no daemon
    "rpc": "",  # is a client of the other door
}


def test_every_verb_is_done_here() -> None:
    assert set(DONE_BY) == set(VERBS)
    assert {name for name in DONE_BY.values() if name} <= {*globals(), *vars(test_busctl_control)}


def test_create_and_wait(busctl: Busctl) -> None:
    task_id = busctl.create("test.fail", '{"status": 3}', "2", "priority", "s", "high", "title", "s", "Mine")
    status, text = busctl.task(task_id, "Wait", "a{sv}", "0")
    task = json.loads(str(text))
    assert (status, task["title"], task["priority"], task["exit"]["exit_status"]) == ("failed", "Mine", "high", 3)
    assert json.loads(str(busctl.property(path_of(task_id), TASK, "Error")))["code"] == task["error"]["code"]


def test_exec(as_root: Busctl) -> None:
    task_id = as_root.create("compat.command.run", json.dumps({"argv": ["sh", "-c", "exit 5"]}))
    status, text = as_root.task(task_id, "Wait", "a{sv}", "0")
    assert (status, json.loads(str(text))["exit"]["exit_status"]) == ("failed", 5)


def test_list_and_show(busctl: Busctl) -> None:
    task_id = busctl.create("test.sleep", LONG)
    rows, total, has_more = busctl.manager(
        "ListTasks", "a{sv}", "3", "status", "as", "2", "pending", "working", "capability_id", "s", "test.*",
        "limit", "u", "1",
    )  # fmt: skip
    assert isinstance(rows, list)
    assert isinstance(rows[0], list)
    assert rows[0][:3] == [task_id, path_of(task_id), "test.sleep"]
    assert (total, has_more) == (1, False)
    task = json.loads(str(busctl.manager("GetTask", "sa{sv}", task_id, "1", "include_history", "b", "true")[0]))
    assert task["state_history"][0]["state"] == "pending"
    assert busctl.task(task_id, "GetHistory")
    busctl.task(task_id, "Cancel", "sa{sv}", "", "0")


def test_pause_resume_cancel_retry(busctl: Busctl) -> None:
    task_id = busctl.create("test.sleep", LONG)
    busctl.until(task_id, "working")
    busctl.task(task_id, "Pause", "a{sv}", "0")
    busctl.until(task_id, "paused")
    busctl.task(task_id, "Resume", "a{sv}", "0")
    busctl.until(task_id, "working")
    busctl.task(task_id, "Cancel", "sa{sv}", "enough", "0")
    busctl.until(task_id, "canceled")
    assert busctl.property(path_of(task_id), TASK, "Reason") == "enough"
    again = str(busctl.task(task_id, "Retry", "a{sv}", "0")[0])
    assert busctl.property(path_of(again), TASK, "RetryOf") == task_id
    busctl.task(again, "Cancel", "sa{sv}", "", "0")


def test_priority(busctl: Busctl) -> None:
    task_id = busctl.create("test.sleep", LONG, "1", "not_before", "t", "2000000000000000")
    busctl.task(task_id, "SetPriority", "sa{sv}", "low", "0")
    assert busctl.property(path_of(task_id), TASK, "Priority") == "low"
    busctl.task(task_id, "Cancel", "sa{sv}", "", "0")


def test_answer(busctl: Busctl) -> None:
    task_id = busctl.create("test.ask", "{}")
    busctl.task(task_id, "Wait", "a{sv}", "1", "until_waiting", "b", "true")
    busctl.task(task_id, "ProvideInput", "sa{sv}", '{"colour": "red"}', "0")
    status, _ = busctl.task(task_id, "Wait", "a{sv}", "0")
    assert status == "completed"
    assert json.loads(str(busctl.property(path_of(task_id), TASK, "Result"))) == {"colour": "red"}


def test_watch(busctl: Busctl, equipped: Container) -> None:
    """A user waits for the broadcast signal, or asks for the events since; root monitors the unicast ones as well."""
    task_id = busctl.create("test.talk", '{"count": 8}')
    waited = equipped.run(
        "busctl", "--json=short", f"--destination={SERVICE}", "wait", MANAGER_PATH, MANAGER, "StateChanged",
        user="alice", check=False,
    )  # fmt: skip
    if waited.returncode != 0:  # before systemd 258 it has no such option
        waited = equipped.run("busctl", "--json=short", "wait", MANAGER_PATH, MANAGER, "StateChanged", user="alice")
    assert task_id in waited.stdout
    busctl.task(task_id, "Wait", "a{sv}", "0")
    _, events = busctl.manager("Resubscribe", "ssa{sv}", task_id, f"evt-{0:016d}", "0")
    assert isinstance(events, list)
    kinds = [event[1] for event in events if isinstance(event, list)]
    assert kinds[-1] == "task.result"
    assert set(kinds) >= {"task.status", "task.progress", "task.log", "task.artifact"}


def test_subscribe_monitored_by_root(busctl: Busctl, equipped: Container, alice_listening: None) -> None:
    monitor = ("busctl", "--json=short", "monitor", f"--match=type='signal',interface='{MANAGER}',member='Event'")
    with equipped.popen(*monitor) as running:
        time.sleep(0.5)  # it says nothing of when it listens
        task_id = busctl.create("test.sleep", '{"seconds": 0}')
        line = json.loads(running.read_line())
    assert line["payload"]["data"][2] == "task.status"
    assert json.loads(line["payload"]["data"][3])["task_id"] == task_id


@pytest.fixture
def alice_listening(equipped: Container) -> Iterator[None]:
    """A subscription of alice's own; busctl's ends with the busctl that made it."""
    with connected(equipped, "alice") as alice:
        alice.call(MANAGER_PATH, MANAGER, "Subscribe", "sasa{sv}", "", [], {})
        yield


def test_logs(busctl: Busctl, equipped: Container) -> None:
    task_id = busctl.create("test.fail", '{"status": 0}')
    busctl.task(task_id, "Wait", "a{sv}", "0")
    for stream, text in (("stdout", "out\n"), ("stderr", "err\n")):
        found = busctl.task(task_id, "OpenLog", "sa{sv}", stream, "0")[0]
        assert isinstance(found, dict)
        stat = found["stat"]
        assert isinstance(stat, dict)
        assert stat["size"] == len(text)
        assert equipped.read(str(found["path"])) == text
        assert equipped.run("cat", str(found["path"]), user="alice", check=False).returncode != 0
    unit = str(busctl.property(path_of(task_id), TASK, "Unit"))
    assert equipped.run("journalctl", "--sync").returncode == 0
    journal = equipped.run("journalctl", "--output=cat", "--unit", unit, "SYSLOG_IDENTIFIER=test.fail").stdout
    assert sorted(journal.split()) == ["err", "out"]


def test_artifacts(busctl: Busctl) -> None:
    task_id = busctl.create("test.talk", '{"count": 1}')
    busctl.task(task_id, "Wait", "a{sv}", "0")
    rows = busctl.manager("ListArtifacts", "s", task_id)[0]
    assert isinstance(rows, list)
    assert isinstance(rows[0], list)
    artifact, name, *_, size = rows[0]
    assert (name, size) == ("counted", 2)
    shape = json.loads(str(busctl.manager("GetArtifact", "s", str(artifact))[0]))
    assert shape["id"] == artifact
    content = busctl.manager("OpenArtifact", "su", str(artifact), "0")[0]
    assert isinstance(content, dict)
    assert "fd" in content


def test_capabilities(busctl: Busctl) -> None:
    rows = busctl.manager("ListCapabilities", "a{sv}", "1", "filter", "s", "files.*")[0]
    assert isinstance(rows, list)
    assert [row[0] for row in rows if isinstance(row, list)] == ["files.checksum"]
    manifest = json.loads(str(busctl.manager("GetCapability", "s", "files.checksum")[0]))
    assert manifest["input_schema"]["required"] == ["path"]


def test_status_and_top(busctl: Busctl, equipped: Container) -> None:
    task_id = busctl.create("test.sleep", LONG)
    busctl.until(task_id, "working")
    status = json.loads(str(busctl.manager("GetStatus")[0]))
    assert status["tasks"]["running"] >= 1
    assert busctl.property(MANAGER_PATH, MANAGER, "TasksRunning") == status["tasks"]["running"]
    group = busctl.property(path_of(task_id), TASK, "ControlGroup")
    assert len(equipped.read(f"/sys/fs/cgroup{group}/cgroup.procs").split()) == 2
    busctl.task(task_id, "Cancel", "sa{sv}", "", "0")


def test_reload(as_root: Busctl) -> None:
    assert as_root.manager("Reload", "a{sv}", "0") == []


# -- introspection ---------------------------------------------------------------------------------------------------


def _declared(path: Path) -> set[tuple[str, str, str]]:
    """(name, kind, signature) of every member of an interface, as busctl prints it."""
    interface = ElementTree.parse(path).getroot()[0]  # noqa: S314 - our own file
    found = set()
    for member in interface:
        wanted = {"method": ("in", None), "signal": (None,)}.get(member.tag, ())
        signature = "".join(arg.get("type", "") for arg in member.iter("arg") if arg.get("direction") in wanted)
        found.add((str(member.get("name")), member.tag, member.get("type") or signature or "-"))
    return found


def _example(interface: str, busctl: Busctl, as_root: Busctl) -> tuple[Busctl, str]:
    """Whose and where there is an object with that interface."""
    if interface == MANAGER:
        return busctl, MANAGER_PATH
    if interface == SESSION:
        return busctl, str(busctl.manager("CreateSession", "sa{sv}", "Mine", "0")[1])
    if interface == TASK:
        return busctl, path_of(busctl.create("test.sleep", '{"seconds": 0}'))
    return as_root, approval_of(as_root, as_root.create("test.critical", '{"name": "root"}'))


@pytest.mark.parametrize("interface", [MANAGER, TASK, SESSION, APPROVAL])
def test_introspection_is_the_xml_file(interface: str, busctl: Busctl, as_root: Busctl, equipped: Container) -> None:
    whose, path = _example(interface, busctl, as_root)
    shown = equipped.run("busctl", "--no-legend", "introspect", SERVICE, path, interface, user=whose.user).stdout
    members = {tuple(line.split()[:3]) for line in shown.splitlines()}
    declared = _declared(host.CHECKOUT / f"dbus/{interface}.xml")
    assert {(name.removeprefix("."), kind, signature) for name, kind, signature in members} == declared
