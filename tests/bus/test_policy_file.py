"""The polkit actions are the design's table, typed out here: nobody loosens one by accident."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from aiosd.auth.policy import Action

POLICY = Path(__file__).parents[2] / "polkit" / "org.aios.TaskManager.policy"

# action: allow_any, allow_inactive, allow_active
TABLE = {
    "run-public": ("yes", "yes", "yes"),
    "run-low": ("auth_self", "auth_self", "yes"),
    "run-medium": ("auth_admin", "auth_admin", "auth_self"),
    "run-high": ("no", "auth_admin", "auth_admin"),
    "run-critical": ("no", "no", "auth_admin"),
    "view-others": ("auth_admin", "auth_admin", "auth_admin_keep"),
    "control-others": ("auth_admin", "auth_admin", "auth_admin_keep"),
    "approve": ("no", "auth_admin", "auth_admin"),
    "register-worker": ("no", "auth_admin", "auth_admin_keep"),
    "subscribe-webhook": ("no", "auth_admin", "auth_admin_keep"),
    "manage": ("no", "auth_admin", "auth_admin_keep"),
    "priority-urgent": ("no", "auth_admin", "auth_admin_keep"),
}


def _actions() -> dict[str, ElementTree.Element]:
    root = ElementTree.parse(POLICY).getroot()  # noqa: S314 - our own file
    return {element.attrib["id"]: element for element in root.iter("action")}


def test_defaults_are_the_designs_table() -> None:
    found = {
        name.removeprefix("org.aios.TaskManager."): tuple(
            element.findtext(f"defaults/{key}") for key in ("allow_any", "allow_inactive", "allow_active")
        )
        for name, element in _actions().items()
    }
    assert found == TABLE


def test_the_daemon_asks_for_exactly_these_actions() -> None:
    assert {action.value for action in Action} == set(_actions())


def test_every_action_says_what_it_is_and_lets_the_daemon_give_details() -> None:
    for name, element in _actions().items():
        assert element.findtext("description"), name
        assert element.findtext("message"), name
        notes = {note.get("key"): note.text for note in element.iter("annotate")}
        assert notes == {"org.freedesktop.policykit.owner": "unix-user:aiosd"}, name


def test_no_run_action_keeps() -> None:
    assert not [name for name, defaults in TABLE.items() if name.startswith("run-") and "keep" in "".join(defaults)]
