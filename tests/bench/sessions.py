"""What a session costs with many finished tasks behind it: `python3 -m tests.bench.sessions [--rounds N] [--calls N]`.

One store for each size, each with the real core and a JSON-RPC door in front of it, all in this process and asked in
turns. A figure is the processor time of one call, client included (the client's part is the same for every size), so
that what else the machine does hardly counts. Programs are the tests' own coroutines: this is about the control plane.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiosd.auth.caller import BusSubject, Caller
from aiosd.config import Config
from aiosd.core import sessions
from aiosd.model.ids import Prefix, event_id
from aiosd.model.wire_sessions import SessionCreate
from aiosd.store.database import Database
from tests.bench import seed
from tests.bench.figures import Figure, Spread, as_text
from tests.rpc.serving import Http, door
from tests.unit.core.rig import PLAIN, core

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from aiosd.store.database import Transaction

SIZES = (100, 1_000, 10_000, 100_000)
"""Finished tasks of the session; each has its five events on the timeline, half of them are children of one task."""
ME = Caller(os.geteuid(), BusSubject(":1.7"))
PAGE = 100
UNLIMITED = Config(
    schedule_interval=30.0, creates_per_second=100_000, creates_burst=1_000_000, calls_per_second=100_000,
    calls_burst=1_000_000,
)  # fmt: skip


@dataclass
class Store:
    """One size: who is asked about it, and about what."""

    size: int
    http: Http
    session: str
    parent: str
    middle: str
    version: int = 1
    made: str = ""
    samples: dict[str, list[float]] = field(default_factory=dict)

    async def ask(self, method: str, **params: object) -> Any:
        """What it answers."""
        answer = await self.http.call(f"aios/{method}", {"session_id": self.session, **params})
        assert "result" in answer, answer
        return answer["result"]


def _begun(transaction: Transaction) -> str:
    """The session with one finished task, whose row and events the others are copies of."""
    session = sessions.create(transaction, ME, SessionCreate(title="Large"), suppress=False)
    seed.finished(transaction, uid=ME.uid, session_id=session.id)
    return session.id


def _finish(transaction: Transaction, session: str, parent: str) -> str:
    """Every other task is a child of the one at work, and each has events as the first one has; one in the middle."""
    transaction.execute("UPDATE tasks SET parent_id = ? WHERE session_id = ? AND seq % 2 = 0", (parent, session))
    transaction.execute(
        "INSERT INTO events (task_id, session_id, uid, source, type, kind, time, payload, old_status, new_status,"
        " phase) SELECT tasks.id, tasks.session_id, model.uid, model.source, model.type, model.kind, model.time,"
        " model.payload, model.old_status, model.new_status, model.phase"
        " FROM tasks, (SELECT * FROM events WHERE task_id IS NOT NULL) AS model"
        " WHERE tasks.session_id = ? AND NOT EXISTS (SELECT 1 FROM events WHERE events.task_id = tasks.id)",
        (session,),
    )
    last = transaction.execute("SELECT max(seq) FROM events").fetchone()[0]
    return event_id(int(last) // 2)


def _plan_them(transaction: Transaction) -> None:
    """All of them are the plan's."""
    transaction.execute(
        "INSERT OR IGNORE INTO plan_tasks (plan_seq, task_seq, version) SELECT plans.seq, tasks.seq, 1"
        " FROM tasks, plans WHERE tasks.session_id = plans.session_id"
    )


async def _fill(path: Path, size: int) -> tuple[str, str, str]:
    """A store with the session; its id, the id that the parent is to have, and an event in the middle."""
    parent = f"{Prefix.TASK}-u{ME.uid}-parent"
    async with Database.open(path) as database:
        session = await database.write(_begun)
        for begin in range(1, size, seed.COPIED):
            count = min(seed.COPIED, size - begin)
            await database.write(partial(seed.copies, count=count))
        return session, parent, await database.write(lambda tx: _finish(tx, session, parent))


