"""Ids: form, order and what is not one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiosd.model.ids import Prefix, encode, event_id, event_sequence, is_id, new_id


def test_encoding_is_that_of_the_ulid_specification() -> None:
    # https://github.com/ulid/spec: the largest valid ULID's time part is 7ZZZZZZZZZ = 281474976710655 ms, and
    # 1469918176385 ms is 01ARYZ6S41.
    assert encode(281474976710655, 10) == "7zzzzzzzzz"
    assert encode(1469918176385, 10) == "01aryz6s41"


@pytest.mark.parametrize("prefix", list(Prefix))
def test_a_new_id_is_one_of_its_own_prefix_only(prefix: Prefix) -> None:
    made = new_id(prefix)
    assert is_id(made, prefix)
    assert not any(is_id(made, other) for other in Prefix if other is not prefix)


def test_prefixes_are_those_of_the_seeds() -> None:
    assert {"task", "art", "evt", "sub", "ps", "msg", "apr", "wa"} <= {prefix.value for prefix in Prefix}


@given(st.integers(0, 2**48 - 1), st.integers(0, 2**48 - 1))
def test_ids_sort_by_time(first: int, second: int) -> None:
    if first == second:
        return
    low, high = sorted((first, second))
    assert new_id(Prefix.TASK, now_ms=low) < new_id(Prefix.TASK, now_ms=high)


def test_ids_of_one_moment_differ() -> None:
    assert len({new_id(Prefix.TASK, now_ms=1) for _ in range(1000)}) == 1000


@pytest.mark.parametrize(
    "text",
    [
        "",
        "task-",
        "task-001",
        "task-01aryz6s41tsv4rrffq69g5fav ",
        "task-01aryz6s41tsv4rrffq69g5fav\n",
        "task_01aryz6s41tsv4rrffq69g5fav",
        "task-01ARYZ6S41TSV4RRFFQ69G5FAV",
        "task-01aryz6s41tsv4rrffq69g5fai",
        "task-01aryz6s41tsv4rrffq69g5fal",
        "task-01aryz6s41tsv4rrffq69g5fau",
        "task-../../../../../../etc/passwd"[:31],
        "TASK-01aryz6s41tsv4rrffq69g5fav",
        "xtask-01aryz6s41tsv4rrffq69g5fav",
        "task-01aryz6s41tsv4rrffq69g5fa\u0663",
    ],
)
def test_what_is_no_id(text: str) -> None:
    assert not is_id(text, Prefix.TASK)


def test_the_specifications_example_is_an_id() -> None:
    assert is_id("task-01aryz6s41tsv4rrffq69g5fav", Prefix.TASK)


@given(st.integers(0, 10**16 - 1))
def test_event_ids_carry_their_number(sequence: int) -> None:
    assert event_sequence(event_id(sequence)) == sequence


@given(st.integers(0, 10**16 - 2))
def test_event_ids_ascend(sequence: int) -> None:
    assert event_id(sequence) < event_id(sequence + 1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "evt-",
        "evt-1",
        "evt-000000000000000x",
        "evt--000000000000001",
        "evt-+000000000000001",
        "evt-0000_0000_000001",
        "evt-00000000000000001",
        "evt-" + "\u0661" * 16,
        "task-0000000000000001",
        " evt-0000000000000001",
    ],
)
def test_what_is_no_event_id(text: str) -> None:
    assert event_sequence(text) is None
