"""Proves who may run what: the design's table of levels, asked of the real polkit by people in real sessions.

Where a person is asked, a real agent answers with a password that real PAM checks: right, wrong, dismissed, or there is
nobody to ask. The administrator's rules count, and without polkit only root may.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from aiosd.bus.connection import Variant
from tests.rig.rootfs import PASSWORDS
from tests.system.caller import MANAGER, MANAGER_PATH, Refused, connected

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.rig.container import Container
    from tests.system.caller import Caller

HIGH = "test.look.high"
RULES = "/etc/polkit-1/rules.d/10-aiosd-test.rules"
UNIT = "dummy.service"
ASKS = "InteractiveAuthorizationRequired"
NO = "PermissionDenied"


@pytest.fixture(scope="module")
def alice_in_su(equipped: Container) -> Iterator[Caller]:
    """The user in a session that is active but not local."""
    with connected(equipped, "alice", login=True) as caller:
        yield caller


@pytest.fixture(scope="module")
def asked(equipped: Container) -> Iterator[Caller]:
    """The user at the machine, with an agent."""
    with connected(equipped, "alice", seat="seat0") as caller:
        caller.become_agent()
        yield caller


@pytest.fixture(scope="module")
def dummy(equipped: Container) -> str:
    """A unit that may be restarted."""
    text = "[Service]\nType=exec\nExecStart=/usr/bin/sleep infinity\n"
    equipped.write(f"/run/systemd/system/{UNIT}", text)
    equipped.run("systemctl", "daemon-reload")
    equipped.run("systemctl", "start", UNIT)
    return UNIT


@pytest.fixture(autouse=True)
def no_grants(equipped: Container) -> None:
    """Nobody has consented to anything before."""
    listed = json.loads(equipped.run("aiosctl", "grant", "list", "--all", "--json").stdout)["grants"]
    if listed:
        equipped.run("aiosctl", "grant", "revoke", *[row["grant_id"] for row in listed])


def _refusal(caller: Caller, number: int) -> Refused:
    with pytest.raises(Refused) as refused:
        caller.created(number)
    return refused.value


def _outcome(caller: Caller, capability: str) -> str:
    """Of a request that lets nobody be asked: "yes", or the error."""
    try:
        caller.create(capability)
    except Refused as refused:
        return refused.short
    return "yes"


# -- the table -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("level", "anywhere", "at_the_machine"),
    [("public", "yes", "yes"), ("low", ASKS, "yes"), ("medium", ASKS, ASKS), ("high", NO, ASKS)],
)
def test_levels(
    level: str, anywhere: str, at_the_machine: str, alice: Caller, alice_in_su: Caller, alice_at_seat: Caller
) -> None:
    capability = f"test.look.{level}"
    assert _outcome(alice, capability) == anywhere
    assert _outcome(alice_in_su, capability) == anywhere
    assert _outcome(alice_at_seat, capability) == at_the_machine


@pytest.mark.parametrize(("level", "who"), [("low", "alice"), ("medium", "carol")])
def test_who_is_asked_anywhere(level: str, who: str, equipped: Container) -> None:
    """auth_self asks the caller, auth_admin an administrator: on Debian, members of sudo."""
    with connected(equipped, "alice", login=True) as alice:
        alice.become_agent()
        number = alice.begin_create_asking(f"test.look.{level}")
        dialog = alice.next_dialog()
        assert dialog.asked == [who]
        alice.answer(dialog, PASSWORDS[who])
        assert alice.wait(alice.created(number))["status"] == "completed"


def test_who_is_asked_at_the_machine(asked: Caller) -> None:
    for level, who in (("medium", "alice"), ("high", "carol")):
        number = asked.begin_create_asking(f"test.look.{level}")
        dialog = asked.next_dialog()
        assert (dialog.action, dialog.asked) == (f"org.aios.TaskManager.run-{level}", [who])
        asked.answer(dialog, PASSWORDS[who])
        assert asked.wait(asked.created(number))["status"] == "completed"


def test_each_time_anew(asked: Caller) -> None:
    """Level high is asked each time: no answer is kept for the next request."""
    for _ in range(2):
        number = asked.begin_create_asking(HIGH)
        asked.answer(asked.next_dialog(), PASSWORDS["carol"])
        asked.cancel(asked.created(number))


@pytest.mark.parametrize(("who", "error"), [("alice", NO), ("alice_in_su", NO), ("alice_at_seat", ASKS)])
def test_critical_is_asked_at_the_machine_only(who: str, error: str, request: pytest.FixtureRequest) -> None:
    """What it needs after that is test_permissions.py's."""
    caller: Caller = request.getfixturevalue(who)
    assert _refusal(caller, caller.begin_create("test.critical", {"name": "root"})).short == error


# -- the dialog ------------------------------------------------------------------------------------------------------


def test_right_password(asked: Caller, equipped: Container, dummy: str) -> None:
    before = equipped.run("systemctl", "show", dummy, "--property=MainPID", "--value").stdout
    number = asked.begin_create_asking("system.unit.restart", {"unit": dummy})
    dialog = asked.next_dialog()
    assert "Restart a system unit" in dialog.text
    assert "(system.unit.restart, permission level high)" in dialog.text
    asked.answer(dialog, PASSWORDS["carol"])
    task = asked.wait(asked.created(number))
    assert task["status"] == "completed", task
    after = equipped.run("systemctl", "show", dummy, "--property=MainPID", "--value").stdout
    assert int(after) not in (0, int(before))


