"""Statements that are put together from a table's own column names, never from what a caller sent."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection


@cache
def update_one(table: str, columns: Collection[str], names: tuple[str, ...]) -> str:
    """Set the columns `names` of the row with an id, which is the last value; kept, since there are few ways to.

    `columns`: those that the table has; hashable. Raises KeyError for a name that is none of them.
    """
    unknown = set(names) - set(columns)
    if unknown:
        raise KeyError(sorted(unknown)[0])
    return f"UPDATE {table} SET {', '.join(f'{name} = ?' for name in names)} WHERE id = ?"  # noqa: S608  our own names
