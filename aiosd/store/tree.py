"""Tasks by their parents. What has not ended is found by an index that holds nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiosd.model import tree
from aiosd.store import tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

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


def page(
    db: Executor, next_root: Callable[[int], Task | None], behind: Sequence[Task], limit: int
) -> tuple[list[tuple[Task, int]], bool]:
    """Tasks with their depths, each followed by all under it, oldest first; at most `limit`, and whether there is more.

    `next_root`: the first root after that sequence number. `behind`: the last task of the page before and what is above
    it, the root first (`lineage`); empty for the first page. Two look-ups for each task, however large the tree is.
    """
    found: list[tuple[Task, int]] = []
    above = [*behind]
    after = 0
    while True:
        task = tasks.next_child(db, above[-1].id, after) if above else next_root(after)
        if task is None:
            if not above:
                return found, False
            after = above.pop().sequence
        elif len(found) == limit:
            return found, True
        else:
            found.append((task, len(above)))
            above.append(task)
            after = 0


def lineage(db: Executor, sequence: int, top: str | None) -> list[Task]:
    """The task of that number and what is above it, up to the task `top` or to one without a parent, the highest first;
    empty when there is no such task, or `top` is not above it."""
    found = tasks.by_sequence(db, sequence)
    above: list[Task] = []
    while found is not None:
        above.append(found)
        if found.id == top or (found.parent_id is None and top is None):
            return above[::-1]
        found = None if found.parent_id is None else tasks.get(db, found.parent_id)
    return []
