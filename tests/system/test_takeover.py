"""What somebody can do who has taken the daemon over: no more than docs/security.md says.

As the daemon's user, without the sandbox of its unit, which is a wall of its own (`systemd-analyze security`).
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from tests.rig import host

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonObject
    from tests.rig.container import Container
    from tests.system.caller import Caller

PAGE = host.CHECKOUT / "docs/security.md"

ASK = """
import json, socket, sys
sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
sock.connect("/run/aios/launcher.sock")
sock.send(sys.argv[1].encode())
data, fds, _, _ = socket.recv_fds(sock, 1 << 17, 8)
print(data.decode())
"""
START: JsonObject = {
    "id": 1, "op": "start", "run": "run-01hzy3q8e0000000000000000a", "task": "task-1", "capability": "test.sleep",
    "uid": 1000, "argv_values": {"seconds": "0"}, "log_max_bytes": 4096,
}  # fmt: skip


def asked(box: Container, request: JsonObject, user: str = "aiosd") -> JsonObject:
    """The launcher's answer to a request of that user."""
    done = box.run("python3", "-c", ASK, json.dumps(request), user=user)
    answer: JsonObject = json.loads(done.stdout)
    return answer


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"capability": "no.such.thing"}, "capability-missing"),
        ({"capability": "../../etc/passwd"}, "capability-missing"),
        ({"run": "../../../etc/cron.d/x"}, "bad-request"),
        ({"run": "run-"}, "bad-request"),
        ({"limits": {"memory_max": 0}}, "bad-request"),
        ({"limits": {"user": "root"}}, "bad-request"),
        ({"argv_values": {"seconds": 1}}, "bad-request"),
        ({"uid": -1}, "bad-request"),
        ({"op": "exec", "argv": ["/bin/sh"]}, "bad-request"),
    ],
)
def test_only_installed_capabilities_with_their_own_limits(equipped: Container, change: JsonObject, error: str) -> None:
    answer = asked(equipped, {**START, **change})
    assert (answer["ok"], answer["error"]) == (False, error)


AS_ROOT = """
import json, os, socket, sys
from pathlib import Path
sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
sock.connect("/run/aios/launcher.sock")
run = sys.argv[1]
start = {"id": 1, "op": "start", "run": run, "task": "task-1", "capability": "compat.command.run", "uid": 1000,
         "argv_values": {}, "log_max_bytes": 4096}
sock.send(json.dumps(start).encode())
data, fds, _, _ = socket.recv_fds(sock, 1 << 17, 8)
answer = json.loads(data)
if answer["ok"]:
    shim = socket.socket(fileno=fds[0])
    go = {"type": "go", "id": 1, "arguments": {"argv": ["id", "-u"]}, "task_id": "task-1", "attempt": 1}
    shim.send(json.dumps(go).encode())
    os.set_blocking(fds[1], True)
    import select
    select.select([fds[1]], [], [], 60)
    answer["said"] = Path(f"/var/lib/aios-launcher/runs/{run}/stdout").read_text().strip()
    sock.send(json.dumps({"id": 2, "op": "remove", "run": run}).encode())
    answer["removed"] = json.loads(sock.recv(1 << 17))["ok"]
print(json.dumps(answer))
"""


def test_a_capability_that_is_root_makes_root_of_it_unless_the_policy_forbids_it(equipped: Container) -> None:
    """No approval and no caller: the launcher asks for neither. It does ask the administrator's policy."""
    policy = "/etc/aios/permission-policy.toml"

    def command(run: str) -> JsonObject:
        done = equipped.run("python3", "-c", AS_ROOT, run, user="aiosd", timeout=120)
        answer: JsonObject = json.loads(done.stdout)
        return answer

    answer = command("run-01hzy3q8e0000000000000000c")
    assert (answer["said"], answer["removed"]) == ("0", True), "docs/security.md says so"
    before = equipped.sh(f"cat {policy} 2>/dev/null || :")
    try:
        for forbids in ('always_deny = ["compat.command.run"]', 'max_permission_level = "high"'):
            equipped.write(policy, forbids + "\n")
            answer = command("run-01hzy3q8e0000000000000000d")
            assert (answer["ok"], answer["error"]) == (False, "denied"), answer
    finally:
        equipped.write(policy, before) if before else equipped.run("rm", policy)


def test_the_launcher_listens_to_nobody_else(equipped: Container) -> None:
    done = equipped.run("python3", "-c", ASK, json.dumps(START), user="alice", check=False)
    assert "PermissionError" in done.stderr


def test_what_a_run_wrote_cannot_be_changed_by_the_daemon(root: Caller) -> None:
    task = root.create("test.sleep", {"seconds": 600})
    run = root.until_running(task)["run"]
    assert isinstance(run, dict)
    folder = f"/var/lib/aios-launcher/runs/{run['run_id']}"
    box = root.box
    assert box.run("cat", f"{folder}/events", user="aiosd").stdout
    for command in (f"echo x >>{folder}/events", f"rm {folder}/stdout", f"touch {folder}/exit", f"ln -s / {folder}/x"):
        assert box.run("sh", "-c", command, user="aiosd", check=False).returncode != 0, command
    assert box.run("kill", "-KILL", str(run["pid"]), user="aiosd", check=False).returncode != 0
    root.cancel(task)


@pytest.mark.parametrize(
    "command",
    [
        "cat /etc/shadow", "ls /root", "touch /etc/aios/capabilities.d/x.toml", "touch /usr/share/aios/x",
        "systemctl --no-ask-password restart dbus.service", "touch /run/aios/capabilities.d/x.toml",
        "cat /run/credentials/*/*", "journalctl --vacuum-time=1s",
    ],
)  # fmt: skip
def test_the_daemons_user_has_nothing_but_its_own(equipped: Container, command: str) -> None:
    done = equipped.run("sh", "-c", command, user="aiosd", check=False)
    assert done.returncode != 0 or "Permission denied" in done.stderr or "permission" in done.stderr.lower()


def exposure(box: Container, unit: str) -> float:
    shown = box.run("systemd-analyze", "security", "--no-pager", unit, check=False).stdout
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", shown)
    assert found is not None, shown[-400:]
    return float(found[1])


def test_exposure_is_what_the_page_says(equipped: Container) -> None:
    text = PAGE.read_text()
    for unit in ("aiosd.service", "aios-launcher.service"):
        stated = re.search(rf"`{re.escape(unit)}` \| ([0-9.]+)", text)
        assert stated is not None
        assert exposure(equipped, unit) <= float(stated[1])
