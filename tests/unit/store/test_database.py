"""Writing and reading: group commit, savepoints, order, cancellation, bounds and what a full disk does."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiosd.errors import ErrorKind
from aiosd.store import database as store
from aiosd.store.database import Database, StoreError, StoreFailure, Transaction
from aiosd.store.writer import Writer
from tests.unit.store.rows import adding, insert_task, names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiosd.store.writer import Follow, Queued


def test_what_was_written_is_there_after_closing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Database.open(tmp_path / "tasks.db") as database:
            assert await database.write(adding("a")) == "a"
            assert await database.read(names) == ["a"]
        async with Database.open(tmp_path / "tasks.db") as database:
            assert await database.read(names) == ["a"]
            assert not database.report.unclean
            assert not database.report.created

    asyncio.run(scenario())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tasks.db", "tasks.db.lock"], "the log was folded in"


def test_nobody_else_may_read_any_of_its_files(tmp_path: Path) -> None:
    def modes() -> dict[str, int]:
        return {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}

    async def scenario() -> None:
        async with Database.open(tmp_path / "tasks.db") as database:
            await database.write(adding("a"))
            assert modes() == dict.fromkeys(("tasks.db", "tasks.db-wal", "tasks.db-shm", "tasks.db.lock"), 0o600)

    before = os.umask(0)
    try:
        asyncio.run(scenario())
    finally:
        os.umask(before)


def test_pragmas_are_in_force(tmp_path: Path) -> None:
    def pragmas(connection: sqlite3.Connection) -> dict[str, int | str]:
        wanted = ("journal_mode", "synchronous", "foreign_keys", "mmap_size", "busy_timeout", "temp_store")
        found = {name: connection.execute(f"PRAGMA {name}").fetchone() for name in wanted}
        return {name: row[0] for name, row in found.items() if row is not None}

    async def scenario() -> None:
        async with Database.open(tmp_path / "tasks.db") as database:
            found = await database.write(lambda transaction: pragmas(transaction.connection))
            assert found.pop("mmap_size", 0) == 0
            assert found == {
                "journal_mode": "wal",
                "synchronous": 2,
                "foreign_keys": 1,
                "busy_timeout": 5000,
                "temp_store": 2,
            }

    asyncio.run(scenario())


def test_a_function_that_raises_undoes_itself_only(tmp_path: Path) -> None:
    def add_then_fail(transaction: Transaction) -> None:
        adding("lost")(transaction)
        raise LookupError("no such thing")

    async def scenario() -> None:
        async with Database.open(tmp_path / "tasks.db") as database:
            told: list[object] = []
            database.on_commit(told.extend)
            answers = await asyncio.gather(
                database.write(adding("a")),
                database.write(add_then_fail),
                database.write(adding("a")),
                database.write(adding("b")),
                return_exceptions=True,
            )
            assert answers[0] == "a"
            assert isinstance(answers[1], LookupError)
            assert isinstance(answers[2], sqlite3.IntegrityError), "the caller's mistake is not the store's failure"
            assert answers[3] == "b"
            assert await database.read(names) == ["a", "b"]
            assert told == ["a", "b"]

    asyncio.run(scenario())


def test_many_callers_share_a_commit(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Database.open(tmp_path / "tasks.db") as database:
            commits: list[Sequence[object]] = []
            database.on_commit(commits.append)
            begun, gate = threading.Event(), threading.Event()

            def hold(_: Transaction) -> bool:
                begun.set()
                return gate.wait(30)

            first = asyncio.ensure_future(database.write(hold))
            await asyncio.to_thread(begun.wait, 30)
            rest = [asyncio.ensure_future(database.write(adding(f"t{number}"))) for number in range(100)]
            await asyncio.sleep(0)
            gate.set()
            await asyncio.gather(first, *rest)
            await asyncio.sleep(0)
            assert [item for commit in commits for item in commit] == [f"t{number}" for number in range(100)]
            assert len(commits) == 1

    asyncio.run(scenario())


def test_waiters_run_before_listeners_hear(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Database.open(tmp_path / "tasks.db") as database:
            order: list[str] = []
            database.on_commit(lambda items: order.extend(f"signal {item}" for item in items))

            async def call(name: str) -> None:
                await database.write(adding(name))
                order.append(f"reply {name}")

            await asyncio.gather(*(call(f"t{number}") for number in range(20)))
            await asyncio.sleep(0)
            for number in range(20):
                assert order.index(f"reply t{number}") < order.index(f"signal t{number}")
            signals = [entry for entry in order if entry.startswith("signal")]
            assert signals == [f"signal t{number}" for number in range(20)]

    asyncio.run(scenario())


class Following:
    """Adds a row of its own for each that was added; `broken`: fails instead."""

    def __init__(self, items: Sequence[object], log: list[str], *, broken: bool) -> None:
        self.names = [f"{item}+" for item in items]
        self.log = log
        self.broken = broken

    def run(self, transaction: Transaction) -> None:
        for name in self.names:
            adding(name)(transaction)
        if self.broken:
            raise LookupError("broken")

    def fail(self, error: BaseException) -> None:
        self.log.append(type(error).__name__)

    def settle(self) -> None:
        self.log.append("settled")


@pytest.mark.parametrize("broken", [False, True])
def test_what_follows_is_in_the_same_commit_and_a_fault_of_it_is_its_own(tmp_path: Path, *, broken: bool) -> None:
    async def scenario() -> None:
        async with Database.open(tmp_path / "tasks.db") as database:
            commits: list[Sequence[object]] = []
            log: list[str] = []
            database.on_commit(commits.append)
            database.on_commit(lambda _: log.append("told"))
            database.follow(lambda items: Following(items, log, broken=broken))
            assert await database.write(adding("a")) == "a"
            assert await database.read(names) == (["a"] if broken else ["a", "a+"])
            await database.write(lambda _: None)
            assert [list(commit) for commit in commits] == [["a"] if broken else ["a", "a+"]]
            assert log == (["LookupError", "settled", "told"] if broken else ["settled", "told"])
            database.follow(None)
            await database.write(adding("b"))
            assert await database.read(names) == (["a", "b"] if broken else ["a", "a+", "b"])

    asyncio.run(scenario())


def test_who_follows_may_leave_at_any_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scheduler ends, on the loop, between the writer thread's look whether it is there and its question."""

    class Left(Writer):
        looks = 0

        @property
        def follow(self) -> Follow | None:
            self.looks += 1
            return (lambda _: None) if self.looks == 1 else None

        @follow.setter
        def follow(self, _: Follow | None) -> None:
            pass

    monkeypatch.setattr(store, "Writer", Left)

    async def scenario() -> None:
        async with Database.open(tmp_path / "tasks.db") as database:
            assert await asyncio.wait_for(database.write(adding("a")), 30) == "a"

    asyncio.run(scenario())


