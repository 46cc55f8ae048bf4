"""What is done to very many tasks at once goes in steps, for the writer is everybody's.

A tree or a session of up to STEP unfinished tasks is changed in one transaction. Of a larger one, `thin` does the rest
beforehand, the newest first, so that what is left for that transaction is small; others write in between. Whoever was
cut off in the middle asks again: each step is idempotent, and what is above stands until the last one.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from aiosd.store import tasks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection

    from aiosd.model.task import Task
    from aiosd.store.database import Database, Transaction
    from aiosd.store.tasks import Executor

STEP = 250
"""Tasks that one transaction changes: about half a second of the writer on a slow machine."""


async def thin(
    database: Database, unfinished: Callable[[Executor], list[str]], each: Callable[[Transaction, Task], Task]
) -> AsyncIterator[list[Task]]:
    """Do `each` to `unfinished` tasks (ids, oldest first) until STEP are left; yields what was done in each step."""
    done: set[str] = set()
    while len(await database.read(lambda db: _left(db, unfinished, done))) > STEP:
        step = await database.write(partial(_some, unfinished=unfinished, each=each, done=done))
        done.update(task.id for task in step)
        yield step


def _left(db: Executor, unfinished: Callable[[Executor], list[str]], done: Collection[str]) -> list[str]:
    return [one for one in unfinished(db) if one not in done]


def _some(
    transaction: Transaction, unfinished: Callable[[Executor], list[str]],
    each: Callable[[Transaction, Task], Task], done: Collection[str],
) -> list[Task]:  # fmt: skip
    chosen = reversed(_left(transaction, unfinished, done)[-STEP:])
    found = [task for task in (tasks.get(transaction, one) for one in chosen) if task is not None]
    return [each(transaction, task) for task in found]
