"""Parents, children and who waits for whom, as plain graphs of ids. Pure; everything takes time in proportion to its
edges and no stack, so a chain may be as long as it likes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence


def find_cycle(graph: Mapping[str, Collection[str]]) -> tuple[str, ...] | None:
    """A circle in "depends on", each id followed by one it depends on and the last by the first; None without one.

    What is named but has no entry of its own depends on nothing.
    """
    done: set[str] = set()
    for root in graph:
        if root in done:
            continue
        path: list[str] = [root]
        on_path = {root}
        open_edges: list[Iterator[str]] = [iter(graph[root])]
        while path:
            following = next(open_edges[-1], None)
            if following is None:
                open_edges.pop()
                on_path.discard(path[-1])
                done.add(path.pop())
            elif following in on_path:
                return tuple(path[path.index(following) :])
            elif following not in done:
                path.append(following)
                on_path.add(following)
                open_edges.append(iter(graph.get(following, ())))
    return None


def in_order(graph: Mapping[str, Collection[str]]) -> tuple[str, ...]:
    """The graph's own ids, each after all that it depends on, else as given. Raises ValueError when there is a circle.

    What is named but has no entry of its own is there already.
    """
    if find_cycle(graph) is not None:
        raise ValueError("there is a circle")
    placed: dict[str, None] = {}
    for root in graph:
        waiting = [root]
        while waiting:
            missing = [one for one in graph[waiting[-1]] if one in graph and one not in placed]
            if missing:
                waiting.append(missing[0])
            else:
                placed[waiting.pop()] = None
    return tuple(placed)


def below(
    root: str, parents: Mapping[str, str | None], parent_of: Callable[[str], str | None] = lambda _: None
) -> list[str]:
    """Which of `parents`' ids are under `root`, directly or further down, in the order given.

    `parent_of` is asked about ids that are not in `parents`. A circle of parents is under nothing.
    """
    under: dict[str, bool] = {root: True}
    found: list[str] = []
    for start in parents:
        if start == root:
            continue
        path: list[str] = []
        at: str | None = start
        while at is not None and at not in under:
            under[at] = False  # until it is known better; a circle ends here
            path.append(at)
            at = parents[at] if at in parents else parent_of(at)
        verdict = at is not None and under[at]
        for one in path:
            under[one] = verdict
        if under[start]:
            found.append(start)
    return found


def preorder(rows: Iterable[tuple[str, str | None]]) -> list[tuple[str, int]]:
    """Each id with its depth, every parent followed by its children in the order given.

    A row whose parent is not among the rows is a root; rows in a circle of parents are left out.
    """
    children: dict[str | None, list[str]] = {}
    known: Sequence[tuple[str, str | None]] = list(rows)
    ids = {identifier for identifier, _ in known}
    for identifier, parent in known:
        children.setdefault(parent if parent in ids else None, []).append(identifier)
    result: list[tuple[str, int]] = []
    waiting = [(root, 0) for root in reversed(children.get(None, []))]
    while waiting:
        identifier, depth = waiting.pop()
        result.append((identifier, depth))
        waiting.extend((child, depth + 1) for child in reversed(children.get(identifier, [])))
    return result
