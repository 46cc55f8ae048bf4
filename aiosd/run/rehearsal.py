"""What the fork server does once before it serves: everything that a shim does, on nothing, several times.

Standard library only. The interpreter rewrites its own instructions while it learns what they work on (PEP 659), fills
caches and grows its heap; done before the fork, that memory is shared by all shims instead of copied by each.
"""

from __future__ import annotations

import json
import os
import socket
from contextlib import suppress

from aiosd.run import exitrecord, seccomp
from aiosd.run.artifacts import BlobFile
from aiosd.run.cgroup import Scope
from aiosd.run.control import ControlSocket
from aiosd.run.conversation import Conversation
from aiosd.run.eventfile import EventFile
from aiosd.run.output import Journal, Stream
from aiosd.run.spec import ShimSpec, View, decode
from aiosd.run.stopping import Stopping
from aiosd.run.supervisor import Outputs
from aiosd.run.syscalls import Account

_TIMES = 20
"""More than the interpreter wants to see before it rewrites."""


def rehearse() -> None:
    """Do it. Touches nothing outside this process."""
    with suppress(OSError):  # no filter for this machine: each run is told
        for route_only in (False, True):
            seccomp.program(os.uname().machine, confined=True, route_only=route_only)
    for _ in range(_TIMES):
        _rehearse_spec()
        _rehearse_run()


def _rehearse_spec() -> None:
    view = View(
        confined=True,
        read_only=True,
        private_tmp=True,
        private_devices=True,
        private_ipc=True,
        private_network=True,
        route_sockets_only=False,
        hidden=(),
        home=None,
        home_writable=False,
        writable=(),
        scratch="/",
        scratch_max=None,
    )
    spec = ShimSpec(
        run="",
        task="",
        capability="",
        unit="-",
        argv=(),
        environment={},
        account=Account(0, 0, ()),
        keep_capabilities=False,
        view=view,
        open_files=None,
        log_max_bytes=1,
        blobs_max_bytes=1,
        grace_ms=0,
    )
    decode(spec.encode())


def _rehearse_run() -> None:
    files = [os.memfd_create("rehearsal") for _ in range(5)]
    pipes = [os.pipe(), os.pipe()]
    control, daemon = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours, program = socket.socketpair()
    journal = Journal({"AIOS_RUN_ID": ""}, path="/")
    try:
        streams = [
            Stream(name, pipe[0], fd, 9, journal)
            for name, pipe, fd in zip(("stdout", "stderr"), pipes, files[:2], strict=True)
        ]
        outputs = Outputs(streams[0], streams[1], EventFile(files[2]), BlobFile(files[3], 0, 1), Scope("-"))
        listener = ControlSocket(control)
        daemon.send(json.dumps({"type": "go", "id": 1, "arguments": {"a": [1]}, "attempt": 1}).encode())
        received = listener.receive()
        talk = Conversation(
            ours, outputs.events, outputs.blobs, lambda: listener.tell({"type": "poke"}), lambda _: None
        )
        talk.begin({} if received is None else received[1])
        program.sendall(b'{"type": "processing", "payload": {"progress": {"percent": 1}}}\n')
        program.close()
        talk.on_ready()
        talk.step()
        for stream, pipe in zip(streams, pipes, strict=True):
            os.write(pipe[1], b"a line\n")
            stream.drain()
        outputs.scope.locate()
        stopping = Stopping(outputs.scope)
        stopping.act(0.0)
        talk.finish()
        ending = exitrecord.Ending(0, None, stopping.outcome, oom_kill=False, duration_usec=1)
        exitrecord.write(files[4], "", ending, outputs)
        listener.tell({"type": "exited"}, always=True)
    finally:
        for sock in (control, daemon, ours, program):
            sock.close()
        for fd in (*files, *(end for pipe in pipes for end in pipe)):
            with suppress(OSError):
                os.close(fd)
        journal.close()
