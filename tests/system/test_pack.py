"""Proves that every capability of the standard pack does its work, run by the daemon: results held to other tools'.

system.power.reboot would take the box along: it waits for its second confirmation, as everything critical, and is
canceled. files.checksum has `test_main_job` to itself, system.unit.restart as a user is in `test_polkit`.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from aiosd.bus.connection import Variant
from tests.system.caller import MANAGER, MANAGER_PATH, Refused, field_of

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonObject, JsonValue
    from tests.rig.container import Container
    from tests.system.caller import Caller

PACK = {
    "compat.command.run": "critical",
    "files.checksum": "low",
    "system.disk.usage": "public",
    "system.info.read": "public",
    "system.journal.errors": "medium",
    "system.network.interfaces": "public",
    "system.power.reboot": "critical",
    "system.unit.restart": "high",
}


def _result(caller: Caller, capability: str, arguments: JsonObject | None = None) -> JsonObject:
    task = caller.run(capability, arguments)
    assert task["status"] == "completed", task
    result = task["result"]
    assert isinstance(result, dict)
    return result


def _rows(value: JsonValue) -> list[JsonObject]:
    assert isinstance(value, list)
    return [row for row in value if isinstance(row, dict)]


def test_the_pack_is_there(alice: Caller, equipped: Container) -> None:
    installed = equipped.run("ls", "/usr/share/aios/capabilities.d").stdout.split()
    assert sorted(name.removesuffix(".toml") for name in installed) == sorted(PACK)
    rows = alice.call(MANAGER_PATH, MANAGER, "ListCapabilities", "a{sv}", {})[0]
    assert isinstance(rows, list)
    levels = {str(row[0]): row[2] for row in rows if isinstance(row, list)}
    assert {name: levels.get(name) for name in PACK} == PACK


def test_no_manifest_is_wrong(root: Caller) -> None:
    status = json.loads(str(root.call(MANAGER_PATH, MANAGER, "GetStatus")[0]))
    assert status["problems"] == []


def test_system_info(alice: Caller, equipped: Container) -> None:
    result = _result(alice, "system.info.read")
    assert result["hostname"] == equipped.run("hostname").stdout.strip()
    assert field_of(result, "kernel", "release") == equipped.run("uname", "-r").stdout.strip()
    assert field_of(result, "os", "id") == "debian"
    assert field_of(result, "cpu", "count") == int(equipped.run("nproc").stdout)
    memory = int(equipped.read("/proc/meminfo").split()[1]) * 1024
    assert field_of(result, "memory", "total_bytes") == memory


def test_network_interfaces(alice: Caller, equipped: Container) -> None:
    found = {str(row["name"]): row for row in _rows(_result(alice, "system.network.interfaces")["interfaces"])}
    told = json.loads(equipped.run("ip", "-json", "address").stdout)
    assert set(found) == {row["ifname"] for row in told}
    for row in told:
        ours = found[row["ifname"]]
        assert (ours["index"], ours["mtu"], ours["up"]) == (row["ifindex"], row["mtu"], "UP" in row["flags"])
        addresses = [address["address"] for address in _rows(ours["addresses"])]
        assert sorted(map(str, addresses)) == sorted(one["local"] for one in row["addr_info"])


def test_disk_usage(alice: Caller, equipped: Container) -> None:
    found = {str(row["mount_point"]): row for row in _rows(_result(alice, "system.disk.usage")["filesystems"])}
    size, available = equipped.sh("df --block-size=1 --output=size,avail / | tail -1").split()
    assert found["/"]["size_bytes"] == int(size)
    free = found["/"]["available_bytes"]
    assert isinstance(free, int)
    assert free == pytest.approx(int(available), rel=0.05)


def test_disk_usage_is_the_machines_and_not_the_tasks_own_view(alice: Caller, equipped: Container) -> None:
    """A public task has a /tmp, /run, /home and /dev of its own, and its scratch directory."""
    result = _result(alice, "system.disk.usage")
    told = {str(row["mount_point"]) for row in _rows(result["filesystems"])}
    skipped = {str(row["mount_point"]): row["reason"] for row in _rows(result["skipped"])}
    mounted = set(equipped.sh("findmnt --noheadings --raw --output TARGET").split())
    assert told | skipped.keys() <= mounted
    assert skipped["/tmp"] == "hidden"
    assert "/src" in told, "what is mounted where the task can see it"


def test_journal_errors(root: Caller, equipped: Container) -> None:
    text = f"an error of {time.monotonic_ns()}"
    equipped.run("logger", "-p", "user.err", "-t", "aiosd-test", text)
    equipped.run("journalctl", "--sync")
    result = _result(root, "system.journal.errors", {"hours": 1, "limit": 50})
    entries = _rows(result["entries"])
    mine = [entry for entry in entries if entry["message"] == text]
    assert [(entry["priority"], entry["identifier"]) for entry in mine] == [(3, "aiosd-test")]
    assert result["count"] == len(entries)


def test_unit_restart(root: Caller, equipped: Container) -> None:
    unit = "pack-test.service"
    equipped.write(f"/run/systemd/system/{unit}", "[Service]\nType=exec\nExecStart=/usr/bin/sleep infinity\n")
    equipped.run("systemctl", "daemon-reload")
    equipped.run("systemctl", "start", unit)
    before = int(equipped.run("systemctl", "show", unit, "--property=MainPID", "--value").stdout)
    result = _result(root, "system.unit.restart", {"unit": unit})
    after = int(equipped.run("systemctl", "show", unit, "--property=MainPID", "--value").stdout)
    assert after not in (0, before)
    assert (field_of(result, "before", "main_pid"), field_of(result, "after", "main_pid")) == (before, after)
    assert field_of(result, "after", "active_state") == "active"


def test_unit_restart_of_what_is_not_there(root: Caller) -> None:
    task = root.run("system.unit.restart", {"unit": "not-there.service"})
    assert (task["status"], task["reason"]) == ("failed", "reported")
    assert "not-there.service" in str(field_of(task, "error", "message"))


def test_reboot_is_not_for_users(alice: Caller) -> None:
    with pytest.raises(Refused) as refused:
        alice.create("system.power.reboot")
    assert (refused.value.short, refused.value.data["reason"]) == ("PermissionDenied", "not-authorized")


def test_reboot_waits_for_a_second_word(root: Caller) -> None:
    task_id = root.create("system.power.reboot")
    assert (root.status(task_id), root.get(task_id)["phase"]) == ("auth_required", "waiting_approval")
    root.cancel(task_id)


# -- the administrator's command -------------------------------------------------------------------------------------


def test_a_command_gets_its_arguments_as_they_are(root: Caller) -> None:
    words: list[JsonValue] = ["a b", "*", "$HOME", "`id`", "", "'", '"', "\\", ";reboot", "--", "\u00e9\u4e2d", "x\ny"]
    task = root.run("compat.command.run", {"argv": ["/usr/bin/printf", "<%s>", *words]})
    assert (task["status"], task["result"]) == ("completed", {"exit_status": 0})
    assert root.log(str(task["task_id"])) == "".join(f"<{word}>" for word in words)


def test_a_command_is_roots_with_the_whole_system(root: Caller, equipped: Container) -> None:
    script = "id -u; pwd; grep CapEff /proc/self/status; echo written >/etc/aiosd-test-command"
    task = root.run("compat.command.run", {"argv": ["sh", "-c", script], "cwd": "/usr"})
    assert task["status"] == "completed", task
    uid, directory, capabilities = root.log(str(task["task_id"])).splitlines()
    assert (uid, directory) == ("0", "/usr")
    assert int(capabilities.split()[1], 16) != 0
    assert equipped.read("/etc/aiosd-test-command") == "written\n"


def test_a_commands_exit_status_is_the_tasks(root: Caller, equipped: Container) -> None:
    task = root.run("compat.command.run", {"argv": ["sh", "-c", "echo out; echo err >&2; exit 42"]})
    assert (task["status"], task["reason"]) == ("failed", "exit-status")
    assert field_of(task, "exit", "exit_status") == 42
    task_id = str(task["task_id"])
    assert (root.log(task_id), root.log(task_id, "stderr")) == ("out\n", "err\n")
    done = equipped.run("aiosctl", "exec", "--wait", "--", "sh", "-c", "exit 43", check=False)
    assert done.returncode == 43


def test_a_commands_signal_is_the_tasks(root: Caller, equipped: Container) -> None:
    task = root.run("compat.command.run", {"argv": ["sh", "-c", "kill -USR1 $$"]})
    assert (task["status"], task["reason"], field_of(task, "exit", "signal")) == ("failed", "signal", "SIGUSR1")
    done = equipped.run("aiosctl", "exec", "--wait", "--", "sh", "-c", "kill -USR1 $$", check=False)
    assert done.returncode == 128 + 10


def test_a_command_that_is_not_there(root: Caller) -> None:
    task = root.run("compat.command.run", {"argv": ["/no/such/command"]})
    assert task["status"] == "failed"
    assert "/no/such/command" in json.dumps(task["error"]) + root.log(str(task["task_id"]), "stderr")


def test_a_command_is_not_for_users(alice_at_seat: Caller) -> None:
    with pytest.raises(Refused) as refused:
        alice_at_seat.create("compat.command.run", {"argv": ["true"]})
    assert refused.value.short == "InteractiveAuthorizationRequired"


def test_a_limit_of_the_caller_is_the_scopes(root: Caller, equipped: Container) -> None:
    limits = Variant("s", json.dumps({"memory_max": 64 << 20, "tasks_max": 12, "cpu_quota_percent": 30}))
    task_id = root.create("compat.command.run", {"argv": ["sleep", "300"]}, limits=limits)
    unit = str(field_of(root.until_running(task_id), "run", "unit"))
    names = ("MemoryMax", "TasksMax", "CPUQuotaPerSecUSec")
    shown = equipped.run("systemctl", "show", unit, *(f"--property={name}" for name in names)).stdout
    assert set(shown.splitlines()) == {f"MemoryMax={64 << 20}", "TasksMax=12", "CPUQuotaPerSecUSec=300ms"}
