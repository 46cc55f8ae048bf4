"""What the fork server does once before it serves: whole runs of a small program, from the spec to the exit record.

Standard library only. The interpreter rewrites its own instructions while it learns what they work on (PEP 659), fills
caches and grows its heap; done before the fork, that memory is shared by all shims instead of copied by each, and a
shim runs what has been learnt. Namespaces, descriptors, walls and lost capabilities are a thread's (unshare(2),
landlock(7), seccomp(2), capabilities(7)), so each run is rehearsed in a thread, and is gone with it. Left out is what
is the whole process's: its users, its resource limits, its score for the OOM killer.
"""

from __future__ import annotations

import _thread
import gc
import json
import os
import socket
import time
from contextlib import suppress

from aiosd.run import sandbox, seccomp, shim, syscalls
from aiosd.run.output import Journal
from aiosd.run.program import Pipes
from aiosd.run.spec import Descriptor, ShimSpec, View, decode
from aiosd.run.supervisor import Program, Wakeup
from aiosd.run.syscalls import Account

_TIMES = 10
"""More than the interpreter wants to see before it rewrites."""

_ALONE = 3
"""Links of /proc/self/task with one thread: itself, its "." and the thread (proc_pid_task(5))."""

_SECONDS = 30.0
_LOOK_AGAIN = 0.001

_SCRATCH = "/tmp"  # noqa: S108 - a file system of its own is there by then
_TALK = """echo a line; echo '{"type": "processing", "payload": {"progress": {"percent": 1}}}' >&3"""


def rehearse() -> None:
    """Do it. Touches nothing outside this process, and leaves of it what it was. Raises TimeoutError."""
    with suppress(OSError):  # no filter for this machine: each run is told
        for route_only, no_network in ((False, False), (False, True), (True, False)):
            seccomp.program(os.uname().machine, confined=True, route_only=route_only, no_network=no_network)
    wakeup = Wakeup()
    try:
        for _ in range(_TIMES):
            _thread.start_new_thread(_rehearse, (wakeup,))
            _wait_alone()
    finally:
        wakeup.close()


def _wait_alone() -> None:
    """Until this is the only thread again: a process is forked with one."""
    end = time.monotonic() + _SECONDS
    while os.stat("/proc/self/task").st_nlink > _ALONE:
        if time.monotonic() > end:
            raise TimeoutError("the rehearsal of a run does not end")
        time.sleep(_LOOK_AGAIN)


def _rehearse(wakeup: Wakeup) -> None:
    with suppress(OSError):  # where namespaces may not be made: each run is told
        syscalls.unshare(syscalls.CLONE_FILES)
        try:
            _run(decode(_spec().encode()), wakeup)
        finally:
            gc.collect()  # what closes descriptors does it here, where they are


def _run(spec: ShimSpec, wakeup: Wakeup) -> None:
    sandbox.enter_namespaces(spec)
    os.chdir(_SCRATCH)
    held = syscalls.permitted_capabilities()
    syscalls.empty_bounding_set()
    syscalls.set_capabilities(held, effective=held)
    syscalls.set_no_new_privileges()
    shim.build_walls(spec.view)
    pipes = Pipes()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    fds = [theirs.detach(), *(os.memfd_create("rehearsal") for _ in range(len(Descriptor) - 1))]
    outputs = shim.open_outputs(spec, fds, pipes, Journal({"AIOS_RUN_ID": ""}, path="/"))
    with ours:
        ours.send(json.dumps({"type": "go", "id": 1, "arguments": {"a": [1]}, "attempt": 1}).encode())
        program = Program(pipes.shim_socket, lambda attempt: pipes.execute(spec, attempt), None)
        shim.supervise(spec, fds, program, outputs, wakeup)


def _spec() -> ShimSpec:
    """Of a run from which everything is taken that a view can take."""
    view = View(
        confined=True,
        read_only=True,
        private_tmp=True,
        private_devices=True,
        private_ipc=True,
        private_network=True,
        route_sockets_only=False,
        hidden=("/home", "/root"),
        home=None,
        home_writable=False,
        writable=(),
        scratch=_SCRATCH,
        scratch_max=1 << 20,
    )
    return ShimSpec(
        run="",
        task="",
        capability="",
        unit="-",
        argv=("/bin/sh", "-c", _TALK),
        environment={"AIOS_ARGUMENTS": f"{_SCRATCH}/arguments"},
        account=Account(0, 0, ()),
        keep_capabilities=False,
        view=view,
        open_files=None,
        log_max_bytes=1 << 10,
        blobs_max_bytes=1,
        grace_ms=1000,
    )
