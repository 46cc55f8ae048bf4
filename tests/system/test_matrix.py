"""Proves the whole table of levels: each, for everybody who may ask, with each answer a person can give.

The expectation is the design's table of polkit defaults and nothing else; what the real polkit, the real PAM and aiosd
make of it is collected once and is what docs/permissions.md shows.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.rig import host
from tests.rig.rootfs import PASSWORDS
from tests.system.caller import ANSWER_TIMEOUT, Refused, connected

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.rig.container import Container
    from tests.system.caller import Caller

PAGE = host.CHECKOUT / "docs/permissions.md"
BEGIN, END = "<!-- matrix: begin -->", "<!-- matrix: end -->"

DESIGN = {
    "public": ("yes", "yes", "yes"),
    "low": ("auth_self", "auth_self", "yes"),
    "medium": ("auth_admin", "auth_admin", "auth_self"),
    "high": ("no", "auth_admin", "auth_admin"),
    "critical": ("no", "no", "auth_admin"),
}
"""allow_any, allow_inactive, allow_active of `run-<level>` in the design."""
COLUMNS = ("anywhere", "inactive", "active")
PEOPLE = {
    "root": "root", "active": "the user, active at the machine", "inactive": "the user, at the machine, inactive",
    "elsewhere": "the same, with another session that is active", "remote": "the user, remote (`su -`)",
    "service": "the user, in no session (a service)",
    "other": "another user, in no session",
}  # fmt: skip
ANSWERS = ("no agent", "right", "wrong", "dismissed")
ADMINISTRATOR = "carol"
NOBODY, REFUSED, YES, APPROVAL = "nobody to ask", "refused", "yes", "waits for an approval"
_ASKING = ("dismissed", "wrong", "right")


@dataclass(frozen=True)
class Row:
    """What came of one person's requests at one level. `asked`: who was asked for a password, "" for nobody."""

    asked: str
    outcomes: Mapping[str, str]


@dataclass(frozen=True)
class Person:
    """Two connections of the same kind: one without an agent, one with."""

    plain: Caller
    agent: Caller


def expected(level: str, who: str) -> Row:
    """What the design's table says."""
    granted = APPROVAL if level == "critical" else YES
    if who == "root":
        return Row("", dict.fromkeys(ANSWERS, granted))
    # polkit counts a local session as active when any session of its user is: there is no row for that in the design.
    column = "active" if who == "elsewhere" else who if who in COLUMNS else "anywhere"
    rule = DESIGN[level][COLUMNS.index(column)]
    if not rule.startswith("auth_"):
        return Row("", dict.fromkeys(ANSWERS, granted if rule == "yes" else REFUSED))
    asked = ADMINISTRATOR if rule == "auth_admin" else "bob" if who == "other" else "alice"
    return Row(asked, dict(zip(ANSWERS, (NOBODY, granted, REFUSED, "refused (dismissed)"), strict=True)))


def _outcome(caller: Caller, number: int, level: str) -> str:
    try:
        task = caller.created(number)
    except Refused as refused:
        if refused.short == "InteractiveAuthorizationRequired":
            return NOBODY
        assert refused.short == "PermissionDenied", refused
        return "refused (dismissed)" if refused.data["reason"] == "dismissed" else REFUSED
    if level == "critical":
        status = caller.get(task)["phase"]
        caller.cancel(task)
        return APPROVAL if status == "waiting_approval" else str(status)
    return YES


def _request(caller: Caller, level: str) -> int:
    if level == "critical":
        return caller.begin_create_asking("test.critical", {"name": "root"})
    return caller.begin_create_asking(f"test.look.{level}")


def _row(person: Person, level: str, box: Container, *, at_the_seat: bool = False) -> Row:
    """`at_the_seat`: of its sessions one is active, so each comes to the front in its turn."""
    if at_the_seat:
        _to_the_front(person.plain)
    outcomes = {"no agent": _outcome(person.plain, _request(person.plain, level), level)}
    if at_the_seat:
        _to_the_front(person.agent)
    asked, caller = "", person.agent
    for answer in _ASKING:
        number = _request(caller, level)
        deadline = time.monotonic() + ANSWER_TIMEOUT
        while not caller.dialogs and not caller.has_answer(number):
            caller.take(deadline)
        if not caller.dialogs:  # nobody is asked, whatever they would say
            outcomes.update(dict.fromkeys(_ASKING, _outcome(caller, number, level)))
            break
        dialog = caller.next_dialog()
        assert dialog.action == f"org.aios.TaskManager.run-{level}"
        (asked,) = dialog.asked
        caller.answer(dialog, {"right": PASSWORDS[asked], "wrong": "not it", "dismissed": None}[answer])
        outcomes[answer] = _outcome(caller, number, level)
    if asked:
        _revoke(box)
    return Row(asked, {answer: outcomes[answer] for answer in ANSWERS})


