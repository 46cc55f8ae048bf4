"""Proves grants, the administrator's ceiling, approvals and deferred consent: real polkit, real PAM, real sessions."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from aiosd.bus.connection import Variant
from tests.rig.rootfs import PASSWORDS
from tests.system.caller import MANAGER, MANAGER_PATH, Refused, connected, field_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiosd.model.jsontext import JsonObject, JsonValue
    from tests.rig.container import Container
    from tests.system.caller import Caller

POLICY = "/etc/aios/permission-policy.toml"
USERS = "/etc/aios/permission-policy.d"
RULES = "/etc/polkit-1/rules.d/10-aiosd-yes.rules"
APPROVAL = "org.aios.TaskManager1.Approval"
CRITICAL = "test.critical"
NO_OPTIONS: dict[str, Variant] = {}


@pytest.fixture
def bare(equipped: Container) -> Iterator[Container]:
    """The box as it comes: without the policy of these tests' administrator, without grants."""
    kept = equipped.sh(f"cat {POLICY} 2>/dev/null", check=False)
    equipped.run("rm", "-f", POLICY)
    revoke_all(equipped)
    equipped.run("systemctl", "reload", "aiosd.service")
    yield equipped
    equipped.sh(f"rm -rf {USERS}/*.toml {RULES}")
    equipped.write(POLICY, kept)
    equipped.run("systemctl", "reload", "aiosd.service")
    revoke_all(equipped)


def revoke_all(box: Container) -> None:
    listed = json.loads(box.run("aiosctl", "grant", "list", "--all", "--json").stdout)["grants"]
    if listed:
        box.run("aiosctl", "grant", "revoke", *[row["grant_id"] for row in listed])


def policy(box: Container, text: str, path: str = POLICY) -> None:
    box.write(path, text)
    box.run("systemctl", "reload", "aiosd.service")


@pytest.fixture
def asked(bare: Container) -> Iterator[Caller]:
    """The user at the machine, with an agent."""
    with connected(bare, "alice", seat="seat0") as caller:
        caller.become_agent()
        yield caller


def refusal(caller: Caller, number: int) -> Refused:
    with pytest.raises(Refused) as refused:
        caller.created(number)
    return refused.value


def approval_of(caller: Caller, task_id: str) -> str:
    task = caller.get(task_id)
    assert (task["status"], task["phase"]) == ("auth_required", "waiting_approval"), task
    assert field_of(task, "auth_request", "type") == "approval"
    return str(field_of(task, "auth_request", "approval_id"))


def begin_respond(caller: Caller, approval: str, action: str, *, interactive: bool = False) -> int:
    path = f"{MANAGER_PATH}/approval/{approval.replace('-', '_')}"
    return caller.begin(path, APPROVAL, "Respond", "sa{sv}", action, NO_OPTIONS, interactive=interactive)


def grants(caller: Caller) -> list[list[JsonValue]]:
    rows = caller.call(MANAGER_PATH, MANAGER, "ListGrants", "a{sv}", NO_OPTIONS)[0]
    assert isinstance(rows, list)
    return [row for row in rows if isinstance(row, list)]


# -- grants ----------------------------------------------------------------------------------------------------------


def test_the_first_time_is_asked_and_the_second_is_not(asked: Caller, bare: Container) -> None:
    number = asked.begin_create_asking("test.look.medium")
    asked.answer(asked.next_dialog(), PASSWORDS["alice"])
    assert asked.wait(asked.created(number))["status"] == "completed"
    assert asked.run("test.look.medium")["status"] == "completed"
    assert asked.dialogs == []
    ((grant_id, _, capability, level, scope, *_, used, _),) = grants(asked)
    assert (capability, level, scope, used) == ("test.look.medium", "medium", "timed", 2)
    bare.run("aiosctl", "grant", "revoke", str(grant_id), user="alice")
    refused = refusal(asked, asked.begin_create("test.look.medium"))
    assert refused.short == "InteractiveAuthorizationRequired"


def test_a_local_session_s_way_through_is_not_the_user_s_elsewhere(alice_at_seat: Caller, alice: Caller) -> None:
    """polkit lets the active session run level low unasked; that is no consent for the same user's cron job."""
    revoke_all(alice.box)
    assert alice_at_seat.run("test.look.low")["status"] == "completed"
    assert grants(alice) == []
    assert refusal(alice, alice.begin_create("test.look.low")).short == "InteractiveAuthorizationRequired"


def test_another_user_s_grants_are_not_there(asked: Caller, bob: Caller) -> None:
    number = asked.begin_create_asking("test.look.medium")
    asked.answer(asked.next_dialog(), PASSWORDS["alice"])
    asked.created(number)
    ((grant_id, *_),) = grants(asked)
    assert grants(bob) == []
    with pytest.raises(Refused) as refused:
        bob.call(MANAGER_PATH, MANAGER, "RevokeGrant", "sa{sv}", str(grant_id), NO_OPTIONS)
    assert refused.value.short == "GrantNotFound"


