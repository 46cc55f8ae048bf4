"""Webhooks and authentication of the installed product: across crashes of the daemon, and no secret left behind."""

from __future__ import annotations

import json
import re
import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import prerequisites

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.rig.container import Container
    from tests.system.caller import Caller

PAGE = Path(__file__).parents[2] / "docs/webhooks.md"
TOKEN = secrets.token_hex(16)
PORT = 18099
URL = f"http://127.0.0.1:{PORT}/aios/webhook"
SETTINGS = "/etc/aios/aiosd.conf.d/90-test.conf"
RECEIVER = "test-receiver"

pytestmark = pytest.mark.warns(r"is parked after|is not safe|connection of the daemon ends|an answer was not delivered")


@pytest.fixture(scope="module")
def near(equipped: Container) -> Iterator[Container]:
    """A box whose webhooks may stay on the machine, with the receiver of docs/webhooks.md, not yet running."""
    found = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    equipped.write("/run/receiver.py", found[1])
    equipped.write("/run/token", TOKEN + "\n", mode=0o600)
    equipped.write(SETTINGS, "[Webhooks]\nallow_private_addresses=yes\n")
    equipped.run("systemctl", "reload", "aiosd.service")
    yield equipped
    equipped.sh(f"rm -f {SETTINGS}; systemctl stop {RECEIVER} 2>/dev/null || true; systemctl reload aiosd.service")


def receive(box: Container) -> None:
    """Start the receiver."""
    box.run(
        "systemd-run", "--quiet", f"--unit={RECEIVER}", "--collect", f"--setenv=AIOS_WEBHOOK_TOKEN={TOKEN}",
        f"--setenv=PORT={PORT}", "/usr/bin/python3", "/run/receiver.py",
    )  # fmt: skip


def received(box: Container, task_id: str) -> list[str]:
    """Kinds of the events that it has taken for the task, in order."""
    lines = box.run("journalctl", f"--unit={RECEIVER}", "--output=cat", "--no-pager").stdout.splitlines()
    return [line.split()[1] for line in lines if line.startswith(f"{task_id} ")]


def until(check: Callable[[], bool], within: float = 30) -> None:
    deadline = time.monotonic() + within
    while not check():
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.1)


def status_of(box: Container, task_id: str) -> str:
    shown = box.run("aiosctl", "show", task_id, "--json", check=False)
    return str(json.loads(shown.stdout).get("status")) if shown.returncode == 0 else "away"


def asking(box: Container) -> str:
    """A task that waits for an API key."""
    task_id = box.run("aiosctl", "run", "test.authenticate").stdout.strip()
    until(lambda: status_of(box, task_id) == "auth_required")
    return task_id


def key_of(box: Container) -> str:
    """A key that nobody has seen, in a file."""
    key = secrets.token_hex(20)
    box.write("/run/api-key", key + "\n", mode=0o600)
    return key


def test_the_machines_own_services_cannot_be_reached_unless_allowed(equipped: Container, root: Caller) -> None:
    task_id = asking(equipped)
    add = ("aiosctl", "webhook", "add", task_id)
    refused = equipped.run(*add, "http://127.0.0.1:1/", "--no-token", check=False)
    assert refused.returncode == 64
    assert "must begin with https://" in refused.stderr
    equipped.run(*add, "https://localhost:1/", "--no-token", "--max-retries=0", "--event=canceled")
    equipped.run("aiosctl", "cancel", task_id)

    def parked() -> bool:
        (hook,) = json.loads(equipped.run("aiosctl", "webhook", "list", task_id, "--json").stdout)["webhooks"]
        return bool(hook["state"] == "parked" and "loopback" in hook["last_error"])

    until(parked)


def test_a_receiver_that_was_away_gets_everything_in_order_across_a_crash(near: Container, root: Caller) -> None:
    key_of(near)
    task_id = asking(near)
    near.run(
        "aiosctl", "webhook", "add", task_id, URL, "--token-file=/run/token", "--max-retries=20", "--retry-delay=200ms",
        "--event=status", "--event=log", "--event=result",
    )  # fmt: skip
    near.run("aiosctl", "auth", task_id, "--secret-file=/run/api-key")
    until(lambda: status_of(near, task_id) == "completed")
    near.run("systemctl", "kill", "--signal=KILL", "aiosd.service")
    receive(near)
    wanted = ["task.status", "task.log", "task.status", "task.result"]
    until(lambda: len(received(near, task_id)) >= len(wanted))
    assert received(near, task_id) == wanted
    listed = json.loads(near.run("aiosctl", "webhook", "list", task_id, "--json").stdout)["webhooks"]
    assert [(hook["state"], hook["delivered"], hook["waiting"]) for hook in listed] == [("ended", 4, 0)]


