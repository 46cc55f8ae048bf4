"""What happens while a subscription is being made, however many are being made at the same time."""

from __future__ import annotations

from contextlib import ExitStack

from aiosd.model.recording import MAX_RECORDED, Recordings


def test_those_under_way_hear_the_same_and_end_in_any_order() -> None:
    recordings: Recordings[int] = Recordings()
    with ExitStack() as first, ExitStack() as second, ExitStack() as third:
        one, two, three = (stack.enter_context(recordings.begin()) for stack in (first, second, third))
        recordings.record([1])
        third.close()  # by then it has heard what the others have
        recordings.record([2])
        second.close()
        recordings.record([3])
        assert (list(one.events), list(two.events), list(three.events)) == ([1, 2, 3], [1, 2], [1])
    assert not recordings


def test_one_that_hears_too_much_says_so() -> None:
    recordings: Recordings[int] = Recordings()
    with recordings.begin() as kept:
        recordings.record(range(MAX_RECORDED))
        full = kept.overflowed
        recordings.record([MAX_RECORDED])
        assert (full, kept.overflowed) == (False, True)
        assert kept.events[0] == 1
