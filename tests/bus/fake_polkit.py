"""A polkitd for tests, on the real bus: it answers as told, waits, goes away, and remembers what it was asked."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from aiosd.bus.authority import BUS_NAME, INTERFACE, PATH
from aiosd.bus.connection import MethodCall, SystemBus, Variant

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Mood(Enum):
    """How it answers."""

    YES = "yes"
    NO = "no"
    CHALLENGE = "challenge"
    DISMISSED = "dismissed"
    HANG = "hang"
    ERROR = "error"
    NONSENSE = "nonsense"


_NOTHING: dict[str, str] = {}
_ANSWERS = {
    Mood.YES: (True, False, _NOTHING),
    Mood.NO: (False, False, _NOTHING),
    Mood.CHALLENGE: (False, True, _NOTHING),
    Mood.DISMISSED: (False, True, {"polkit.dismissed": "true"}),
}
"""What polkit 126 sends."""


@dataclass(frozen=True)
class Asked:
    """One CheckAuthorization as it arrived."""

    kind: str
    subject: dict[str, object]
    action_id: str
    details: dict[str, str]
    flags: int
    cancellation_id: str
    pidfds: int


@dataclass
class FakePolkit:
    """Set `mood` before the question, `person` for those that may open a dialog. The rest fills as it happens.

    `open`: dialogs that have neither been answered nor taken back.
    """

    bus: SystemBus
    mood: Mood = Mood.YES
    person: Mood | None = None
    open: set[str] = field(default_factory=set)
    delay: float = 0.0
    asked: asyncio.Queue[Asked] = field(default_factory=asyncio.Queue)
    cancelled: asyncio.Queue[str] = field(default_factory=asyncio.Queue)

    def handle(self, call: MethodCall) -> None:
        assert (call.path, call.interface) == (PATH, INTERFACE)
        if call.member == "CancelCheckAuthorization":
            self.cancelled.put_nowait(str(call.body[0]))
            self.open.discard(str(call.body[0]))
            self.bus.send_reply(call)
            return
        assert (call.member, call.signature) == ("CheckAuthorization", "(sa{sv})sa{ss}us")
        self._note(call)
        mood = self.mood
        if call.body[3] == 1 and self.person is not None:
            mood = self.person
            self.open.add(str(call.body[4]))
        asyncio.get_running_loop().call_later(self.delay, self._answer, call, mood)

    def _note(self, call: MethodCall) -> None:
        subject, action_id, details, flags, cancellation_id = call.body
        assert isinstance(subject, list | tuple)
        assert isinstance(details, dict)
        kind, facts = subject
        assert isinstance(facts, dict)
        shown: dict[str, object] = {}
        for key, fact in facts.items():
            assert isinstance(fact, Variant)
            shown[str(key)] = (fact.signature, fact.value)
        given = {str(key): str(value) for key, value in details.items()}
        number = flags if isinstance(flags, int) else -1
        self.asked.put_nowait(
            Asked(str(kind), shown, str(action_id), given, number, str(cancellation_id), call.fd_count)
        )

    def _answer(self, call: MethodCall, mood: Mood) -> None:
        if mood is not Mood.HANG:
            self.open.discard(str(call.body[4]))
        if mood is Mood.ERROR:
            self.bus.send_error(call, f"{BUS_NAME}.Error.Failed", "out of order")
        elif mood is Mood.NONSENSE:
            self.bus.send_reply(call, "s", ("yes",))
        elif mood in _ANSWERS:
            self.bus.send_reply(call, "(bba{ss})", (_ANSWERS[mood],))


@asynccontextmanager
async def fake_polkit(address: str | None = None) -> AsyncIterator[FakePolkit]:
    """polkit is there while this lasts."""
    async with SystemBus(address) as bus:
        fake = FakePolkit(bus)
        bus.serve(fake.handle)
        assert await bus.request_name(BUS_NAME)
        yield fake