def _revoke(box: Container) -> None:
    """A yes is kept as a grant; the next one here is to be asked again."""
    listed = json.loads(box.run("aiosctl", "grant", "list", "--all", "--json").stdout)["grants"]
    if listed:
        box.run("aiosctl", "grant", "revoke", *[row["grant_id"] for row in listed])


def _with_patience(box: Container) -> None:
    """A person who said no ten times is not asked again for a while; a daemon that begins knows nothing of that."""
    box.run("systemctl", "restart", "aiosd.service")


def _until_active(caller: Caller, wanted: str) -> None:
    deadline = time.monotonic() + 60
    show = ("loginctl", "show-session", caller.session, "--property=Active", "--value")
    while caller.box.run(*show).stdout.strip() != wanted:
        assert time.monotonic() < deadline, f"the session {caller.session} does not become {wanted}"
        time.sleep(0.05)


def _to_the_front(caller: Caller) -> None:
    caller.come_to_the_front()
    _until_active(caller, "yes")


@pytest.fixture(scope="module")
def matrix(equipped: Container) -> Iterator[Mapping[tuple[str, str], Row]]:
    """By level and person."""
    found: dict[tuple[str, str], Row] = {}
    policy = "/etc/aios/permission-policy.toml"
    before = equipped.read(policy)
    equipped.run("rm", policy)
    equipped.run("systemctl", "reload", "aiosd.service")
    try:
        with ExitStack() as stack:

            def person(user: str, *, login: bool = False, seat: str | None = None) -> Person:
                both = [stack.enter_context(connected(equipped, user, login=login, seat=seat)) for _ in "12"]
                both[1].become_agent()
                return Person(*both)

            seated = person("alice", seat="seat0")
            in_front = stack.enter_context(connected(equipped, "bob", seat="seat0"))
            _to_the_front(in_front)
            for one in (seated.plain, seated.agent):
                _until_active(one, "no")
            _with_patience(equipped)
            for level in DESIGN:
                found[level, "inactive"] = _row(seated, level, equipped)
            people = {
                "root": person("root"), "elsewhere": seated, "remote": person("alice", login=True),
                "service": person("alice"), "other": person("bob"),
            }  # fmt: skip
            for level in DESIGN:
                _with_patience(equipped)
                found.update({(level, who): _row(one, level, equipped) for who, one in people.items()})
            _with_patience(equipped)
            for level in DESIGN:
                found[level, "active"] = _row(seated, level, equipped, at_the_seat=True)
        yield found
    finally:
        equipped.write(policy, before)
        equipped.run("systemctl", "reload", "aiosd.service")


def table_of(matrix: Mapping[tuple[str, str], Row]) -> str:
    """As docs/permissions.md has it."""
    rows = ["| level | who asks for it | asked for a password | " + " | ".join(ANSWERS) + " |", "|" + "---|" * 7]
    for level in DESIGN:
        for who, text in PEOPLE.items():
            row = matrix[level, who]
            asked = {"": "nobody", ADMINISTRATOR: "an administrator"}.get(row.asked, "the user")
            rows.append(f"| {level} | {text} | {asked} | " + " | ".join(row.outcomes[one] for one in ANSWERS) + " |")
    return "\n".join(rows)


@pytest.mark.parametrize("level", DESIGN)
def test_it_is_the_designs(level: str, matrix: Mapping[tuple[str, str], Row]) -> None:
    assert {who: matrix[level, who] for who in PEOPLE} == {who: expected(level, who) for who in PEOPLE}


def test_the_page_shows_it(matrix: Mapping[tuple[str, str], Row]) -> None:
    text = PAGE.read_text()
    head, _, rest = text.partition(BEGIN)
    current, _, tail = rest.partition(END)
    if os.environ.get("AIOSD_WRITE_DOCS"):
        PAGE.write_text(f"{head}{BEGIN}\n{table_of(matrix)}\n{END}{tail}")
    else:
        assert current.strip() == table_of(matrix), "run this test with AIOSD_WRITE_DOCS=1"
