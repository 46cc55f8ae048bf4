"""Who is connected and has asked for something: its uid (asked of the bus, once), its running calls, its leaving.

A peer exists from its first call until the bus says that its name is gone; then its running calls are cancelled and
those who keep things for it (subscriptions) are told. A unique name is never used twice in a bus's life, so the uid can
be kept.
"""

from __future__ import annotations

import asyncio
from dataclasses import field
from typing import TYPE_CHECKING

from aiosd.bus.connection import DBUS, DBUS_PATH, Call
from aiosd.core.shares import CallLimits, CallShares
from aiosd.errors import AiosError, ErrorKind
from aiosd.model.later import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from aiosd.bus.connection import Signal, SystemBus

LEAVING = f"type='signal',sender='{DBUS}',path='{DBUS_PATH}',interface='{DBUS}',member='NameOwnerChanged',arg2=''"


@dataclass(frozen=True, slots=True)
class Limits:
    """How much at once. `per_peer`: calls of one connection, waiting ones too. Subscriptions: see subscriptions.py."""

    per_peer: int = 64
    calls: CallLimits = field(default_factory=CallLimits)
    subscriptions_per_peer: int = 64


@dataclass(slots=True)
class Peer:
    """One connection. `calls`: what is running for it."""

    name: str
    calls: set[asyncio.Task[None]] = field(default_factory=set)
    uid: asyncio.Task[int] | None = None


class Peers:
    """Every connection that has asked for something and has not left."""

    def __init__(self, bus: SystemBus, limits: Callable[[], Limits]) -> None:
        """Listens to the bus from `start` on. `limits`: those in force. `shares`: of calls whose user is known."""
        self._bus = bus
        self._limits = limits
        self._peers: dict[str, Peer] = {}
        self._strangers: set[asyncio.Task[None]] = set()
        self.shares = CallShares(lambda: limits().calls)
        self._on_left: list[Callable[[str], None]] = []

    async def start(self) -> None:
        """Ask the bus to be told who leaves; before the first call is served."""
        self._bus.on_signal(self._on_signal)
        await self._bus.add_match(LEAVING)

    def on_left(self, callback: Callable[[str], None]) -> None:
        """Call back with the unique name of each peer that leaves."""
        self._on_left.append(callback)

    def __len__(self) -> int:
        """Peers that are known."""
        return len(self._peers)

    def run(self, name: str, work: Callable[[Peer], Coroutine[object, object, None]]) -> None:
        """Run one call of the peer `name`; it is cancelled when the peer leaves. Raises AiosError (RateLimited)."""
        peer = self._peers.get(name)
        if peer is not None and len(peer.calls) >= self._limits().per_peer:
            raise AiosError(
                ErrorKind.RATE_LIMITED, f"{self._limits().per_peer} calls of yours are still being answered"
            )
        is_stranger = peer is None or peer.uid is None or not peer.uid.done()
        if is_stranger and len(self._strangers) >= self._limits().calls.total:
            raise AiosError(ErrorKind.RATE_LIMITED, "too many calls are being answered")
        if peer is None:
            peer = self._peers[name] = Peer(name)
        task = asyncio.create_task(work(peer))
        peer.calls.add(task)
        if is_stranger:
            self._strangers.add(task)
        task.add_done_callback(lambda done: self._ended(peer, done))

    def _ended(self, peer: Peer, task: asyncio.Task[None]) -> None:
        peer.calls.discard(task)
        self._strangers.discard(task)
        if not task.cancelled():
            task.result()  # `work` answers every failure itself; what escapes is told to the loop's handler

    async def uid(self, peer: Peer) -> int:
        """The user behind a peer, from the bus. Raises BusCallError: it has left, or the bus did not say."""
        if peer.uid is None:
            peer.uid = asyncio.create_task(self._ask_uid(peer))
            peer.uid.add_done_callback(lambda task: task.cancelled() or task.exception())
        uid = peer.uid.result() if peer.uid.done() else await asyncio.shield(peer.uid)
        self._strangers -= {asyncio.current_task()}
        return uid

    async def _ask_uid(self, peer: Peer) -> int:
        try:
            answer = await self._bus.call(Call(DBUS, DBUS_PATH, DBUS, "GetConnectionUnixUser", "s", (peer.name,)))
            return answer.number()
        except BaseException:
            peer.uid = None
            raise

    def _on_signal(self, signal: Signal) -> None:
        if signal.sender != DBUS or signal.member != "NameOwnerChanged" or signal.signature != "sss":
            return
        name, _, new_owner = signal.body
        if new_owner == "" and isinstance(name, str):
            self._left(name)

    def _left(self, name: str) -> None:
        peer = self._peers.pop(name, None)
        if peer is None:
            return
        for task in tuple(peer.calls):
            task.cancel()
        for callback in self._on_left:
            callback(name)

    async def stop(self) -> None:
        """Cancel every running call and wait for it."""
        tasks = [task for peer in self._peers.values() for task in peer.calls]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
