"""The shim: the process that stands over one run, inside its scope. This module is its beginning, as root.

Standard library only; forked by the fork server ahead of time. It forks the child that becomes the program
(`program.py`), and waits until it is given a run: then it tells the launcher that child's pid so that both are put into
the scope, joins the child's view of the file system, gives up root, and supervises (`supervisor.py`) until the exit
record is written.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from aiosd.run import exitrecord, syscalls
from aiosd.run.artifacts import BlobFile
from aiosd.run.cgroup import Scope
from aiosd.run.control import ControlSocket
from aiosd.run.eventfile import EventFile
from aiosd.run.output import Journal, Stream
from aiosd.run.program import READY, Pipes, become_program
from aiosd.run.spec import SPEC_MAX, Descriptor, ShimSpec, decode
from aiosd.run.supervisor import Outputs, Program, Supervisor, Wakeup

if TYPE_CHECKING:
    from collections.abc import Sequence

_OOM_SCORE = "-900"
SHIM_UID = 1_879_113_727
"""The real user of every shim: a number that belongs to nobody and has no rights (beside `identity.DYNAMIC_FIRST`)."""


def wait(fd: int) -> None:
    """Be a spare shim until the socket `fd` brings a spec with its descriptors, then that run's.

    Returns when there is nothing left to do; also when the socket is closed, for then the fork server is gone.
    """
    syscalls.set_name("aios-shim")
    syscalls.become_subreaper()
    pipes = Pipes()
    wakeup = Wakeup()
    pid = os.fork()
    if pid == 0:
        os.close(fd)
        become_program(pipes)
    pipes.keep_shim_ends()
    os.setsid()
    _shield_from_oom()
    with socket.socket(fileno=fd) as sock:
        data, fds, _, _ = socket.recv_fds(sock, SPEC_MAX, len(Descriptor), socket.MSG_CMSG_CLOEXEC)
    if data:
        with suppress(OSError):  # the launcher may be gone; then the gate closes
            os.write(fds[Descriptor.STATUS], b"%d\n" % pid)
        os.close(fds[Descriptor.STATUS])
        pipes.pass_on(data)
        _run(decode(data), fds, pid, pipes, wakeup)


def _run(spec: ShimSpec, fds: Sequence[int], pid: int, pipes: Pipes, wakeup: Wakeup) -> None:
    journal = _journal(spec)
    error = _join_program(spec, pid, pipes)
    _drop(spec)
    program = Program(pid, pipes.gate_write, pipes.report_read, pipes.shim_socket, error)
    outputs = _outputs(spec, fds, pipes, journal)
    control = ControlSocket(socket.socket(fileno=fds[Descriptor.CONTROL]))
    supervisor = Supervisor(spec, program, outputs, control, wakeup)
    ending = supervisor.run()
    exitrecord.write(fds[Descriptor.EXIT], spec.run, ending, outputs)
    control.tell({"type": "exited"}, always=True)


def _shield_from_oom() -> None:
    """When memory runs out the program must go, not the one who reports it (proc(5), oom_score_adj)."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE, encoding="utf-8")


def _journal(spec: ShimSpec) -> Journal:
    fields = {"SYSLOG_IDENTIFIER": spec.capability, "AIOS_TASK_ID": spec.task, "AIOS_RUN_ID": spec.run}
    return Journal(fields)


def _join_program(spec: ShimSpec, pid: int, pipes: Pipes) -> str | None:
    """Wait until the child is at its gate and share its mounts; the reason when it did not get there."""
    report = os.read(pipes.report_read, 1)
    if report != READY:
        rest = report + os.read(pipes.report_read, 1000)
        return rest.decode("utf-8", "replace") or "the program's process died while it was set up"
    namespace = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    try:
        syscalls.join_namespace(namespace, syscalls.CLONE_NEWNS)
    finally:
        os.close(namespace)
    os.chdir(spec.view.scratch)
    return None


def _drop(spec: ShimSpec) -> None:
    """As the program; but where that may start processes as other users (level critical), CAP_KILL stays."""
    os.umask(0o077)
    syscalls.watch_as(spec.account, SHIM_UID)
    syscalls.keep_only_capabilities(1 << syscalls.CAP_KILL if spec.keep_capabilities else 0)
    syscalls.set_no_new_privileges()  # it executes nothing, so the bounding set can stay
    syscalls.set_undumpable()


def _outputs(spec: ShimSpec, fds: Sequence[int], pipes: Pipes, journal: Journal) -> Outputs:
    for fd in (pipes.stdout_read, pipes.stderr_read):
        os.set_blocking(fd, False)
    limit = spec.log_max_bytes
    scratch = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    return Outputs(
        stdout=Stream("stdout", pipes.stdout_read, fds[Descriptor.STDOUT], limit, journal),
        stderr=Stream("stderr", pipes.stderr_read, fds[Descriptor.STDERR], limit, journal),
        events=EventFile(fds[Descriptor.EVENTS]),
        blobs=BlobFile(fds[Descriptor.BLOBS], scratch, spec.blobs_max_bytes),
        scope=Scope(spec.unit),
    )
