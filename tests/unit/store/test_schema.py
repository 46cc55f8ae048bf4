"""The schema's promises: totals that agree, no duplicates, and pages that cost the same however much there is."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiosd.store.connection import connect_writer
from aiosd.store.migrations import MIGRATIONS, migrate
from tests.unit.store.rows import NOW, insert_task

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STATUSES = ("pending", "working", "paused", "input_required", "auth_required", "completed", "failed", "canceled")

# Several statuses at once, newest first: one index walk for each, merged. `status IN (...)` walks all tasks.
WAITING = "SELECT * FROM tasks WHERE ended_at IS NULL AND held = 0 AND phase <> 'planning' ORDER BY priority DESC, seq"
BY_STATUS = (
    "SELECT * FROM (SELECT * FROM tasks WHERE uid = ? AND status = ? ORDER BY seq DESC LIMIT 50)"
    " UNION ALL SELECT * FROM (SELECT * FROM tasks WHERE uid = ? AND status = ? ORDER BY seq DESC LIMIT 50)"
    " ORDER BY seq DESC LIMIT 50"
)

OPEN = (
    "SELECT * FROM tasks WHERE uid = ? AND status IN ('pending', 'working') AND ended_at IS NULL"
    " ORDER BY seq DESC LIMIT 50"
)


def database(path: Path) -> sqlite3.Connection:
    path.touch(0o600)
    connection = connect_writer(path)
    migrate(connection, None, MIGRATIONS)
    return connection


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(database(tmp_path / "tasks.db")) as made:
        yield made


@pytest.fixture(scope="module")
def sizes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, sqlite3.Connection]]:
    """The same shape at 1 000 and at 20 000 finished tasks, of two users, with ten open ones."""
    made = {}
    for size in (1000, 20_000):
        made[size] = database(tmp_path_factory.mktemp("size") / "tasks.db")
        made[size].execute("PRAGMA synchronous = OFF")
        made[size].execute("BEGIN")
        for number in range(size):
            insert_task(
                made[size], f"t{number}", uid=1000 + number % 2, status=("completed", "failed")[number % 7 == 0],
                capability=f"system.c{number % 5}.read",
            )  # fmt: skip
            made[size].execute(
                "INSERT INTO events(task_id, uid, source, type, kind, time, payload)"
                " VALUES (?, 1000, 'system', 'task.completed', 'task.status', ?, '{}')",
                (f"t{number}", NOW + number),
            )
        for number in range(10):
            insert_task(made[size], f"open{number}")
        made[size].execute("COMMIT")
    yield made
    for one in made.values():
        one.close()


def steps(connection: sqlite3.Connection, sql: str, parameters: tuple[str | int, ...]) -> int:
    """How many instructions of SQLite's machine a query takes."""
    count = 0

    def tick() -> int:
        nonlocal count
        count += 1
        return 0

    connection.set_progress_handler(tick, 1)
    try:
        connection.execute(sql, parameters).fetchall()
    finally:
        connection.set_progress_handler(None, 0)
    return count


@pytest.mark.parametrize(
    ("sql", "parameters"),
    [
        ("SELECT * FROM tasks ORDER BY seq DESC LIMIT 50", ()),
        ("SELECT * FROM tasks WHERE uid = ? ORDER BY seq DESC LIMIT 50", (1000,)),
        ("SELECT * FROM tasks WHERE uid = ? AND status = ? ORDER BY seq DESC LIMIT 50", (1000, "completed")),
        (BY_STATUS, (1000, "pending", 1000, "working")),
        ("SELECT * FROM tasks WHERE uid = ? AND ended_at IS NULL ORDER BY seq DESC LIMIT 50", (1000,)),
        (OPEN, (1000,)),
        (BY_STATUS, (1000, "completed", 1000, "failed")),
        ("SELECT * FROM tasks WHERE status = ? ORDER BY seq DESC LIMIT 50", ("failed",)),
        ("SELECT * FROM tasks WHERE uid = ? AND capability_id = ? ORDER BY seq DESC LIMIT 9", (1000, "system.c1.read")),
        ("SELECT * FROM tasks WHERE uid = ? ORDER BY updated_at DESC, seq DESC LIMIT 50", (1000,)),
        ("SELECT * FROM tasks WHERE uid = ? ORDER BY priority DESC, seq DESC LIMIT 50", (1000,)),
        ("SELECT sum(count) FROM task_counts WHERE uid = ?", (1000,)),
        ("SELECT sum(count) FROM task_counts WHERE status = ?", ("pending",)),
        ("SELECT sum(count) FROM task_counts WHERE capability_id GLOB ?", ("system.c*",)),
        ("SELECT * FROM tasks WHERE status IN ('pending') ORDER BY seq", ()),
        (WAITING, ()),
        ("SELECT * FROM tasks WHERE parent_id = ?", ("t1",)),
        ("SELECT seq FROM tasks WHERE ended_at < ? ORDER BY ended_at LIMIT 50", (NOW + 1,)),
        ("SELECT * FROM tasks WHERE uid = ? AND idempotency_key = ?", (1000, "k")),
        ("SELECT * FROM events WHERE task_id = ? AND seq > ? ORDER BY seq LIMIT 100", ("t5", 0)),
        ("SELECT * FROM events WHERE seq > ? ORDER BY seq LIMIT 100", (7,)),
        ("SELECT max(seq) FROM events", ()),
    ],
)  # fmt: skip
def test_a_page_costs_the_same_at_any_size(
    sizes: dict[int, sqlite3.Connection], sql: str, parameters: tuple[str | int, ...]
) -> None:
    small, large = (steps(sizes[size], sql, parameters) for size in (1000, 20_000))
    assert large <= small * 2 + 200, f"{small} steps at 1 000 tasks, {large} at 20 000"


