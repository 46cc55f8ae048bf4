"""The fork server: a small warm process that has the next shim ready.

A spare shim has done all that does not depend on the run; it is handed the spec and the descriptors of the next one,
and while nobody asks, another spare is forked. A spare ends with this process, whose end of their socket it hears.
Standard library only, one thread, nothing imported after the start: a shim shares all of this process's memory. The
less there is of that the less each fork and each end of a process costs; so what a shim imports does without pathlib
and dataclasses (which brings inspect, ast and dis), and has NamedTuples where the rest of the project has those. It is
executed by the broker before the broker grows, trusts the broker alone (an unnamed socket pair), and ends with it.
Each packet is one spec with the descriptors of `spec.Descriptor`; each answer is `{"run", "pid"}` with a pidfd, or
`{"run", "error"}`.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import sys
from typing import NamedTuple

from aiosd.run import shim, syscalls
from aiosd.run.rehearsal import rehearse
from aiosd.run.spec import SPEC_MAX, Descriptor, decode

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
        spare: _Spare | None = None
        while True:
            if spare is None and not select.select([sock], [], [], 0)[0]:
                spare = _fork_quietly()
            if not _serve_one(sock, spare):
                return
            spare = None


class _Spare(NamedTuple):
    """A shim that waits for its run at the other end of the socket."""

    pid: int
    socket: socket.socket


def _serve_one(sock: socket.socket, spare: _Spare | None) -> bool:
    data, fds, flags, _ = socket.recv_fds(sock, SPEC_MAX + 1, _FDS, socket.MSG_CMSG_CLOEXEC)
    if not data:
        return False
    try:
        spec = decode(data)
        if len(fds) != _FDS or flags & (socket.MSG_CTRUNC | socket.MSG_TRUNC):
            raise ValueError(f"{len(fds)} descriptors instead of {_FDS}")
        pid = _hand_over(data, fds, spare)
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


def _hand_over(data: bytes, fds: list[int], spare: _Spare | None) -> int:
    """Give a run to the spare shim, or to a new one when there is none or it has died. Returns the shim's pid."""
    for shim_process in (spare, None):
        chosen = shim_process or _fork_shim()
        with chosen.socket:
            try:
                socket.send_fds(chosen.socket, [data], fds)
            except (BrokenPipeError, ConnectionResetError):
                if shim_process is None:
                    raise
                continue
        return chosen.pid
    raise ChildProcessError("the shim died")


def _fork_quietly() -> _Spare | None:
    """A spare; not having one is no failure, the request that needs it will tell."""
    try:
        return _fork_shim()
    except OSError:
        return None


def _fork_shim() -> _Spare:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        try:
            pid = os.fork()
        except OSError:
            ours.close()
            raise
        if pid:
            return _Spare(pid, ours)
        status = 1
        try:
            shim.wait(_only_this(theirs.detach()))
            status = 0
        except BaseException as error:  # noqa: BLE001 - it must not come back into the server's loop, whatever happens
            sys.excepthook(type(error), error, error.__traceback__)
        finally:
            os._exit(status)


def _only_this(fd: int) -> int:
    """Close everything else but standard error, where the launcher's own journal stream is; returns the new number."""
    kept = os.dup2(fd, 64, inheritable=False)
    for number, mode in enumerate((os.O_RDONLY, os.O_WRONLY)):
        os.dup2(os.open(os.devnull, mode | os.O_CLOEXEC), number)
    os.closerange(3, 64)
    os.closerange(65, 65536)
    return kept


if __name__ == "__main__":
    main()
