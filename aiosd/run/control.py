"""The shim's end of the control socket: what aiosd asks for, and the pokes that go back up.

Standard library only. Each packet upwards also means "look at the files", so while one is unread no other is needed.
"""

from __future__ import annotations

import errno
import socket
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from enum import StrEnum

from aiosd.model.jsontext import JsonObject, JsonTextError, JsonValue, dump, parse_value
from aiosd.run import syscalls

PACKET_MAX = 128 * 1024
"""Largest packet in bytes."""

_REMEMBERED = 4096


class ControlType(StrEnum):
    """What aiosd can say to a shim."""

    CONTEXT = "context"
    GO = "go"
    INPUT = "input"
    AUTHENTICATION = "authentication"
    PAUSE = "pause"
    RESUME = "resume"
    CAN_PAUSE = "can_pause"
    CAN_CANCEL = "can_cancel"
    CANCEL = "cancel"


class ControlSocket:
    """Messages from aiosd, each id once."""

    def __init__(self, sock: socket.socket) -> None:
        """`sock`: the shim's end, SOCK_SEQPACKET."""
        sock.settimeout(0)
        self.sock = sock
        self.open = True
        self._seen: OrderedDict[str, None] = OrderedDict()

    def receive(self) -> tuple[ControlType, JsonObject] | None:
        """The next message, or None when there is none that is new and understood; `open` tells of the end."""
        try:
            packet = self.sock.recv(PACKET_MAX + 1)
        except BlockingIOError:
            return None
        except OSError:
            packet = b""
        if not packet:
            self.open = False
            return None
        try:
            message = parse_value(packet, limit=PACKET_MAX)
        except JsonTextError:
            return None
        if not isinstance(message, Mapping) or not self._is_new(message.get("id")):
            return None
        kind = message.get("type")
        return (ControlType(kind), message) if isinstance(kind, str) and kind in list(ControlType) else None

    def _is_new(self, identifier: JsonValue) -> bool:
        if identifier is None:
            return True
        key = dump(identifier)
        if key in self._seen:
            return False
        self._seen[key] = None
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        return True

    def tell(self, message: JsonObject, *, always: bool = False) -> None:
        """Send upwards, unless an earlier packet is still unread. Never blocks; a lost packet is found in the files."""
        if not self.open:
            return
        with suppress(OSError):
            if always or syscalls.unread_bytes(self.sock) == 0:
                self._send(dump(message).encode())

    def _send(self, packet: bytes) -> None:
        try:
            self.sock.send(packet, socket.MSG_NOSIGNAL)
        except OSError as error:
            if error.errno in (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN):
                self.open = False
