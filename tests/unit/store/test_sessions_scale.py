"""Sessions, trees and plans cost the same with any number of finished tasks, events and messages behind them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from aiosd.model.session import SessionStatus
from aiosd.store import candidates, journal, plans, sessions, tasks, tree
from tests.unit.store.rows import fill, instructions
from tests.unit.store.test_schema import database

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator

SIZES = (1000, 20_000)
LAST = 1 << 60

FILL = """
INSERT INTO sessions(id, uid, status, created_at, updated_at)
    SELECT 'ps-' || i, 1000, CASE i % 3 WHEN 0 THEN 'active' ELSE 'closed' END, 1, 1 FROM n;
INSERT INTO tasks(id, uid, level, status, phase, created_at, updated_at, session_id)
    VALUES ('top', 1000, 1, 'pending', 'planning', 1, 1, 'ps-1');
INSERT INTO tasks(id, uid, level, status, phase, created_at, updated_at, ended_at, session_id, parent_id)
    SELECT 't' || i, 1000, 1, 'completed', 'completed', 1, 1, 1, 'ps-1', CASE i % 2 WHEN 0 THEN 'top' END FROM n;
INSERT INTO tasks(id, uid, level, status, phase, created_at, updated_at, session_id, parent_id)
    SELECT 'open' || i, 1000, 1, 'pending', 'planning', 1, 1, 'ps-1', 'top' FROM n WHERE i <= 10;
INSERT INTO events(task_id, session_id, uid, source, type, kind, time, payload)
    SELECT 't' || i, 'ps-' || (i % 2), 1000, 'system', 'task.completed', 'task.status', i, '{}' FROM n;
INSERT INTO messages(id, session_id, uid, role, content, created_at)
    SELECT 'msg-' || i, 'ps-' || (1 + i % 2), 1000, 'user', 'x', 1 FROM n;
INSERT INTO plans(id, session_id, uid, created_at, updated_at) VALUES ('plan-1', 'ps-1', 1000, 1, 1);
INSERT INTO plan_tasks SELECT 1, seq, 1 FROM tasks WHERE session_id = 'ps-1';
"""
"""A session with as many finished tasks (half of them children of one), events and messages as `n` has rows, and ten
open tasks."""


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, sqlite3.Connection]]:
    made = {}
    for size in SIZES:
        made[size] = database(tmp_path_factory.mktemp("size") / "sessions.db")
        fill(made[size], FILL, size)
    yield made
    for one in made.values():
        one.close()


def top(db: sqlite3.Connection) -> object:
    found = tasks.get(db, "top")
    assert found is not None
    return tree.open_below(db, found)


BOTH = (SessionStatus.ACTIVE, SessionStatus.CLOSED)
PLAN = plans.Plan("plan-1", "ps-1", 1000, 1, "", 1, 1, sequence=1)


@pytest.mark.parametrize(
    ("look", "bound"),
    [
        (lambda db: sessions.has_active_tasks(db, "ps-1"), 60),
        (lambda db: sessions.has_active_tasks(db, "ps-2"), 60),
        (lambda db: tasks.has_open(db, "ps-1"), 60),
        (lambda db: tasks.open_of_session(db, "ps-1"), 2000),
        (top, 2500),
        (lambda db: tasks.next_child(db, "top", 0), 200),
        (lambda db: tasks.next_root(db, "ps-1", 0), 300),
        (lambda db: tree.page(db, partial(tasks.next_root, db, "ps-1"), (), 10), 4000),
        (lambda db: tasks.open_ids_of_session(db, "ps-1"), 300),
        (lambda db: tasks.foremost_of_session(db, "ps-1", 5), 2000),
        (lambda db: tasks.held(db), 60),
        (lambda db: candidates.waiting(db), 450),
        (lambda db: tasks.planned_of(db, 1000), 300),
        (lambda db: sessions.page(db, 1000, BOTH, limit=10), 2500),
        (lambda db: sessions.page(db, None, BOTH, before=500, limit=10), 2500),
        (lambda db: sessions.messages(db, "ps-1", limit=10), 600),
        (lambda db: sessions.messages(db, "ps-1", after=500, limit=10), 600),
        (lambda db: journal.events_after(db, 0, session_id="ps-1", limit=50), 2500),
        (lambda db: journal.events_after(db, 700, session_id="ps-1", limit=50), 2500),
        (lambda db: journal.events_before(db, LAST, "ps-1", 50), 2500),
        (lambda db: plans.of_session(db, "ps-1"), 60),
        (lambda db: plans.task_ids(db, 1, 50), 1200),
        (lambda db: plans.task_ids(db, 1, 50, after=500), 1200),
        (lambda db: plans.open_task_ids(db, PLAN, 50, ["t1", "t2"]), 1500),
    ],
)  # fmt: skip
def test_it_costs_the_same_with_more_behind_it(
    filled: dict[int, sqlite3.Connection], look: Callable[[sqlite3.Connection], object], bound: int
) -> None:
    small, large = [instructions(connection, look) for connection in filled.values()]
    assert large <= small + 60
    assert large <= bound
