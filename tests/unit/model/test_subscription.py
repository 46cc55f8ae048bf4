"""Which events a subscription brings (seed 000, subscribe)."""

from __future__ import annotations

import pytest

from aiosd.model.event import Event, Kind, Source
from aiosd.model.subscription import Subscription

KINDS = [kind for kind in Kind if kind is not Kind.TIMELINE]
# Seed 000's own request: these four, and its stream has a question and a result.
SEED = "status progress artifact log"


@pytest.mark.parametrize(
    ("choices", "brings"),
    [
        ("", "status progress artifact input_required auth_required log result error"),
        (SEED, "status progress artifact input_required auth_required log result error"),
        ("status", "status input_required auth_required result error"),
        ("progress log", "progress log"),
        ("result", "result"),
        ("input_required", "input_required"),
    ],
    ids=lambda words: words or "none",
)
def test_what_is_chosen(choices: str, brings: str) -> None:
    subscription = Subscription("sub-1", uid=1000, choices=frozenset(choices.split()))
    events = [Event(1, "task-1", None, 1000, Source.SYSTEM, "task.progress", kind, 0) for kind in Kind]
    assert [event.kind.choice for event in events if subscription.wants(event)] == brings.split()
