"""One live run as the daemon holds it in memory: its control channel, what was asked of it, and who waits for its end.

Nothing here is durable. Whatever is lost with the process is made again from the store by recovery.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import contextmanager, suppress
from dataclasses import field
from typing import TYPE_CHECKING

from aiosd.model.later import dataclass
from aiosd.model.manifest import Protocol
from aiosd.model.status import Reason
from aiosd.run.client import ControlChannel

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator
    from pathlib import Path

    from aiosd.model.jsontext import JsonObject
    from aiosd.model.manifest import Capability

STOP_MARGIN = 2.0
"""Seconds that a shim has beyond the program's grace before the whole scope is killed."""

CONNECT_WAIT = 10.0
"""Seconds that somebody who wants to speak to a program waits for the channel to a run that has just begun."""


@dataclass(slots=True)
class Watch:
    """A live run, of the user `uid`. `kill_at`, `deadline_at`, `first_frame_at`: seconds on the boot clock.

    `begun`: its gate was seen to be open. `spoken`: whether its program has sent a chunk. `silent_for`: why it was
    stopped, if that was why.
    `offset`, `stored`: see core/intake.py. `adopted`: it runs from before this daemon. `met`: its channel is there, or
    nobody need wait for it (any more).
    """

    run_id: str
    task_id: str
    capability: Capability | None
    directory: Path
    uid: int = -1
    control: ControlChannel | None = None
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    met: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    holding: asyncio.Lock = field(default_factory=asyncio.Lock)
    gone: bool = False
    adopted: bool = False
    frozen: bool = False
    stopping: bool = False
    timed_out: bool = False
    kill_at: float | None = None
    deadline_at: float | None = None
    first_frame_at: float | None = None
    first_frame_within: float = 0.0
    begun: bool = False
    spoken: bool = False
    silent_for: float | None = None
    offset: int = 0
    stored: int = 0
    log_sizes: dict[str, int] = field(default_factory=dict)
    told_sizes: dict[str, int] = field(default_factory=dict)
    _answers: dict[str, asyncio.Future[JsonObject]] = field(default_factory=dict)

    @property
    def grace_ms(self) -> int:
        """How long the program may take to end when it is asked to."""
        return 5000 if self.capability is None else self.capability.cancel_grace_ms

    def expect_first_frame(self, now: float, within: float | None) -> None:
        """From `now` on a program that speaks chunks (its manifest says so) has `within` seconds for the first."""
        speaks = self.capability is not None and self.capability.protocol is Protocol.CHUNKS
        if speaks and within is not None and not self.spoken:
            self.first_frame_within = within
            self.first_frame_at = now + within

    def next_moment(self) -> float | None:
        """When one of its times is over, on the boot clock."""
        moments = (self.kill_at, self.deadline_at, self.first_frame_at)
        return min((moment for moment in moments if moment is not None), default=None)

    def time_is_up(self, now: float) -> Reason | None:
        """Why it has to be stopped now: its time limit, or its first chunk did not come. Each is said once."""
        if self.spoken or self.stopping:
            self.first_frame_at = None
        if self.deadline_at is not None and now >= self.deadline_at:
            self.deadline_at = None
            self.timed_out = True
            return Reason.TIMEOUT
        if self.first_frame_at is None or now < self.first_frame_at:
            return None
        if self.frozen:  # it cannot speak; its time begins anew
            self.first_frame_at = now + self.first_frame_within
            return None
        self.first_frame_at = None
        self.silent_for = self.first_frame_within
        return Reason.FIRST_FRAME_TIMEOUT

    async def send(self, kind: str, fields: JsonObject | None = None, *, identifier: str | None = None) -> bool:
        """Send a control message; False when there is no channel (any more)."""
        if self.control is None:
            return False
        try:
            await self.control.send(kind, fields, identifier=identifier)
        except ConnectionError:
            return False
        return True

    def hear(self, message: JsonObject | None) -> bool:
        """What came by the channel; None: the shim has closed it. Whether more is to be heard: after the word that the
        exit record is there, no."""
        kind = None if message is None else message.get("type")
        if message is not None and kind == "log":
            self.log_sizes = {name: size for name in ("stdout", "stderr") if isinstance(size := message.get(name), int)}
        elif kind == "exited":
            self.gone = True
        if message is not None:
            self.wake.set()
        return not self.gone

    def over(self) -> None:
        """The shim is gone."""
        self.gone = True
        self.wake.set()

    def connect(self, control: ControlChannel) -> None:
        """Its channel is there, and with it what the launcher made for it."""
        self.control = control
        self.met.set()

    async def connected(self, within: float = CONNECT_WAIT) -> None:
        """Wait for the channel of a run that was just started, or taken up after a restart; not for ever. Seconds."""
        if self.control is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(within):
                    await self.met.wait()

    async def ask(self, kind: str, *, within: float) -> JsonObject | None:
        """Send a question and wait for the program's answer; None when there is none in `within` seconds."""
        if self.control is None:
            return None
        identifier = self.control.new_id()
        future: asyncio.Future[JsonObject] = asyncio.get_running_loop().create_future()
        self._answers[identifier] = future
        try:
            if not await self.send(kind, identifier=identifier):
                return None
            async with asyncio.timeout(within):
                return await future
        except TimeoutError:
            return None
        finally:
            del self._answers[identifier]

    def answered(self, payload: JsonObject) -> None:
        """The program answered a question (an event of type `paused`, `can_pause` or `can_cancel`)."""
        future = self._answers.get(str(payload.get("id")))
        if future is not None and not future.done():
            future.set_result(payload)


@contextmanager
def held(control: socket.socket, pidfd: int) -> Iterator[ControlChannel]:
    """Own the two descriptors of a live run for as long as it is followed."""
    channel = ControlChannel(control)
    try:
        yield channel
    finally:
        channel.close()
        os.close(pidfd)
