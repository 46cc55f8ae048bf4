"""The service manager's side channels: readiness, and descriptors that outlive a restart (sd_notify(3))."""

from __future__ import annotations

import os
import socket
from functools import lru_cache

from aiosd.model.later import dataclass

_FIRST = 3


def notify(message: str, fds: tuple[int, ...] = ()) -> None:
    """Tell the manager; nothing happens without one. Never blocks for long: it is a datagram. Raises OSError."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    address = "\0" + address[1:] if address.startswith("@") else address
    try:
        socket.send_fds(_connected(address), [message.encode()], list(fds))
    except ConnectionError:  # the manager has made its socket anew
        _connected.cache_clear()
        socket.send_fds(_connected(address), [message.encode()], list(fds))


@lru_cache(maxsize=1)
def _connected(address: str) -> socket.socket:
    """Kept: the launcher stores a descriptor at each start, and forgets one at each end."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    sock.connect(address)
    return sock


def store(name: str, *fds: int) -> None:
    """Keep duplicates of descriptors with the manager, under `name`: all of them or none."""
    notify(f"FDSTORE=1\nFDNAME={name}", fds)


def unstore(name: str) -> None:
    """Forget every descriptor of that name."""
    notify(f"FDSTOREREMOVE=1\nFDNAME={name}")


@dataclass(frozen=True, slots=True)
class Passed:
    """A descriptor that the manager gave us, and the name that it has there."""

    fd: int
    name: str


def passed() -> list[Passed]:
    """What the manager passed to this process, sockets to listen on and stored descriptors; taken once."""
    if os.environ.pop("LISTEN_PID", "") != str(os.getpid()):
        return []
    count = int(os.environ.pop("LISTEN_FDS", "0"))
    names = os.environ.pop("LISTEN_FDNAMES", "").split(":")
    found = [Passed(_FIRST + number, names[number] if number < len(names) else "") for number in range(count)]
    for item in found:
        os.set_inheritable(item.fd, False)  # noqa: FBT003 - no keyword
    return found
