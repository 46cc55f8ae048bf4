"""What is done again and again costs the same with any number of finished tasks, assignments and webhooks behind it."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from aiosd.model.status import Status
from aiosd.store import approvals, audit, candidates, journal, planned, retention, tasks, webhooks, workers
from aiosd.store.tasks import TaskFilter
from tests.unit.store.rows import fill, instructions
from tests.unit.store.test_schema import database

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator

SIZES = (1000, 10_000)
NOW = 1 << 50

FILL = """
INSERT INTO tasks(id, uid, capability_id, level, status, phase, created_at, updated_at, ended_at)
    SELECT 'old' || i, 1000, CASE i % 2 WHEN 0 THEN '' ELSE 'test.a' END, 1, 'failed', 'failed', 1, 1, i FROM n;
INSERT INTO tasks(id, uid, capability_id, level, status, phase, created_at, updated_at, deadline)
    SELECT 'planned' || i, 1000, '', 1, 'pending', 'planning', 1, 1, 5 FROM n WHERE i <= 3;
INSERT INTO tasks(id, uid, capability_id, level, status, phase, created_at, updated_at, session_id, parent_id)
    SELECT 'open' || i, 1000, 'test.b', 1, 'pending', 'queued', 1, 1, 'ps-1', 'planned1' FROM n WHERE i <= 3;
INSERT INTO dependencies SELECT (SELECT seq FROM tasks WHERE id = 'planned' || i),
    (SELECT seq FROM tasks WHERE id = 'old' || i) FROM n WHERE i <= 3;
INSERT INTO assignments(id, task_id, worker_id, worker_uid, attempt, status, created_at, ended_at)
    SELECT 'as' || i, 'old' || i, 'w', 1000, 1, 'failed', 1, 1 FROM n;
INSERT INTO events(task_id, uid, source, type, kind, time, payload)
    SELECT 'old' || i, 1000, 'system', 'task.failed', 'task.status', i, '{}' FROM n;
INSERT INTO audit(time, uid, actor, kind, task_id, previous, hash)
    SELECT i, 1000, 'system', 'task.status', 'old' || i, zeroblob(32), zeroblob(32) FROM n;
INSERT INTO webhooks(id, task_id, uid, url, max_retries, retry_delay_ms, state, created_at)
    SELECT 'wh' || i, 'old' || i, 1000, 'https://a', 1, 1, 'ended', 1 FROM n;
INSERT INTO approvals(id, task_id, uid, kind, status, capability_id, request_hash, requester, created_at, expires_at)
    SELECT 'ap' || i, 'old' || i, 1000, 'run', 'approved', 'test.a', hex(zeroblob(32)), 'x', 1, 1 FROM n;
"""
"""As many tasks that have ended as `n` has rows, and what is left of them; and three of each that have not."""


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, sqlite3.Connection]]:
    made = {}
    for size in SIZES:
        made[size] = database(tmp_path_factory.mktemp("size") / "history.db")
        fill(made[size], FILL, size)
    yield made
    for one in made.values():
        one.close()


PENDING = """
INSERT INTO tasks(id, uid, capability_id, level, status, phase, created_at, updated_at)
    SELECT 'wait' || i, 1000, 'test.b', 1, 'pending', 'queued', 1, 1 FROM n;
"""


def costs_the_same(
    databases: dict[int, sqlite3.Connection], look: Callable[[sqlite3.Connection], object], bound: int
) -> None:
    small, large = [instructions(connection, look) for connection in databases.values()]
    assert large <= small + 60
    assert large <= bound


@pytest.mark.parametrize(
    ("look", "bound"),
    [
        (lambda db: list(planned.ready(db)), 600),
        (planned.timed, 300),
        (lambda db: planned.hopeless(db, None), 900),
        (lambda db: planned.hopeless(db, ["old1", "old2", "old9"]), 600),
        (lambda db: planned.deadlines(db), 200),
        (workers.open_assignments, 100),
        (candidates.waiting, 600),
        (candidates.anybody_waits, 200),
        (tasks.to_be_canceled, 300),
        (lambda db: tasks.open_ids(db, 1000), 300),
        (lambda db: tasks.open_ids(db, None), 300),
        (lambda db: journal.events_after(db, 0, task_id="old700", uid=1000), 200),
        (lambda db: audit.page(db, audit.AuditFilter(uid=1000, task_id="old700")), 200),
        (lambda db: audit.last_before(db, 1), 60),
        (lambda db: webhooks.of_user(db, 1001, None), 200),
        (lambda db: webhooks.of_user(db, 1000, "old700"), 300),
        (lambda db: webhooks.count_open(db, 1000), 60),
        (webhooks.with_work, 60),
        (webhooks.end_finished, 200),
        (lambda db: approvals.listed(db, 1000, pending=True), 100),
        (lambda db: approvals.listed(db, None, pending=True), 100),
        (approvals.pending, 100),
        (lambda db: retention.ended_before(db, NOW, 10), 700),
        (lambda db: retention.beyond(db, 1, 10), 700),
        (lambda db: tasks.page(db, TaskFilter(uid=1000, session_id="ps-1")), 2500),
        (lambda db: tasks.page(db, TaskFilter(uid=1000, parent_id="planned1")), 2500),
        (lambda db: tasks.page(db, TaskFilter(uid=1000, capability_glob="test.b")), 2500),
        (lambda db: tasks.page(db, TaskFilter(capability_glob="test.b")), 2500),
        (lambda db: tasks.page(db, TaskFilter(uid=1000, statuses=(Status.PENDING,))), 2500),
    ],
)  # fmt: skip
def test_it_costs_the_same_with_more_behind_it(
    filled: dict[int, sqlite3.Connection], look: Callable[[sqlite3.Connection], object], bound: int
) -> None:
    costs_the_same(filled, look, bound)


def test_who_starts_next_is_found_without_reading_the_whole_queue(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A task that ends makes room for one, and is followed by a look in the writer: for one, however many wait."""

    def first(db: sqlite3.Connection) -> object:
        with closing(candidates.each_waiting(db)) as waiting:
            return next(waiting)

    queues = {size: database(tmp_path_factory.mktemp("queue") / "queue.db") for size in SIZES}
    for size, connection in queues.items():
        with closing(connection):
            fill(connection, PENDING, size)
            assert instructions(connection, first) < 200, size
