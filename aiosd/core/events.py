"""Fan-out of committed events inside the daemon: doors, the scheduler and waiting calls listen here.

The hub is fed by the store after each commit, in the log's order. A listener is called on the loop and must not block;
one that raises is logged and the others still hear.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aiosd.model.event import Event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_log = logging.getLogger(__name__)


class EventHub:
    """Hands each batch of committed events to every listener."""

    def __init__(self) -> None:
        """Start with no listener."""
        self._listeners: list[Callable[[Sequence[Event]], None]] = []
        self._watchers: dict[str, set[asyncio.Event]] = {}

    def listen(self, callback: Callable[[Sequence[Event]], None]) -> Callable[[], None]:
        """Call back with every batch from now on; returns what ends it."""
        self._listeners.append(callback)
        return lambda: self._listeners.remove(callback)

    @contextmanager
    def watch(self, task_id: str) -> Iterator[asyncio.Event]:
        """An `asyncio.Event` that is set whenever the task's state changes; the waiter clears it."""
        flag = asyncio.Event()
        watchers = self._watchers.setdefault(task_id, set())
        watchers.add(flag)
        try:
            yield flag
        finally:
            watchers.discard(flag)
            if not watchers:
                self._watchers.pop(task_id, None)

    def publish(self, items: Sequence[object]) -> None:
        """Deliver what a commit emitted (a `Database.on_commit` listener)."""
        events = [item for item in items if isinstance(item, Event)]
        for event in events:
            if event.change is not None and event.task_id is not None:
                for flag in self._watchers.get(event.task_id, ()):
                    flag.set()
        for listener in tuple(self._listeners):
            try:
                listener(events)
            except Exception:  # noqa: BLE001  one listener's fault must not silence the others
                _log.exception("An event listener failed")
