"""Graphs of ids, judged by slow and simple ways of finding the same."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiosd.model.tree import below, find_cycle, in_order, preorder

NODES = st.sampled_from([f"t{number}" for number in range(9)])
PARENTS = st.dictionaries(NODES, st.one_of(st.none(), NODES), max_size=9)
GRAPHS = st.dictionaries(NODES, st.sets(NODES, max_size=3).map(sorted), max_size=9)


def climb(start: str, parents: dict[str, str | None]) -> list[str]:
    """Every ancestor, at most as many as there are nodes."""
    found: list[str] = []
    at = parents.get(start)
    while at is not None and len(found) < 20:
        found.append(at)
        at = parents.get(at)
    return found


@settings(max_examples=150, deadline=None)
@given(NODES, PARENTS)
def test_what_is_below_has_the_root_among_its_ancestors(root: str, parents: dict[str, str | None]) -> None:
    found = below(root, parents)
    assert found == [one for one in parents if one != root and root in climb(one, parents)]


def test_ancestors_that_have_ended_are_asked_for() -> None:
    ended = {"middle": "root"}
    asked: list[str] = []

    def parent_of(one: str) -> str | None:
        asked.append(one)
        return ended.get(one)

    assert below("root", {"leaf": "middle", "other": "elsewhere", "twin": "middle"}, parent_of) == ["leaf", "twin"]
    assert asked == ["middle", "elsewhere"], "each once"


@settings(max_examples=150, deadline=None)
@given(PARENTS)
def test_preorder_shows_each_row_once_after_its_parent(parents: dict[str, str | None]) -> None:
    rows = preorder(parents.items())
    shown = [one for one, _ in rows]
    assert len(set(shown)) == len(shown)
    depths = dict(rows)
    for one, depth in rows:
        parent = parents[one]
        if parent in parents:
            assert shown.index(str(parent)) < shown.index(one)
            assert depth == depths[str(parent)] + 1
        else:
            assert depth == 0
    circling = {one for one in parents if len(climb(one, parents)) >= 20}
    assert set(shown) == set(parents) - circling


@settings(max_examples=150, deadline=None)
@given(GRAPHS)
def test_an_order_has_everything_after_what_it_needs(graph: dict[str, list[str]]) -> None:
    if find_cycle(graph) is not None:
        with pytest.raises(ValueError, match="circle"):
            in_order(graph)
        return
    order = in_order(graph)
    assert sorted(order) == sorted(graph)
    for one, needs in graph.items():
        assert all(order.index(need) < order.index(one) for need in needs if need in graph)


def test_long_chains_take_no_stack() -> None:
    chain: dict[str, str | None] = {f"t{number}": f"t{number + 1}" for number in range(50_000)}
    assert len(below("t50000", chain)) == 50_000
    assert preorder(chain.items())[-1] == ("t0", 49_999)
    assert in_order({one: [] if parent is None else [parent] for one, parent in chain.items()})[-1] == "t0"
