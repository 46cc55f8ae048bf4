"""What happens while a subscription is being made: kept, so that its first event follows its grant without a gap."""

from __future__ import annotations

import contextlib
from collections import deque
from dataclasses import field
from typing import TYPE_CHECKING, Generic, TypeVar

from aiosd.model.later import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

T = TypeVar("T")

MAX_RECORDED = 10_000
"""Events kept for one subscription that is being made (a person may be asked meanwhile)."""


@dataclass(slots=True, eq=False)  # two that have heard the same are still two
class Recording(Generic[T]):
    """Events since a subscription was asked for. `overflowed`: the oldest are gone."""

    events: deque[T] = field(default_factory=lambda: deque(maxlen=MAX_RECORDED))
    overflowed: bool = False


class Recordings(Generic[T]):
    """Those that are under way."""

    def __init__(self) -> None:
        """None is."""
        self._running: list[Recording[T]] = []

    def __bool__(self) -> bool:
        """Whether any is under way."""
        return bool(self._running)

    @contextlib.contextmanager
    def begin(self) -> Iterator[Recording[T]]:
        """Keep every event until the end of the block."""
        kept = Recording[T]()
        self._running.append(kept)
        try:
            yield kept
        finally:
            self._running.remove(kept)

    def record(self, events: Sequence[T]) -> None:
        """Events as they are committed, in order."""
        for kept in self._running:
            kept.overflowed = kept.overflowed or len(kept.events) + len(events) > MAX_RECORDED
            kept.events.extend(events)
