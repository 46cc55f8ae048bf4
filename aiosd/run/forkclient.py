"""The broker's end of the fork server: starts it, keeps spare shims of its making, notices when it dies."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

from aiosd.model.later import dataclass
from aiosd.run.packets import PacketSocket

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiosd.run.packets import Packet
    from aiosd.run.spec import ShimSpec

_START = "import sys; sys.path.insert(0, sys.argv.pop(1)); from aiosd.run.forkserver import main; main()"
_TIMEOUT = 10.0


class ForkError(Exception):
    """No shim was forked; `str()` says why."""


@dataclass(frozen=True, slots=True)
class Spawned:
    """The running fork server: it ends when the socket is closed, and is then this process's to wait for."""

    socket: socket.socket
    pid: int


def spawn() -> Spawned:
    """Execute the fork server.

    Isolated and without site-packages (-I -S): it needs the standard library and this package, and its memory is the
    memory of every shim.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        theirs.set_inheritable(True)
        root = str(Path(__file__).resolve().parents[2])
        argv = [sys.executable, "-I", "-S", "-c", _START, root, str(theirs.fileno())]
        pid = os.posix_spawn(sys.executable, argv, {"LANG": "C.UTF-8"})
    return Spawned(ours, pid)


SPARES = 2
"""Shims that wait for a run, so that a start does not wait for a fork."""


@dataclass(frozen=True, slots=True)
class Spare:
    """A shim that waits for its run at the other end of the socket."""

    pid: int
    socket: socket.socket
    pidfd: int

    def close(self) -> None:
        """Let go of it: it ends."""
        self.socket.close()
        os.close(self.pidfd)


class ForkServer:
    """Keeps spare shims and gives them their runs."""

    def __init__(self, sock: socket.socket) -> None:
        """`sock`: what `spawn` returned."""
        self._socket = PacketSocket(sock)
        self._spares: deque[Spare] = deque()
        self._waiting: deque[asyncio.Future[Spare]] = deque()
        self._asked = 0

    async def serve(self) -> None:
        """Take the answers, until the server is gone: that is an error, and this raises ForkError."""
        try:
            await self.refill()
            while (packet := await self._socket.receive()) is not None:
                self._on_answer(packet)
            raise ForkError("the fork server ended")
        finally:
            while self._waiting:
                self._refuse("the fork server ended")
            while self._spares:
                self._spares.pop().close()
            self._socket.close()

    def _on_answer(self, packet: Packet) -> None:
        self._asked -= 1
        pid = packet.body.get("pid")
        if not isinstance(pid, int) or len(packet.fds) != len(("socket", "pidfd")):
            packet.close()
            self._refuse(str(packet.body.get("error")))
            return
        spare = Spare(pid, socket.socket(fileno=packet.fds[0]), packet.fds[1])
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(spare)
                return
        self._spares.append(spare)

    def _refuse(self, why: str) -> None:
        """To the first who waits, if anybody does: not having a spare is no failure by itself."""
        if self._waiting and not (waiting := self._waiting.popleft()).done():
            waiting.set_exception(ForkError(why))

    async def refill(self) -> None:
        """Ask for as many as are missing. Not while a start is under way: it needs the processor."""
        missing = SPARES + len(self._waiting) - len(self._spares) - self._asked
        for _ in range(missing):
            self._asked += 1
            await self._socket.send_bytes(b"1")

    async def fork(self, spec: ShimSpec, fds: Sequence[int]) -> tuple[int, int]:
        """A shim for `spec`: its pid and a pidfd that is the caller's to close. Raises ForkError."""
        data = spec.encode()
        try:
            for _ in range(SPARES + 1):
                spare = await self._take()
                with spare.socket:
                    try:
                        socket.send_fds(spare.socket, [data], list(fds))
                    except (BrokenPipeError, ConnectionResetError):  # it has died
                        os.close(spare.pidfd)
                        continue
                    except OSError:
                        os.close(spare.pidfd)
                        raise
                return spare.pid, spare.pidfd
        except (OSError, TimeoutError) as error:
            raise ForkError(f"no shim takes the run: {error}") from None
        raise ForkError("the shims die")

    async def _take(self) -> Spare:
        if self._spares:
            return self._spares.popleft()
        waiting: asyncio.Future[Spare] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        await self.refill()
        return await asyncio.wait_for(waiting, _TIMEOUT)
