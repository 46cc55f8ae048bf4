"""Fill the database with finished tasks, through the store's own code, while the daemon is stopped.

`python3 -m tests.bench.seed COUNT`, as the user aiosd, in the box. Each task is made, run and ended as the daemon does
it, history, events and audit included.
"""

from __future__ import annotations

import asyncio
import sys
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
BOOT = "0" * 32


def _finished(transaction: Transaction) -> None:
    moment = clock.now()
    task = Task(
        id=new_id(Prefix.TASK), uid=0, capability_id="bench.noop", title="Do nothing", level=Level.PUBLIC,
        status=Status.PENDING, phase=Phase.QUEUED, priority=Priority.NORMAL, created_at=moment, updated_at=moment,
        creator={"uid": 0, "subject": ":1.1"}, retry_max=1, retry_delay_ms=1000,
    )  # fmt: skip
    stored = changes.record_new(transaction, task, source=Source.USER, actor="uid:0", schema=None)
    run = run_states.assign(transaction, stored, BOOT).run
    running = run_states.mark_running(transaction, run.id, {"unit": f"aios-task-{run.id}.scope"})
    if running is None:
        raise LookupError(run.id)
    ended = {"state": RunState.ENDED.value, "ended_at": clock.now(), "exit": {"exit_status": 0}}
    runs.update(transaction, run.id, ended)
    run_states.end(transaction, running, Verdict(Status.COMPLETED, Reason.RESULT, {"exit_status": 0}))


def _some(transaction: Transaction) -> None:
    for _ in range(TOGETHER):
        _finished(transaction)


async def main() -> None:
    """Write them."""
    count = int(sys.argv[1])
    async with Database.open(PATH) as database:
        for _ in range(count // TOGETHER):
            await database.write(_some)
        for _ in range(count % TOGETHER):
            await database.write(_finished)


if __name__ == "__main__":
    asyncio.run(main())
