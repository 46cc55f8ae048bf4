"""The whole program: a process, a real dbus-daemon, pipes and terminals; and how fast it starts."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import termios
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.unit.cli.daemon import ONE
from tests.unit.cli.served import APPROVAL

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(shutil.which("dbus-daemon") is None, reason="needs dbus-daemon")

ROOT = Path(__file__).parents[3]
AIOSCTL = [sys.executable, "-c", "from aiosd.cli.start import main; main()"]
_CONFIG = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>system</type><listen>unix:path={socket}</listen><auth>EXTERNAL</auth>
<policy context="default"><allow user="*"/><allow own="*"/><allow send_type="method_call"/>
<allow send_type="signal"/><allow send_requested_reply="true"/><allow receive_sender="*"/></policy></busconfig>
"""


@dataclass(frozen=True)
class Served:
    """A bus with a daemon on it."""

    environment: dict[str, str]
    folder: Path


@contextlib.contextmanager
def _process(*words: str, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A program that has printed its first line."""
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=environment, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        try:
            yield process
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    config = folder / "bus.conf"
    config.write_text(_CONFIG.format(socket=folder / "bus"))
    environment = {
        **os.environ,
        "DBUS_SYSTEM_BUS_ADDRESS": f"unix:path={folder}/bus",
        "TERM": "xterm",
        "COLUMNS": "100",
    }
    environment.pop("NO_COLOR", None)
    with (
        _process("dbus-daemon", f"--config-file={config}", "--nofork", "--nopidfile", "--print-address=1",
                 environment=environment),
        _process(sys.executable, "-m", "tests.unit.cli.served", str(folder), environment=environment),
    ):  # fmt: skip
        yield Served(environment, folder)


def _run(served: Served, *words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*AIOSCTL, *words], env=served.environment, capture_output=True, timeout=30, cwd=ROOT)


@dataclass
class Terminal:
    """aiosctl on a terminal of its own."""

    pid: int
    master: int
    seen: bytes = b""

    def read_until(self, pattern: bytes, seconds: float = 15) -> None:
        end = time.monotonic() + seconds
        while not re.search(pattern, self.seen):
            assert time.monotonic() < end, f"{pattern!r} is not in {self.seen!r}"
            if select.select([self.master], [], [], 0.2)[0]:
                try:
                    self.seen += os.read(self.master, 65536)
                except OSError:  # EIO: the other side has closed
                    assert re.search(pattern, self.seen), self.seen
                    return

    def ended(self) -> int:
        """Read on to the end; the exit status."""
        while True:
            try:
                data = os.read(self.master, 65536)
            except OSError:
                break
            if not data:
                break
            self.seen += data
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@contextlib.contextmanager
def _terminal(served: Served, *words: str) -> Iterator[Terminal]:
    pid, master = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.execve(sys.executable, [*AIOSCTL, *words], served.environment)  # noqa: S606 - no shell is wanted
    try:
        yield Terminal(pid, master)
    finally:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            if os.waitpid(pid, os.WNOHANG) == (0, 0):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        os.close(master)


def test_logs_are_byte_for_byte(served: Served) -> None:
    done = _run(served, "logs", ONE)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == bytes(range(256)) * 1000


def test_follow_into_pipes(served: Served) -> None:
    done = _run(served, "run", "files.checksum", "path=/usr", "--follow")
    assert done.returncode == 0
    assert done.stdout == b'\x1b]0;owned\x07line \x1b[2Jone\n\xffend{\n  "files": 3\n}\n'
    assert b" 40% hashing files\n" in done.stderr
    assert b"\x1b" not in done.stderr


def test_the_call_says_whether_somebody_may_be_asked(served: Served) -> None:
    _run(served, "status")
    assert (served.folder / "interactive").read_text() == "True"
    _run(served, "status", "--no-ask-password")
    assert (served.folder / "interactive").read_text() == "False"


def test_errors_of_the_daemon_and_of_the_bus(served: Served) -> None:
    done = _run(served, "show", "task-nope", "--json")
    assert (done.returncode, done.stderr) == (66, b"")
    data = json.loads(done.stdout)["error"]["data"]
    assert (data["error_id"], data["field"], data["exit_status"]) == ("AIOS-TASK-NOT-FOUND", "task_id", 66)
    assert data["details"] == "Task not found: task-nope"
    done = subprocess.run(
        [*AIOSCTL, "status"], capture_output=True, cwd=ROOT,
        env={**served.environment, "DBUS_SYSTEM_BUS_ADDRESS": "unix:path=/nonexistent/bus"},
    )  # fmt: skip
    assert done.returncode == 69
    assert done.stderr.startswith(b"aiosctl: The system bus cannot be reached: ")
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words", [("run", "\udcff"), ("session", "create", "caf\udce9"), ("show", "last", "--json", "\udcff")]
)
def test_a_word_that_is_not_utf_8_is_refused(served: Served, words: tuple[str, ...]) -> None:
    """As in file names from before UTF-8: no text of the bus, and no traceback."""
    done = _run(served, *words)
    assert done.returncode == 64
    assert b"Traceback" not in done.stderr
    if "--json" in words:
        assert json.loads(done.stdout)["error"]["data"]["error_id"] == "AIOSCTL-USAGE"
    else:
        assert b"is not UTF-8 text" in done.stderr


def test_no_daemon_on_the_bus(served: Served, tmp_path: Path) -> None:
    config = tmp_path / "bus.conf"
    config.write_text(_CONFIG.format(socket=tmp_path / "bus"))
    environment = {**served.environment, "DBUS_SYSTEM_BUS_ADDRESS": f"unix:path={tmp_path}/bus"}
    with _process(
        "dbus-daemon", f"--config-file={config}", "--nofork", "--nopidfile", "--print-address=1",
        environment=environment,
    ):  # fmt: skip
        done = _run(Served(environment, tmp_path), "status")
    assert done.returncode == 69
    assert done.stderr.startswith(b"aiosctl: aiosd is not running")


def test_a_reader_that_goes_away_is_no_error(served: Served) -> None:
    done = subprocess.run(
        ["bash", "-c", 'set -o pipefail; "$@" | head -c 10 >/dev/null', "bash", *AIOSCTL, "logs", ONE],
        env=served.environment, capture_output=True, cwd=ROOT,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (141, b"")


def test_follow_on_a_terminal(served: Served) -> None:
    with _terminal(served, "run", "files.checksum", "--follow") as terminal:
        terminal.read_until(rb"hashing files")
        terminal.read_until(rb"40%")
        assert terminal.ended() == 0
    text = terminal.seen.decode()
    assert "owned" not in text
    assert "\x1b[2J" not in text
    assert "line one\r\n" in text
    assert "\ufffdend" in text
    assert "completed" in text
    assert '"files": 3' in text


def test_a_dumb_terminal_is_written_line_by_line(served: Served) -> None:
    """As in an editor's shell: nothing is written over, so nothing of it is lost."""
    dumb = Served({**served.environment, "TERM": "dumb"}, served.folder)
    for _ in range(10):  # a task that is over before its progress was heard of has none to show
        with _terminal(dumb, "run", "files.checksum", "path=/usr", "--follow") as terminal:
            assert terminal.ended() == 0
        assert b"working" in terminal.seen
        assert b"\x1b" not in terminal.seen
        if b" 40% hashing files" in terminal.seen:
            return
    pytest.fail(f"no progress was shown: {terminal.seen!r}")


def test_interrupt_on_a_terminal(served: Served) -> None:
    with _terminal(served, "run", "sleep.long", "--follow") as terminal:
        terminal.read_until(rb"working")
        os.write(terminal.master, b"\x03")
        assert terminal.ended() == 130
    text = terminal.seen.decode()
    found = re.search(r"'aiosctl cancel (task-\w+)' stops it", text)
    assert found
    assert "Traceback" not in text
    assert "\x1b[?25h" in text, "the cursor is shown again"
    assert b'"status":"working"' in _run(served, "show", found[1], "--json").stdout


FORM = (
    (rb"1\) The old one", b""),
    (rb"Disk \[1-2\]: ", b"3\n"),
    (rb"wanted: a number from 1 to 2\r\n", b"2\n"),
    (rb"copies: ", b"many\n"),
    (rb"'many' is not an integer", b"0\n"),
    (rb"note \[may stay empty\]: ", b"\n"),
    (rb"sure \[y/n\]: ", b"perhaps\n"),
    (rb"wanted: y or n", b"y\n"),
    (rb"token \[not shown\]: ", b"hunter2\n"),
    (rb"Invalid input: input/?\.?copies.*must be at least 1", b""),
    (rb"(?s)at least 1.*Disk \[1-2\]: ", b"The old one\n"),
    (rb"(?s)at least 1.*copies: ", b"2\n"),
    (rb"(?s)at least 1.*note [^:]*: ", b"be quick\n"),
    (rb"(?s)at least 1.*sure [^:]*: ", b"n\n"),
    (rb"(?s)at least 1.*token [^:]*: ", b"hunter2\n"),
)
"""What is seen, and what is typed then: wrong answers are asked for again, and what the daemon refuses starts anew."""

ANSWERED = {"disk": "sda", "copies": 2, "note": "be quick", "sure": False, "token": "hunter2"}


def _fill(terminal: Terminal) -> None:
    for sees, types in FORM:
        terminal.read_until(sees)
        os.write(terminal.master, types)


def test_a_question_is_asked_in_place(served: Served) -> None:
    with _terminal(served, "run", "ask.disk", "--follow") as terminal:
        _fill(terminal)
        assert terminal.ended() == 0
    text = terminal.seen.decode()
    assert "Which disk?" in text
    assert "aiosctl answer" not in text
    assert text.count("hunter2") == 1, "only in the result, never as it was typed"
    assert json.loads(text[text.rindex("{") :].partition("}")[0] + "}") == ANSWERED


def test_answer_is_a_form_on_a_terminal(served: Served) -> None:
    task = _run(served, "run", "ask.disk").stdout.decode().strip()
    with _terminal(served, "answer", task) as terminal:
        _fill(terminal)
        assert terminal.ended() == 0
    assert f"{task} answered" in terminal.seen.decode()
    assert b"hunter2" not in terminal.seen
    assert json.loads(_run(served, "wait", task, "--json").stdout)["result"] == ANSWERED
    with _terminal(served, "answer", task) as terminal:
        assert terminal.ended() == 65
    assert b"asks nothing" in terminal.seen


def test_a_form_can_be_left_and_the_question_stays(served: Served) -> None:
    with _terminal(served, "run", "ask.disk", "--follow") as terminal:
        terminal.read_until(rb"Disk \[1-2\]: ")
        os.write(terminal.master, b"\x04")
        terminal.read_until(rb"Not answered; 'aiosctl answer task-\w+' does that")
        found = re.search(rb"answer (task-\w+)", terminal.seen)
        assert found
        task = found[1].decode()
        assert json.loads(_run(served, "show", task, "--json").stdout)["status"] == "input_required"
        arguments = json.dumps(ANSWERED)
        assert _run(served, "answer", task, "--json", arguments).returncode == 0
        assert terminal.ended() == 0


def test_a_question_that_somebody_else_answers_is_taken_back(served: Served) -> None:
    with _terminal(served, "run", "ask.disk", "--follow") as terminal:
        terminal.read_until(rb"Disk \[1-2\]: ")
        found = re.search(rb"Task (task-\w+)", terminal.seen)
        assert found
        assert _run(served, "answer", found[1].decode(), "--json", json.dumps(ANSWERED)).returncode == 0
        assert terminal.ended() == 0
    assert b"no longer open" in terminal.seen


@pytest.mark.parametrize(("types", "heard"), [(b"approve\n", "approved"), (b"reject\n", "rejected")])
def test_an_approval_that_the_program_asks_for_is_given_in_place(served: Served, types: bytes, heard: str) -> None:
    with _terminal(served, "run", "ask.leave", "--follow") as terminal:
        terminal.read_until(rb"Type 'approve' to approve")
        os.write(terminal.master, types)
        assert terminal.ended() == 0
    text = terminal.seen.decode()
    assert "Program asks: rm -rf \\x1b[2Jbuild-cache (dangerous_command)" in text
    assert f"{APPROVAL} {heard}" in text
    assert f'"heard": "{heard}"' in text


def test_an_approval_can_be_left_and_is_taken_back_when_somebody_else_answers(served: Served) -> None:
    with _terminal(served, "run", "ask.leave", "--follow") as terminal:
        terminal.read_until(rb"Type 'approve' to approve")
        os.write(terminal.master, b"later\n")
        terminal.read_until(rb"Not answered; 'aiosctl approve task-\w+' does that")
        assert _run(served, "approve", APPROVAL, "--yes").returncode == 0
        assert terminal.ended() == 0
    with _terminal(served, "run", "ask.leave", "--follow") as terminal:
        terminal.read_until(rb"Type 'approve' to approve")
        assert _run(served, "approve", APPROVAL, "--reject").returncode == 0
        assert terminal.ended() == 0
    assert b"no longer open" in terminal.seen


def test_an_interrupted_secret_leaves_the_terminal_as_it_was(served: Served) -> None:
    with _terminal(served, "run", "ask.disk", "--follow") as terminal:
        for sees, types in ((rb"Disk[^:]*: ", b"1\n"), (rb"copies: ", b"1\n"), (rb"note[^:]*: ", b"\n"),
                            (rb"sure[^:]*: ", b"y\n")):  # fmt: skip
            terminal.read_until(sees)
            os.write(terminal.master, types)
        terminal.read_until(rb"token [^:]*: ")
        assert not _echoes(terminal.master)
        os.write(terminal.master, b"\x03")
        terminal.read_until(rb"stops it")
        assert _echoes(terminal.master)
        assert terminal.ended() == 130


def _echoes(terminal: int) -> bool:
    return bool(termios.tcgetattr(terminal)[3] & termios.ECHO)


def test_list_on_a_terminal(served: Served) -> None:
    with _terminal(served, "list") as terminal:
        assert terminal.ended() == 0
    assert b"\x1b[32mcompleted\x1b[0m" in terminal.seen


@pytest.mark.parametrize(("verb", "sees"), [("watch", rb"completed"), ("top", rb"%CPU")])
def test_live_screens_leave_the_terminal_as_it_was(served: Served, verb: str, sees: bytes) -> None:
    with _terminal(served, verb) as terminal:
        terminal.read_until(sees)
        os.write(terminal.master, b"\x03")
        assert terminal.ended() == 130
    assert terminal.seen.count(b"\x1b[?1049h") == terminal.seen.count(b"\x1b[?1049l") == 1
    assert b"Traceback" not in terminal.seen
