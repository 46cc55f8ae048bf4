"""The child that becomes the capability's program: sets itself up, waits at the gate, and executes.

Standard library only; runs in the process that the shim forked, and never returns. What goes wrong is told through the
report pipe, which closes by itself when execve(2) succeeds.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

from aiosd.run import landlock, sandbox, seccomp
from aiosd.run.spec import decode

if TYPE_CHECKING:
    from aiosd.run.spec import ShimSpec, View

READY = b"r"
"""First byte of the report: set up, waiting at the gate. Anything after it is the text of a failure."""

TASK_FD = 3
"""The number of the chunk protocol's socket in the program."""

_GATE_FD = 4
_REPORT_FD = 5
_FD_END = 65536
_LENGTH = 4


class Pipes:
    """The shim's and the program's ends of everything that joins the two; made before the fork."""

    def __init__(self) -> None:
        """Make them, none inheritable."""
        self.gate_read, self.gate_write = os.pipe()
        self.report_read, self.report_write = os.pipe()
        self.stdout_read, self.stdout_write = os.pipe()
        self.stderr_read, self.stderr_write = os.pipe()
        self.shim_socket, self.program_socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)

    def keep_shim_ends(self) -> None:
        """In the shim, after the fork: close what is the program's."""
        for fd in (self.gate_read, self.report_write, self.stdout_write, self.stderr_write):
            os.close(fd)
        self.program_socket.close()

    def pass_on(self, spec: bytes) -> None:
        """In the shim: tell the program's process what it is to become, through the gate that it waits at."""
        rest = memoryview(len(spec).to_bytes(_LENGTH, "little") + spec)
        with suppress(BrokenPipeError):  # it has died, which its silence on the report pipe tells
            while rest:
                rest = rest[os.write(self.gate_write, rest) :]


def become_program(pipes: Pipes) -> None:
    """Everything from the fork to execve(2). Does not return."""
    report = pipes.report_write
    try:
        report = _arrange_descriptors(pipes)
        _default_signals()
        os.setsid()
        spec = _read_spec()
        sandbox.enter_namespaces(spec)
        os.chdir(spec.view.scratch)
        sandbox.limit_resources(spec.open_files)
        sandbox.drop_privileges(spec.account, keep_capabilities=spec.keep_capabilities)
        _build_walls(spec.view)
        os.write(report, READY)
        attempt = os.read(_GATE_FD, 64)
        if attempt:
            _execute(spec, attempt.decode())
    except BaseException as error:  # noqa: BLE001 - this process must not run anything else of the shim's
        os.write(report, f"{_reason(error)}"[:1000].encode("utf-8", "replace"))
    finally:
        os._exit(127)


def _read_spec() -> ShimSpec:
    """What the shim passes on; the process ends when there will be none."""
    length = int.from_bytes(_read_exactly(_LENGTH), "little")
    return decode(_read_exactly(length))


def _read_exactly(size: int) -> bytes:
    found = b""
    while len(found) < size:
        more = os.read(_GATE_FD, size - len(found))
        if not more:
            os._exit(127)
        found += more
    return found


def _build_walls(view: View) -> None:
    """After the privileges are gone: what is not to be had back, nor to be got from others."""
    if view.confined:
        landlock.confine()
    if view.confined or view.route_sockets_only:
        seccomp.install(confined=view.confined, route_only=view.route_sockets_only)


def _execute(spec: ShimSpec, attempt: str) -> None:
    environment = {**spec.environment, "AIOS_TASK_FD": str(TASK_FD), "AIOS_ATTEMPT": attempt}
    try:
        os.execve(spec.argv[0], spec.argv, environment)  # noqa: S606 - no shell is wanted
    except OSError as error:
        raise OSError(error.errno, f"cannot execute {spec.argv[0]}: {os.strerror(error.errno or 0)}") from None


def _reason(error: BaseException) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else repr(error)


def _arrange_descriptors(pipes: Pipes) -> int:
    """Numbers 0 to 5 and nothing else; returns the report's. First out of the way of each other, then into place."""
    null = os.open(os.devnull, os.O_RDONLY)
    wanted = [null, pipes.stdout_write, pipes.stderr_write, pipes.program_socket.fileno()]
    wanted += [pipes.gate_read, pipes.report_write]
    moved = [_above(fd, 64) for fd in wanted]
    for number, fd in enumerate(moved):
        os.dup2(fd, number, inheritable=number <= TASK_FD)
    os.closerange(_REPORT_FD + 1, _FD_END)
    return _REPORT_FD


def _above(fd: int, lowest: int) -> int:
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, lowest)


def _default_signals() -> None:
    """Python ignores SIGPIPE and the shim has handlers; the program gets what execve(2) promises."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if signal.getsignal(number) not in (signal.SIG_DFL, None):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
