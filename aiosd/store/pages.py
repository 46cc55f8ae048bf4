"""Pages that end at a size, too: a row may hold a quarter of a MiB that a caller wrote, and a thousand such rows are
neither for this process's memory nor for one message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")

PAGE_SIZE = 1 << 20
"""Characters of a page, about. In bytes of JSON that is at most six times as many, as a rule as many."""


def page(rows: Iterable[T], limit: int, size: Callable[[T], int], *, most: int = PAGE_SIZE) -> tuple[list[T], bool]:
    """The first of `rows`: at most `limit`, and of about `most` characters, one row at least. And whether there are
    more; no more than one of those is fetched."""
    found: list[T] = []
    total = 0
    for row in rows:
        total += size(row)
        if len(found) == limit or (found and total > most):
            return found, True
        found.append(row)
    return found, False


def size_of(row: Iterable[object]) -> int:
    """Characters of a row's texts."""
    return sum(len(value) for value in row if isinstance(value, str))
