"""The transition table: which status may follow which, and for whom. Pure; everything else asks it.

Source: seed 000's table; the edges from a waiting state to `failed` exist for the system only (design: decisions).
"""

from __future__ import annotations

from dataclasses import dataclass

from aiosd.model.status import PHASES as PHASES
from aiosd.model.status import Actor, Phase, Status

USER_EDGES: dict[Status, frozenset[Status]] = {
    Status.PENDING: frozenset({Status.WORKING, Status.FAILED, Status.CANCELED}),
    Status.WORKING: frozenset(
        {
            Status.COMPLETED,
            Status.FAILED,
            Status.PAUSED,
            Status.INPUT_REQUIRED,
            Status.AUTH_REQUIRED,
            Status.CANCELED,
        }
    ),
    Status.PAUSED: frozenset({Status.WORKING, Status.CANCELED}),
    Status.INPUT_REQUIRED: frozenset({Status.WORKING, Status.CANCELED}),
    Status.AUTH_REQUIRED: frozenset({Status.WORKING, Status.CANCELED}),
    Status.COMPLETED: frozenset(),
    Status.FAILED: frozenset(),
    Status.CANCELED: frozenset(),
}
"""Seed 000's table, row for row."""

SYSTEM_EDGES: dict[Status, frozenset[Status]] = {
    Status.PAUSED: frozenset({Status.FAILED}),
    Status.INPUT_REQUIRED: frozenset({Status.FAILED}),
    Status.AUTH_REQUIRED: frozenset({Status.FAILED}),
}
"""What only the system may do, always with a machine-readable reason."""


# Not frozen: contextlib sets __traceback__ on exceptions that pass through it.
@dataclass(eq=False)
class IllegalTransition(Exception):
    """The table has no such edge for this actor. `str()` reads well in an error message."""

    old: Status
    new: Status
    actor: Actor

    def __str__(self) -> str:
        """Name both states."""
        return f"a task that is {self.old} cannot become {self.new}"


def may(old: Status, new: Status, actor: Actor = Actor.USER) -> bool:
    """Whether `old` may become `new` when `actor` wants it."""
    if new in USER_EDGES[old]:
        return True
    return actor is Actor.SYSTEM and new in SYSTEM_EDGES.get(old, frozenset())


def default_phase(status: Status) -> Phase:
    """The phase a task has when it enters `status` and nothing more particular is said."""
    return {
        Status.PENDING: Phase.QUEUED,
        Status.WORKING: Phase.RUNNING,
        Status.PAUSED: Phase.PAUSED,
        Status.INPUT_REQUIRED: Phase.WAITING_INPUT,
        Status.AUTH_REQUIRED: Phase.WAITING_AUTH,
        Status.COMPLETED: Phase.COMPLETED,
        Status.FAILED: Phase.FAILED,
        Status.CANCELED: Phase.CANCELED,
    }[status]


def transition(
    old: Status, new: Status, phase: Phase | None = None, *, actor: Actor = Actor.USER
) -> tuple[Status, Phase]:
    """The state after the change. Raises IllegalTransition; ValueError when `phase` is not one of `new`'s."""
    if not may(old, new, actor):
        raise IllegalTransition(old, new, actor)
    chosen = default_phase(new) if phase is None else phase
    if chosen not in PHASES[new]:
        raise ValueError(f"{chosen} is not a phase of {new}")
    return new, chosen
