"""Fill the database with finished tasks, through the store's own code, while the daemon is stopped.

`python3 -m tests.bench.seed COUNT`, as the user aiosd, in the box. Each task is made, run and ended as the daemon does
it, history, events and audit included.
"""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from aiosd.core import changes, clock, run_states
from aiosd.core.outcome import Verdict
from aiosd.model.event import Source
from aiosd.model.ids import Prefix, new_id
from aiosd.model.status import Level, Phase, Priority, Reason, Status
from aiosd.model.task import RunState, Task
from aiosd.store import runs
from aiosd.store.database import Database

if TYPE_CHECKING:
    from aiosd.store.database import Transaction

PATH = Path("/var/lib/aiosd/aiosd.db")
TOGETHER = 200
COPIED = 5000
BOOT = "0" * 32


def finished(transaction: Transaction, uid: int = 0, session_id: str | None = None) -> None:
    """One task, from its making to its end."""
    moment = clock.now()
    task = Task(
        id=new_id(Prefix.TASK), uid=uid, capability_id="bench.noop", title="Do nothing", level=Level.PUBLIC,
        status=Status.PENDING, phase=Phase.QUEUED, priority=Priority.NORMAL, created_at=moment, updated_at=moment,
        creator={"uid": uid, "subject": ":1.1"}, retry_max=1, retry_delay_ms=1000, session_id=session_id,
    )  # fmt: skip
    stored = changes.record_new(transaction, task, source=Source.USER, actor=f"uid:{uid}", schema=None)
    run = run_states.assign(transaction, stored, BOOT).run
    running = run_states.mark_running(transaction, run.id, {"unit": f"aios-task-{run.id}.scope"})
    if running is None:
        raise LookupError(run.id)
    ended = {"state": RunState.ENDED.value, "ended_at": clock.now(), "exit": {"exit_status": 0}}
    runs.update(transaction, run.id, ended)
    run_states.end(transaction, running, Verdict(Status.COMPLETED, Reason.RESULT, {"exit_status": 0}))


def _some(transaction: Transaction) -> None:
    for _ in range(TOGETHER):
        finished(transaction)


def copies(transaction: Transaction, count: int) -> None:
    """So many more tasks like the last one: the row alone, which is all that a list reads."""
    columns = [str(row[1]) for row in transaction.execute("PRAGMA table_info(tasks)") if row[1] not in ("seq", "id")]
    names = ", ".join(columns)
    statement = (
        "WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < ?)"  # noqa: S608
        f" INSERT INTO tasks (id, {names}) SELECT 'task-' || lower(hex(randomblob(13))), {names}"
        " FROM number, (SELECT * FROM tasks ORDER BY seq DESC LIMIT 1)"
    )
    transaction.execute(statement, (count,))


async def fill(path: Path, count: int, *, uid: int) -> None:
    """A database with that many finished tasks of a user, quickly: the most are copies of one's row."""
    async with Database.open(path) as database:
        await database.write(partial(finished, uid=uid))
        for begin in range(1, count, COPIED):
            await database.write(partial(copies, count=min(COPIED, count - begin)))


async def main() -> None:
    """Write them."""
    count = int(sys.argv[1])
    async with Database.open(PATH) as database:
        for _ in range(count // TOGETHER):
            await database.write(_some)
        for _ in range(count % TOGETHER):
            await database.write(finished)


if __name__ == "__main__":
    asyncio.run(main())
