"""The fork server: a small warm process that forks shims for the broker, one for each packet that it gets.

The broker keeps what it is given as spares (`forkclient.py`) and talks to them itself: this process, which shares its
memory with every shim, copies what it touches between two forks, so it touches little. A spare has done all that does
not depend on the run; it ends when its socket is closed. Standard library only, one thread, nothing imported after the
start: a shim shares all of this process's memory. The less there is of that the less each fork and each end of a
process costs; so what a shim imports does without pathlib and dataclasses (which brings inspect, ast and dis), and has
NamedTuples where the rest of the project has those. It is executed by the broker before the broker grows, trusts the
broker alone (an unnamed socket pair), and ends with it. Each answer is `{"pid"}` with the spare's socket and pidfd, or
`{"error"}`.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
from typing import TYPE_CHECKING

from aiosd.run import shim, syscalls
from aiosd.run.immortal import make_immortal
from aiosd.run.rehearsal import rehearse

if TYPE_CHECKING:
    from typing import NoReturn


_UNREHEARSED = "unrehearsed"

_FIRST_KEPT = 64
"""Where descriptors are that the shims do not get; the first is theirs."""


def main() -> None:
    """`aios-forkserver FD [unrehearsed]`: serve the socket with that number until it is closed."""
    ours = _arrange_descriptors(int(sys.argv[1]))
    if _UNREHEARSED not in sys.argv:
        _rehearse(ours)
    syscalls.set_command_line("aios-forkserver")
    # Nobody waits for a shim: its exit record tells of its end, and its pidfd that it is gone. The terminal's signals
    # are nothing to it.
    for number in (signal.SIGCHLD, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    # A collection would touch, and so copy, what a shim shares with us; a shim is too short a program to need one.
    gc.collect()
    make_immortal()
    gc.freeze()
    gc.disable()
    with socket.socket(fileno=ours) as sock:
        while sock.recv(1):
            _serve_one(sock)


def _rehearse(fd: int) -> None:
    """A rehearsal that does not end must not keep runs from starting: then all over, without one."""
    try:
        rehearse()
    except TimeoutError as error:
        print(f"{error}; shims will be larger and slower", file=sys.stderr, flush=True)
        kept = os.dup2(fd, _FIRST_KEPT + 1)
        os.execv(sys.executable, [*sys.orig_argv[:-1], str(kept), _UNREHEARSED])  # noqa: S606 - itself, no shell


def _arrange_descriptors(fd: int) -> int:
    """What every shim would have to do: the low numbers are the null device's, the socket is out of the way."""
    ours = os.dup2(fd, _FIRST_KEPT, inheritable=False)
    with open(os.devnull, "r+b", buffering=0) as null:
        for number in (0, 1):
            os.dup2(null.fileno(), number)
    for number in range(3, shim.RESERVED):
        os.dup2(0, number, inheritable=False)
    return ours


def _serve_one(sock: socket.socket) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        try:
            pid = os.fork()
            if pid == 0:
                _be_shim(theirs.detach())
            pidfd = os.pidfd_open(pid)
        except OSError as error:
            sock.send(json.dumps({"error": str(error)}).encode())
            return
        socket.send_fds(sock, [b'{"pid":%d}' % pid], [ours.fileno(), pidfd])
        os.close(pidfd)


def _be_shim(fd: int) -> NoReturn:
    status = 1
    try:
        shim.wait(_only_this(fd))
        status = 0
    except BaseException as error:  # noqa: BLE001 - it must not come back into the server's loop, whatever happens
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        os._exit(status)


def _only_this(fd: int) -> int:
    """Close everything else but standard error, where the launcher's own journal stream is; returns the new number."""
    kept = os.dup2(fd, _FIRST_KEPT, inheritable=False)
    os.closerange(shim.RESERVED, _FIRST_KEPT)
    os.closerange(_FIRST_KEPT + 1, 65536)
    return kept


if __name__ == "__main__":
    main()
