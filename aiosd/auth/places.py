"""Where a caller runs: in which unit of the service manager. A program that runs in a task is not a person.

Consent is a person's. polkit says who may consent, not whether it is a person who speaks: an administrator's rule that
says yes to everything would let a task's program, which runs as its user, approve what it asked for itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from aiosd.auth.caller import Subject

_PREFIX, _SUFFIX = "aios-task-", ".scope"


class PlaceError(Exception):
    """It cannot be told where a caller runs; `str()` says why."""


class Places(Protocol):
    """Who knows (bus/places.py)."""

    async def unit_of(self, subject: Subject) -> str:
        """The unit that the caller's process is in, "" for none. Raises PlaceError."""
        ...


def run_of(unit: str) -> str | None:
    """The run whose scope a unit is; None for a unit that is no task's."""
    if unit.startswith(_PREFIX) and unit.endswith(_SUFFIX):
        return unit[len(_PREFIX) : -len(_SUFFIX)]
    return None
