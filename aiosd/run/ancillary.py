"""Descriptors that came with a packet (unix(7), SCM_RIGHTS). Standard library only: shims take theirs with it."""

from __future__ import annotations

import socket
from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

SIZE = array("i").itemsize
"""Bytes of one."""


def descriptors(ancillary: Iterable[tuple[int, int, bytes]]) -> tuple[int, ...]:
    """Those in what recvmsg(2) gave, the receiver's to close."""
    fds = array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % SIZE])
    return tuple(fds)