def test_a_secret_is_nowhere_afterwards(near: Container, root: Caller) -> None:
    key = key_of(near)
    task_id = asking(near)
    near.run("aiosctl", "auth", task_id, "--secret-file=/run/api-key")
    until(lambda: status_of(near, task_id) == "completed")
    near.run("rm", "/run/api-key")
    assert json.loads(near.run("aiosctl", "show", task_id, "--json").stdout)["result"] == {"length": len(key)}
    assert near.sh(f"grep -rl {key} /var/lib/aiosd /var/lib/aios-launcher || true") == ""
    near.run("journalctl", "--flush", "--sync")
    assert near.sh(f"journalctl --no-pager --output=json | grep -c {key} || true").strip() == "0"
    pid = near.run("systemctl", "show", "--property=MainPID", "--value", "aiosd.service").stdout.strip()
    looked = near.run(
        "python3", "/src/tests/system/memory.py", pid, input=f"{key}\n{key[:24]}\n{task_id}\n", check=False
    )
    if "PermissionError" in looked.stderr:
        prerequisites.missing("root may not look into processes of this box")
    whole, part, task = (int(line) for line in looked.stdout.split())
    assert task > 0, "the look finds nothing at all"
    assert (whole, part) == (0, 0)


def test_a_crash_between_answer_and_handover_loses_nothing(near: Container, root: Caller) -> None:
    key = key_of(near)
    task_id = asking(near)
    kill = "systemctl kill --signal=KILL aiosd.service"
    near.sh(f"aiosctl auth {task_id} --secret-file=/run/api-key & sleep 0.25; {kill}; wait")
    until(lambda: status_of(near, task_id) in ("completed", "auth_required"))
    if status_of(near, task_id) == "auth_required":  # it died before it had accepted
        until(lambda: near.run("aiosctl", "auth", task_id, "--secret-file=/run/api-key", check=False).returncode == 0)
    until(lambda: status_of(near, task_id) == "completed")
    assert json.loads(near.run("aiosctl", "show", task_id, "--json").stdout)["result"] == {"length": len(key)}


def test_a_bug_report_has_no_secret_and_shows_each_what_they_may_see(near: Container, root: Caller) -> None:
    """What was handed in stays where it is, and what got into the journal or a file by mistake is taken out there."""
    key = key_of(near)
    task_id = asking(near)
    near.run("aiosctl", "webhook", "add", task_id, f"{URL}?key={key}", "--token-file=/run/token", "--event=result")
    near.run("aiosctl", "auth", task_id, "--secret-file=/run/api-key")
    until(lambda: status_of(near, task_id) == "completed")
    slip, setting = secrets.token_urlsafe(12), secrets.token_urlsafe(12)
    near.sh(f"echo '# proxy password: {setting}' >>{SETTINGS}")
    pid = near.run("systemctl", "show", "--property=MainPID", "--value", "aiosd.service").stdout.strip()
    planted = f"MESSAGE=POST failed, sent Authorization: Bearer {slip}\nOBJECT_PID={pid}\n"
    near.run("logger", "--journald", input=planted)
    near.run("journalctl", "--sync")
    assert slip in near.sh("journalctl --no-pager --unit=aiosd.service")

    private = near.run("aiosctl", "run", "test.sleep", "seconds=86123").stdout.strip()
    until(lambda: status_of(near, private) == "working" and "86123" in near.sh("ps -eo args"))
    near.run("aiosctl", "bug-report", "--lines=5000", "--output=/run/report")
    near.run("aiosctl", "cancel", private)
    report = near.sh("cat /run/report; rm /run/report")
    assert [secret for secret in (key, TOKEN, slip, setting, "86123") if secret in report] == []
    assert "sent Authorization: [removed]" in report
    assert "proxy password" not in report, "comments are nobody's keys"
    for told in (task_id, "Active: active (running)", "aios-launcher.service", '"launcher"', "sound, version 1."):
        assert told in report

    theirs = near.run("aiosctl", "bug-report", user="alice").stdout
    assert "Active: active (running)" in theirs
    assert [told for told in (task_id, key, TOKEN, slip, "POST failed") if told in theirs] == []
    assert "not read: it is root's and aiosd's" in theirs
