"""The daemon's side of the launcher and of the shims: requests with answers in any order, and control channels.

`LauncherClient` keeps one connection and makes it again when the launcher was restarted; a request that was under way
then fails with `LauncherError(gone-away)`, because nobody knows whether it was done: ask `attach` or `list_runs`.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import field
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING

from aiosd.model.jsontext import JsonObject, JsonValue, dump
from aiosd.model.later import dataclass
from aiosd.run.layout import LAUNCHER_SOCKET
from aiosd.run.limits import as_json
from aiosd.run.packets import PacketError, PacketSocket
from aiosd.run.protocol import Op
from aiosd.run.versions import LAUNCHER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from aiosd.model.manifest import Limits
    from aiosd.run.packets import Packet

REQUEST_TIMEOUT = 60.0
"""Seconds that a request may take; the launcher's own time limits are shorter."""


class LauncherErrorCode(StrEnum):
    """Why a request failed: the launcher's own codes, and the two that the connection adds."""

    BAD_REQUEST = "bad-request"
    DENIED = "denied"
    CAPABILITY_MISSING = "capability-missing"
    LAUNCH = "launch"
    GONE = "gone"
    BUSY = "busy"
    SYSTEMD = "systemd"
    UNREACHABLE = "unreachable"
    GONE_AWAY = "gone-away"


class LauncherError(Exception):
    """A request that was not done; with `GONE_AWAY` it may have been."""

    def __init__(self, code: LauncherErrorCode, message: str) -> None:
        """`message`: one sentence for people."""
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class StartRequest:
    """What a start needs. `uid`: the caller's. `limits`: only ever tighter than the manifest's.

    `read_only`: its program may change nothing but its scratch directory, and reach nobody.
    """

    run: str
    task: str
    capability: str
    uid: int
    argv_values: Mapping[str, str] = field(default_factory=dict)
    limits: Limits | None = None
    runtime_max_usec: int = 0
    log_max_bytes: int = 16 * 1024 * 1024
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class StartedRun:
    """A run at its gate. `control` and `pidfd` are the receiver's: `ControlChannel(run.control)`, `on_death`."""

    run: str
    pid: int
    unit: str
    control_group: str
    limits: JsonObject
    left_out: tuple[str, ...]
    control: socket.socket
    pidfd: int


@dataclass(frozen=True, slots=True)
class AttachedRun:
    """A run that goes on. Descriptors as in `StartedRun`."""

    run: str
    pid: int
    unit: str
    active: bool
    control: socket.socket
    pidfd: int


@dataclass(frozen=True, slots=True)
class RunInfo:
    """One row of `list_runs`. `pid`: 0 when the supervisor is gone. `caller`: whose task it is, -1 when not known."""

    run: str
    unit: str
    active: bool
    pid: int
    caller: int = -1


@dataclass(frozen=True, slots=True)
class Hello:
    """What the launcher says of itself."""

    version: int
    boot_id: str
    systemd_version: str


@contextmanager
def on_death(pidfd: int, call: Callable[[], None]) -> Iterator[None]:
    """Call once when the process is gone, if that is before the block is left. Does not close the descriptor."""
    loop = asyncio.get_running_loop()

    def told() -> None:
        loop.remove_reader(pidfd)
        call()

    loop.add_reader(pidfd, told)
    try:
        yield
    finally:
        loop.remove_reader(pidfd)


