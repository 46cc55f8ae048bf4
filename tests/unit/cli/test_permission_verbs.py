"""Permission on the command line: what a person is shown before they approve, and that nothing can dress it up."""

from __future__ import annotations

import os
import unicodedata
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiosd.cli import approving
from aiosd.cli.approving import visible
from aiosd.cli.client import Reply
from aiosd.cli.session import Session
from aiosd.model.jsontext import dump
from tests.unit.cli.daemon import ONE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from aiosd.model.jsontext import JsonValue
    from tests.unit.cli.conftest import Ran
    from tests.unit.cli.daemon import Daemon

    Aiosctl = Callable[..., Ran]

APPROVAL = "apr-01jdxg3v7m9q2w4e6r8t0y1abc"
HASH = "a" * 64
BOUNDS = {"capability_title", "exec", "user", "network", "home", "limits"}
"""What only an approval of a capability's has."""


def approval(**more: JsonValue) -> dict[str, JsonValue]:
    return {
        "id": APPROVAL, "task_id": ONE, "uid": os.getuid(), "capability_id": "compat.command.run",
        "capability_title": "A command", "title": "Clean up", "risk_level": "critical", "status": "pending",
        "arguments": {"argv": ["rm", "-rf", "/srv"]}, "exec": ["/usr/bin/python3", "-m", "x"], "user": "root",
        "network": "host", "home": "read-write", "limits": {"tasks_max": 16}, "requester": "bus :1.7",
        "request_hash": HASH, "expires_at": "2026-01-05T10:10:00.000Z", "void": False, **more,
    }  # fmt: skip


