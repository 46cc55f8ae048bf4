"""Completion: the words, and the bash script in a real bash; zsh and fish where they are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from aiosd.cli.verb.completion import SCRIPTS
from tests import prerequisites

if TYPE_CHECKING:
    from pathlib import Path

LIST_TASKS = '{"type":"a(sosssuit)ub","data":[[["task-01a","/p","files.checksum","working","running",0,5,1]],1,false]}'
LIST_CAPABILITIES = (
    '{"type":"a(ssss)","data":[[["files.checksum","Sums: of a tree","low",""],'
    '["system.info.read","Info","public",""]]]}'
)


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A directory for $PATH: aiosctl of this checkout, and a busctl that knows a task and two capabilities."""
    folder = tmp_path / "bin"
    folder.mkdir()
    _script(
        folder / "aiosctl",
        f'exec {sys.executable} -c "from aiosd.cli.start import main; main()" "$@"',
    )
    _script(
        folder / "busctl",
        f'echo "$@" >> {tmp_path}/calls\n'
        f"case \"$*\" in *ListTasks*) echo '{LIST_TASKS}';; *) echo '{LIST_CAPABILITIES}';; esac",
    )
    return folder


def _script(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def _environment(programs: Path) -> dict[str, str]:
    return {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": os.getcwd(), "HOME": str(programs)}  # noqa: PTH109 - the checkout


def _complete(programs: Path, *words: str) -> list[list[str]]:
    done = subprocess.run(
        ["aiosctl", "__complete", *words], env=_environment(programs), capture_output=True, text=True, check=True
    )
    return [line.split("\t") for line in done.stdout.splitlines()]


def test_verbs(programs: Path) -> None:
    assert _complete(programs, "pa") == [["plain", "pause", "Hold tasks where they are"]]
    assert [row[1] for row in _complete(programs, "capability", "")] == ["check", "list", "show"]


def test_options_and_their_values(programs: Path) -> None:
    assert ["plain", "--priority", "Who starts first when tasks queue."] in _complete(programs, "run", "--p")
    assert [row[1] for row in _complete(programs, "run", "--priority", "")] == ["low", "normal", "high", "urgent"]
    assert [row[1] for row in _complete(programs, "completion", "")] == ["bash", "zsh", "fish"]


def test_ids_and_capabilities_come_from_busctl(programs: Path) -> None:
    assert _complete(programs, "show", "") == [
        ["plain", "task-01a", "files.checksum, working"], ["plain", "last", "the newest task"],
    ]  # fmt: skip
    assert _complete(programs, "run", "f") == [["plain", "files.checksum", "Sums: of a tree"]]
    calls = (programs.parent / "calls").read_text()
    assert "--auto-start=no" in calls
    assert "--allow-interactive-authorization=no" in calls


def test_files(programs: Path) -> None:
    assert _complete(programs, "capability", "check", "") == [["file", "", ""]]


@pytest.mark.parametrize("busctl", ["exit 1", "echo junk", "echo '{\"data\":7}'", "kill -9 $$"])
def test_no_daemon_means_no_words(programs: Path, busctl: str) -> None:
    _script(programs / "busctl", busctl)
    assert _complete(programs, "run", "") == []


_BASH = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(( $# - 1 ))
_aiosctl
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["aiosctl", "cap"], ["capability"]),
        (["aiosctl", "run", "system"], ["system.info.read"]),
        (["aiosctl", "show", "task"], ["task-01a"]),
        (["aiosctl", "list", "--sort", "p"], ["priority"]),
    ],
)
def test_bash(programs: Path, tmp_path: Path, words: list[str], offered: list[str]) -> None:
    script = tmp_path / "completion"
    script.write_text(SCRIPTS["bash"])
    done = subprocess.run(
        ["bash", "-c", _BASH, "bash", str(script), *words],
        env=_environment(programs), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert (done.stdout.split(), done.stderr) == (offered, "")


def _needs(shell: str) -> None:
    if shutil.which(shell) is None:
        prerequisites.missing(f"no {shell}")


def test_fish(programs: Path, tmp_path: Path) -> None:
    _needs("fish")
    script = tmp_path / "aiosctl.fish"
    script.write_text(SCRIPTS["fish"])
    done = subprocess.run(
        ["fish", "--no-config", "-c", f"source {script}; complete -C 'aiosctl run f'; complete -C 'aiosctl pa'"],
        env=_environment(programs), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["files.checksum\tSums: of a tree", "pause\tHold tasks where they are"]


_ZSH = """
compdef() { :; }
_describe() { print -rl -- "${(@P)3}"; }
_files() { print -r -- "files $*"; }
source "$1"; shift
words=("$@"); CURRENT=$#
_aiosctl
"""


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["aiosctl", "run", "f"], ["files.checksum:Sums: of a tree"]),
        (["aiosctl", "capability", "check", ""], ["files -g *"]),
        (["aiosctl", "list", "--sort", "p"], ["priority"]),
    ],
)
def test_zsh(programs: Path, tmp_path: Path, words: list[str], offered: list[str]) -> None:
    """The script with zsh's own completion functions replaced by ones that print what they are given."""
    _needs("zsh")
    script = tmp_path / "_aiosctl"
    script.write_text(SCRIPTS["zsh"])
    done = subprocess.run(
        ["zsh", "-f", "-c", _ZSH, "zsh", str(script), *words],
        env=_environment(programs), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert (done.stdout.splitlines(), done.stderr) == (offered, "")