class ControlChannel:
    """aiosd's end of a run's control socket. Whatever arrives means: look at the run's files."""

    def __init__(self, sock: socket.socket) -> None:
        """`sock`: from `StartedRun` or `AttachedRun`; from now on this channel's to close."""
        self._socket = PacketSocket(sock)
        self._prefix = os.urandom(6).hex()
        self._count = 0

    def new_id(self) -> str:
        """An id that no other message to any shim has had."""
        self._count += 1
        return f"{self._prefix}-{self._count}"

    async def send(self, kind: str, fields: JsonObject | None = None, *, identifier: str | None = None) -> None:
        """One message (`go`, `input`, `authentication`, `pause`, `resume`, `can_pause`, `can_cancel`, `cancel`).

        `identifier`: the shim ignores one that it has seen, so what must happen once is sent with an id of its own.
        Raises ConnectionError when the shim is gone, PacketError when the message is larger than a packet.
        """
        await self._socket.send({**(fields or {}), "type": kind, "id": identifier or self.new_id()})

    async def send_raw(self, packet: bytes | bytearray) -> None:
        """One message that is encoded already, id and all. Raises ConnectionError when the shim is gone."""
        await self._socket.send_bytes(packet)

    def listen(self, hear: Callable[[JsonObject | None], bool]) -> None:
        """`hear` is called with each poke, log and exited, and with None when the shim is gone, until it says that it
        wants no more or the channel is closed."""

        def heard(packet: Packet | None) -> bool:
            if packet is None:
                return hear(None)
            packet.close()
            return hear(packet.body)

        self._socket.listen(heard)

    def close(self) -> None:
        """Close this end; the run goes on."""
        self._socket.close()


