"""Tasks by their parents. What has not ended is found by an index that holds nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiosd.model import tree
from aiosd.store import tasks

if TYPE_CHECKING:
    from collections.abc import Collection

    from aiosd.model.task import Task
    from aiosd.store.tasks import Executor


def open_below(db: Executor, top: Task, without: Collection[str] = ()) -> list[Task]:
    """The unfinished tasks under `top` that have the same owner, oldest first; also those under finished ones."""
    found = [tasks.get(db, identifier) for identifier in open_ids_below(db, top) if identifier not in without]
    return [task for task in found if task is not None]


def open_ids_below(db: Executor, top: Task) -> list[str]:
    """Their ids. Found from the unfinished ones upwards, so that any number of finished children costs nothing."""
    if db.execute("SELECT 1 FROM tasks WHERE parent_id = ? LIMIT 1", (top.id,)).fetchone() is None:
        return []
    rows = db.execute(
        "SELECT id, parent_id FROM tasks WHERE uid = ? AND parent_id IS NOT NULL AND ended_at IS NULL ORDER BY seq",
        (top.uid,),
    )
    parents: dict[str, str | None] = {str(identifier): str(parent) for identifier, parent in rows}

    def parent_of(identifier: str) -> str | None:
        row = db.execute("SELECT parent_id FROM tasks WHERE id = ?", (identifier,)).fetchone()
        return None if row is None or row[0] is None else str(row[0])

    return tree.below(top.id, parents, parent_of)


def with_all_below(db: Executor, tops: list[Task], limit: int) -> tuple[list[Task], bool]:
    """These tasks and all under them, level by level, at most `limit`; whether that is all there are."""
    found = tops[:limit]
    complete = len(tops) <= limit
    position = 0
    while position < len(found):
        children = tasks.children(db, found[position].id, limit - len(found) + 1)
        complete = complete and len(found) + len(children) <= limit
        found += children[: limit - len(found)]
        position += 1
    return found, complete