def test_wrong_password(asked: Caller, root: Caller) -> None:
    before = root.total()
    number = asked.begin_create_asking(HIGH)
    asked.answer(asked.next_dialog(), "not the password")
    refused = _refusal(asked, number)
    assert (refused.short, refused.data["reason"]) == (NO, "not-authorized")
    assert refused.data["permission_required"] == "org.aios.TaskManager.run-high"
    assert root.total() == before


def test_dismissed(asked: Caller, root: Caller) -> None:
    before = root.total()
    number = asked.begin_create_asking(HIGH)
    asked.answer(asked.next_dialog(), None)
    refused = _refusal(asked, number)
    assert (refused.short, refused.data["reason"]) == (NO, "dismissed")
    assert root.total() == before


def test_nobody_to_ask(alice_at_seat: Caller) -> None:
    refused = _refusal(alice_at_seat, alice_at_seat.begin_create_asking(HIGH))
    assert (refused.short, refused.data["reason"]) == (ASKS, "interaction-required")


def test_nobody_may_be_asked(asked: Caller) -> None:
    refused = _refusal(asked, asked.begin_create(HIGH))
    assert (refused.short, refused.data["reason"]) == (ASKS, "interaction-required")
    assert asked.dialogs == []


def test_the_daemon_answers_others_while_somebody_thinks(asked: Caller, bob: Caller) -> None:
    number = asked.begin_create_asking(HIGH)
    dialog = asked.next_dialog()
    assert bob.run("test.sleep", {"seconds": 0})["status"] == "completed"
    assert not asked.answered(number)
    asked.answer(dialog, None)
    _refusal(asked, number)


def test_an_answer_about_something_else_is_stale(asked: Caller, equipped: Container) -> None:
    """While the person thinks, the capability is replaced by another one of the same name."""
    number = asked.begin_create_asking(HIGH)
    dialog = asked.next_dialog()
    path = f"/etc/aios/capabilities.d/{HIGH}.toml"
    text = equipped.read(f"/run/aios/capabilities.d/{HIGH}.toml").replace("programs/look.py", "programs/other.py")
    equipped.write(path, text)
    equipped.run("systemctl", "reload", "aiosd.service")
    asked.answer(dialog, PASSWORDS["carol"])
    refused = _refusal(asked, number)
    equipped.run("rm", path)
    equipped.run("systemctl", "reload", "aiosd.service")
    assert (refused.short, refused.data["reason"]) == (NO, "stale-authorization")


def test_aiosctl_asks_on_the_terminal(equipped: Container) -> None:
    """With no agent there, aiosctl starts pkttyagent(1)."""
    command = ("python3", "/src/tests/system/programs/on_terminal.py", PASSWORDS["carol"])
    aiosctl = ("aiosctl", "run", "test.look.high", "--wait", "--json")
    done = equipped.run(*command, *aiosctl, user="alice", seat="seat0", check=False)
    assert "AUTHENTICATING FOR org.aios.TaskManager.run-high" in done.stdout
    assert "Look around at level high" in done.stdout
    assert done.returncode == 0, done.stdout


# -- other actions ---------------------------------------------------------------------------------------------------


def test_urgent_needs_its_own_permission(asked: Caller) -> None:
    number = asked.begin_create_asking("test.sleep", {"seconds": 0}, priority=Variant("s", "urgent"))
    dialog = asked.next_dialog()
    assert dialog.action == "org.aios.TaskManager.priority-urgent"
    asked.answer(dialog, None)
    assert _refusal(asked, number).data["reason"] == "dismissed"


def test_reload_is_the_administrators(alice: Caller, root: Caller) -> None:
    with pytest.raises(Refused) as refused:
        alice.call(MANAGER_PATH, MANAGER, "Reload", "a{sv}", {})
    assert (refused.value.short, refused.value.data["permission_required"]) == (NO, "org.aios.TaskManager.manage")
    root.call(MANAGER_PATH, MANAGER, "Reload", "a{sv}", {})


# -- the administrator's word ----------------------------------------------------------------------------------------


def test_a_rule_for_operators(bob: Caller, alice: Caller, equipped: Container) -> None:
    """bob is an operator: this one capability, and no other of its level, is his without asking."""
    assert _outcome(bob, HIGH) == NO
    equipped.write(
        RULES,
        "polkit.addRule(function(action, subject) {\n"
        '    if (action.id == "org.aios.TaskManager.run-high" && subject.isInGroup("operators") &&\n'
        f'        action.lookup("capability") == "{HIGH}")\n'
        "        return polkit.Result.YES;\n"
        "});\n",
    )
    try:
        deadline = time.monotonic() + 60
        while (outcome := _outcome(bob, HIGH)) != "yes" and time.monotonic() < deadline:
            time.sleep(0.05)
        assert outcome == "yes"
        assert _outcome(bob, "test.mark") == NO
        assert _outcome(alice, HIGH) == NO
    finally:
        equipped.run("rm", RULES)


@pytest.mark.warns("polkit|authority")
def test_without_polkit_only_root(alice: Caller, root: Caller, equipped: Container) -> None:
    equipped.run("systemctl", "mask", "--runtime", "--now", "polkit.service")
    try:
        refused = _refusal(alice, alice.begin_create("test.sleep", {"seconds": 0}))
        assert (refused.short, refused.data["reason"]) == (NO, "authority-unavailable")
        assert root.run("test.sleep", {"seconds": 0})["status"] == "completed"
        assert root.run("test.look.high")["status"] == "completed"
    finally:
        equipped.run("systemctl", "unmask", "--runtime", "polkit.service")
    assert alice.run("test.sleep", {"seconds": 0})["status"] == "completed"
