"""`aiosctl bug-report`: what it asks, where it puts it, and that it does without a daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aiosd.cli import failure, report
from aiosd.cli.main import run
from tests.unit.cli.daemon import ONE

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from aiosd.cli.client import Transport
    from aiosd.cli.session import Session
    from tests.unit.cli.conftest import Ran
    from tests.unit.cli.daemon import Daemon

    Aiosctl = Callable[..., Ran]


def test_says_how_everything_is(aiosctl: Aiosctl, daemon: Daemon) -> None:
    daemon.add(ONE)
    ran = aiosctl("bug-report")
    assert ran.status == 0
    titles = [line.removeprefix("== ") for line in ran.out.splitlines() if line.startswith("== ")]
    assert titles[:2] == ["Versions", "Daemon"]
    assert {"Capabilities", "Units", "Database", "Journal: at most 500 lines"} <= set(titles)
    assert ONE in ran.out
    assert "files.checksum" in ran.out


def test_saves_a_new_file_for_its_owner_alone(aiosctl: Aiosctl, tmp_path: Path) -> None:
    target = tmp_path / "report"
    assert aiosctl("bug-report", "--lines=0", "--output", str(target)).status == 0
    assert target.stat().st_mode & 0o777 == 0o600
    assert "== Units" in target.read_text()
    target.write_text("mine")
    ran = aiosctl("bug-report", "--lines=0", "-o", str(target))
    assert (ran.status, target.read_text()) == (73, "mine")


def test_json(aiosctl: Aiosctl) -> None:
    sections = aiosctl("bug-report", "--lines=0", "--json").rows("sections")
    assert sections[0]["title"] == "Versions"


def test_works_while_the_daemon_does_not(capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(_: Session) -> AbstractAsyncContextManager[Transport]:
        raise failure.of_dbus("org.freedesktop.DBus.Error.ServiceUnknown", "")

    assert run(["bug-report", "--lines=0"], refuse) == 0
    shown = capsys.readouterr().out
    assert "== Daemon\naiosd is not running (AIOSCTL-UNAVAILABLE)" in shown
    assert "== Units" in shown


def test_of_the_configuration_what_our_keys_say(tmp_path: Path) -> None:
    (tmp_path / "aiosd.conf").write_text(
        "[Scheduler]\nmax_concurrent_tasks = 8\n# the vault opens with hunter two\nnote = hunter two\nhunter two\n"
        "[X-hunter two]\nmax_concurrent_tasks = hunter two\n"
    )
    (tmp_path / "permission-policy.toml").write_text(
        'always_deny = ["a.*"]  # hunter two\nnote = "hunter two"\nhunter.two = 2\n'
    )
    texts = {each.title: each.text for each in report.of_files([tmp_path], tmp_path / "none.db")}
    assert texts[f"Configuration: {tmp_path}/aiosd.conf"].splitlines() == [
        "[Scheduler]", "max_concurrent_tasks=8", "[left out]: line 4, no setting of aiosd's",
        "[left out]: line 5, neither a section nor an assignment, ignored",
        "[left out]: a section that is not aiosd's", "[left out]: line 7, no setting of aiosd's",
    ]  # fmt: skip
    assert texts[f"Configuration: {tmp_path}/permission-policy.toml"].splitlines() == [
        'always_deny = ["a.*"]', "[left out]: no key of aiosd's", "[left out]: no key of aiosd's",
    ]  # fmt: skip
    assert texts["Database"].startswith("not read: ")


@pytest.mark.parametrize("text", [b"hunter two", b"\xff hunter two"])
def test_a_policy_that_cannot_be_read_is_not_shown(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "permission-policy.toml").write_bytes(text)
    (found,) = (each for each in report.of_files([tmp_path], tmp_path / "none.db") if "policy.toml" in each.title)
    assert found.text == "[left out]: it is not TOML"
