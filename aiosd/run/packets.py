"""SOCK_SEQPACKET with descriptors on the asyncio loop, used by both ends of the launcher's protocol.

A packet arrives whole or not at all; a packet that is too large, or whose descriptors were cut off, is an error of the
peer and ends the connection.
"""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress
from dataclasses import dataclass

from aiosd.model.jsontext import JsonObject, JsonTextError, dump, parse_object

PACKET_MAX = 128 * 1024
"""Largest packet in bytes, both ways."""

_FDS_MAX = 8


class PacketError(Exception):
    """The peer sent what is not a packet of this protocol."""


@dataclass(frozen=True, slots=True)
class Packet:
    """One JSON object and the descriptors that came with it; they are the receiver's to close."""

    body: JsonObject
    fds: tuple[int, ...]

    def close(self) -> None:
        """Close the descriptors."""
        for fd in self.fds:
            with suppress(OSError):
                os.close(fd)


class PacketSocket:
    """One connected socket; one task receives, any task sends. An async context manager that closes it."""

    def __init__(self, sock: socket.socket) -> None:
        """`sock`: SOCK_SEQPACKET, connected; it becomes non-blocking and ours."""
        sock.settimeout(0)
        self._socket = sock
        self._sending = asyncio.Lock()
        self._waits: set[asyncio.Future[None]] = set()

    def close(self) -> None:
        """Close it; whoever waits on it gets ConnectionError."""
        for wait in self._waits:
            if not wait.done():
                wait.set_exception(ConnectionResetError("the connection is closed"))
        if self._socket.fileno() >= 0:
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._socket.fileno())
            loop.remove_writer(self._socket.fileno())
        self._socket.close()

    async def _ready(self, *, writable: bool) -> None:
        loop = asyncio.get_running_loop()
        wait: asyncio.Future[None] = loop.create_future()
        add, remove = (loop.add_writer, loop.remove_writer) if writable else (loop.add_reader, loop.remove_reader)
        # The number and not the socket: asyncio's selector formats what it does not know, which is two system calls.
        descriptor = self._socket.fileno()
        add(descriptor, lambda: None if wait.done() else wait.set_result(None))
        self._waits.add(wait)
        try:
            await wait
        finally:
            self._waits.discard(wait)
            if self._socket.fileno() >= 0:
                remove(descriptor)

    async def receive(self) -> Packet | None:
        """The next packet, None at the end. Raises PacketError, ConnectionError."""
        while True:
            try:
                flags = socket.MSG_CMSG_CLOEXEC
                data, fds, seen, _ = socket.recv_fds(self._socket, PACKET_MAX + 1, _FDS_MAX, flags)
            except BlockingIOError:
                await self._ready(writable=False)
                continue
            except OSError as error:
                raise ConnectionResetError(str(error)) from None
            if not data:
                return None
            packet = Packet({}, tuple(fds))
            if len(data) > PACKET_MAX or seen & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
                packet.close()
                raise PacketError("the packet is too large")
            try:
                return Packet(parse_object(data, limit=PACKET_MAX), packet.fds)
            except JsonTextError as error:
                packet.close()
                raise PacketError(str(error)) from None

    async def send(self, body: JsonObject, fds: tuple[int, ...] = ()) -> None:
        """Send one packet; the descriptors stay the caller's. Raises PacketError when too large, ConnectionError."""
        data = dump(body).encode()
        if len(data) > PACKET_MAX:
            raise PacketError(f"longer than {PACKET_MAX} bytes")
        await self.send_bytes(data, fds)

    async def send_bytes(self, data: bytes, fds: tuple[int, ...] = ()) -> None:
        """As `send`, of what is encoded already."""
        async with self._sending:
            while True:
                try:
                    socket.send_fds(self._socket, [data], list(fds), socket.MSG_NOSIGNAL)
                except BlockingIOError:
                    await self._ready(writable=True)
                except OSError as error:
                    raise ConnectionResetError(str(error)) from None
                else:
                    return
