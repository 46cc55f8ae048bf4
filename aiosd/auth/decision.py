"""The answer to "may this subject do that?", and the one question every authority answers."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiosd.auth.caller import Subject


class Decision(Enum):
    """What the authority said. Only ALLOWED allows; an error in asking is DENIED."""

    ALLOWED = "allowed"
    DENIED = "denied"
    CHALLENGE = "challenge"
    """Not now, but a person could be asked (the request did not permit it)."""
    DISMISSED = "dismissed"
    """The person was asked and closed the dialog."""
    UNAVAILABLE = "unavailable"
    """The authority did not answer; counts as denied, and is said so."""


class Authority(Protocol):
    """Polkit, or what stands for it."""

    async def check(
        self, subject: Subject, action_id: str, details: Mapping[str, str], *, interactive: bool
    ) -> Decision:
        """Ask. Never raises for a failure in asking: that is UNAVAILABLE."""
        ...
