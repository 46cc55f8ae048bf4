"""The audit trail and the kill switch of the installed product: in the journal, in the file, and against tampering."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from aiosd.bus.connection import Variant
from aiosd.model.audit import MESSAGE_IDS, AuditKind
from tests.system.caller import MANAGER, MANAGER_PATH, Refused

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonObject
    from tests.rig.container import Container
    from tests.system.caller import Caller

STATE = "/var/lib/aiosd"


def verified(box: Container, *words: str, user: str = "root") -> tuple[int, JsonObject]:
    """What `aiosctl audit verify` says."""
    done = box.run("aiosctl", "audit", "verify", "--json", *words, user=user, check=False)
    found: JsonObject = json.loads(done.stdout)
    return done.returncode, found


def test_a_task_is_in_the_journal_with_its_explanation(alice: Caller) -> None:
    task = alice.create("test.sleep", {"seconds": 0})
    alice.wait(task)
    box = alice.box
    box.run("journalctl", "--sync")
    shown = box.run("journalctl", f"AIOS_TASK_ID={task}", "_SYSTEMD_UNIT=aiosd.service", "--output=json").stdout
    entries = [json.loads(line) for line in shown.splitlines()]
    kinds = [entry["AIOS_AUDIT_KIND"] for entry in entries]
    assert [kind for kind in kinds if kind.startswith("task.")] == [
        "task.created", "task.launch", "task.status", "task.status", "task.ended"
    ]  # fmt: skip
    assert {entry["MESSAGE_ID"] for entry in entries} <= set(MESSAGE_IDS.values())
    explained = box.run(
        "journalctl", "-x", "--no-pager", f"AIOS_TASK_ID={task}", f"MESSAGE_ID={MESSAGE_IDS[AuditKind.TASK_CREATED]}"
    ).stdout
    assert f"The task {task} was created for the user with uid" in explained


def test_the_trail_is_sound_and_the_journal_says_the_same(root: Caller) -> None:
    def unwitnessed() -> tuple[int, int]:
        """What the journal has no word of (a daemon that other tests killed may owe it one); how many there are."""
        status, report = verified(root.box, "--journal")
        assert (status, report["problems"]) == (0, [])
        assert int(str(report["signatures"])) > 0
        records = int(str(report["records"]))
        return records - int(str(report["witnesses"])), records

    before, records = unwitnessed()
    root.run("test.sleep", {"seconds": 0})
    for _ in range(60):
        after, more = unwitnessed()
        if after <= before and more > records:
            break
        time.sleep(0.5)
    assert after <= before, "each new record has its word in the journal"
    assert more > records


def test_the_file_can_be_verified_while_the_daemon_is_at_work(root: Caller) -> None:
    status, report = verified(root.box, "--file", f"{STATE}/aiosd.db")
    assert (status, report["problems"]) == (0, [])


def test_a_user_reads_their_own_and_cannot_verify_all(alice: Caller) -> None:
    done = alice.box.run("aiosctl", "audit", "query", "--json", user="alice")
    uid = int(alice.box.run("id", "-u", "alice").stdout)
    assert {row["uid"] for row in json.loads(done.stdout)["records"]} == {uid}
    refused = alice.box.run("aiosctl", "--no-ask-password", "audit", "verify", user="alice", check=False)
    assert refused.returncode == 77


def test_nobody_else_can_read_key_head_or_database(alice: Caller) -> None:
    for name in ("aiosd.db", "audit-key", "audit-head", "emergency"):
        assert alice.box.run("cat", f"{STATE}/{name}", user="alice", check=False).returncode != 0
    modes = alice.box.sh(f"stat -c '%a %U' {STATE}/audit-key {STATE}/audit-head {STATE}/emergency").splitlines()
    assert modes == ["600 aiosd"] * 3


@pytest.mark.warns("may have been changed")
@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ("UPDATE audit SET actor = 'uid:0' WHERE seq = (SELECT max(seq) - 3 FROM audit)", "altered"),
        ("DELETE FROM audit WHERE seq = (SELECT max(seq) - 3 FROM audit)", "removed"),
        ("DELETE FROM audit WHERE seq > (SELECT max(seq) - 3 FROM audit)", "truncated"),
    ],
)
def test_a_changed_file_is_told_from_the_journal_and_by_itself(root: Caller, change: str, fault: str) -> None:
    box = root.box
    root.run("test.sleep", {"seconds": 0})
    box.sh(f"rm -rf /run/copy && mkdir /run/copy && cp {STATE}/aiosd.db* {STATE}/audit-head /run/copy")
    box.run(
        "python3", "-c", f"import sqlite3; d = sqlite3.connect('/run/copy/aiosd.db'); d.execute({change!r}); d.commit()"
    )
    status, report = verified(box, "--file", "/run/copy/aiosd.db")
    assert status == 1
    problems = report["problems"]
    assert isinstance(problems, list)
    assert fault in {one["fault"] for one in problems if isinstance(one, dict)}


def test_a_rotated_key_is_endorsed_and_the_old_one_is_gone(root: Caller) -> None:
    before = root.box.sh(f"cat {STATE}/audit-key")
    new = root.box.run("aiosctl", "audit", "rotate-key").stdout.strip()
    assert root.box.sh(f"cat {STATE}/audit-key") != before
    status, report = verified(root.box, "--trust", new)
    assert (status, report["problems"]) == (0, [])
    keys = report["keys"]
    assert isinstance(keys, list)
    assert keys[-1] == new


def emergency(caller: Caller, member: str, scope: str, **options: Variant) -> None:
    caller.call(MANAGER_PATH, MANAGER, member, "sa{sv}", scope, options)


@pytest.mark.warns("EMERGENCY|emergency|An emergency stop is in force")
def test_kill_all_of_a_user(alice: Caller, bob: Caller) -> None:
    mine, theirs = alice.create("test.sleep", {"seconds": 600}), bob.create("test.sleep", {"seconds": 600})
    alice.until_running(mine)
    bob.until_running(theirs)
    done = alice.box.run("aiosctl", "kill-all", "--reason", "enough", user="alice")
    assert "1 stopped" in done.stdout
    assert alice.wait(mine)["reason"] == "emergency: enough"
    assert bob.status(theirs) == "working"
    with pytest.raises(Refused) as refused:
        alice.create("test.sleep", {"seconds": 0})
    assert refused.value.data["reason"] == "emergency"
    alice.box.run("systemctl", "restart", "aiosd.service")
    with pytest.raises(Refused):
        alice.create("test.sleep", {"seconds": 0})
    alice.box.run("aiosctl", "kill-all", "--lift", user="alice")
    assert alice.run("test.sleep", {"seconds": 0})["status"] == "completed"
    with pytest.raises(Refused):
        emergency(alice, "Emergency", "machine")


@pytest.mark.warns("EMERGENCY|store|watchdog|stored")
def test_kill_all_while_the_store_is_stuck(root: Caller, alice: Caller) -> None:
    """The writer is stuck behind another process's lock on the database, as behind a disk that does not answer."""
    box = root.box
    task = alice.create("test.sleep", {"seconds": 600})
    pid = str(alice.until_running(task)["run"])
    assert pid
    hold = (
        "import sqlite3, time; d = sqlite3.connect('/var/lib/aiosd/aiosd.db', isolation_level=None);"
        "d.execute('BEGIN IMMEDIATE'); print('held', flush=True); time.sleep(4)"
    )
    with box.popen("python3", "-c", hold) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        emergency(root, "Emergency", "machine", reason=Variant("s", "test"))
        units = box.sh("systemctl list-units --no-legend 'aios-task-*.scope'")
        assert units.strip() == ""
    assert root.wait(task)["status"] == "canceled"
    emergency(root, "LiftEmergency", "machine")