class LauncherClient:
    """An async context manager; every method raises LauncherError."""

    def __init__(self, path: Path = LAUNCHER_SOCKET) -> None:
        """`path`: of the launcher's socket."""
        self._path = path
        self._connecting = asyncio.Lock()
        self._connection: PacketSocket | None = None
        self._waiting: dict[int, asyncio.Future[Packet]] = {}
        self._count = 0

    async def __aenter__(self) -> Self:
        """Connects with the first request."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._on_end(self._connection)

    async def _connected(self) -> PacketSocket:
        async with self._connecting:
            if self._connection is not None:
                return self._connection
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
            sock.settimeout(0)
            try:
                await asyncio.get_running_loop().sock_connect(sock, str(self._path))
            except OSError as error:
                sock.close()
                raise LauncherError(LauncherErrorCode.UNREACHABLE, error.strerror or str(error)) from None
            self._connection = PacketSocket(sock)
            self._connection.listen(partial(self._heard, self._connection))
            return self._connection

    def _heard(self, connection: PacketSocket, packet: Packet | None) -> bool:
        if packet is None:
            self._on_end(connection)
            return False
        self._on_packet(packet)
        return True

    def _on_end(self, connection: PacketSocket) -> None:
        self._connection = None
        connection.close()
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(LauncherError(LauncherErrorCode.GONE_AWAY, "the launcher was restarted"))

    def _on_packet(self, packet: Packet) -> None:
        body = packet.body
        identifier = body.get("id")
        waiting = self._waiting.get(identifier) if isinstance(identifier, int) else None
        if waiting is None or waiting.done():
            packet.close()
        else:
            waiting.set_result(packet)

    async def _ask(self, op: Op, fields: JsonObject, fds: int = 0) -> Packet:
        """One request; the answer has exactly `fds` descriptors."""
        connection = await self._connected()
        self._count += 1
        number = self._count
        waiting: asyncio.Future[Packet] = asyncio.get_running_loop().create_future()
        self._waiting[number] = waiting
        try:
            await connection.send({**fields, "id": number, "op": op})
            packet = await asyncio.wait_for(waiting, REQUEST_TIMEOUT)
        except PacketError as error:
            raise LauncherError(LauncherErrorCode.BAD_REQUEST, str(error)) from None
        except (ConnectionError, TimeoutError):
            raise LauncherError(LauncherErrorCode.GONE_AWAY, "the launcher does not answer") from None
        finally:
            self._waiting.pop(number, None)
            if waiting.done() and not waiting.cancelled():
                waiting.exception()
        return _checked(packet, fds)

    async def hello(self) -> Hello:
        """Whether both speak the same protocol."""
        body = (await self._ask(Op.HELLO, {"version": LAUNCHER})).body
        return Hello(_number(body, "version"), str(body["boot_id"]), str(body["systemd_version"]))

    async def start(self, request: StartRequest) -> StartedRun:
        """Bring a run to its closed gate, in its scope. Open it with `ControlChannel.send("go", …)`."""
        fields: dict[str, JsonValue] = {
            "run": request.run,
            "task": request.task,
            "capability": request.capability,
            "uid": request.uid,
            "argv_values": dict(request.argv_values),
            "runtime_max_usec": request.runtime_max_usec,
            "log_max_bytes": request.log_max_bytes,
            "read_only": request.read_only,
            "limits": None if request.limits is None else as_json(request.limits),
        }
        packet = await self._ask(Op.START, fields, fds=2)
        body = packet.body
        limits, left_out = body.get("limits"), body.get("left_out")
        return StartedRun(
            run=request.run,
            pid=_number(body, "pid"),
            unit=str(body["unit"]),
            control_group=str(body["control_group"]),
            limits=limits if isinstance(limits, Mapping) else {},
            left_out=tuple(str(name) for name in left_out) if isinstance(left_out, list) else (),
            control=socket.socket(fileno=packet.fds[0]),
            pidfd=packet.fds[1],
        )

    async def attach(self, run: str) -> AttachedRun:
        """Take up a run again after a restart; `GONE` when its supervisor has ended."""
        packet = await self._ask(Op.ATTACH, {"run": run}, fds=2)
        body = packet.body
        control = socket.socket(fileno=packet.fds[0])
        active = body.get("active") is True
        return AttachedRun(run, _number(body, "pid"), str(body["unit"]), active, control, packet.fds[1])

    async def list_runs(self, *, living: bool = False) -> list[RunInfo]:
        """Every run that has a directory or a scope, by id. `living`: only those with a scope, which are few."""
        found: list[RunInfo] = []
        more = True
        while more:
            after = found[-1].run if found else ""
            body = (await self._ask(Op.LIST, {"after": after, "living": living})).body
            page = _rows(body)
            found += page
            more = bool(page) and body.get("more") is True
        return found

    async def signal(self, run: str, name: str) -> None:
        """Signal (`SIGTERM` …) every process of the run's scope."""
        await self._ask(Op.SIGNAL, {"run": run, "signal": name})

    async def stop(self, run: str) -> None:
        """Kill the whole scope, frozen or not, and wait until it is gone. A scope that is gone already is no error."""
        await self._ask(Op.STOP, {"run": run})

    async def freeze(self, run: str) -> None:
        """Freeze the scope."""
        await self._ask(Op.FREEZE, {"run": run})

    async def thaw(self, run: str) -> None:
        """Thaw the scope."""
        await self._ask(Op.THAW, {"run": run})

    async def remove(self, run: str) -> None:
        """Delete the run directory and the scratch directory; `BUSY` while the scope lives."""
        await self._ask(Op.REMOVE, {"run": run})


def _checked(packet: Packet, fds: int) -> Packet:
    body = packet.body
    if body.get("ok") is True and len(packet.fds) == fds:
        return packet
    packet.close()
    code = body.get("error")
    known = code if isinstance(code, str) and code in list(LauncherErrorCode) else LauncherErrorCode.LAUNCH
    raise LauncherError(LauncherErrorCode(known), str(body.get("message", dump(body))))


def _rows(body: JsonObject) -> list[RunInfo]:
    rows = body.get("runs")
    return [
        RunInfo(
            str(row["run"]), str(row["unit"]), row.get("active") is True, _number(row, "pid"), _number(row, "caller")
        )
        for row in (rows if isinstance(rows, list) else [])
        if isinstance(row, Mapping)
    ]


def _number(body: JsonObject, key: str) -> int:
    value = body.get(key)
    if isinstance(value, bool) or not isinstance(value, int):
        raise LauncherError(LauncherErrorCode.LAUNCH, f"the launcher's answer has no {key}")
    return value
