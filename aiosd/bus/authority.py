"""polkit's two calls over the bus, for auth/polkit.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from aiosd.auth.polkit import CANCEL_SECONDS, PolkitBusError, Verdict
from aiosd.bus.connection import BusCallError, Call, Variant

if TYPE_CHECKING:
    from aiosd.auth.polkit import Question
    from aiosd.bus.connection import Answer, SystemBus
    from aiosd.bus.message import BusValue

BUS_NAME = "org.freedesktop.PolicyKit1"
PATH = "/org/freedesktop/PolicyKit1/Authority"
INTERFACE = "org.freedesktop.PolicyKit1.Authority"
_ALLOW_USER_INTERACTION = 1


class BusPolkit:
    """A `PolkitBus` on one connection."""

    def __init__(self, bus: SystemBus) -> None:
        """`bus` is connected."""
        self._bus = bus

    async def check_authorization(self, question: Question) -> Verdict:
        """CheckAuthorization. Raises PolkitBusError."""
        subject = question.subject
        details: dict[str, BusValue] = {key: Variant(kind, value) for key, (kind, value) in subject.details.items()}
        body: tuple[BusValue, ...] = (
            (subject.kind, details),
            question.action_id,
            dict(question.details),
            _ALLOW_USER_INTERACTION if question.interactive else 0,
            question.cancellation_id,
        )
        call = Call(
            BUS_NAME, PATH, INTERFACE, "CheckAuthorization", "(sa{sv})sa{ss}us", body, subject.fds, question.timeout
        )
        answer = await self._call(call)
        if answer.signature != "(bba{ss})":
            raise PolkitBusError(f"an answer of signature {answer.signature!r}")
        return _verdict(answer)

    async def cancel_check_authorization(self, cancellation_id: str) -> None:
        """CancelCheckAuthorization. Raises PolkitBusError."""
        body = (cancellation_id,)
        await self._call(Call(BUS_NAME, PATH, INTERFACE, "CancelCheckAuthorization", "s", body, (), CANCEL_SECONDS))

    async def _call(self, call: Call) -> Answer:
        try:
            return await self._bus.call(call)
        except BusCallError as error:
            raise PolkitBusError(str(error)) from error


def _verdict(answer: Answer) -> Verdict:
    (result,) = answer.body
    if not isinstance(result, list | tuple):
        raise PolkitBusError("an answer without a result")
    authorized, challenge, details = result
    notes = {str(key): str(value) for key, value in details.items()} if isinstance(details, Mapping) else {}
    return Verdict(authorized is True, challenge is True, notes)
