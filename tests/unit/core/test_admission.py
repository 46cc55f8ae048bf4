"""Admission: seed 000's order and limits, checked on written cases and against what must hold for any queue."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiosd.core.admission import (
    SLOW_SCAN,
    AdmissionLimits,
    Candidate,
    Dependency,
    Running,
    WaitReason,
    choose,
    next_scan,
)
from aiosd.model.status import Status
from aiosd.model.tree import find_cycle

# Seed 000, "initialize": max_concurrent_tasks 10, max_tasks_per_tool 3.
SEED = AdmissionLimits(max_concurrent=10, max_per_capability=3)
NOW = 1_767_607_200_000_000


def task(name: str, sequence: int, priority: int = 1, tool: str | None = None, **more: int | None) -> Candidate:
    return Candidate(name, sequence, priority, tool if tool is not None else f"tool.{name}", **more)  # type: ignore[arg-type]  # only the numbers


def test_the_higher_priority_first_then_the_older() -> None:
    queue = [task("low", 1, 0), task("young", 4), task("old", 2), task("urgent", 5, 3), task("high", 3, 2)]
    assert choose(queue, [], SEED, NOW).start == ("urgent", "high", "old", "young", "low")


def test_no_more_than_the_limit_run() -> None:
    queue = [task(f"t{number}", number) for number in range(12)]
    running = [Running(f"r{number}", f"other.{number}") for number in range(4)]
    answer = choose(queue, running, SEED, NOW)
    assert answer.start == ("t0", "t1", "t2", "t3", "t4", "t5")
    assert set(answer.waiting.values()) == {WaitReason.CONCURRENCY_LIMIT}
    assert answer.next_wakeup is None, "a slot becomes free by an event, not by time"


def test_more_running_than_a_lowered_limit_starts_nothing() -> None:
    running = [Running(f"r{number}", f"other.{number}") for number in range(15)]
    assert choose([task("a", 1)], running, SEED, NOW).start == ()


def test_a_full_tool_does_not_hold_others_back() -> None:
    queue = [*(task(f"a{number}", number, 3, "a.a") for number in range(5)), task("b", 9, 0, "b.b")]
    answer = choose(queue, [Running("r", "a.a")], SEED, NOW)
    assert answer.start == ("a0", "a1", "b")
    assert answer.waiting == {name: WaitReason.CAPABILITY_LIMIT for name in ("a2", "a3", "a4")}


@pytest.mark.parametrize(
    "limits",
    [SEED, AdmissionLimits(10, 3, WaitReason.MEMORY_PRESSURE), AdmissionLimits(3, 3)],
    ids=["tool full", "memory short", "machine full"],
)
def test_a_task_whose_time_has_not_come_says_so_whatever_else_is_short(limits: AdmissionLimits) -> None:
    """Its moment would be missed if it were said to wait for a slot: nothing is written then."""
    running = [Running(f"r{number}", "a.a") for number in range(3)]
    answer = choose([task("later", 1, 0, "a.a", not_before=NOW + 5)], running, limits, NOW)
    assert answer.waiting == {"later": WaitReason.NOT_BEFORE}
    assert answer.next_wakeup == NOW + 5


def test_a_hurried_look_reads_no_further_than_until_the_machine_is_full() -> None:
    queue = iter([task(f"t{number}", number) for number in range(100)])
    answer = choose(queue, [Running(f"r{number}", f"other.{number}") for number in range(8)], SEED, NOW, hurried=True)
    assert (answer.start, answer.whole) == (("t0", "t1"), False)
    assert len(list(queue)) == 97, "one more than could start, to see that there is one"


def test_a_capability_may_tighten_its_limit_and_not_widen_it() -> None:
    tight = [task(f"t{number}", number, tool="a.a", concurrency=1) for number in range(3)]
    assert choose(tight, [], SEED, NOW).start == ("t0",)
    wide = [task(f"t{number}", number, tool="a.a", concurrency=8) for number in range(8)]
    assert choose(wide, [], SEED, NOW).start == ("t0", "t1", "t2")


def test_time_holds_back_and_wakes() -> None:
    queue = [
        task("later", 1, not_before=NOW + 50),
        task("now", 2, not_before=NOW),
        task("again", 3, retry_at=NOW + 20),
        task("both", 4, retry_at=NOW + 5, not_before=NOW + 10),
    ]
    answer = choose(queue, [], SEED, NOW)
    assert answer.start == ("now",)
    assert answer.waiting == {
        "later": WaitReason.NOT_BEFORE,
        "again": WaitReason.RETRY_DELAY,
        "both": WaitReason.NOT_BEFORE,
    }
    assert answer.next_wakeup == NOW + 10


def depending(name: str, *statuses: Status) -> Candidate:
    return Candidate(name, 1, 1, "a.a", dependencies=tuple(Dependency(f"on-{status}", status) for status in statuses))


def test_dependencies_must_be_completed() -> None:
    assert choose([depending("a", Status.COMPLETED, Status.COMPLETED)], [], SEED, NOW).start == ("a",)
    for status in (Status.PENDING, Status.WORKING, Status.PAUSED, Status.INPUT_REQUIRED, Status.AUTH_REQUIRED):
        answer = choose([depending("a", Status.COMPLETED, status)], [], SEED, NOW)
        assert answer.waiting == {"a": WaitReason.DEPENDENCY}
    for status in (Status.FAILED, Status.CANCELED):
        answer = choose([depending("a", Status.WORKING, status)], [], SEED, NOW)
        assert answer.failed == {"a": f"on-{status}"}, "it fails at once, without waiting for the others"


_moments = st.none() | st.integers(NOW - 5, NOW + 5)
_candidates = st.builds(
    lambda priority, tool, concurrency, not_before, retry_at, statuses: (
        priority, tool, concurrency, not_before, retry_at, statuses,
    ),
    st.integers(0, 3), st.sampled_from(["a.a", "b.b", "c.c"]), st.none() | st.integers(1, 4), _moments, _moments,
    st.lists(st.sampled_from(list(Status)), max_size=2),
)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(
    st.lists(_candidates, max_size=25),
    st.lists(st.sampled_from(["a.a", "b.b", "z.z"]), max_size=6),
    st.integers(1, 8),
    st.integers(1, 4),
)
def test_what_holds_for_any_queue(
    drawn: list[tuple[int, str, int | None, int | None, int | None, list[Status]]],
    tools: list[str],
    most: int,
    per_tool: int,
) -> None:
    queue = [
        Candidate(
            f"t{number}", number, row[0], row[1], row[2], row[3], row[4],
            tuple(Dependency(f"d{number}-{index}", status) for index, status in enumerate(row[5])),
        )
        for number, row in enumerate(drawn)
    ]  # fmt: skip
    running = [Running(f"r{number}", tool) for number, tool in enumerate(tools)]
    limits = AdmissionLimits(most, per_tool)
    answer = choose(queue, running, limits, NOW)
    by_id = {one.id: one for one in queue}

    # Everybody is answered exactly once, and the order in which they are given makes no difference.
    assert sorted([*answer.start, *answer.failed, *answer.waiting]) == sorted(by_id)
    assert choose(reversed(queue), running, limits, NOW) == answer

    # Who looks no further than until the machine is full lets the same start, and says nothing else of those it saw.
    best_first = sorted(queue, key=lambda one: (-one.priority, one.sequence))
    quick = choose(iter(best_first), running, limits, NOW, hurried=True)
    assert quick.start == answer.start
    assert quick.failed.items() <= answer.failed.items()
    assert quick.waiting.items() <= answer.waiting.items()
    assert quick == answer if quick.whole else len(answer.start) >= most - len(tools)

    # Limits hold.
    used = Counter(tools)
    assert len(answer.start) <= max(0, most - len(tools))
    for name in answer.start:
        one = by_id[name]
        used[one.capability_id] += 1
        assert used[one.capability_id] <= per_tool
        if one.concurrency is not None:
            assert used[one.capability_id] <= one.concurrency
        assert all(dependency.status is Status.COMPLETED for dependency in one.dependencies)
        assert max(one.not_before or 0, one.retry_at or 0) <= NOW

    # Order holds: whoever starts is not overtaken inside its capability, nor by a lower priority for the last slot.
    ranks = [(-by_id[name].priority, by_id[name].sequence) for name in answer.start]
    assert ranks == sorted(ranks)
    for name, reason in answer.waiting.items():
        if reason is WaitReason.CONCURRENCY_LIMIT:
            assert len(answer.start) >= most - len(tools), "no slot stays empty"
            assert all(rank < (-by_id[name].priority, by_id[name].sequence) for rank in ranks)

    # The wake-up is the first moment at which time changes the answer.
    held = [by_id[n] for n, why in answer.waiting.items() if why in (WaitReason.NOT_BEFORE, WaitReason.RETRY_DELAY)]
    ready = [max(one.not_before or 0, one.retry_at or 0) for one in held]
    assert answer.next_wakeup == min(ready, default=None)
    assert all(moment > NOW for moment in ready)


def test_cycles_are_found() -> None:
    assert find_cycle({"a": ["b"], "b": ["c"], "c": ["a"]}) in (("a", "b", "c"), ("b", "c", "a"), ("c", "a", "b"))
    assert find_cycle({"a": ["a"]}) == ("a",)
    assert find_cycle({"a": ["b", "c"], "b": ["d"], "c": ["d"]}) is None, "meeting again is no circle"
    assert find_cycle({"a": ["gone"]}) is None
    assert find_cycle({}) is None


def test_a_long_chain_takes_no_stack() -> None:
    chain = {f"t{number}": [f"t{number + 1}"] for number in range(50_000)}
    assert find_cycle(chain) is None
    chain["t50000"] = ["t0"]
    found = find_cycle(chain)
    assert found is not None
    assert len(found) == 50_001


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.integers(0, 9), st.sets(st.integers(0, 9), max_size=3), max_size=10))
def test_a_cycle_is_one_and_is_found_when_there_is_one(drawn: dict[int, set[int]]) -> None:
    graph = {str(node): [str(target) for target in sorted(targets)] for node, targets in drawn.items()}
    found = find_cycle(graph)
    # Independent judgement: take away what depends on nothing until nothing can be taken away.
    left = {node: set(targets) for node, targets in graph.items()}
    while free := [node for node, targets in left.items() if not targets & set(left)]:
        for node in free:
            del left[node]
    assert (found is not None) == bool(left)
    if found is not None:
        for node, following in zip(found, (*found[1:], found[0]), strict=True):
            assert following in graph[node]


PRESSURE = {WaitReason.MEMORY_PRESSURE, WaitReason.CPU_PRESSURE}


def test_nobody_waits_so_nothing_is_scanned_for() -> None:
    assert next_scan([], 1.0) is None


@pytest.mark.parametrize("reason", WaitReason)
@pytest.mark.parametrize("interval", [0.1, 1.0, 3600.0])
def test_the_scan_is_slow_where_something_else_tells(reason: WaitReason, interval: float) -> None:
    """Pressure ends by itself; everything else by a write, a moment or a call."""
    expected = interval if reason in PRESSURE else max(interval, SLOW_SCAN)
    assert next_scan([reason], interval) == expected
    assert next_scan([WaitReason.NOT_BEFORE, reason], interval) == expected
    assert next_scan([reason, WaitReason.CPU_PRESSURE], interval) == interval
