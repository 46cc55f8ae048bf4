"""The system bus: the only module that imports the D-Bus library (dbus-fast, 2.44 to 5.x), and what it must not show.

Low-level messages only. `SystemBus` calls (`call`), listens (`on_signal`), answers (`serve`, `send_reply`,
`send_error`) and emits (`send_signal`); the library's service and proxy classes stay unused, because with them a method
cannot see its sender. Three faults of the library are mended here, each with a test that fails without the cure:
- a full socket (EAGAIN) ends its connection: `_PatientWriter` keeps the rest and waits, up to a bound;
- descriptors received with a message nobody handles leak: they are closed when the handler returns;
- 2.44 keeps every signature that it ever met: the cache is emptied when it has grown large.

Light to import on purpose: `aiosctl` pays for it at every start.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import logging
import os
import socket
from typing import TYPE_CHECKING

from dbus_fast import AuthError, DBusError, InvalidAddressError, Message, MessageFlag, MessageType, Variant
from dbus_fast.aio.message_bus import MessageBus, _MessageWriter
from dbus_fast.signature import get_signature_tree

from aiosd.bus.message import Answer, BusCallError, Call, MessageTooLargeError, MethodCall, Signal, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType
    from typing import Self

    from aiosd.bus.message import BusValue

__all__ = [
    "Answer", "BusCallError", "Call", "MessageTooLargeError", "MethodCall", "Signal", "SystemBus", "Variant", "plain",
]  # fmt: skip

DEFAULT_ADDRESS = "unix:path=/run/dbus/system_bus_socket"
CONNECT_TIMEOUT = 25.0
MAX_MESSAGE_BYTES = 16 * 1024 * 1024
"""Largest message that is sent: the system bus ends the connection of who sends more than 32 MiB (dbus-daemon(1))."""
MAX_QUEUED_BYTES = 64 * 1024 * 1024
"""Bytes waiting for a bus that does not read; beyond it the connection is closed, and the daemon starts afresh."""
TOGETHER_BYTES = 32 * 1024
"""Messages of one turn of the loop are written together up to about this size."""
MAX_SIGNATURES = 1024
"""Parsed signatures that the library may keep."""

DBUS = "org.freedesktop.DBus"
DBUS_PATH = "/org/freedesktop/DBus"
DISCONNECTED = "org.freedesktop.DBus.Error.Disconnected"
NO_REPLY = "org.freedesktop.DBus.Error.NoReply"
_DO_NOT_QUEUE = 4
_NO_REPLY_EXPECTED = MessageFlag.NO_REPLY_EXPECTED.value
_INTERACTIVE = MessageFlag.ALLOW_INTERACTIVE_AUTHORIZATION.value
_PRIMARY_OWNER = (1, 4)

_log = logging.getLogger(__name__)


def _close_all(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)


class _PatientWriter(_MessageWriter):
    """The library's writer, which waits when the socket is full, owns its descriptors and has a bound.

    `limit` in bytes. Replaces private parts of the library, so tests/bus/test_writer.py holds it to both versions.
    """

    def __init__(self, bus: MessageBus, limit: int) -> None:
        super().__init__(bus)
        if bus._sock is None or bus._fd is None:
            raise ValueError("the bus is not connected")
        self.socket, self.descriptor = bus._sock, bus._fd
        self.limit = limit
        self.queued = self.taken = 0
        self.drained = asyncio.Event()
        self._waiting = False
        self._soon = False

    def buffer_message(self, msg: Message, future: asyncio.Future[None] | None = None) -> None:
        """Marshal and queue; descriptors are duplicated, so that the sender may close its own at once. Raises
        MessageTooLargeError."""
        data = msg._marshall(self.negotiate_unix_fd)
        if len(data) > MAX_MESSAGE_BYTES:
            raise MessageTooLargeError(len(data))
        fds: list[int] = []
        try:
            fds.extend(os.dup(descriptor) for descriptor in msg.unix_fds)
        except OSError:
            _close_all(fds)
            raise
        self.messages.append((data, fds or None, future))
        self.queued += len(data)
        self.drained.clear()

    def schedule_write(self, msg: Message | None = None, future: asyncio.Future[None] | None = None) -> None:
        """Queue `msg`; what is queued in one turn of the loop is written together at its end."""
        if msg is not None:
            self.buffer_message(msg, future)
        if self.queued > self.limit:
            self.bus._finalize(OSError(f"the bus does not read: {self.queued} bytes are waiting"))
        elif self.bus.unique_name and not (self._waiting or self._soon):
            self._soon = True
            self.loop.call_soon(self.write_callback)

    def write_callback(self, remove_writer: bool = True) -> None:  # noqa: FBT001, FBT002 - the library's signature
        """Write until there is nothing left or the socket is full; then wait for it."""
        del remove_writer
        self._soon = False
        try:
            while self.buf is not None or self._next():
                self._send_some()
        except BlockingIOError:
            self._wait()
        except OSError as error:
            self.bus._finalize(error)
        else:
            self._rest()

    def _next(self) -> bool:
        """The next message, with those behind it that bring no descriptors and wait for nobody: one write for all."""
        if not self.messages:
            return False
        data, self.unix_fds, self.fut = self.messages.popleft()
        if self.unix_fds is None and self.fut is None:
            while self.messages and len(data) < TOGETHER_BYTES and self.messages[0][1:] == (None, None):
                data += self.messages.popleft()[0]
        self.buf, self.offset = memoryview(data), 0
        return True

    def _send_some(self) -> None:
        assert self.buf is not None  # noqa: S101 - write_callback's condition, for the type checker
        rest = self.buf[self.offset :]
        if self.unix_fds:
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", self.unix_fds))
            sent = self.socket.sendmsg([rest], [rights])
            _close_all(self.unix_fds)
            self.unix_fds = None
        else:
            sent = self.socket.send(rest)
        self.offset, self.taken = self.offset + sent, self.taken + sent
        if self.offset >= len(self.buf):
            self.queued -= len(self.buf)
            self.buf = None
            if self.fut is not None and not self.fut.done():
                self.fut.set_result(None)

    def _wait(self) -> None:
        if not self._waiting:
            self._waiting = True
            self.loop.add_writer(self.descriptor, self.write_callback)

    def _rest(self) -> None:
        if self._waiting:
            self._waiting = False
            self.loop.remove_writer(self.descriptor)
        self.drained.set()

    def discard(self) -> None:
        """Forget what is queued and close its descriptors: the connection is gone."""
        _close_all(self.unix_fds or ())
        for _, descriptors, _ in self.messages:
            _close_all(descriptors or ())
        self.messages.clear()
        self.buf, self.unix_fds = None, None
        self.drained.set()


class SystemBus:
    """One connection to the system bus; an async context manager.

    `closed` is set when the connection has ended, whoever ended it: a daemon then exits (its service manager starts it
    again), because names, matches and subscriptions are gone with the connection.
    """

    def __init__(self, address: str | None = None, *, max_queued_bytes: int = MAX_QUEUED_BYTES) -> None:
        """`address`: a D-Bus address; else $DBUS_SYSTEM_BUS_ADDRESS, else the well-known socket."""
        self._address = address or os.environ.get("DBUS_SYSTEM_BUS_ADDRESS") or DEFAULT_ADDRESS
        self._limit = max_queued_bytes
        self._pending: dict[int, asyncio.Future[Answer]] = {}
        self._listeners: list[Callable[[Signal], None]] = []
        self._handler: Callable[[MethodCall], None] | None = None
        self.closed = asyncio.Event()
        self.unique_name = ""

    async def __aenter__(self) -> Self:
        """Connect, authenticate and say hello. Raises ConnectionError when there is no bus to talk to."""
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                self._bus = MessageBus(bus_address=self._address, negotiate_unix_fd=True)
                self._bus.add_message_handler(self._on_message)
                await self._bus.connect()
        except (OSError, AuthError, DBusError, InvalidAddressError, TimeoutError) as error:
            raise ConnectionError(f"no D-Bus system bus at {self._address}: {error}") from error
        writer = _PatientWriter(self._bus, self._limit)
        writer.loop.remove_writer(writer.descriptor)
        self._writer = self._bus._writer = writer
        self.unique_name = self._bus.unique_name or ""
        self._watch = asyncio.create_task(self._bus.wait_for_disconnect())  # type: ignore[no-untyped-call]  # the library's
        self._watch.add_done_callback(self._on_closed)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Send what is queued (at most a second), then leave the bus."""
        await self.flush(1.0)
        if not self.closed.is_set():
            self._bus.disconnect()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.closed.wait(), 1.0)
        self._watch.cancel()
        await asyncio.gather(self._watch, return_exceptions=True)

    def backlog(self) -> tuple[int, int]:
        """Bytes that wait for the bus to read them, and bytes that it has read."""
        return self._writer.queued, self._writer.taken

    def give_up(self) -> None:
        """End the connection at once."""
        self._bus._finalize(OSError("given up"))

    async def flush(self, seconds: float) -> None:
        """Wait until everything queued is with the bus, at most `seconds`."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._writer.drained.wait(), seconds)

    async def call(self, call: Call) -> Answer:
        """Call a method and wait for its answer. Raises BusCallError: the peer's error, or NoReply, or Disconnected.

        When it is cancelled or times out, a late answer is dropped and its descriptors are closed.
        """
        flags = MessageFlag.ALLOW_INTERACTIVE_AUTHORIZATION if call.allow_interactive else MessageFlag.NONE
        message = Message(
            destination=call.destination, path=call.path, interface=call.interface, member=call.member, flags=flags,
            signature=call.signature, body=list(call.body), unix_fds=list(call.fds), serial=self._bus.next_serial(),
        )  # fmt: skip
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._pending[message.serial] = future
        try:
            if not self._send(message):
                raise BusCallError(DISCONNECTED, "the connection to the bus is closed")
            async with asyncio.timeout(call.timeout):
                return await future
        except TimeoutError:
            raise BusCallError(NO_REPLY, f"{call.interface}.{call.member}: no answer in {call.timeout} s") from None
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                _close_all(future.result().fds)
            raise
        finally:
            del self._pending[message.serial]

    async def request_name(self, name: str) -> bool:
        """Own `name` now, or not at all (never queued for it). Returns whether it is ours."""
        answer = await self.call(Call(DBUS, DBUS_PATH, DBUS, "RequestName", "su", (name, _DO_NOT_QUEUE)))
        return answer.number() in _PRIMARY_OWNER

    async def add_match(self, rule: str) -> None:
        """Ask the bus for the signals of a match rule (D-Bus specification, "Match Rules")."""
        await self.call(Call(DBUS, DBUS_PATH, DBUS, "AddMatch", "s", (rule,)))

    async def remove_match(self, rule: str) -> None:
        """Give a match rule back."""
        await self.call(Call(DBUS, DBUS_PATH, DBUS, "RemoveMatch", "s", (rule,)))

    def on_signal(self, listener: Callable[[Signal], None]) -> Callable[[], None]:
        """Call `listener` with each signal that arrives, on the loop. Returns what takes it off again."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def serve(self, handler: Callable[[MethodCall], None]) -> None:
        """Give every method call to `handler`, on the loop; it answers by `send_reply` or `send_error` in time."""
        self._handler = handler

    def send_reply(
        self, call: MethodCall, signature: str = "", body: tuple[BusValue, ...] = (), fds: tuple[int, ...] = ()
    ) -> None:
        """Answer a call, if it wants that. `fds` stay the caller's to close, at once if it likes. Raises
        MessageTooLargeError, and then the call still waits for an answer."""
        if call.expects_reply:
            self._send(
                Message(
                    message_type=MessageType.METHOD_RETURN, reply_serial=call.serial, destination=call.sender,
                    signature=signature, body=list(body), unix_fds=list(fds),
                )
            )  # fmt: skip

    def send_error(self, call: MethodCall, name: str, message: str, details: str | None = None) -> None:
        """Refuse a call. `details`: a second string for programs, left out when None."""
        if call.expects_reply:
            body = [plain(message)] if details is None else [plain(message), plain(details)]
            self._send(
                Message(
                    message_type=MessageType.ERROR, error_name=name, reply_serial=call.serial, destination=call.sender,
                    signature="s" * len(body), body=body,
                )
            )  # fmt: skip

    def send_signal(
        self, path: str, interface: str, member: str, signature: str = "", body: tuple[BusValue, ...] = (), *,
        destination: str | None = None,
    ) -> None:  # fmt: skip
        """Emit a signal: to everybody whose match rules want it, or only to `destination`. One that is too large is
        left out."""
        message = Message(
            message_type=MessageType.SIGNAL, path=path, interface=interface, member=member, signature=signature,
            body=list(body), destination=destination,
        )  # fmt: skip
        try:
            self._send(message)
        except MessageTooLargeError as error:
            _log.error("%s.%s was not sent: %s", interface, member, error)

    def _send(self, message: Message) -> bool:
        if self.closed.is_set() or not self._bus.connected:
            return False
        message.serial = message.serial or self._bus.next_serial()
        self._writer.schedule_write(message)
        return True

    def _on_message(self, message: Message) -> bool:
        """Everything that arrives. Returns whether the library should leave it alone."""
        if get_signature_tree.cache_info().currsize > MAX_SIGNATURES:
            get_signature_tree.cache_clear()
        fds = list(message.unix_fds)
        try:
            if message.message_type is MessageType.METHOD_CALL:
                self._on_call(message, fds)
            elif message.message_type is MessageType.SIGNAL:
                self._on_signal(message)
            else:
                return self._on_answer(message, fds)
        except Exception:  # noqa: BLE001 - one bad message must not end the connection; it is logged
            _log.exception("a handler of a D-Bus message failed")
        finally:
            _close_all(fds)
        return True

    def _on_call(self, message: Message, fds: list[int]) -> None:
        call = MethodCall(
            sender=message.sender or "", path=message.path or "", interface=message.interface,
            member=message.member or "", signature=message.signature, body=tuple(message.body), serial=message.serial,
            expects_reply=not message.flags.value & _NO_REPLY_EXPECTED,
            interactive=bool(message.flags.value & _INTERACTIVE), _fds=fds,
        )  # fmt: skip
        if self._handler is None:
            self.send_error(call, "org.freedesktop.DBus.Error.UnknownObject", "nothing is served on this connection")
        else:
            self._handler(call)

    def _on_signal(self, message: Message) -> None:
        signal = Signal(
            message.sender or "", message.path or "", message.interface or "", message.member or "",
            message.signature, tuple(message.body),
        )  # fmt: skip
        for listener in tuple(self._listeners):
            try:
                listener(signal)
            except Exception:  # noqa: BLE001 - nor one listener the others
                _log.exception("a listener of D-Bus signals failed")

    def _on_answer(self, message: Message, fds: list[int]) -> bool:
        future = self._pending.get(message.reply_serial)
        if future is None:
            return message.reply_serial != 1  # 1 is the library's own Hello
        if future.done():
            return True
        body = tuple(message.body)
        if message.message_type is MessageType.ERROR:
            text = body[0] if body and isinstance(body[0], str) else ""
            future.set_exception(BusCallError(message.error_name or "", text, body))
        else:
            future.set_result(Answer(message.signature, body, tuple(fds)))
            fds.clear()
        return True

    def _on_closed(self, task: asyncio.Task[None]) -> None:
        """The library has let go of the socket: end what waits, and say so."""
        reason = None if task.cancelled() else task.exception()
        self.closed.set()
        self._writer.discard()
        self._close_socket()
        for future in self._pending.values():
            if not future.done():
                future.set_exception(BusCallError(DISCONNECTED, str(reason or "the connection was closed")))

    def _close_socket(self) -> None:
        """2.44 leaves this to the garbage collector."""
        for part in (self._bus._stream, self._bus._sock):
            if part is not None:
                with contextlib.suppress(OSError):
                    part.close()