# -- the administrator's ceiling ---------------------------------------------------------------------------------------


def test_the_ceiling_holds_for_everybody(bare: Container, root: Caller, alice: Caller, bob: Caller) -> None:
    policy(bare, 'max_permission_level = "medium"\nalways_deny = ["test.sleep"]\nauto_grant = ["test.look.*"]\n')
    for caller, capability in ((root, "test.look.high"), (root, "test.sleep"), (alice, "test.sleep")):
        refused = refusal(caller, caller.begin_create(capability, {"seconds": 0} if "sleep" in capability else {}))
        assert (refused.short, refused.data["reason"]) == ("PermissionDenied", "policy")
    assert alice.run("test.look.medium")["status"] == "completed"
    policy(bare, 'max_permission_level = "public"\n', f"{USERS}/alice.toml")
    refused = refusal(alice, alice.begin_create("test.look.low"))
    assert refused.data["reason"] == "policy"
    assert bob.run("test.look.low")["status"] == "completed"


@pytest.mark.warns(r"permission-policy\.toml:2: error: max_permission_level")
def test_a_mistyped_file_fails_closed_and_says_where(bare: Container, root: Caller) -> None:
    policy(bare, '\nmax_permission_level = "hihg"\n')
    refused = refusal(root, root.begin_create("test.look.low"))
    assert refused.data["reason"] == "policy"
    assert root.run("test.look.public")["status"] == "completed"
    checked = bare.run("aiosctl", "policy", "check", POLICY, check=False)
    assert checked.returncode == 65
    assert f"{POLICY}:2: error: max_permission_level: must be one of" in checked.stderr


def test_explain_says_what_happens(bare: Container) -> None:
    said = bare.run("aiosctl", "policy", "explain", "test.look.high", user="alice", seat="seat0").stdout
    assert "polkit asks a person (org.aios.TaskManager.run-high), each time" in said
    said = bare.run("aiosctl", "policy", "explain", CRITICAL, "--user", "alice").stdout
    assert "approval of exactly these arguments" in said
    policy(bare, 'always_deny = ["test.look.*"]\n')
    said = bare.run("aiosctl", "policy", "explain", "test.look.low", "--user", "bob").stdout
    assert "always_deny 'test.look.*' forbids it" in said
    assert "It would be refused." in said


# -- approvals -------------------------------------------------------------------------------------------------------


def test_critical_takes_an_authentication_and_a_second_act(asked: Caller, bare: Container, root: Caller) -> None:
    number = asked.begin_create_asking(CRITICAL, {"name": "root"})
    asked.answer(asked.next_dialog(), PASSWORDS["carol"])
    task_id = asked.created(number)
    approval = approval_of(asked, task_id)
    assert bare.sh("systemctl list-units --plain --no-legend 'aios-task-*.scope'").strip() == ""
    shown = json.loads(bare.run("aiosctl", "approve", approval, "--yes", "--json").stdout)
    assert shown == {"approval_id": approval, "status": "approved"}
    task = asked.wait(task_id)
    assert task["status"] == "completed"
    assert asked.log(task_id) == "0\n"


def test_who_asked_approves_by_authenticating_again(asked: Caller) -> None:
    number = asked.begin_create_asking(CRITICAL, {"name": "root"})
    first = asked.next_dialog()
    asked.answer(first, PASSWORDS["carol"])
    task_id = asked.created(number)
    approval = approval_of(asked, task_id)
    mute = begin_respond(asked, approval, "approve")
    with pytest.raises(Refused) as refused:
        asked.finish(mute)
    assert refused.value.short == "InteractiveAuthorizationRequired"
    number = begin_respond(asked, approval, "approve", interactive=True)
    second = asked.next_dialog()
    assert (first.action, second.action) == ("org.aios.TaskManager.run-critical", "org.aios.TaskManager.approve")
    asked.answer(second, PASSWORDS["carol"])
    assert asked.finish(number).body == ["approved"]
    assert asked.wait(task_id)["status"] == "completed"


def test_root_is_not_asked_but_the_same_connection_is_no_second_act(bare: Container, root: Caller) -> None:
    task_id = root.create(CRITICAL, {"name": "root"})
    approval = approval_of(root, task_id)
    with pytest.raises(Refused) as refused:
        root.finish(begin_respond(root, approval, "approve"))
    assert refused.value.data["reason"] == "same-connection"
    with connected(bare, "root") as other:
        assert other.finish(begin_respond(other, approval, "approve")).body == ["approved"]
    assert root.wait(task_id)["status"] == "completed"


