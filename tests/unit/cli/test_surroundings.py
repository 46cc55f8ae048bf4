"""aiosctl where something is missing: closed streams, a full disk, Ctrl-C at the wrong moment, a fault of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aiosd.cli.main import run

if TYPE_CHECKING:
    from aiosd.cli.client import Transport
    from aiosd.cli.session import Session

ROOT = Path(__file__).parents[3]
AIOSCTL = [sys.executable, "-c", "from aiosd.cli.start import main; main()"]
NO_BUS = {**os.environ, "DBUS_SYSTEM_BUS_ADDRESS": "unix:path=/nonexistent/bus"}
PRINTS = (("--help",), ("--version",), ("list", "--help"), ("completion", "bash"), ("completion", "bash", "--json"))
"""Verbs that print without a daemon."""


def _with_closed(words: tuple[str, ...], *descriptors: int) -> subprocess.CompletedProcess[bytes]:
    def close() -> None:
        for descriptor in descriptors:
            os.close(descriptor)

    return subprocess.run([*AIOSCTL, *words], env=NO_BUS, capture_output=True, preexec_fn=close, cwd=ROOT, timeout=60)


@pytest.mark.parametrize("words", PRINTS)
def test_a_closed_stdout_is_an_error_of_writing(words: tuple[str, ...]) -> None:
    done = _with_closed(words, 1)
    assert (done.returncode, done.stderr) == (74, b"aiosctl: Bad file descriptor\n")


@pytest.mark.parametrize("words", PRINTS)
def test_a_full_disk_is_an_error_of_writing(words: tuple[str, ...]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([*AIOSCTL, *words], env=NO_BUS, stdout=full, stderr=subprocess.PIPE, cwd=ROOT, timeout=60)
    assert (done.returncode, done.stderr) == (74, b"aiosctl: No space left on device\n")


@pytest.mark.parametrize("closed", [(0,), (2,), (0, 2), (0, 1, 2)])
def test_the_exit_status_does_not_depend_on_who_listens(closed: tuple[int, ...]) -> None:
    done = _with_closed(("list",), *closed)
    assert done.returncode == 69
    assert done.stdout == b""
    assert (2 in closed) == (done.stderr == b"")
    assert b"Traceback" not in done.stderr


_INTERRUPTS = """
import os, signal, sys
class Finder:
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
from aiosd.cli.start import main
main()
"""


@pytest.mark.parametrize("module", ["aiosd.cli.main", "click", "aiosd.cli.verb.list"])
def test_ctrl_c_during_the_imports_ends_it_without_a_word(module: str) -> None:
    script = _INTERRUPTS.format(module=module)
    done = subprocess.run([sys.executable, "-c", script, "list"], env=NO_BUS, capture_output=True, cwd=ROOT, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")


def test_ctrl_c_before_the_work_has_begun() -> None:
    """asyncio is imported between the making of a coroutine and its run."""
    script = _INTERRUPTS.format(module="asyncio")
    done = subprocess.run([sys.executable, "-c", script, "list"], env=NO_BUS, capture_output=True, cwd=ROOT, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_a_background_job_that_ignores_ctrl_c_goes_on_doing_so() -> None:
    script = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)" + _INTERRUPTS.format(module="click")
    done = subprocess.run(
        [sys.executable, "-c", script, "--version"], env=NO_BUS, capture_output=True, cwd=ROOT, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, b"")


def _broken(session: Session) -> Transport:
    raise RuntimeError(f"nobody expected {type(session).__name__}")


def test_a_fault_of_its_own_has_a_status_and_a_place(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list"], _broken) == 70  # type: ignore[arg-type]  # no context manager, as it raises
    shown = capsys.readouterr()
    assert shown.err.startswith("aiosctl: Internal error at test_surroundings.py:")
    assert "nobody expected Session" in shown.err
    assert run(["list", "--json"], _broken) == 70  # type: ignore[arg-type]
    shown = capsys.readouterr()
    assert json.loads(shown.out)["error"]["data"]["error_id"] == "AIOSCTL-INTERNAL"
    assert shown.err == ""


@pytest.mark.parametrize("words", [["%"], ["session", "%"], ["_list"], ["\udcff"], ["session", "\udcff"]])
def test_a_word_that_is_no_verb_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words) == 64
    assert "No such command" in capsys.readouterr().err
