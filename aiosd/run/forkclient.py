"""The broker's end of the fork server: starts it, asks it for shims, notices when it dies."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

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


class ForkServer:
    """Asks for shims, many at a time."""

    def __init__(self, sock: socket.socket) -> None:
        """`sock`: what `spawn` returned."""
        self._socket = PacketSocket(sock)
        self._waiting: dict[str, asyncio.Future[tuple[int, int]]] = {}

    async def serve(self) -> None:
        """Take the answers, until the server is gone: that is an error, and this raises ForkError."""
        try:
            while (packet := await self._socket.receive()) is not None:
                self._on_answer(packet)
            raise ForkError("the fork server ended")
        finally:
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(ForkError("the fork server ended"))
            self._socket.close()

    def _on_answer(self, packet: Packet) -> None:
        body = packet.body
        waiting = self._waiting.pop(str(body.get("run")), None)
        pid = body.get("pid")
        if waiting is None or waiting.done():
            packet.close()
        elif isinstance(pid, int) and len(packet.fds) == 1:
            waiting.set_result((pid, packet.fds[0]))
        else:
            packet.close()
            waiting.set_exception(ForkError(str(body.get("error"))))

    async def fork(self, spec: ShimSpec, fds: Sequence[int]) -> tuple[int, int]:
        """A shim for `spec`: its pid and a pidfd that is the caller's to close. Raises ForkError."""
        waiting: asyncio.Future[tuple[int, int]] = asyncio.get_running_loop().create_future()
        self._waiting[spec.run] = waiting
        try:
            await self._socket.send_bytes(spec.encode(), tuple(fds))
            return await asyncio.wait_for(waiting, _TIMEOUT)
        except (OSError, TimeoutError) as error:
            raise ForkError(f"the fork server does not answer: {error}") from None
        finally:
            self._waiting.pop(spec.run, None)
