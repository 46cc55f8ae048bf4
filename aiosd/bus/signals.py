"""Committed events as D-Bus signals.

Everyone on the bus can read a broadcast, so those carry ids, the owner's uid and the state, nothing else; a property
whose value is private is only said to have changed. What an event holds goes unicast to those who subscribed and were
allowed. Progress is sent at most four times a second for each task; its last value always arrives, and before the
task's end.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiosd.bus.connection import Variant
from aiosd.bus.paths import MANAGER_PATH, approval_path, task_path
from aiosd.core.operations import APPROVAL, MANAGER, TASK
from aiosd.model.event import Kind
from aiosd.model.jsontext import dump
from aiosd.model.later import dataclass
from aiosd.model.status import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from aiosd.bus.connection import SystemBus
    from aiosd.bus.message import BusValue
    from aiosd.bus.subscriptions import Subscriptions
    from aiosd.model.event import Event
    from aiosd.model.subscription import Subscription

PROPERTIES = "org.freedesktop.DBus.Properties"
PROGRESS_INTERVAL = 0.25
"""Seconds between two progress signals of one task."""
REMOVED = "task.removed"
"""Type of the event of a task that retention has deleted."""

_APPROVALS = {
    "approval.requested": "pending",
    "approval.approved": "approved",
    "approval.rejected": "rejected",
    "approval.expired": "expired",
}
"""Types of events about an approval, and its status after each."""
_RUN = ("Attempt", "StartedAt", "EndedAt", "Unit", "ControlGroup", "Reason")
_RESULT = ("Result", "Error")
_EDITED = ("Priority", "Metadata")
_FINAL = frozenset({Status.COMPLETED.value, Status.FAILED.value, Status.CANCELED.value})


@dataclass(slots=True)
class _Window:
    """A quarter of a second in which a task's progress has been told already; `pending`: the newest since."""

    timer: asyncio.TimerHandle
    pending: Event | None = None


class Coalescer:
    """Lets the first progress of a task through, then the newest once an interval, so that the last is never lost."""

    def __init__(self, emit: Callable[[Event], None], interval: float = PROGRESS_INTERVAL) -> None:
        """`interval` in seconds."""
        self._emit = emit
        self._interval = interval
        self._windows: dict[str, _Window] = {}

    def __len__(self) -> int:
        """Tasks with an open window: none when nothing progresses."""
        return len(self._windows)

    def offer(self, task_id: str, event: Event) -> None:
        """A progress event: sent now, or the newest of its window."""
        window = self._windows.get(task_id)
        if window is None:
            self._windows[task_id] = _Window(self._arm(task_id))
            self._emit(event)
        else:
            window.pending = event

    def flush(self, task_id: str) -> None:
        """Send what is pending: the state is about to change, and its progress came before."""
        window = self._windows.get(task_id)
        if window is not None and window.pending is not None:
            pending, window.pending = window.pending, None
            self._emit(pending)

    def stop(self) -> None:
        """Send all that is pending; no timers are left."""
        for task_id in tuple(self._windows):
            self.flush(task_id)
            self._windows.pop(task_id).timer.cancel()

    def _arm(self, task_id: str) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(self._interval, self._tick, task_id)

    def _tick(self, task_id: str) -> None:
        window = self._windows[task_id]
        if window.pending is None:
            del self._windows[task_id]
        else:
            window.timer = self._arm(task_id)
            self.flush(task_id)


class Broadcaster:
    """Turns each batch of committed events into signals, in order."""

    def __init__(self, bus: SystemBus, subscriptions: Subscriptions) -> None:
        """`subscriptions` get what they asked for after the broadcast of the same event."""
        self._bus = bus
        self._subscriptions = subscriptions
        self._progress = Coalescer(self._emit)

    def on_events(self, events: Sequence[Event]) -> None:
        """A committed batch (an EventHub listener)."""
        self._subscriptions.record(events)
        for event in events:
            if event.kind is Kind.PROGRESS and event.task_id is not None:
                self._progress.offer(event.task_id, event)
                continue
            if event.task_id is not None and event.kind in (Kind.STATUS, Kind.RESULT, Kind.ERROR):
                self._progress.flush(event.task_id)
            self._emit(event)

    def stop(self) -> None:
        """Send what is held back."""
        self._progress.stop()

    def capabilities_changed(self) -> None:
        """The installed capabilities were read again and differ."""
        self._bus.send_signal(MANAGER_PATH, MANAGER, "CapabilitiesChanged")

    def manager_changed(self, changed: Mapping[str, Variant]) -> None:
        """Properties of the manager have new values; all of them are public."""
        self._properties_changed(MANAGER_PATH, MANAGER, changed, ())

    def _emit(self, event: Event) -> None:
        if event.task_id is not None:
            self._broadcast(event, event.task_id)
            self._approval(event, event.task_id)
        self._subscriptions.deliver(event)

    def _broadcast(self, event: Event, task_id: str) -> None:
        path = task_path(task_id)
        change = event.change
        if event.type == REMOVED:
            self._bus.send_signal(MANAGER_PATH, MANAGER, "TaskRemoved", "sou", (task_id, path, event.uid))
        elif change is not None and change.old is None:
            self._bus.send_signal(MANAGER_PATH, MANAGER, "TaskNew", "sous", (task_id, path, event.uid, change.new))
        elif change is not None:
            body = (task_id, path, event.uid, change.old or "", change.new, change.phase)
            self._bus.send_signal(MANAGER_PATH, MANAGER, "StateChanged", "sousss", body)
            changed = {"Status": Variant("s", change.new), "Phase": Variant("s", change.phase)}
            final = _RESULT if change.new in _FINAL else ()
            self._properties_changed(path, TASK, changed, (*_RUN, *final))
        elif invalidated := _INVALIDATED.get(event.kind):
            self._properties_changed(path, TASK, {}, invalidated)

    def _approval(self, event: Event, task_id: str) -> None:
        """That something waits for a second word, or does no longer: ids only."""
        outcome = _APPROVALS.get(event.type)
        approval_id = event.payload.get("approval_id")
        if outcome is None or not isinstance(approval_id, str):
            return
        path = approval_path(approval_id)
        if event.type == "approval.requested":
            body = (approval_id, path, task_id, event.uid)
            self._bus.send_signal(MANAGER_PATH, MANAGER, "ApprovalRequested", "sosu", body)
        else:
            self._bus.send_signal(MANAGER_PATH, MANAGER, "ApprovalResolved", "sos", (approval_id, path, outcome))
            self._properties_changed(path, APPROVAL, {"Status": Variant("s", outcome)}, ("Decision",))

    def _properties_changed(
        self, path: str, interface: str, changed: Mapping[str, Variant], invalidated: Sequence[str]
    ) -> None:
        body: tuple[BusValue, ...] = (interface, dict(changed), list(invalidated))
        self._bus.send_signal(path, PROPERTIES, "PropertiesChanged", "sa{sv}as", body)


_INVALIDATED: Mapping[Kind, tuple[str, ...]] = {
    Kind.STATUS: _EDITED,
    Kind.PROGRESS: ("Progress",),
}
"""What an event without a change of state makes stale. Result and error come with the final state, which says so."""


def send_event(bus: SystemBus, peer: str, subscription: Subscription, event: Event) -> None:
    """One event to one subscriber, and to nobody else."""
    body = (subscription.id, event.id, subscription.shown_as(event), dump(subscription.data_of(event)))
    bus.send_signal(MANAGER_PATH, MANAGER, "Event", "ssss", body, destination=peer)