async def _prepared(stack: AsyncExitStack, place: Path, size: int) -> Store:
    await asyncio.to_thread(place.mkdir)
    session, parent, middle = await _fill(place / "aiosd.db", size)
    aios = await stack.enter_async_context(core(place, config=UNLIMITED))
    paths, _ = await stack.enter_async_context(door(place, aios.manager, aios.hub))
    http = await stack.enter_async_context(Http.connect(paths.http))
    store = Store(size, http, session, parent, middle)
    # A task that stays unfinished, above half of those that have ended.
    named = {"session_id": session, "handle_token": "parent", "not_before": "2100-01-01T00:00:00Z"}
    await store.ask("task.create", capability_id=PLAIN, options={"async": True, **named})
    await store.ask("plan.create", tasks=[{"title": "first"}])
    await aios.database.write(_plan_them)
    return store


async def _change(store: Store) -> None:
    """A diff that cancels one task and makes another."""
    tree = {"cancel_tasks": [store.made]} if store.made else {}
    diff = {"change_reason": "x", **tree, "create_tasks": [{"title": "next"}]}
    done = await store.ask("plan.apply_diff", version=store.version, diff=diff)
    store.version, store.made = done["version"], done["applied"]["created"][0]["task_id"]


async def _run(store: Store) -> None:
    """A task of a capability from its making to its end."""
    options = {"async": True, "session_id": store.session}
    made = await store.ask("task.create", capability_id=PLAIN, options=options)
    await store.ask("task.wait", task_id=made["task_id"])


async def _subtree(store: Store) -> None:
    """A task under the one with many finished children gets another priority with all under it."""
    await store.ask("task.set_priority", task_id=store.parent, priority="high", recursive=True)


OPERATIONS: dict[str, Callable[[Store], Awaitable[object]]] = {
    "a message": lambda store: store.ask("message.add", content="hello"),
    "the session": lambda store: store.ask("session.get"),
    "the timeline's newest page": lambda store: store.ask("session.timeline", order="desc", limit=PAGE),
    "the timeline's oldest page": lambda store: store.ask("session.timeline", limit=PAGE),
    "a page in its middle": lambda store: store.ask("session.timeline", last_event_id=store.middle, limit=PAGE),
    "a page of the task tree": lambda store: store.ask("session.tree", limit=PAGE),
    "the priority of a subtree": _subtree,
    "a page of the plan": lambda store: store.ask("plan.get", limit=PAGE),
    "a diff of the plan": _change,
    "a task of it, from create to its end": _run,
}


async def _measure(sizes: Sequence[int], rounds: int, calls: int) -> list[Store]:
    async with AsyncExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="aiosd-sessions-")))
        stores = [await _prepared(stack, place / str(size), size) for size in sizes]
        for number in range(rounds + 1):
            for name, operation in OPERATIONS.items():
                for store in stores:
                    before = time.process_time()
                    for _ in range(calls):
                        await operation(store)
                    took = (time.process_time() - before) * 1000 / calls
                    if number:  # the first round warms up
                        store.samples.setdefault(name, []).append(took)
        return [replace(store) for store in stores]


def figures(sizes: Sequence[int] = SIZES, rounds: int = 5, calls: int = 20) -> list[Figure]:
    """Each operation at each size beside the smallest."""
    few, *more = asyncio.run(_measure(sizes, rounds, calls))
    return [
        Figure(
            f"{name}, {store.size} finished tasks in the session, {few.size} as the floor", "ms",
            Spread.of(store.samples[name]), Spread.of(few.samples[name]), "≤ 1.3",
        )
        for name in OPERATIONS
        for store in more
    ]  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="tests.bench.sessions", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="in turns (default: %(default)s)")
    parser.add_argument("--calls", type=int, default=20, help="of each operation in a round (default: %(default)s)")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="finished tasks")
    options = parser.parse_args()
    print(as_text(figures(options.sizes, options.rounds, options.calls)))


if __name__ == "__main__":
    main()
