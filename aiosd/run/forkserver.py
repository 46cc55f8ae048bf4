"""The fork server: a small warm process that forks a shim in under a millisecond.

Standard library only, one thread, nothing imported after the start: a shim shares all of this process's memory. It is
executed by the broker before the broker grows, trusts the broker alone (an unnamed socket pair), and ends with it.
Each packet is one spec with the descriptors of `spec.Descriptor`; each answer is `{"run", "pid"}` with a pidfd, or
`{"run", "error"}`.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
import traceback

from aiosd.run import shim, syscalls
from aiosd.run.rehearsal import rehearse
from aiosd.run.spec import Descriptor, ShimSpec, decode

SPEC_MAX = 192 * 1024
"""Largest spec in bytes."""

_FDS = len(Descriptor)


def main() -> None:
    """`aios-forkserver FD`: serve the socket with that number until it is closed."""
    syscalls.set_name("aios-forkserver")
    # Nobody waits for a shim: its exit record tells of its end, and its pidfd that it is gone.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    rehearse()
    # A collection would touch, and so copy, what a shim shares with us; a shim is too short a program to need one.
    gc.collect()
    gc.freeze()
    gc.disable()
    with socket.socket(fileno=int(sys.argv[1])) as sock:
        while _serve_one(sock):
            pass


def _serve_one(sock: socket.socket) -> bool:
    data, fds, flags, _ = socket.recv_fds(sock, SPEC_MAX + 1, _FDS, socket.MSG_CMSG_CLOEXEC)
    if not data:
        return False
    try:
        spec = decode(data)
        if len(fds) != _FDS or flags & (socket.MSG_CTRUNC | socket.MSG_TRUNC):
            raise ValueError(f"{len(fds)} descriptors instead of {_FDS}")
        pid = _fork_shim(spec, fds)
        pidfd = os.pidfd_open(pid)
    except (OSError, ValueError) as error:
        answer = {"run": _run_of(data), "error": str(error)}
        socket.send_fds(sock, [json.dumps(answer).encode()], [])
    else:
        socket.send_fds(sock, [json.dumps({"run": spec.run, "pid": pid}).encode()], [pidfd])
        os.close(pidfd)
    finally:
        for fd in fds:
            os.close(fd)
    return True


def _run_of(data: bytes) -> str:
    try:
        return str(json.loads(data)["run"])
    except (ValueError, KeyError, TypeError):
        return ""


def _fork_shim(spec: ShimSpec, fds: list[int]) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        shim.run(spec, _only_these(fds))
        status = 0
    except BaseException:  # noqa: BLE001 - the shim must not come back into the server's loop, whatever happens
        traceback.print_exc()
    finally:
        os._exit(status)


def _only_these(fds: list[int]) -> list[int]:
    """Close everything else but standard error, where the launcher's own journal stream is; returns the new numbers."""
    high = [os.dup2(fd, 64 + number, inheritable=False) for number, fd in enumerate(fds)]
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.closerange(3, 64)
    os.closerange(64 + len(fds), 65536)
    return high


if __name__ == "__main__":
    main()
