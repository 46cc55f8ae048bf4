"""The shim: the process that stands over one run, inside its scope. This module is its beginning, as root.

Standard library only; forked by the fork server ahead of time. It waits until it is given a run; then it enters the
view of the system that the run's program is to have, gives up root, puts up the walls around the program and with it
around itself, and supervises (`supervisor.py`): it waits at the gate, starts the program when told to, and writes the
exit record in the end. Nothing of the program runs before the gate opens: there is no process yet that could.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from aiosd.run import exitrecord, landlock, sandbox, seccomp, syscalls
from aiosd.run.ancillary import SIZE, descriptors
from aiosd.run.artifacts import BlobFile
from aiosd.run.cgroup import Scope
from aiosd.run.control import ControlSocket
from aiosd.run.eventfile import EventFile
from aiosd.run.output import Journal, Stream
from aiosd.run.privilege import Privilege
from aiosd.run.program import PIPES_END, Pipes
from aiosd.run.spec import SPEC_MAX, Descriptor, ShimSpec, decode
from aiosd.run.supervisor import Outputs, Program, Supervisor, Wakeup

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiosd.run.spec import View

RESERVED = 16
"""The fewest open files that a manifest can allow. The limit is the shim's too, from when it starts the program; until
then the numbers below are taken (by the fork server), so that they are free when no others may be opened."""


def wait(fd: int) -> None:
    """Be a spare shim until the socket `fd` brings a spec with its descriptors, then that run's.

    Returns when there is nothing left to do; also when the socket is closed, for then the fork server is gone.
    """
    syscalls.set_command_line("aios-shim")
    syscalls.become_subreaper()
    os.setsid()
    pipes = Pipes()
    wakeup = Wakeup()
    with socket.socket(fileno=fd) as sock:
        data, fds = _receive(sock)
    if data:
        _run(decode(data), fds, pipes, wakeup)


def _receive(sock: socket.socket) -> tuple[bytes, Sequence[int]]:
    """A packet and its descriptors, which the program is not to inherit: `socket.recv_fds` drops the flag for that."""
    data, ancillary, _, _ = sock.recvmsg(SPEC_MAX, socket.CMSG_SPACE(len(Descriptor) * SIZE), socket.MSG_CMSG_CLOEXEC)
    return data, descriptors(ancillary)


def _run(spec: ShimSpec, fds: Sequence[int], pipes: Pipes, wakeup: Wakeup) -> None:
    syscalls.set_command_line(f"aios-shim {spec.run}")
    journal = _journal(spec)
    privilege = Privilege(spec.account, keep_capabilities=spec.keep_capabilities)
    error = _enter(spec)
    os.umask(0o077)
    privilege.drop()
    error = error or build_walls(spec.view)

    def execute(attempt: int) -> int:
        os.closerange(PIPES_END, RESERVED)
        sandbox.limit_resources(spec.open_files)
        with privilege.lent():
            pid = pipes.execute(spec, attempt)
        privilege.settle()
        return pid

    supervise(spec, fds, Program(pipes.shim_socket, execute, error), open_outputs(spec, fds, pipes, journal), wakeup)


def supervise(spec: ShimSpec, fds: Sequence[int], program: Program, outputs: Outputs, wakeup: Wakeup) -> None:
    """From the closed gate to the exit record."""
    control = ControlSocket(socket.socket(fileno=fds[Descriptor.CONTROL]))
    ending = Supervisor(spec, program, outputs, control, wakeup).run()
    exitrecord.write(fds[Descriptor.EXIT], spec.run, ending, outputs)
    control.tell({"type": "exited"}, always=True)


def _journal(spec: ShimSpec) -> Journal:
    fields = {"SYSLOG_IDENTIFIER": spec.capability, "AIOS_TASK_ID": spec.task, "AIOS_RUN_ID": spec.run}
    return Journal(fields)


def _enter(spec: ShimSpec) -> str | None:
    """Share with the program what it sees; the reason when that cannot be made, for the exit record."""
    try:
        sandbox.enter_namespaces(spec)
        os.chdir(spec.view.scratch)
    except Exception as error:  # noqa: BLE001 - whatever it was: the gate is not opened, and the record says why
        return _reason(error)
    return None


def build_walls(view: View) -> str | None:
    """What is not to be had back, nor to be got from others; the reason when it cannot be had. Needs no_new_privs."""
    try:
        if view.confined:
            landlock.confine()
        if view.confined or view.route_sockets_only:
            alone = view.confined and view.private_network
            seccomp.install(confined=view.confined, route_only=view.route_sockets_only, no_network=alone)
    except OSError as error:
        return _reason(error)
    return None


def _reason(error: Exception) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else repr(error)


def open_outputs(spec: ShimSpec, fds: Sequence[int], pipes: Pipes, journal: Journal) -> Outputs:
    """What the run writes to, in the files that came with it; artifacts are read below the working directory."""
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
