"""A feed loses nothing silently: what is taken and what its gaps name is everything that was offered, in order."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from aiosd.model.event import Event, Kind, Source
from aiosd.rpc.feed import Feed, Gap, Shown


def shown(sequence: int, size: int) -> Shown:
    return Shown(Event(sequence, "task-1", None, 0, Source.WORKER, "t", Kind.PROGRESS, 0, {"message": "x" * size}))


@given(
    steps=st.lists(st.integers(1, 12) | st.integers(-12, -1), max_size=20),
    limit=st.integers(1, 5),
    size=st.integers(1, 300),
)
def test_everything_is_there_or_in_a_gap(steps: list[int], limit: int, size: int) -> None:
    """Positive steps: so many are offered; negative ones: so many are taken."""

    async def scenario() -> None:
        feed, offered, told = Feed(limit, max_bytes=1000), 0, list[int]()

        def take() -> bool:
            item = feed.take()
            if isinstance(item, Gap):
                assert item.count == item.last - item.first + 1
                told.extend(range(item.first, item.last + 1))
            elif item is not None:
                told.append(item.sequence)
            return item is not None

        for step in steps:
            for _ in range(abs(step)):
                if step > 0:
                    offered += 1
                    feed.offer(shown(offered, size))
                else:
                    take()
            assert len(feed) <= limit + 1
        while take():
            pass
        assert told == list(range(1, offered + 1))

    asyncio.run(scenario())


@given(count=st.integers(0, 8), seen=st.integers(0, 10), limit=st.integers(1, 10))
def test_what_the_client_has_is_skipped(count: int, seen: int, limit: int) -> None:
    async def scenario() -> None:
        feed = Feed(limit)
        for sequence in range(1, count + 1):
            feed.offer(shown(sequence, 1))
        feed.skip(seen)
        first = feed.first
        if seen >= count:
            assert first is None
        elif not feed.has_gap or first != limit + 1:
            assert first == seen + 1
        feed.clear()
        assert len(feed) == 0

    asyncio.run(scenario())
