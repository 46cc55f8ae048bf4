"""How a command is run inside a box: as whom, in what kind of session, and what comes back.

Output is kept byte for byte: text is UTF-8 with surrogate escapes and untouched line ends, so
`stdout.encode("utf-8", "surrogateescape")` gives the bytes back.
"""

from __future__ import annotations

import abc
import os
import shlex
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType
    from typing import IO, Self

SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

#: Seconds between asking a command that ran out of time to end and killing it; su(1) itself waits two for its child.
GRACE = 3.0
#: Seconds that nsenter may take on a busy machine until it has made its child; some milliseconds are usual.
PATIENCE = 30.0


class CommandFailed(subprocess.CalledProcessError):
    """A command that was expected to succeed did not; says what it printed."""

    def __str__(self) -> str:
        """The command, its status and both its outputs."""
        return f"{super().__str__()}\n--- stdout\n{self.stdout}\n--- stderr\n{self.stderr}"


def argv_inside(
    argv: Sequence[str],
    *,
    user: str = "root",
    login: bool = False,
    seat: str | None = None,
    env: Mapping[str, str] | None = None,
    terminal: bool = False,
) -> list[str]:
    """What root inside the box has to execute so that `argv` runs as `user`.

    `login`: in a PAM session of logind (`su -`), active but not local: polkit then counts it as allow_any. `seat`: with
    "seat0", a session that is local and active. Neither: just that user's uid, gid and groups, in no session.
    `terminal`: on a terminal of the box, for a person: with job control, Ctrl-C, and passwords asked for.
    """
    extra = [f"{name}={value}" for name, value in (env or {}).items()]
    base = ["env", "-i", f"PATH={SEARCH_PATH}", "LANG=C.UTF-8", f"TERM={os.environ.get('TERM', 'dumb')}"]
    if login or seat:
        session = [f"XDG_SEAT={seat}", "XDG_SESSION_TYPE=tty"] if seat else []
        inner = ["env", *extra, *argv] if extra else list(argv)
        return [*base, *session, "su", *(["--pty"] if terminal else []), "-", user, "-c", shlex.join(inner)]
    if terminal:
        argv = ["script", "--quiet", "--return", "--command", shlex.join(argv), "/dev/null"]
    if user == "root":
        return [*base, "HOME=/root", "USER=root", *extra, *argv]
    drop = ["setpriv", "--reuid", user, "--regid", user, "--init-groups", "--"]
    return [*base, f"HOME=/home/{user}", f"USER={user}", *extra, *drop, *argv]


class Running(subprocess.Popen[bytes]):
    """A command going on inside a box. Signals go to all its processes; leaving the `with` block ends it.

    On the host it is an nsenter(1) that waits for the one child it has inside the box, a session leader. Only the
    child is ever signalled: nsenter ends with it, whereas a child that lost its nsenter would become a zombie of the
    host's PID 1.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        stdin: int | IO[bytes] | None = subprocess.DEVNULL,
        stdout: int | IO[bytes] | None = subprocess.PIPE,
        stderr: int | IO[bytes] | None = subprocess.PIPE,
    ) -> None:
        """Start the host command `argv`, which becomes nsenter."""
        super().__init__(argv, stdin=stdin, stdout=stdout, stderr=stderr, process_group=0)

    def inner(self) -> int | None:
        """The child's pid as the host sees it; waits for nsenter to have made it. None: ended, or never began."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
            except FileNotFoundError:
                return None
            if children or self.poll() is not None:
                return int(children[0]) if children else None
            time.sleep(0.005)
        return None

    def send_signal(self, sig: int) -> None:
        """Signal every process of the command that has not left its session."""
        child = self.inner()
        try:
            if child is None:
                super().send_signal(sig)
            else:
                os.killpg(child, sig)
        except ProcessLookupError:
            return  # it has just ended

    def end(self) -> None:
        """Ask it to end, kill it when it does not."""
        for sig in (signal.SIGTERM, signal.SIGKILL):
            self.send_signal(sig)
            try:
                self.wait(GRACE)
            except subprocess.TimeoutExpired:
                continue
            return

    def read_line(self) -> str:
        """The next line of its standard output without the newline; empty at the end."""
        if self.stdout is None:
            raise ValueError("standard output was not asked for")
        return decode(self.stdout.readline()).rstrip("\n")

    def __enter__(self) -> Self:
        """The command itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End it and close its pipes."""
        self.end()
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                stream.close()
        self.wait()


def decode(data: bytes) -> str:
    """Bytes of a program as text that can be turned back."""
    return data.decode("utf-8", "surrogateescape")


def encode(text: str) -> bytes:
    """The opposite of `decode`."""
    return text.encode("utf-8", "surrogateescape")


class Box(abc.ABC):
    """A booted system that commands can be run in."""

    @abc.abstractmethod
    def run(
        self,
        *argv: str,
        user: str = "root",
        login: bool = False,
        seat: str | None = None,
        env: Mapping[str, str] | None = None,
        input: str | bytes = "",
        check: bool = True,
        timeout: float = 60,
    ) -> subprocess.CompletedProcess[str]:
        """Run `argv` inside and wait. `user`, `login`, `seat`, `env`: see `argv_inside`. `timeout`: seconds.

        Raises `CommandFailed` (unless `check` is off) and subprocess.TimeoutExpired.
        """

    @abc.abstractmethod
    def stop(self) -> None:
        """End the box and remove every trace of it. Does nothing when it is gone."""

    def sh(self, script: str, *, user: str = "root", check: bool = True, timeout: float = 60) -> str:
        """Standard output of a shell script run inside."""
        return self.run("sh", "-c", script, user=user, check=check, timeout=timeout).stdout

    def write(self, path: str, text: str, *, mode: int = 0o644) -> None:
        """Put a file, root's, into the box; directories are made."""
        script = 'mkdir -p "$(dirname "$1")" && cat >"$1" && chmod "$2" "$1"'
        self.run("sh", "-c", script, "write", path, f"{mode:o}", input=text)

    def read(self, path: str) -> str:
        """Content of a file in the box."""
        return self.run("cat", path).stdout


def complete(
    argv: Sequence[str], *, shown: Sequence[str], input: str | bytes, check: bool, timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run `argv` on the host to its end. `shown`: what to name in errors, as the caller wrote it."""
    with Running(argv, stdin=subprocess.PIPE) as running:
        try:
            out, err = running.communicate(encode(input) if isinstance(input, str) else input, timeout)
        except subprocess.TimeoutExpired as late:
            raise subprocess.TimeoutExpired(list(shown), timeout, late.output, late.stderr) from None
        result = subprocess.CompletedProcess(list(shown), running.returncode, decode(out), decode(err))
    if check and result.returncode != 0:
        raise CommandFailed(result.returncode, result.args, result.stdout, result.stderr)
    return result
