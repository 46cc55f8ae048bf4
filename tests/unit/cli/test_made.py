"""What is made from the code is current, and what is documented is true."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from aiosd.cli import manpage
from aiosd.cli.client import MEMBERS
from aiosd.cli.exit_status import MEANINGS, ExitStatus
from aiosd.cli.verb.completion import SCRIPTS
from aiosd.errors import ErrorKind
from tests.unit.cli import contract

ROOT = Path(__file__).parents[3]


def test_the_man_page_is_current() -> None:
    page = (ROOT / "docs/man/aiosctl.1.md").read_text()
    assert manpage.updated(page) == page
    for line in ("**run** *CAPABILITY* *[KEY=VALUE | KEY:=JSON]...*", "| 124 | Of a task: it ran out of time. |"):
        assert line in page.splitlines()


def test_every_exit_status_is_documented() -> None:
    own = {status.value for status in ExitStatus} - {ExitStatus.SIGNAL_BASE.value}
    assert {kind.value.exit_status for kind in ErrorKind} | own == set(MEANINGS)


@pytest.mark.parametrize(("shell", "name"), [("bash", "aiosctl"), ("zsh", "_aiosctl"), ("fish", "aiosctl.fish")])
def test_the_packaged_completions_are_current(shell: str, name: str) -> None:
    assert (ROOT / "packaging/completions" / name).read_text() == SCRIPTS[shell]


@pytest.mark.parametrize("name", sorted(MEMBERS))
def test_calls_are_those_of_the_interface(name: str) -> None:
    method = contract.methods()[name]
    assert (method.interface, method.taken) == (MEMBERS[name].interface, MEMBERS[name].signature)


def _modules_after(*words: str) -> set[str]:
    code = (
        "import sys\nfrom aiosd.cli.main import run\nrun(sys.argv[1:])\n"
        "sys.stdout.flush(); print('\\n' + ' '.join(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize("words", [["--help"], ["run", "--help"], ["__complete", "sta"], ["__complete", "run", "--p"]])
def test_help_and_completion_do_without_the_heavy_libraries(words: list[str]) -> None:
    loaded = _modules_after(*words)
    assert "aiosd.cli.main" in loaded
    assert not loaded & {"dbus_fast", "asyncio", "rich", "pydantic", "jsonschema"}
