"""SOCK_SEQPACKET with descriptors on the asyncio loop, used by both ends of the launcher's protocol.

A packet arrives whole or not at all; a packet that is too large, or whose descriptors were cut off, is an error of the
peer and ends the connection.
"""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

from aiosd.model.jsontext import JsonObject, JsonTextError, dump, parse_object
from aiosd.model.later import dataclass
from aiosd.run.ancillary import SIZE, descriptors

if TYPE_CHECKING:
    from collections.abc import Callable

PACKET_MAX = 128 * 1024
"""Largest packet in bytes, both ways."""

_RECEIVE = int(socket.MSG_CMSG_CLOEXEC | socket.MSG_DONTWAIT)
_SEND = int(socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT)
"""As numbers: to combine flags of an enum takes longer than the system call."""

_FDS_MAX = 8
_ANCILLARY = socket.CMSG_LEN(_FDS_MAX * SIZE)
_BUFFER = memoryview(bytearray(PACKET_MAX + 1))
"""Where every packet arrives; it is parsed before the next one is taken."""


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
    """One connected socket; one task receives or one function listens, any task sends. Whoever made it closes it.

    The loop watches the socket from the first `receive` on and reads in its own callback: a packet costs one system
    call, not four.
    """

    def __init__(self, sock: socket.socket) -> None:
        """`sock`: SOCK_SEQPACKET, connected; it becomes ours."""
        self._socket = sock
        self._sending = asyncio.Lock()
        self._receiver: asyncio.Future[Packet | None] | None = None
        self._hear: Callable[[Packet | None], bool] | None = None
        self._watched = False
        self._writable: asyncio.Future[None] | None = None

    def close(self) -> None:
        """Close it; whoever waits on it gets ConnectionError."""
        for wait in (self._receiver, self._writable):
            if wait is not None and not wait.done():
                wait.set_exception(ConnectionResetError("the connection is closed"))
        if self._socket.fileno() >= 0:
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._socket.fileno())
            if self._writable is not None:
                loop.remove_writer(self._socket.fileno())
        self._socket.close()

    async def receive(self) -> Packet | None:
        """The next packet, None at the end. Raises PacketError, ConnectionError."""
        if self._socket.fileno() < 0:
            raise ConnectionResetError("the connection is closed")
        loop = asyncio.get_running_loop()
        receiver: asyncio.Future[Packet | None] = loop.create_future()
        self._receiver = receiver
        if not self._watched:
            self._watched = True
            loop.add_reader(self._socket, self._on_readable)
        try:
            return await receiver
        except asyncio.CancelledError:
            if receiver.done() and not receiver.cancelled() and receiver.exception() is None:
                unread = receiver.result()
                if unread is not None:
                    unread.close()
            raise
        finally:
            self._receiver = None

    def listen(self, hear: Callable[[Packet | None], bool]) -> None:
        """Instead of `receive`, from now on: `hear` is called on the loop with each packet, and at last with None,
        however the connection ended. It says whether it wants to hear more. After `close` nobody calls it.
        """
        self._hear = hear
        asyncio.get_running_loop().add_reader(self._socket, self._on_heard)

    def _on_heard(self) -> None:
        packet: Packet | None = None
        with suppress(ConnectionError, PacketError):
            try:
                packet = self._take()
            except BlockingIOError:
                return
        wanted = self._hear is not None and self._hear(packet)
        if (packet is None or not wanted) and self._socket.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._socket)

    def _on_readable(self) -> None:
        receiver = self._receiver
        if receiver is None or receiver.done():
            self._watched = False  # nobody asks at present: the loop is not to come back for it again and again
            asyncio.get_running_loop().remove_reader(self._socket)
            return
        try:
            receiver.set_result(self._take())
        except BlockingIOError:
            return
        except (ConnectionError, PacketError) as error:
            receiver.set_exception(error)

    def _take(self) -> Packet | None:
        try:
            size, ancillary, seen, _ = self._socket.recvmsg_into([_BUFFER], _ANCILLARY, _RECEIVE)
        except BlockingIOError:
            raise
        except OSError as error:
            raise ConnectionResetError(str(error)) from None
        if not size:
            return None
        packet = Packet({}, descriptors(ancillary))
        if size > PACKET_MAX or seen & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
            packet.close()
            raise PacketError("the packet is too large")
        try:
            return Packet(parse_object(bytes(_BUFFER[:size]), limit=PACKET_MAX), packet.fds)
        except JsonTextError as error:
            packet.close()
            raise PacketError(str(error)) from None

    async def _until_writable(self) -> None:
        loop = asyncio.get_running_loop()
        wait = self._writable = loop.create_future()
        loop.add_writer(self._socket, lambda: None if wait.done() else wait.set_result(None))
        try:
            await wait
        finally:
            self._writable = None
            if self._socket.fileno() >= 0:
                loop.remove_writer(self._socket)

    async def send(self, body: JsonObject, fds: tuple[int, ...] = ()) -> None:
        """Send one packet; the descriptors stay the caller's. Raises PacketError when too large, ConnectionError."""
        data = dump(body).encode()
        if len(data) > PACKET_MAX:
            raise PacketError(f"longer than {PACKET_MAX} bytes")
        await self.send_bytes(data, fds)

    async def send_bytes(self, data: bytes | bytearray, fds: tuple[int, ...] = ()) -> None:
        """As `send`, of what is encoded already."""
        async with self._sending:
            while True:
                try:
                    if fds:
                        socket.send_fds(self._socket, [data], list(fds), _SEND)
                    else:
                        self._socket.send(data, _SEND)
                except BlockingIOError:
                    await self._until_writable()
                except OSError as error:
                    raise ConnectionResetError(str(error)) from None
                else:
                    return
