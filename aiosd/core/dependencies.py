"""Whether tasks wait for each other in a circle, which would be for ever. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping


def find_cycle(graph: Mapping[str, Collection[str]]) -> tuple[str, ...] | None:
    """A circle in "depends on", each task followed by one it depends on and the last by the first; None without one.

    What is named but has no entry of its own depends on nothing. Takes time in proportion to the edges and no stack, so
    a chain may be as long as it likes.
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
