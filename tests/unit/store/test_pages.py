"""Pages of a list while it changes: a cursor shows each task that was there once, whatever is inserted meanwhile."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from aiosd.model.ids import Prefix, new_id
from aiosd.model.status import Level, Phase, Priority, Status
from aiosd.model.task import Task
from aiosd.store import tasks
from aiosd.store.database import Database
from aiosd.store.tasks import TaskFilter

START = 1_767_607_200_000_000


def task(number: int, *, uid: int = 1000, status: Status = Status.COMPLETED, **more: object) -> Task:
    """The task of that number."""
    moment = START + number
    return Task(
        id=new_id(Prefix.TASK), uid=uid, capability_id=f"test.c{number % 3}.run", title=str(number), level=Level.LOW,
        status=status, phase=Phase(status.value) if status.is_final else Phase.QUEUED, priority=Priority.NORMAL,
        created_at=moment, updated_at=moment, ended_at=moment if status.is_final else None,
        creator={"uid": uid, "subject": ":1.1"}, retry_max=1, retry_delay_ms=1000, **more,  # type: ignore[arg-type]
    )  # fmt: skip


@settings(max_examples=30, deadline=None)
@given(
    before=st.integers(0, 40), limit=st.integers(1, 9), descending=st.booleans(),
    meanwhile=st.lists(st.integers(0, 4), max_size=60), chosen=st.sampled_from(["all", "two states", "glob", "uid"]),
)  # fmt: skip
def test_a_cursor_shows_what_was_there_once(
    *, before: int, limit: int, descending: bool, meanwhile: list[int], chosen: str
) -> None:
    wanted = {
        "all": TaskFilter(),
        "two states": TaskFilter(uid=1000, statuses=(Status.COMPLETED, Status.PENDING)),
        "glob": TaskFilter(capability_glob="test.c[01].*"),
        "uid": TaskFilter(uid=1000),
    }[chosen]

    async def scenario(database: Database) -> None:
        count = before

        async def add(how_many: int) -> None:
            nonlocal count
            for _ in range(how_many):
                made = task(count, uid=1000 + count % 2, status=(Status.COMPLETED, Status.PENDING)[count % 5 == 0])
                await database.write(lambda transaction, made=made: tasks.insert(transaction, made))  # type: ignore[misc]
                count += 1

        count = 0
        await add(before)
        whole = await database.read(lambda db: tasks.page(db, wanted, limit=100, descending=descending))
        there = [one.id for one in whole.tasks]
        assert whole.total == len(there)
        seen: list[str] = []
        cursor, inserts = None, iter(meanwhile)
        for _ in range(before + len(meanwhile) * 5 + 2):
            page = await database.read(
                lambda db, cursor=cursor: tasks.page(db, wanted, limit=limit, before=cursor, descending=descending)  # type: ignore[misc]
            )
            seen += [one.id for one in page.tasks]
            assert page.has_more == (page.next_sequence is not None)
            cursor = page.next_sequence
            if cursor is None:
                break
            await add(next(inserts, 0))
        assert cursor is None
        assert len(seen) == len(set(seen)), "nothing twice"
        assert [one for one in seen if one in set(there)] == there, "all that was there, in its order"
        if descending:
            assert seen == there, "what came meanwhile is before the first page"

    async def opened(place: Path) -> None:
        async with Database.open(place / "tasks.db") as database:
            await scenario(database)

    with tempfile.TemporaryDirectory() as place:
        asyncio.run(opened(Path(place)))


def test_every_filter_chooses(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Database.open(tmp_path / "tasks.db") as database:
            root = task(0, metadata={"tags": ["shopping", "comparison"]})
            child = task(1, uid=1001, parent_id=root.id, status=Status.PENDING)
            in_session = task(2, session_id="sess-1", metadata={"tags": "shopping"})
            for one in (root, child, in_session):
                await database.write(lambda transaction, one=one: tasks.insert(transaction, one))  # type: ignore[misc]

            async def found(**chosen: object) -> list[str]:
                wanted = TaskFilter(**chosen)  # type: ignore[arg-type]
                page = await database.read(lambda db: tasks.page(db, wanted, descending=False))
                assert page.total == len(page.tasks)
                return [one.title for one in page.tasks]

            assert await found() == ["0", "1", "2"]
            assert await found(tag="shopping") == ["0", "2"]
            assert await found(tag="comparison") == ["0"]
            assert await found(tag="shop") == []
            assert await found(parent_id=root.id) == ["1"]
            assert await found(session_id="sess-1") == ["2"]
            assert await found(uid=1001) == ["1"]
            assert await found(statuses=(Status.PENDING,)) == ["1"]
            assert await found(capability_glob="test.c2.*") == ["2"]
            assert await found(created_from=START + 1, created_to=START + 1) == ["1"]
            assert await found(uid=1000, statuses=(Status.COMPLETED,), created_from=START + 1) == ["2"]

    asyncio.run(scenario())