_CHANGE = st.one_of(
    st.tuples(st.just("insert"), st.integers(0, 20), st.sampled_from(STATUSES)),
    st.tuples(st.just("status"), st.integers(0, 20), st.sampled_from(STATUSES)),
    st.tuples(st.just("delete"), st.integers(0, 20), st.just("")),
)


@settings(max_examples=30, deadline=None)
@given(st.lists(_CHANGE, max_size=40))
def test_totals_agree_with_the_rows_whatever_happens(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[str, int, str]]
) -> None:
    with closing(database(tmp_path_factory.mktemp("totals") / "tasks.db")) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        for what, number, status in changes:
            exists = connection.execute("SELECT 1 FROM tasks WHERE id = ?", (f"t{number}",)).fetchone() is not None
            if what == "insert" and not exists:
                insert_task(connection, f"t{number}", uid=number % 3, status=status, capability=f"c.{number % 2}")
            elif what == "status":
                ended = NOW if status in ("completed", "failed", "canceled") else None
                connection.execute(
                    "UPDATE tasks SET status = ?, ended_at = ? WHERE id = ?", (status, ended, f"t{number}")
                )
            elif what == "delete":
                connection.execute("DELETE FROM tasks WHERE id = ?", (f"t{number}",))
        counted = connection.execute("SELECT * FROM task_counts ORDER BY uid, capability_id, status").fetchall()
        actual = connection.execute(
            "SELECT uid, capability_id, status, count(*) FROM tasks GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
        ).fetchall()
        assert [tuple(row) for row in counted] == [tuple(row) for row in actual]


def test_one_key_makes_one_task_for_each_user(connection: sqlite3.Connection) -> None:
    insert_task(connection, "a")
    insert_task(connection, "b")
    insert_task(connection, "c", uid=1001)
    connection.execute("UPDATE tasks SET idempotency_key = 'k' WHERE id IN ('a', 'c')")
    with pytest.raises(sqlite3.IntegrityError):
        connection.execute("UPDATE tasks SET idempotency_key = 'k' WHERE id = 'b'")


@pytest.mark.parametrize(
    "change",
    [
        "status = 'running'",
        "level = 5",
        "priority = 4",
        "ended_at = 1",
        "timeout_ms = 0",
        "created_at = '2026-01-05T10:00:00Z'",
        "execution_mode = 'alone'",
    ],
)
def test_values_outside_the_contract_are_refused(connection: sqlite3.Connection, change: str) -> None:
    insert_task(connection, "a")
    with pytest.raises(sqlite3.IntegrityError):
        connection.execute(f"UPDATE tasks SET {change} WHERE id = 'a'")  # noqa: S608 - the changes are written above


def test_numbers_are_never_given_out_twice(connection: sqlite3.Connection) -> None:
    insert_task(connection, "a")
    connection.execute("DELETE FROM tasks")
    insert_task(connection, "b")
    assert connection.execute("SELECT seq FROM tasks").fetchone()[0] == 2


def test_a_task_takes_its_rows_with_it(connection: sqlite3.Connection) -> None:
    insert_task(connection, "a")
    insert_task(connection, "b")
    connection.execute("INSERT INTO history(task_seq, state, phase, time) VALUES (1, 'pending', 'queued', 1)")
    connection.execute("INSERT INTO dependencies VALUES (2, 1)")
    connection.execute(
        "INSERT INTO runs(id, task_seq, attempt, state, boot_id, started_at) VALUES ('r', 1, 1, 'ended', 'b', 1)"
    )
    connection.execute("DELETE FROM tasks WHERE id = 'a'")
    for table in ("history", "dependencies", "runs"):
        assert connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] == 0  # noqa: S608 - names above


def test_blobs_and_quota_follow_the_artifacts(connection: sqlite3.Connection) -> None:
    sha = "0" * 64
    connection.execute("INSERT INTO blobs(sha256, size, created_at) VALUES (?, 10, 1)", (sha,))
    for name in ("x", "y"):
        connection.execute(
            "INSERT INTO artifacts(id, task_id, uid, key, name, type, created_at, size)"
            " VALUES (?, 't', 7, ?, ?, 'file', 1, 10)",
            (name, name, name),
        )
        connection.execute("INSERT INTO artifact_blobs SELECT seq, ? FROM artifacts WHERE id = ?", (sha, name))
    assert connection.execute("SELECT refs FROM blobs").fetchone()[0] == 2
    assert tuple(connection.execute("SELECT count, size FROM artifact_usage WHERE uid = 7").fetchone()) == (2, 20)
    connection.execute("UPDATE artifacts SET size = 25 WHERE id = 'x'")
    connection.execute("DELETE FROM artifacts WHERE id = 'y'")
    assert connection.execute("SELECT refs FROM blobs").fetchone()[0] == 1
    assert tuple(connection.execute("SELECT count, size FROM artifact_usage WHERE uid = 7").fetchone()) == (1, 25)
    with pytest.raises(sqlite3.IntegrityError):
        connection.execute("DELETE FROM blobs")
