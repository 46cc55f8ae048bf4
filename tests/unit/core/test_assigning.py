"""Who gets what, and what a restart makes of workers: the pure decisions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiosd.core.assigning import Found, Offer, Wanted, fits, match, recover
from aiosd.model.status import Reason
from aiosd.model.worker import Serves, Worker, WorkerStatus

KEYS = st.tuples(st.integers(1000, 1002), st.sampled_from("abcd"))
WORDS = st.frozensets(st.sampled_from(["git", "terminal", "xcode"]))
OFFERS = st.lists(
    st.builds(
        Offer, key=KEYS, capabilities=WORDS, serves=st.sampled_from(Serves), status=st.sampled_from(WorkerStatus),
        capacity=st.integers(1, 3), taken=st.integers(0, 3), load=st.floats(0, 2), order=st.integers(0, 9),
    ),
    max_size=6, unique_by=lambda one: one.key,
)  # fmt: skip
WANTED = st.lists(
    st.builds(
        Wanted, id=st.uuids().map(str), uid=st.integers(1000, 1002), requires=WORDS,
        rejected_by=st.frozensets(KEYS, max_size=3),
    ),
    max_size=12, unique_by=lambda one: one.id,
)  # fmt: skip


@given(WANTED, OFFERS, st.integers(1, 20))
def test_a_match_is_one_that_may_be_and_leaves_nothing_undone(
    wanted: list[Wanted], offers: list[Offer], most: int
) -> None:
    before = {one.key: one.taken for one in offers}
    by_key = {one.key: one for one in offers}
    pairs = match(wanted, offers, most)
    tasks = {one.id: one for one in wanted}
    assert len({pair.task_id for pair in pairs}) == len(pairs) <= most
    for pair in pairs:
        assert fits(tasks[pair.task_id], by_key[pair.worker])
        assert by_key[pair.worker].status is WorkerStatus.IDLE
    for offer in offers:
        got = sum(pair.worker == offer.key for pair in pairs)
        assert offer.taken == before[offer.key] + got
        assert offer.taken <= max(offer.capacity, before[offer.key])
    if len(pairs) < most:
        left = [one for one in wanted if one.id not in {pair.task_id for pair in pairs}]
        assert not [1 for task in left for offer in offers if offer.has_room and fits(task, offer)]


MAC = Offer((1000, "mac"), frozenset({"git", "xcode"}))
ALL = Offer((1000, "mac"), frozenset({"git", "xcode"}), serves=Serves.ALL)


@pytest.mark.parametrize(
    ("task", "offer", "may"),
    [
        (Wanted("own, of which it can all", 1000, frozenset({"git", "xcode"})), MAC, True),
        (Wanted("own, that requires nothing", 1000), MAC, True),
        (Wanted("own, of which it cannot all", 1000, frozenset({"git", "terminal"})), MAC, False),
        (Wanted("another user's", 1001, frozenset({"git"})), MAC, False),
        (Wanted("another user's, for who serves all", 1001, frozenset({"git"})), ALL, True),
        (Wanted("another user's, of which it cannot all", 1001, frozenset({"terminal"})), ALL, False),
        (Wanted("own, that it rejected", 1000, rejected_by=frozenset({(1000, "mac")})), MAC, False),
        (Wanted("own, that another one rejected", 1000, rejected_by=frozenset({(1001, "mac")})), MAC, True),
    ],
    ids=lambda one: one.id if isinstance(one, Wanted) else "",
)
def test_who_may_be_given_a_task(task: Wanted, offer: Offer, *, may: bool) -> None:
    assert fits(task, offer) is may


def test_tasks_come_in_their_order_and_the_specialist_is_left_free() -> None:
    git = Offer((1000, "git"), frozenset({"git"}))
    mac = Offer((1000, "mac"), frozenset({"git", "xcode"}))
    wanted = [Wanted("first", 1000, frozenset({"git"})), Wanted("second", 1000, frozenset({"xcode"}))]
    assert [(one.task_id, one.worker[1]) for one in match(wanted, [mac, git], 10)] == [
        ("first", "git"), ("second", "mac"),
    ]  # fmt: skip


def test_who_does_least_gets_the_next() -> None:
    busy = Offer((1000, "a"), frozenset(), capacity=3, taken=1)
    loaded = Offer((1000, "b"), frozenset(), capacity=3, load=0.9)
    idle = Offer((1000, "c"), frozenset(), capacity=3, load=0.25)
    wanted = [Wanted(str(number), 1000) for number in range(3)]
    assert [one.worker[1] for one in match(wanted, [busy, loaded, idle], 10)] == ["c", "b", "a"]


def test_no_more_than_asked_for_and_no_more_than_there_is_room() -> None:
    wanted = [Wanted(str(number), 1000) for number in range(5)]

    def given(most: int) -> int:
        return len(match(wanted, [Offer((1000, "a"), frozenset(), capacity=2), Offer((1000, "b"), frozenset())], most))

    assert [given(most) for most in (1, 2, 3, 9)] == [1, 2, 3, 3]
    assert match(wanted, [Offer((1000, "a"), frozenset(), taken=1)], 9) == []
    assert match(wanted, [], 9) == []


@pytest.mark.parametrize(
    ("boot", "found", "reason"), [("same", Found.KEEP, None), ("another", Found.LOST, Reason.REBOOT)]
)
def test_a_restart_keeps_workers_and_a_reboot_does_not(boot: str, found: Found, reason: Reason | None) -> None:
    worker = Worker("w", 1000, "", "", "", (), 0, 0, "r", "same")
    decided = recover(worker, boot)
    assert (decided.found, decided.reason) == (found, reason)