def test_a_listener_that_fails_does_not_keep_the_others_from_hearing(tmp_path: Path) -> None:
    def broken(_: Sequence[object]) -> None:
        raise ValueError("broken listener")

    async def scenario() -> None:
        async with Database.open(tmp_path / "tasks.db") as database:
            heard: list[object] = []
            database.on_commit(broken)
            stop = database.on_commit(heard.extend)
            await database.write(adding("a"))
            await asyncio.sleep(0)
            stop()
            await database.write(adding("b"))
            await asyncio.sleep(0)
            assert heard == ["a"]

    asyncio.run(scenario())


def test_cancelling_a_caller_neither_loses_nor_doubles_its_write(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Database.open(tmp_path / "tasks.db") as database:
            heard: list[object] = []
            database.on_commit(heard.extend)
            gate = threading.Event()
            blocker = asyncio.ensure_future(database.write(lambda _: gate.wait(5)))
            await asyncio.sleep(0)
            callers = [asyncio.ensure_future(database.write(adding(f"t{number}"))) for number in range(10)]
            await asyncio.sleep(0)
            for caller in callers[::2]:
                caller.cancel()
            await asyncio.sleep(0)
            gate.set()
            answers = await asyncio.gather(blocker, *callers, return_exceptions=True)
            cancelled = sum(isinstance(answer, asyncio.CancelledError) for answer in answers)
            assert cancelled == 5
            wanted = [f"t{number}" for number in range(10)]
            assert await database.read(names) == wanted
            assert heard == wanted

    asyncio.run(scenario())


def test_the_loop_goes_on_while_the_disk_is_busy(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Database.open(tmp_path / "tasks.db") as database:
            gate = threading.Event()
            write = asyncio.ensure_future(database.write(lambda _: gate.wait(5)))
            read = asyncio.ensure_future(database.read(lambda _: gate.wait(5)))
            await asyncio.sleep(0.01)
            assert not write.done()
            assert await database.read(names) == [], "a second reader is free"
            gate.set()
            assert await write
            assert await read

    asyncio.run(scenario())


def test_too_much_at_a_time_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Database.open(tmp_path / "tasks.db", max_queued=3) as database:
            gate = threading.Event()
            waiting = [asyncio.ensure_future(database.write(lambda _: gate.wait(5))) for _ in range(3)]
            await asyncio.sleep(0)
            with pytest.raises(StoreError) as refused:
                await database.write(adding("a"))
            assert refused.value.failure is StoreFailure.BUSY
            assert refused.value.kind is ErrorKind.BUSY
            gate.set()
            await asyncio.gather(*waiting)
            assert await database.write(adding("a")) == "a", "and taken again when there is room"

    asyncio.run(scenario())


def test_a_reader_cannot_write(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Database.open(tmp_path / "tasks.db") as database:
            with pytest.raises(StoreError) as refused:
                await database.read(lambda connection: insert_task(connection, "a"))
            assert refused.value.failure is StoreFailure.READ_ONLY
            assert await database.read(names) == []

    asyncio.run(scenario())


def test_a_read_sees_one_moment(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Database.open(tmp_path / "tasks.db") as database:
            started, gate = threading.Event(), threading.Event()

            def twice(connection: sqlite3.Connection) -> tuple[list[str], list[str]]:
                before = names(connection)
                started.set()
                gate.wait(5)
                return before, names(connection)

            reading = asyncio.ensure_future(database.read(twice))
            await asyncio.to_thread(started.wait, 5)
            await database.write(adding("a"))
            gate.set()
            assert await reading == ([], [])
            assert await database.read(names) == ["a"]

    asyncio.run(scenario())


def test_a_transaction_cannot_be_used_after_its_end(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Database.open(tmp_path / "tasks.db") as database:
            kept = await database.write(lambda transaction: transaction)
            with pytest.raises(RuntimeError, match="has ended"):
                kept.execute("SELECT 1")

    asyncio.run(scenario())


def test_a_function_that_commits_by_itself_is_an_error_and_harms_only_its_batch(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Database.open(tmp_path / "tasks.db") as database:
            with pytest.raises(StoreError):
                await database.write(lambda transaction: transaction.execute("COMMIT"))
            assert await database.write(adding("a")) == "a"

    asyncio.run(scenario())


def test_an_answer_stands_for_a_store_that_is_asked_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions: list[object] = []
    submit = Writer.submit

    def counted(writer: Writer, job: Queued) -> None:
        questions.append(job)
        submit(writer, job)

    monkeypatch.setattr(Writer, "submit", counted)

    async def scenario() -> None:
        async with Database.open(tmp_path / "tasks.db") as database:
            written: list[None] = []
            unlisten = database.on_write(lambda: written.append(None))
            for _ in range(3):
                await database.health(within=5)
            assert len(questions) == 1
            assert written == [], "a question is no write"
            await database.write(adding("b"))
            assert len(written) == 1
            await database.write(lambda transaction: transaction.execute("DELETE FROM tasks WHERE 0").rowcount)
            assert len(written) == 1, "nothing is another than before"
            await database.write(lambda transaction: transaction.execute("DELETE FROM tasks").rowcount)
            assert len(written) == 2
            unlisten()
            assert await database.glance("names", names) == []
            questions.clear()
            for ask, jobs in ((database.read(names), 1), (database.write(adding("a")), 2)):
                await ask
                for _ in range(3):
                    await database.health(within=5)
                assert len(questions) == jobs, "its own, and one question"
                questions.clear()
            assert await database.glance("names", names) == ["a"]
            await database.health(within=5)
            questions.clear()
            assert await database.glance("names", names) == ["a"]
            await database.health(within=5)
            assert questions == [], "what was answered without the store says nothing of it"
            monkeypatch.setattr(store, "ANSWER_HOLDS", 0.0)
            await database.read(names)
            for times in (1, 2):
                await database.health(within=5)
                assert len(questions) == times, "an answer that is old enough does not stand"

    asyncio.run(scenario())


def test_health_is_told_and_missed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Database.open(tmp_path / "tasks.db") as database:
            await database.health(within=5)
            gate = threading.Event()
            stuck = asyncio.ensure_future(database.write(lambda _: gate.wait(5)))
            await asyncio.sleep(0)
            with pytest.raises(StoreError) as missed:
                await database.health(within=0.05)
            assert missed.value.failure is StoreFailure.BUSY
            gate.set()
            await stuck
            await database.health(within=5)

    asyncio.run(scenario())


def test_closing_finishes_what_was_asked_and_refuses_what_comes_after(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Database.open(tmp_path / "tasks.db") as database:
            waiting = [asyncio.ensure_future(database.write(adding(f"t{number}"))) for number in range(50)]
            await asyncio.sleep(0)
            await database.close()
            assert await asyncio.gather(*waiting) == [f"t{number}" for number in range(50)]
            with pytest.raises(StoreError):
                await database.write(adding("late"))
            with pytest.raises(StoreError):
                await database.read(names)
        async with Database.open(tmp_path / "tasks.db") as database:
            assert len(await database.read(names)) == 50

    asyncio.run(scenario())


def test_one_process_at_a_time(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Database.open(tmp_path / "tasks.db"):
            with pytest.raises(StoreError) as refused:
                async with Database.open(tmp_path / "tasks.db"):
                    pass
            assert refused.value.failure is StoreFailure.BUSY
        async with Database.open(tmp_path / "tasks.db"):
            pass

    asyncio.run(scenario())


def test_a_place_that_cannot_be_is_an_error_of_the_store(tmp_path: Path) -> None:
    async def scenario(path: Path) -> StoreFailure:
        with pytest.raises(StoreError) as refused:
            async with Database.open(path):
                pass
        return refused.value.failure

    assert asyncio.run(scenario(tmp_path / "missing" / "tasks.db")) is StoreFailure.IO
    (tmp_path / "elsewhere").touch()
    (tmp_path / "link.db").symlink_to(tmp_path / "elsewhere")
    assert asyncio.run(scenario(tmp_path / "link.db")) is StoreFailure.IO, "links are not followed"
    assert (tmp_path / "elsewhere").stat().st_size == 0


def test_a_full_disk_fails_the_write_and_keeps_the_rest(tmp_path: Path) -> None:
    def shrink_room(transaction: Transaction) -> None:
        pages = transaction.execute("PRAGMA page_count").fetchone()[0]
        transaction.execute(f"PRAGMA max_page_count = {pages + 2}")

    def big(transaction: Transaction) -> None:
        adding("big")(transaction)
        transaction.execute("UPDATE tasks SET metadata = ? WHERE id = 'big'", ("x" * 100_000,))

    async def scenario() -> None:
        async with Database.open(tmp_path / "tasks.db") as database:
            await database.write(adding("before"))
            await database.write(shrink_room)
            answers = await asyncio.gather(
                database.write(adding("small")), database.write(big), database.write(adding("after")),
                return_exceptions=True,
            )  # fmt: skip
            assert isinstance(answers[1], StoreError)
            assert answers[1].failure is StoreFailure.FULL
            assert answers[1].kind is ErrorKind.STORAGE
            kept = ["before", *(answer for answer in answers if isinstance(answer, str))]
            assert await database.read(names) == kept, "who was answered is there, who was refused is not"
            assert await database.read(lambda c: c.execute("PRAGMA integrity_check").fetchone()[0]) == "ok"

    asyncio.run(scenario())


def _child(script: str, *arguments: str) -> subprocess.Popen[str]:
    root = Path(__file__).parents[3]
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments], stdout=subprocess.PIPE, text=True, cwd=root, env={"LANG": "C.UTF-8"}
    )


COMMIT_FAILS = """
import asyncio, logging, resource, signal, sys
from pathlib import Path
from aiosd.store.database import Database, StoreError
from tests.unit.store.rows import adding, names

class Told(logging.Handler):
    lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())

logging.getLogger("aiosd.store").addHandler(Told())

def padded(name):
    def add(transaction):
        adding(name)(transaction)
        transaction.execute("UPDATE tasks SET metadata = ? WHERE id = ?", ("x" * 4000, name))
        return name
    return add

async def main():
    path = Path(sys.argv[1])
    async with Database.open(path) as database:
        heard = []
        database.on_commit(heard.extend)
        await database.write(padded("before"))
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        size = path.with_name(path.name + "-wal").stat().st_size
        # No write beyond this offset succeeds: what the kernel answers (EFBIG) is a failed write as on a full disk.
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 8192, hard))
        answers = await asyncio.gather(*(database.write(padded(f"t{n}")) for n in range(20)), return_exceptions=True)
        for again in range(5):
            refused = await asyncio.gather(database.write(padded("x" * 4000 + str(again))), return_exceptions=True)
            assert isinstance(refused[0], StoreError), refused
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        failed = [answer for answer in answers if isinstance(answer, StoreError)]
        written = [answer for answer in answers if isinstance(answer, str)]
        assert len(failed) + len(written) == 20 and failed, answers
        assert await database.read(names) == ["before", *written]
        await database.write(padded("afterwards"))
        await asyncio.sleep(0)
        assert heard == ["before", *written, "afterwards"], heard
        lost = [line for line in Told.lines if line.startswith("A transaction was lost")]
        assert 1 <= len(lost) <= 2, "told when it begins (as full, or io), not each time: " + repr(Told.lines)
        assert Told.lines[-1] == "The store can be written again"
        print(",".join(sorted({str(error.failure) for error in failed})))

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
asyncio.run(main())
"""


def test_a_commit_that_fails_leaves_nothing_half_written_and_tells_everybody(tmp_path: Path) -> None:
    with _child(COMMIT_FAILS, str(tmp_path / "tasks.db")) as child:
        out, _ = child.communicate(timeout=60)
    assert child.returncode == 0
    assert set(out.strip().split(",")) <= {"io", "full"}


KILLED = """
import asyncio, sys
from pathlib import Path
from aiosd.store.database import Database
from tests.unit.store.rows import adding

async def main():
    async with Database.open(Path(sys.argv[1])) as database:
        async def one(name):
            await database.write(adding(name))
            print(name, flush=True)
        for batch in range(10_000):
            await asyncio.gather(*(one(f"t{batch}-{n}") for n in range(5)))

asyncio.run(main())
"""


def test_what_was_answered_survives_a_kill(tmp_path: Path) -> None:
    with _child(KILLED, str(tmp_path / "tasks.db")) as child:
        assert child.stdout is not None
        answered = [child.stdout.readline().strip() for _ in range(100)]
        child.send_signal(signal.SIGKILL)
        answered += child.stdout.read().split()

    async def scenario() -> None:
        async with Database.open(tmp_path / "tasks.db") as database:
            assert database.report.unclean
            assert database.report.broken is None
            stored = await database.read(names)
            assert set(answered) <= set(stored)
            counted = await database.read(lambda c: c.execute("SELECT sum(count) FROM task_counts").fetchone()[0])
            assert counted == len(stored)

    asyncio.run(scenario())


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 12), st.booleans()), max_size=30))
def test_any_mix_of_writes_ends_as_if_one_after_the_other(
    tmp_path_factory: pytest.TempPathFactory, plan: list[tuple[int, bool]]
) -> None:
    """Names repeat (UNIQUE fails) and some functions raise: what is answered, stored and told must agree."""

    async def scenario(path: Path) -> None:
        async with Database.open(path, readers=1) as database:
            heard: list[object] = []
            database.on_commit(heard.extend)

            async def one(number: int, *, fails: bool) -> str | None:
                def work(transaction: Transaction) -> str:
                    adding(f"t{number}")(transaction)
                    if fails:
                        raise LookupError(number)
                    return f"t{number}"

                try:
                    return await database.write(work)
                except (LookupError, sqlite3.IntegrityError):
                    return None

            answers = await asyncio.gather(*(one(number, fails=fails) for number, fails in plan))
            await asyncio.sleep(0)
            expected: list[str] = []
            for number, fails in plan:
                if not fails and f"t{number}" not in expected:
                    expected.append(f"t{number}")
            assert [answer for answer in answers if answer is not None] == expected
            assert await database.read(names) == expected
            assert heard == expected

    asyncio.run(scenario(tmp_path_factory.mktemp("mix") / "tasks.db"))