def test_a_rule_that_says_yes_to_everything_leaves_the_second_act(bare: Container, alice: Caller, bob: Caller) -> None:
    bare.write(RULES, "polkit.addRule(function(action, subject) { return polkit.Result.YES; });\n")
    deadline = time.monotonic() + 60
    while True:  # polkit reads its rules when it notices
        try:
            task_id = alice.create(CRITICAL, {"name": "root"})
            break
        except Refused:
            assert time.monotonic() < deadline
            time.sleep(0.2)
    approval = approval_of(alice, task_id)
    with pytest.raises(Refused) as refused:
        alice.finish(begin_respond(alice, approval, "approve"))
    assert refused.value.data["reason"] == "same-connection"
    assert alice.status(task_id) == "auth_required"
    assert bob.finish(begin_respond(bob, approval, "reject")).body == ["rejected"]
    task = alice.wait(task_id)
    assert (task["status"], task["reason"]) == ("canceled", "approval-rejected")


def test_a_program_asks_for_an_approval_and_cannot_give_it_itself(bare: Container, alice: Caller, bob: Caller) -> None:
    """Also where polkit says yes to everything: the program that says yes runs as alice, and is not alice."""
    bare.write(RULES, "polkit.addRule(function(action, subject) { return polkit.Result.YES; });\n")
    deadline = time.monotonic() + 60
    while True:
        try:
            task_id = alice.create("test.approves")
            break
        except Refused:
            assert time.monotonic() < deadline
            time.sleep(0.2)
    while (task := alice.get(task_id))["phase"] != "waiting_approval":
        assert time.monotonic() < deadline, task
        time.sleep(0.1)
    approval = approval_of(alice, task_id)
    shown = json.loads(
        bare.run("aiosctl", "rpc", "aios/approval.get", json.dumps({"approval_id": approval}), user="alice").stdout
    )
    assert (shown["kind"], shown["summary"], shown["risk_level"]) == (
        "dangerous_command", "rm -rf build-cache", "high"
    )  # fmt: skip
    with connected(bare, "alice") as outside:
        assert outside.finish(begin_respond(outside, approval, "approve")).body == ["approved"]
    ended = alice.wait(task_id)
    assert ended["status"] == "completed", ended
    assert field_of(ended, "result", "heard") is True
    told = field_of(ended, "result", "told")
    assert isinstance(told, list)
    assert [json.loads(str(one))["error"]["data"]["error_id"] for one in told] == ["AIOS-PERM-DENIED"] * 2
    assert all("runs in a task" in str(one) for one in told), told
    assert grants(alice) == []


def test_a_changed_manifest_voids_an_approval(bare: Container, root: Caller) -> None:
    task_id = root.create(CRITICAL, {"name": "root"})
    approval = approval_of(root, task_id)
    path = f"/etc/aios/capabilities.d/{CRITICAL}.toml"
    text = bare.read(f"/run/aios/capabilities.d/{CRITICAL}.toml").replace('"-u"', '"-g"')
    bare.write(path, text)
    bare.run("systemctl", "reload", "aiosd.service")
    try:
        done = bare.run("aiosctl", "approve", approval, "--yes", check=False)
        assert done.returncode == 65
        assert "void" in done.stderr
        with connected(bare, "root") as other, pytest.raises(Refused) as refused:
            other.finish(begin_respond(other, approval, "approve"))
        assert refused.value.data["reason"] == "stale-authorization"
    finally:
        bare.run("rm", path)
        bare.run("systemctl", "reload", "aiosd.service")
    root.cancel(task_id)


def test_that_something_waits_is_told_by_ids_only(root: Caller, alice: Caller, bare: Container) -> None:
    alice.match(f"type='signal',sender='org.aios.TaskManager',interface='{MANAGER}'")
    task_id = root.create(CRITICAL, {"name": "root"})
    approval = approval_of(root, task_id)
    signal = alice.wait_signal(lambda one: one.member == "ApprovalRequested")
    assert signal.body == [approval, f"{MANAGER_PATH}/approval/{approval.replace('-', '_')}", task_id, 0]
    with pytest.raises(Refused) as refused:
        alice.call(f"{MANAGER_PATH}/approval/{approval.replace('-', '_')}", APPROVAL, "Get")
    assert refused.value.short == "ApprovalNotFound"
    bare.run("aiosctl", "approve", approval, "--reject")
    resolved = alice.wait_signal(lambda one: one.member == "ApprovalResolved")
    assert resolved.body[2] == "rejected"


