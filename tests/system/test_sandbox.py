"""Proves what a task's program gets and what it does not, at each level: from inside, by a program that tries.

`programs/look.py` tells what it sees and what became of its attempts; the expectations are aios.capability(5)'s.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from aiosd.bus.connection import Variant
from tests.system.caller import field_of
from tests.system.rules import RUN_ALL, polkit_rules

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiosd.model.jsontext import JsonObject
    from tests.rig.container import Container
    from tests.system.caller import Caller

VARIABLES = set(
    "PATH LANG HOME USER LOGNAME SHELL TMPDIR AIOS_TASK_FD AIOS_TASK_ID AIOS_RUN_ID AIOS_ATTEMPT AIOS_CAPABILITY "
    "AIOS_ARGUMENTS AIOS_CONTEXT AIOS_SCRATCH".split()
)
NO_CAPABILITIES = "0" * 16
LEVELS = ["public", "low", "medium", "high"]
INTERFACE, PEER = "aiosdtest0", "aiosdtest1"
DENIED = {"EACCES", "EROFS", "EPERM"}


@dataclass(frozen=True)
class Look:
    """What a program saw, and its task."""

    task: JsonObject
    seen: JsonObject

    def text(self, *keys: str) -> str:
        """A value deep in what it saw."""
        return str(field_of(self.seen, *keys))

    def table(self, key: str) -> JsonObject:
        """A table in what it saw."""
        found = self.seen[key]
        assert isinstance(found, dict)
        return found


def _look(caller: Caller, what: str, *, mode: str = "independent") -> Look:
    task = caller.run(f"test.look.{what}", execution_mode=Variant("s", mode))
    assert task["status"] == "completed", task
    seen = task["result"]
    assert isinstance(seen, dict)
    return Look(task, seen)


@pytest.fixture(scope="module")
def interface(equipped: Container) -> Iterator[str]:
    """A network interface of the host, so that there is something to see beside loopback."""
    equipped.run("ip", "link", "add", INTERFACE, "type", "veth", "peer", "name", PEER)
    equipped.run("ip", "address", "add", "198.51.100.1/24", "dev", INTERFACE)
    for name in (INTERFACE, PEER):
        equipped.run("ip", "link", "set", name, "up")
    equipped.run("ip", "route", "add", "default", "dev", INTERFACE)
    yield INTERFACE
    equipped.run("ip", "link", "delete", INTERFACE)


@pytest.fixture(scope="module")
def looks(equipped: Container, alice_at_seat: Caller, interface: str) -> dict[str, Look]:
    """One look at each level, for alice; what asks for an administrator is allowed by a rule."""
    equipped.write("/home/alice/kept", "alice's\n")
    equipped.run("chown", "alice:", "/home/alice/kept")
    with polkit_rules(equipped, "10-aiosd-look", RUN_ALL):
        seen = {what: _look(alice_at_seat, what) for what in (*LEVELS, "netlink")}
        research = {f"{level} research": _look(alice_at_seat, level, mode="research_only") for level in LEVELS}
        return {**seen, **research}


@pytest.mark.parametrize("level", LEVELS)
def test_environment(level: str, looks: dict[str, Look]) -> None:
    look, task = looks[level], looks[level].task
    environment = look.table("environment")
    assert set(environment) == VARIABLES
    scratch = str(environment["AIOS_SCRATCH"])
    assert scratch.endswith(str(field_of(task, "run", "run_id")))
    assert environment["TMPDIR"] == look.seen["cwd"] == scratch
    assert environment["AIOS_TASK_ID"] == task["task_id"]
    assert environment["AIOS_RUN_ID"] == field_of(task, "run", "run_id")
    assert environment["AIOS_CAPABILITY"] == task["capability_id"]
    assert environment["AIOS_ATTEMPT"] == "1"
    assert environment["LANG"] == "C.UTF-8"
    person = ("/home/alice", "alice", "alice", "/bin/bash")
    nobody = (scratch, "aios-task", "aios-task", "/usr/sbin/nologin")
    expected = nobody if level == "public" else person
    assert tuple(environment[name] for name in ("HOME", "USER", "LOGNAME", "SHELL")) == expected


@pytest.mark.parametrize("level", LEVELS)
def test_descriptors(level: str, looks: dict[str, Look]) -> None:
    look = looks[level]
    descriptors = look.table("descriptors")
    assert set(descriptors) == {"0", "1", "2", look.text("environment", "AIOS_TASK_FD")}
    assert look.seen["stdin_is_null"] is True
    assert str(descriptors["1"]).startswith("pipe:")
    assert str(descriptors["2"]).startswith("pipe:")
    assert descriptors["1"] != descriptors["2"]
    assert str(descriptors[look.text("environment", "AIOS_TASK_FD")]).startswith("socket:")


@pytest.mark.parametrize("level", LEVELS)
def test_no_privileges(level: str, looks: dict[str, Look]) -> None:
    look = looks[level]
    assert {look.text("status", name) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {
        NO_CAPABILITIES
    }
    assert look.text("status", "NoNewPrivs") == "1"
    assert look.text("status", "Seccomp") == "2"
    assert f"0::{field_of(look.task, 'run', 'control_group')}" in look.text("cgroup").splitlines()


def test_whose_process_it_is(looks: dict[str, Look], equipped: Container) -> None:
    alice = equipped.run("id", "-u", "alice").stdout.strip()
    groups = sorted(equipped.run("id", "-G", "alice").stdout.split())
    for level in ("low", "medium", "high"):
        assert looks[level].text("status", "Uid").split() == [alice] * 4
        assert sorted(looks[level].text("status", "Groups").split()) == groups
    uid = looks["public"].text("status", "Uid").split()
    assert len(set(uid)) == 1
    assert int(uid[0]) >= 1879048192, "from the numbers that belong to nobody"
    assert looks["public"].text("status", "Groups") == ""


def test_a_dynamic_user_is_another_one_each_time(alice: Caller) -> None:
    uids = [_look(alice, "public").text("status", "Uid").split()[0] for _ in range(3)]
    assert len(set(uids)) == 3


@pytest.mark.parametrize("level", LEVELS)
def test_the_system_is_read_only(level: str, looks: dict[str, Look], equipped: Container) -> None:
    files = looks[level].table("files")
    assert {files[name] for name in ("write_usr", "write_etc")} <= DENIED
    assert files["write_scratch"] == "done"
    assert files["write_tmp"] == files["write_var"] == "done", "a /tmp of its own"
    written = equipped.sh("ls -d /usr/written /etc/written /tmp/written /var/tmp/written 2>/dev/null || :")
    assert written == "", "seen by the system"


@pytest.mark.parametrize(
    ("level", "homes", "writes"),
    [("public", [], "done"), ("low", ["alice"], "EROFS"), ("medium", ["alice"], "done"), ("high", ["alice"], "done")],
)
def test_homes(level: str, homes: list[str], writes: str, looks: dict[str, Look]) -> None:
    """public has its scratch directory for a home; nobody sees another's home, root's or a runtime directory."""
    files = looks[level].table("files")
    assert files["homes"] == homes
    assert files["write_home"] == writes
    assert files["root_home"] in ([], ["EACCES"])
    assert files["run_user"] in ([], ["EACCES"], ["ENOENT"])


def test_what_a_task_wrote_at_home_stays(looks: dict[str, Look], equipped: Container) -> None:
    assert looks["medium"].table("files")["write_home"] == "done"
    assert equipped.run("stat", "-c", "%U", "/home/alice/written").stdout == "alice\n"


@pytest.mark.parametrize("level", LEVELS)
def test_the_daemon_is_out_of_reach(level: str, looks: dict[str, Look]) -> None:
    files = looks[level].table("files")
    assert files["signal_aiosd"] in ("EPERM", "no such process")
    assert files["aiosd_state"] in (["EACCES"], ["ENOENT"], [])
    assert files["runs"] in (["EACCES"], ["ENOENT"], [])
    assert files["launcher_socket"] in ("EACCES", "ENOENT")
    assert files["shadow"] == "EACCES"


@pytest.mark.parametrize("level", LEVELS)
def test_the_scratch_directory_goes_with_the_run(level: str, looks: dict[str, Look], equipped: Container) -> None:
    """It begins with nothing but the arguments, and nothing of it is left."""
    look = looks[level]
    assert look.seen["scratch"] == [".aios-arguments.json"]
    scratch = look.text("environment", "AIOS_SCRATCH")
    assert equipped.sh(f"ls -A {scratch} 2>/dev/null || :") == ""


# -- research --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
def test_research_changes_nothing_and_reaches_nobody(level: str, looks: dict[str, Look]) -> None:
    """execution_mode research_only, whatever the level allows: only the scratch directory can be written."""
    look = looks[f"{level} research"]
    files, network = look.table("files"), look.table("network")
    assert {files[name] for name in ("write_usr", "write_etc")} <= DENIED
    assert files["write_scratch"] == "done"
    if level != "public":
        assert files["write_home"] == "EROFS"
        assert files["homes"] == ["alice"], "what it may read, it reads"
    assert network["interfaces"] == ["lo"]
    assert {network[name] for name in ("tcp", "udp", "tcp6")} <= {"ENETUNREACH", "EAFNOSUPPORT", "EACCES", "EPERM"}
    assert files["system_bus"] in ("EACCES", "ENOENT"), "no service can change it for the program"


def test_what_is_no_research_talks_to_services_from_level_medium_on(looks: dict[str, Look]) -> None:
    for level in LEVELS:
        reached = looks[level].table("files")["system_bus"] == "done"
        assert reached is (level in ("medium", "high")), level


# -- the network -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["public", "low"])
def test_no_network(level: str, looks: dict[str, Look]) -> None:
    network = looks[level].table("network")
    assert network["interfaces"] == ["lo"]
    assert {network[name] for name in ("tcp", "udp", "tcp6")} <= {"ENETUNREACH", "EAFNOSUPPORT", "EACCES", "EPERM"}
    assert network["packet"] in ("EPERM", "EACCES", "EAFNOSUPPORT")


@pytest.mark.parametrize("level", ["medium", "high"])
def test_the_hosts_network(level: str, looks: dict[str, Look], interface: str) -> None:
    network = looks[level].table("network")
    assert interface in json.dumps(network["interfaces"])
    assert network["udp"] == "done"
    assert network["tcp_loopback"] == "ECONNREFUSED"
    assert network["packet"] == "EPERM"


def test_reading_interfaces_is_not_being_connected(looks: dict[str, Look], interface: str) -> None:
    """network = "netlink": sees the host's interfaces, can open no connection."""
    network = looks["netlink"].table("network")
    assert interface in json.dumps(network["interfaces"])
    blocked = {"EACCES", "EPERM", "EAFNOSUPPORT"}
    for name in ("tcp", "tcp_loopback", "udp", "tcp6", "packet"):
        assert network[name] in blocked, name
