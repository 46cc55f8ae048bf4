"""Places for calls: those that are worked on, those that wait, and whom neither keeps out."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from aiosd.core.shares import CallLimits, CallShares, at_rest
from aiosd.errors import AiosError, ErrorKind

LIMITS = CallLimits(per_user=2, total=3, waiting_per_user=4, waiting=6)


def taken(shares: CallShares, stack: ExitStack, *uids: int, waits: bool = False) -> None:
    for uid in uids:
        stack.enter_context(shares.call(uid))
        if waits:
            stack.enter_context(at_rest())


def refused(shares: CallShares, uid: int, *, waits: bool = False) -> str:
    with ExitStack() as stack, pytest.raises(AiosError) as met:
        taken(shares, stack, uid, waits=waits)
    assert met.value.kind is ErrorKind.RATE_LIMITED
    return met.value.detail


def test_a_user_and_all_together_have_so_many() -> None:
    shares = CallShares(lambda: LIMITS)
    with ExitStack() as stack:
        taken(shares, stack, 1, 1)
        assert "2 calls of your user" in refused(shares, 1)
        taken(shares, stack, 2)
        assert "too many calls" in refused(shares, 3)
        taken(shares, stack, 0, 0, 0)
        assert len(shares) == 6
    assert len(shares) == 0
    with shares.call(1):
        assert len(shares) == 1


def test_who_waits_takes_no_place_of_those_who_work() -> None:
    shares = CallShares(lambda: LIMITS)
    with ExitStack() as stack:
        taken(shares, stack, 1, 1, 1, 1, waits=True)
        assert "4 calls of your user are waiting" in refused(shares, 1, waits=True)
        taken(shares, stack, 1, 1)
        assert "2 calls of your user" in refused(shares, 1)
    with ExitStack() as stack:
        taken(shares, stack, 1, 1, 1, 2, 2, 2, waits=True)
        assert refused(shares, 3, waits=True) == "too many calls are waiting"
        taken(shares, stack, 3)
        taken(shares, stack, *[0] * 10, waits=True)
    assert len(shares) == 0


def test_what_waits_already_waits_once_and_comes_back() -> None:
    shares = CallShares(lambda: LIMITS)
    with shares.call(1), shares.call(1):
        with at_rest(), at_rest():
            with shares.call(1):
                pass
            assert len(shares) == 2
        refused(shares, 1)
    assert len(shares) == 0


def test_nobody_waits_without_a_door() -> None:
    with at_rest():
        pass