@pytest.fixture
def at_terminal(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A person at a terminal; what they will type, line by line."""
    typed: list[str] = []
    monkeypatch.setattr(Session, "can_ask", True)
    monkeypatch.setattr(Session, "read_line", lambda _: typed.pop(0) + "\n")
    monkeypatch.setattr(Session, "forget_typed", lambda _: None)
    monkeypatch.setattr(approving, "COUNTDOWN", 0)
    return typed


def responses(daemon: Daemon) -> list[object]:
    return [body[0] for name, body in daemon.calls if name == "Respond"]


class TestApprove:
    def test_shows_exactly_what_would_run(self, aiosctl: Aiosctl, daemon: Daemon, at_terminal: list[str]) -> None:
        daemon.approvals[APPROVAL] = approval()
        at_terminal.append("approve")
        ran = aiosctl("approve", APPROVAL)
        assert (ran.status, responses(daemon)) == (0, ["approve"])
        for text in ('"rm"', '"-rf"', '"/srv"', "Runs as: root", "tasks_max 16", "bus :1.7", "Clean up", HASH):
            assert text in ran.err
        assert daemon.options("Respond") == {"request_hash": HASH}

    def test_of_a_worker_shows_what_it_asks_and_no_empty_rows(
        self, aiosctl: Aiosctl, daemon: Daemon, at_terminal: list[str]
    ) -> None:
        wish = {"kind": "dangerous_command", "summary": "rm -rf build-cache", "risk_level": "high"}
        worker = {key: value for key, value in approval(**wish).items() if key not in BOUNDS}
        daemon.approvals[APPROVAL] = {**worker, "capability_id": "", "arguments": {}}
        at_terminal.append("approve")
        lines = [line.strip() for line in aiosctl("approve").err.splitlines() if ":" in line]
        assert "Worker asks: rm -rf build-cache (dangerous_command)" in lines
        assert [line for line in lines if line.endswith((":", "—")) or line.startswith(("Runs as", "Sees"))] == []

    @pytest.mark.parametrize("answer", ["", "y", "yes", "Approve", "approve!"])
    def test_only_the_whole_word_approves(
        self, aiosctl: Aiosctl, daemon: Daemon, at_terminal: list[str], answer: str
    ) -> None:
        daemon.approvals[APPROVAL] = approval()
        at_terminal.append(answer)
        assert (aiosctl("approve").status, responses(daemon)) == (75, [])

    def test_what_hides_is_made_visible(self, aiosctl: Aiosctl, daemon: Daemon, at_terminal: list[str]) -> None:
        dressed: JsonValue = {"argv": ["rm", "\x1b[2K\x1b[1Als", "gnp.\u202etxt", "a\u200bb"]}
        daemon.approvals[APPROVAL] = approval(arguments=dressed, title="fine\rreally\x9b2J")
        at_terminal.append("reject")
        ran = aiosctl("approve")
        assert responses(daemon) == ["reject"]
        for sign in "\x1b\u202e\u200b\r\x9b":
            assert sign not in ran.err
        for text in (r"\u001b[2K", r"gnp.\u202etxt", r"a\u200bb", r"fine\rreally\x9b2J"):
            assert text in ran.err

    def test_what_is_void_cannot_be_approved(self, aiosctl: Aiosctl, daemon: Daemon, at_terminal: list[str]) -> None:
        daemon.approvals[APPROVAL] = approval(void=True)
        at_terminal.append("approve")
        ran = aiosctl("approve")
        assert (ran.status, responses(daemon)) == (65, [])
        assert "void" in ran.err

    def test_scripts_say_yes_in_so_many_words(self, aiosctl: Aiosctl, daemon: Daemon) -> None:
        daemon.approvals[APPROVAL] = approval()
        assert aiosctl("approve", APPROVAL).status == 64
        assert aiosctl("approve", APPROVAL, "--yes", "--json").json == {"approval_id": APPROVAL, "status": "approved"}
        assert aiosctl("approve", "--list", "--json").rows("approvals")[0]["status"] == "approved"

    def test_which_one_is_asked_when_several_wait(self, aiosctl: Aiosctl, daemon: Daemon) -> None:
        assert aiosctl("approve", "--yes").status == 66
        daemon.approvals = {APPROVAL: approval(), APPROVAL[:-1] + "d": approval(task_id="task-2")}
        assert aiosctl("approve", "--yes").status == 64
        assert aiosctl("approve", "--yes", ONE).status == 0

    def test_the_countdown_throws_away_what_was_typed_ahead(
        self, aiosctl: Aiosctl, daemon: Daemon, at_terminal: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        forgotten: list[bool] = []
        monkeypatch.setattr(Session, "forget_typed", lambda _: forgotten.append(True))
        daemon.approvals[APPROVAL] = approval()
        at_terminal.append("approve")
        aiosctl("approve")
        assert forgotten == [True]

    def test_a_command_that_waits_is_offered_here(
        self, aiosctl: Aiosctl, daemon: Daemon, at_terminal: list[str]
    ) -> None:
        daemon.approvals[APPROVAL] = approval()
        daemon.auth_request = {"type": "approval", "approval_id": APPROVAL}
        at_terminal.append("approve")
        ran = aiosctl("exec", "--", "rm", "-rf", "/srv")
        assert (ran.status, responses(daemon)) == (0, ["approve"])

    def test_without_a_terminal_it_is_said_who_can(self, aiosctl: Aiosctl, daemon: Daemon) -> None:
        daemon.auth_request = {"type": "approval", "approval_id": APPROVAL}
        ran = aiosctl("exec", "--", "true")
        assert f"aiosctl approve {APPROVAL}" in ran.err
        daemon.auth_request = {"type": "polkit"}
        assert "aiosctl auth task-" in aiosctl("exec", "--", "true").err


class TestGrant:
    def test_list_and_revoke(self, aiosctl: Aiosctl, daemon: Daemon) -> None:
        assert '{"path":{"equals":"/usr"}}' in aiosctl("grant", "list").out
        assert aiosctl("grant", "list", "--all", "--json").rows("grants")[0]["used"] == 3
        assert daemon.options("ListGrants") == {"all_users": True}
        assert aiosctl("grant", "revoke", "grant-1").status == 0
        assert aiosctl("grant", "revoke", "grant-9").status == 66
        assert aiosctl("grant", "revoke", "grant-9", "grant-1", "--json").json == {"revoked": ["grant-1"]}

    def test_add(self, aiosctl: Aiosctl, daemon: Daemon) -> None:
        ran = aiosctl("grant", "add", "files.*", "depth:=3", "--glob", "path=/usr/*", "--scope", "timed:60")
        assert ran.out == "grant-2\n"
        (body,) = [body for name, body in daemon.calls if name == "RequestGrant"]
        assert body[:3] == ("files.*", "timed:60", '{"depth":{"equals":3},"path":{"glob":"/usr/*"}}')


class TestPolicy:
    def test_explain(self, aiosctl: Aiosctl, daemon: Daemon) -> None:
        ran = aiosctl("policy", "explain", "files.checksum", "--user", "root")
        assert ran.out.splitlines() == [
            "files.checksum has level low: a person is asked the first time.", "polkit asks.",
            "A person would be asked.",
        ]  # fmt: skip
        assert daemon.options("ExplainPermission") == {"uid": 0}
        assert aiosctl("policy", "explain", "files.checksum", "--user", "nobody-of-that-name").status == 66

    @pytest.mark.parametrize(("needs_approval", "told"), [(True, "wait for an approval"), (False, "without anybody")])
    def test_explain_says_what_is_still_to_come(
        self, aiosctl: Aiosctl, daemon: Daemon, monkeypatch: pytest.MonkeyPatch, *, needs_approval: bool, told: str
    ) -> None:
        answer = dump({"outcome": "allow", "because": [], "needs_approval": needs_approval})
        monkeypatch.setattr(daemon, "_ExplainPermission", lambda *_, **__: Reply((answer,)))
        assert told in aiosctl("policy", "explain", "compat.command.run").out.splitlines()[-1]

    def test_check(self, aiosctl: Aiosctl, tmp_path: Path) -> None:
        file = tmp_path / "permission-policy.toml"
        file.write_text('max_permission_level = "high"\nalways_deny = ["system.power.*"]\n')
        ran = aiosctl("policy", "check", str(file))
        assert ran.status == 0
        assert "Levels up to high" in ran.err
        file.write_text('\nmax_permission_level = "hihg"\n')
        ran = aiosctl("policy", "check", str(file))
        assert ran.status == 65
        assert f"{file}:2: error: max_permission_level: must be one of" in ran.err
        assert "Levels up to public" in ran.err
        file.write_text("root_command_without_approval = true\n")
        assert aiosctl("policy", "check", str(file)).status == 0
        assert aiosctl("policy", "check", "--user-file", str(file)).status == 65
        assert aiosctl("policy", "check", str(tmp_path / "none")).status == 66


@given(st.text(st.characters(codec="utf-8"), max_size=60))
def test_visible_shows_everything_and_only_that(text: str) -> None:
    shown = visible(text)
    assert all(sign == " " or unicodedata.category(sign)[0] not in "CZ" for sign in shown)
    assert visible(shown) == shown
    if shown == text:
        assert text.isprintable()


def test_a_plain_text_is_shown_as_it_is() -> None:
    assert visible("Größe: 3 MiB — 日本語") == "Größe: 3 MiB — 日本語"


def test_show_says_what_a_task_waits_for(aiosctl: Aiosctl, daemon: Daemon) -> None:
    daemon.add(ONE, "auth_required", auth_request={"type": "approval", "approval_id": APPROVAL})
    assert f"Waits for: an approval: aiosctl approve {APPROVAL}" in aiosctl("show", ONE).out
    daemon.add(ONE, "auth_required", auth_request={"type": "polkit"})
    assert f"Waits for: an authentication (polkit): aiosctl auth {ONE}" in aiosctl("show", ONE).out
