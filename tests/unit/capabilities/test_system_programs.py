"""The programs that tell about the system, against what the system's own tools say."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from ipaddress import ip_address
from pathlib import Path

import pytest

from aiosd.capabilities.journal_errors import MAX_RESULT_BYTES, chosen, entry
from aiosd.capabilities.power_reboot import call
from aiosd.capabilities.system_disk import Mount, file_systems, mounts
from aiosd.manifest.schema import validate
from tests.unit.capabilities.shim_side import Run, manifest


def tool(*argv: str) -> str:
    return subprocess.run(
        argv, capture_output=True, text=True, check=True, env={"LC_ALL": "C", "PATH": os.defpath}
    ).stdout


def part(result: dict[str, object], name: str) -> dict[str, object]:
    found = result[name]
    assert isinstance(found, dict)
    return found


def rows(result: dict[str, object], name: str) -> list[dict[str, object]]:
    found = result[name]
    assert isinstance(found, list)
    return found


def test_system_info(tmp_path: Path) -> None:
    with Run("system.info.read", {}, tmp_path) as run:
        result = run.result()
    meminfo = {line.split(":")[0]: line.split()[1] for line in Path("/proc/meminfo").read_text().splitlines()}
    memory = part(result, "memory")
    assert memory["total_bytes"] == int(meminfo["MemTotal"]) * 1024
    assert memory["swap_total_bytes"] == int(meminfo["SwapTotal"]) * 1024
    assert part(result, "kernel") == {
        "name": tool("uname", "-s").strip(),
        "release": tool("uname", "-r").strip(),
        "machine": tool("uname", "-m").strip(),
    }
    assert result["hostname"] == tool("uname", "-n").strip()
    assert part(result, "cpu")["count"] == int(tool("getconf", "_NPROCESSORS_ONLN"))
    assert part(result, "os")["id"] == tool("sh", "-c", '. /etc/os-release; printf %s "$ID"')
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    assert uptime - 60 < float(str(result["uptime_seconds"])) <= uptime


def test_network_interfaces(tmp_path: Path) -> None:
    with Run("system.network.interfaces", {}, tmp_path) as run:
        interfaces = {str(row["name"]): row for row in rows(run.result(), "interfaces")}
    devices = [path for path in Path("/sys/class/net").iterdir() if (path / "ifindex").exists()]
    assert set(interfaces) == {device.name for device in devices}
    for device in devices:
        told = interfaces[device.name]
        assert told["index"] == int((device / "ifindex").read_text())
        assert told["mtu"] == int((device / "mtu").read_text())
        assert told["state"] == (device / "operstate").read_text().strip()
        assert told["up"] == bool(int((device / "flags").read_text(), 16) & 1)
        if not told["loopback"]:
            assert told.get("mac", "") == (device / "address").read_text().strip()


def test_addresses_are_the_kernels(tmp_path: Path) -> None:
    with Run("system.network.interfaces", {}, tmp_path) as run:
        interfaces = rows(run.result(), "interfaces")
    told = {(row["name"], item["address"]) for row in interfaces for item in rows(row, "addresses")}
    lines = [line.split() for line in Path("/proc/net/if_inet6").read_text().splitlines()]
    kernels = {(fields[5], str(ip_address(bytes.fromhex(fields[0])))) for fields in lines}
    assert {pair for pair in told if ":" in str(pair[1])} == kernels
    # proc_net_fib_trie: every local address is a leaf "|-- ADDRESS" followed by "/32 host LOCAL".
    trie = Path("/proc/net/fib_trie").read_text().splitlines()
    local = {trie[n - 1].split()[-1] for n, line in enumerate(trie) if line.strip() == "/32 host LOCAL"}
    assert {pair[1] for pair in told if ":" not in str(pair[1])} == local


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_the_netlink_network_is_enough_for_it(tmp_path: Path) -> None:
    """`network = "netlink"` leaves NETLINK_ROUTE sockets and socket pairs: it must not need any other."""
    log = tmp_path / "strace"
    calls = "trace=socket,connect,bind,io_uring_setup"
    prefix = ["strace", "-f", "-qq", "-e", "signal=none", "-e", calls, "-o", str(log)]
    with Run("system.network.interfaces", {}, tmp_path, prefix) as run:
        run.result()
    for line in log.read_text().splitlines():
        assert "AF_NETLINK" in line or "exited" in line, line
        assert not line.split(maxsplit=1)[1].startswith("socket(") or "NETLINK_ROUTE" in line, line


def test_disk_usage(tmp_path: Path) -> None:
    with Run("system.disk.usage", {}, tmp_path) as run:
        filesystems = rows(run.result(), "filesystems")
    assert "/" in {row["mount_point"] for row in filesystems}
    for row in filesystems:
        target = str(row["mount_point"])
        shown = tool("df", "--block-size=1", "--output=size,used,avail,pcent,itotal", target).splitlines()[1]
        size, used, _, percent, inodes = shown.split()
        assert row["size_bytes"] == int(size)
        # Other programs write meanwhile.
        assert abs(int(str(row["used_bytes"])) - int(used)) < 1 << 30
        assert abs(int(str(row["used_percent"])) - int(percent.rstrip("%"))) <= 1
        assert inodes == "-" or row["inodes"] == int(inodes)


# The line of proc_pid_mountinfo(5), and ones with what that page says may be in them.
MOUNTINFO = r"""36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
40 35 0:41 / /net/a\040b rw - nfs4 server:/x\134y rw
41 35 98:0 / /m rw,relatime shared:1 master:2 - ext3 /dev/root rw
42 35 0:50 / /gvfs rw - fuse.gvfsd gvfsd rw
broken line
"""


def test_mountinfo() -> None:
    found = file_systems(mounts(MOUNTINFO))
    assert found == [
        [Mount("42", "0:50", "/gvfs", "fuse.gvfsd", "gvfsd")],
        [Mount("41", "98:0", "/m", "ext3", "/dev/root"), Mount("36", "98:0", "/mnt2", "ext3", "/dev/root")],
        [Mount("40", "0:41", "/net/a b", "nfs4", "server:/x\\y")],
    ]
    assert [same[0].is_remote for same in found] == [True, False, True]


# The journal's JSON format (systemd.io/JOURNAL_EXPORT_FORMATS): all values texts, bytes as numbers, repeated fields as
# arrays, too long ones null.
ENTRY: dict[str, object] = {
    "__REALTIME_TIMESTAMP": "1423944916375353",
    "PRIORITY": "3",
    "MESSAGE": "boom",
    "_SYSTEMD_UNIT": "cron.service",
    "SYSLOG_IDENTIFIER": "cron",
    "_PID": "42",
}


def test_a_journal_entry() -> None:
    # date -u -d @1423944916.375 +%FT%T.%3NZ
    assert entry(ENTRY) == {
        "time": "2015-02-14T20:15:16.375Z",
        "priority": 3,
        "message": "boom",
        "unit": "cron.service",
        "identifier": "cron",
        "pid": 42,
    }


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ([102, 111, 111, 27, 255], "foo\x1b\N{REPLACEMENT CHARACTER}"),
        (["first", "second"], "first"),
        (None, ""),
        ("a\0b", "a\N{REPLACEMENT CHARACTER}b"),
        ("x" * 5000, "x" * 1000),
    ],
)
def test_odd_messages(message: object, told: str) -> None:
    assert entry({**ENTRY, "MESSAGE": message})["message"] == told


def test_entries_are_bounded_in_number_and_size() -> None:
    line = json.dumps(ENTRY)
    assert chosen([line] * 3, 3)[1] is False
    entries, truncated = chosen([line] * 4, 3)
    assert (len(entries), truncated) == (3, True)
    wide = json.dumps({**ENTRY, "MESSAGE": "\x01" * 1000})
    entries, truncated = chosen([wide] * 500, 500)
    assert truncated
    assert len(json.dumps(entries)) < MAX_RESULT_BYTES * 1.1


@pytest.mark.skipif(not Path("/usr/bin/journalctl").exists(), reason="journalctl is not installed")
def test_journal_errors_of_this_machine(tmp_path: Path) -> None:
    with Run("system.journal.errors", {"hours": 1, "limit": 3}, tmp_path) as run:
        result = run.result()
    assert len(rows(result, "entries")) == result["count"] <= 3  # type: ignore[operator]


UNITS = {
    "cron.service": True,
    "user@1000.service": True,
    "dev-disk\\x2dby.timer": True,
    "--now.service": False,
    "cron": False,
    "cron.service\n": False,
    "a b.service": False,
    "cron.service;id": False,
    "../cron.service": False,
    "reboot.target": False,
}


@pytest.mark.parametrize(("unit", "good"), UNITS.items())
def test_names_of_units_that_may_be_restarted(unit: str, good: bool) -> None:  # noqa: FBT001 - a row of the table
    assert (validate(manifest("system.unit.restart").input_schema, {"unit": unit}) == []) is good


@pytest.mark.skipif(not Path("/usr/bin/systemctl").exists(), reason="systemctl is not installed")
def test_a_unit_that_is_not_there_fails_with_a_reason(tmp_path: Path) -> None:
    with Run("system.unit.restart", {"unit": "aiosd-no-such-unit.service"}, tmp_path) as run:
        outcome = run.finish()
    # With systemd running: not-found; without: systemctl's own words.
    assert "not-found" in outcome.failure or "systemd" in outcome.failure


def test_a_reboot_message_cannot_be_an_option() -> None:
    argv = call("SetWallMessage", "sb", "--help", "true")
    assert argv.index("--") < argv.index("--help")
    assert validate(manifest("system.power.reboot").input_schema, {"message": "a\nb"})
    assert validate(manifest("system.power.reboot").input_schema, {"delay_seconds": 0})