def test_a_waiting_task_outlives_the_daemon(bare: Container, root: Caller) -> None:
    task_id = root.create(CRITICAL, {"name": "root"})
    approval = approval_of(root, task_id)
    bare.run("systemctl", "restart", "aiosd.service")
    assert approval_of(root, task_id) == approval
    bare.run("aiosctl", "approve", approval, "--yes")
    assert root.wait(task_id)["status"] == "completed"


def test_the_switch_for_root_s_own_command(bare: Container) -> None:
    command = ("aiosctl", "exec", "--", "true")
    waits = bare.run(*command)
    assert "waits for an approval" in waits.stderr
    bare.run("aiosctl", "approve", "--reject")
    policy(bare, "root_command_without_approval = true\n")
    assert "waits" not in bare.run(*command).stderr
    done = bare.run("aiosctl", "exec", "--wait", "--", "sh", "-c", "exit 7", check=False)
    assert done.returncode == 7


def test_approving_on_a_terminal_shows_what_would_run(bare: Container) -> None:
    """A pseudo-terminal, a person who types before they are asked, and one who then really types."""
    waits = bare.run("aiosctl", "exec", "--", "echo", "\x1b[2Jhidden\u202e")
    approval = waits.stderr.rpartition(" ")[2].strip()
    script = (
        "import os, pty, sys, time\n"
        "pid, fd = pty.fork()\n"
        "if pid == 0: os.execvp('aiosctl', ['aiosctl', 'approve', sys.argv[1]])\n"
        "os.write(fd, b'approve\\n')\n"
        "seen = b''\n"
        "while b'later: ' not in seen: seen += os.read(fd, 65536)\n"
        "begun = time.monotonic()\n"
        "os.write(fd, b'reject\\n')\n"
        "try:\n"
        "    while piece := os.read(fd, 65536): seen += piece\n"
        "except OSError: pass\n"
        "sys.stdout.buffer.write(seen)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
    )
    done = bare.run("python3", "-c", script, approval, check=False)
    assert done.returncode == 0, done.stdout
    assert "\\u001b[2Jhidden\\u202e" in done.stdout
    assert "rejected" in done.stdout
    assert "\u202e" not in done.stdout
    assert json.loads(bare.run("aiosctl", "approve", "--list", "--json").stdout) == {"approvals": []}


# -- deferred consent --------------------------------------------------------------------------------------------------


def test_a_request_made_where_nobody_is_asked_is_moved_on_at_the_machine(asked: Caller, alice: Caller) -> None:
    task_id = alice.create("test.look.medium", defer=Variant("b", True))
    task: JsonObject = alice.get(task_id)
    assert (task["status"], task["phase"]) == ("auth_required", "waiting_auth")
    assert field_of(task, "auth_request", "type") == "polkit"
    terminal = ("python3", "/src/tests/system/programs/on_terminal.py", PASSWORDS["alice"])
    done = alice.box.run(*terminal, "aiosctl", "auth", task_id, user="alice", seat="seat0", check=False)
    assert done.returncode == 0, done.stdout
    assert "AUTHENTICATING FOR org.aios.TaskManager.run-medium" in done.stdout
    after = alice.wait(task_id)
    assert after["status"] == "completed"
    history = alice.get(task_id, history=True)["state_history"]
    assert isinstance(history, list)
    assert [row["state"] for row in history if isinstance(row, dict)] == ["auth_required", "working", "completed"]


def test_it_ends_at_its_time_limit(bare: Container, alice: Caller) -> None:
    bare.write("/etc/aios/aiosd.conf.d/10-test.conf", "[Permissions]\nauth_timeout=1s\n")
    bare.run("systemctl", "reload", "aiosd.service")
    try:
        task = alice.wait(alice.create("test.look.medium", defer=Variant("b", True)))
        assert (task["status"], task["reason"]) == ("failed", "auth-timeout")
    finally:
        bare.run("rm", "-r", "/etc/aios/aiosd.conf.d")
        bare.run("systemctl", "reload", "aiosd.service")


def test_a_program_that_asks_and_asks_is_stopped(asked: Caller) -> None:
    """One dialog at a time, the rest queued and bounded."""
    numbers = [asked.begin_create_asking("test.look.high") for _ in range(25)]
    asked.next_dialog()
    time.sleep(1)
    assert asked.dialogs == []
    answered = [number for number in numbers if asked.answered(number)]
    assert answered
    for number in answered:
        assert refusal(asked, number).short == "RateLimited"


@pytest.mark.warns(r"permission-policy\.toml:1: error: nonsense: unknown key")
def test_the_policy_s_problems_are_in_the_journal(bare: Container) -> None:
    policy(bare, "nonsense = 1\n")
    said = bare.run("journalctl", "--unit=aiosd.service", "--grep=permission-policy.toml:1", "--quiet", check=False)
    assert "unknown key" in said.stdout
