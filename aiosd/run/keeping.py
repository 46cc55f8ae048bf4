"""The broker's duplicates of aiosd's ends of the control sockets, which outlive the broker.

They are here, and once more in a bag: a pair of connected sockets that the service manager keeps for us
(sd_pid_notify_with_fds(3), FDSTORE=1), in whose queue they travel (unix(7), SCM_RIGHTS) without ever arriving. What is
sent into it is the kernel's from then on, whoever dies. The manager could keep each of them instead, and does from an
orderly end on, for a launcher of before; but it forks a process for each descriptor that it lets go of, which costs it
as much as the scope of a short run.

The queue is first in, first out: what is over is taken out when it has come to the front. What still lives is sent
again before it is taken out, so that there is no moment without it; a launcher that dies in between leaves it twice.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiosd.run import notify
from aiosd.run.ancillary import SIZE, descriptors
from aiosd.run.syscalls import unread_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Self

    from aiosd.run.notify import Passed

BAG = "run-controls"
"""Name of both ends with the manager. To a launcher of before it is a run that is over, and it lets go of them."""

_SPACE = 8 << 20
"""Bytes of memory that the kernel may take for what is in the bag: some thousand runs (socket(7), SO_SNDBUFFORCE)."""

_SO_SNDBUFFORCE = 32

_SLACK = 16
"""Entries of runs that are over, beyond as many as there are of living ones, before the bag is put in order."""

_NAME_MAX = 128


class Bag:
    """Descriptors with names, in the queue of a socket pair. Nothing in here waits."""

    def __init__(self, sender: socket.socket, receiver: socket.socket) -> None:
        """The two ends; from now on ours."""
        self._sender = sender
        self._receiver = receiver
        self.count = 0
        for end in (sender, receiver):
            end.settimeout(0)
        with suppress(PermissionError):  # then it is full earlier
            sender.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, _SPACE)
        self._room = sender.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) // 2

    @classmethod
    def new(cls) -> Self:
        """An empty one, kept by the manager from now on."""
        sender, receiver = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        notify.unstore(BAG)
        notify.store(BAG, sender.fileno(), receiver.fileno())
        return cls(sender, receiver)

    @classmethod
    def of(cls, ends: Sequence[socket.socket], lives: Callable[[str], bool]) -> tuple[Self, dict[str, int]]:
        """The one that the manager has kept, and duplicates of what in it lives; a new one if there is none."""
        try:
            first, second = ends  # in any order; in an empty bag either may be the sender
            bag = cls(second, first) if _is_filled(first) else cls(first, second)
            return bag, bag._take(lives)
        except (OSError, ValueError):  # not the two ends of one pair
            for end in ends:
                end.close()
            return cls.new(), {}

    def close(self) -> None:
        """Let go of our ends."""
        self._sender.close()
        self._receiver.close()

    def put(self, name: str, fd: int) -> bool:
        """Put a duplicate in; False when it is half full, for the other half is what it takes to put it in order."""
        if unread_bytes(self._sender) > self._room:
            return False
        self._send(name, fd)
        return True

    def _send(self, name: str, fd: int) -> None:
        socket.send_fds(self._sender, [name.encode()], [fd])
        self.count += 1

    def _take(self, lives: Callable[[str], bool]) -> dict[str, int]:
        """Duplicates of what lives, by name; after that nothing else is in the bag, and nothing twice."""
        found: dict[str, int] = {}

        def stays(entry: _Entry) -> bool:
            if entry.name in found or not lives(entry.name):
                return False
            found[entry.name] = os.dup(entry.fd)
            return True

        self.sort_out(stays)
        return found

    def sort_out(self, stays: Callable[[_Entry], bool]) -> None:
        """Go round once; what does not stay is taken out."""
        mark = os.urandom(8).hex()
        self._sender.send(mark.encode())
        self.count = 0
        while (entry := _first(self._receiver)) is not None and entry.name != mark:
            with entry:
                if entry.fds and stays(entry):
                    self._send(entry.name, entry.fd)
                self._drop()
        self._drop()

    def _drop(self) -> None:
        """The first entry; with no room for its descriptor the kernel closes it."""
        self._receiver.recv(_NAME_MAX)


@dataclass(frozen=True, slots=True)
class _Entry:
    """The first one in the queue, with a duplicate of its descriptor. A mark has none."""

    name: str
    fds: tuple[int, ...]

    @property
    def fd(self) -> int:
        return self.fds[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for fd in self.fds:
            os.close(fd)


def _is_filled(receiver: socket.socket) -> bool:
    """Whether something is in the queue. Raises OSError when it is none."""
    try:
        receiver.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    return True


def _first(receiver: socket.socket) -> _Entry | None:
    """What is first, which stays there (recvmsg(2), MSG_PEEK)."""
    flags = socket.MSG_PEEK | socket.MSG_CMSG_CLOEXEC
    try:
        data, ancillary, _, _ = receiver.recvmsg(_NAME_MAX, socket.CMSG_SPACE(SIZE), flags)
    except BlockingIOError:
        return None
    return _Entry(data.decode(errors="replace"), descriptors(ancillary))


class Controls:
    """The sockets by run, for the time of a launcher."""

    def __init__(self, passed: Sequence[Passed], lives: Callable[[str], bool]) -> None:
        """What the manager has kept of those runs that live: in the bag, or each by itself."""
        ends = [socket.socket(fileno=item.fd) for item in passed if item.name == BAG]
        self._bag, self._fds = Bag.of(ends, lives)
        self._singly: set[str] = set()
        for item in passed:
            if item.name != BAG:
                self._adopt(item.name, item.fd, lives)

    def _adopt(self, run: str, fd: int, lives: Callable[[str], bool]) -> None:
        """One that the manager has kept by itself, and need not any more when the bag has it or the run is over."""
        if not lives(run) or run in self._fds:
            os.close(fd)
            if run not in self._singly:
                notify.unstore(run)
            return
        self._fds[run] = fd
        if self._bag.put(run, fd):
            notify.unstore(run)
        else:
            self._singly.add(run)

    def close(self) -> None:
        """An orderly end: each is with the manager from now on, where a launcher of before would look for it."""
        for run, fd in self._fds.items():
            if run not in self._singly:
                notify.store(run, fd)
            os.close(fd)
        self._fds.clear()
        self._bag.close()

    def keep(self, run: str, fd: int) -> None:
        """A duplicate of `fd`, to be had whatever becomes of this process."""
        self._fds[run] = os.dup(fd)
        if not self._bag.put(run, fd):
            notify.store(run, fd)
            self._singly.add(run)

    def duplicate(self, run: str) -> int | None:
        """Another descriptor, the caller's to close; None for a run without."""
        fd = self._fds.get(run)
        return None if fd is None else os.dup(fd)

    def forget(self, run: str) -> None:
        """The run is over."""
        fd = self._fds.pop(run, None)
        if fd is None:
            return
        os.close(fd)
        if run in self._singly:
            self._singly.remove(run)
            notify.unstore(run)
        if self._bag.count > 2 * len(self._fds) + _SLACK:
            self._bag.sort_out(lambda entry: entry.name in self._fds)
