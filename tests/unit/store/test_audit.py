"""The audit trail: what is written, signed and cut, and that no change to it goes unnamed."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sqlite3
from contextlib import asynccontextmanager, closing
from functools import partial
from typing import TYPE_CHECKING

import pytest

from aiosd.model.audit import AuditEntry, AuditKind
from aiosd.store import audit
from aiosd.store.audit_key import AuditKeyError, KeyStore, adopt, public_keys
from aiosd.store.audit_seal import HEAD_FILE, AuditSeal, read_head
from aiosd.store.audit_verify import Evidence, Fault, Report, verify
from aiosd.store.database import Database

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aiosd.store.database import Transaction

NOW = 1_780_000_000_000_000
DAY = 86_400 * 1_000_000


def record(transaction: Transaction, number: int, *, time: int | None = None) -> None:
    """One record about task t<number>."""
    audit.append_audit(
        transaction, time=NOW + number if time is None else time, uid=1000, actor="uid:1000",
        kind=AuditKind.TASK_CREATED, task_id=f"t{number}", details={"number": number},
    )  # fmt: skip


def records(transaction: Transaction, numbers: range, *, apart: int = 1) -> None:
    """A record for each number, `apart` microseconds from each other."""
    for number in numbers:
        record(transaction, number, time=NOW + number * apart)


@asynccontextmanager
async def trail(folder: Path) -> AsyncIterator[Database]:
    """A database whose commits are signed, as the daemon opens it."""
    keys = await asyncio.to_thread(KeyStore(folder).load)
    async with Database.open(folder / "aiosd.db", seal=AuditSeal(keys[0], folder / HEAD_FILE)) as database:
        await database.write(lambda tx: adopt(tx, keys, now=NOW))
        yield database


async def written(folder: Path, commits: int = 4, each: int = 3) -> None:
    """Some commits of some records; the first record is the key's own."""
    async with trail(folder) as database:
        for commit in range(commits):
            await database.write(partial(records, numbers=range(commit * each, (commit + 1) * each)))


def checked(folder: Path, *, head: bool = True, **more: object) -> Report:
    """What verify says of the database in `folder`."""
    with closing(sqlite3.connect(folder / "aiosd.db")) as db:
        evidence = Evidence(
            keys=tuple(public_keys(db)), head=read_head(folder / HEAD_FILE) if head else None,
            issued=audit.issued(db) if head else None, **more,  # type: ignore[arg-type]  # fields of it
        )  # fmt: skip
        return verify(lambda: list(audit.all_rows(db)), evidence)


def tamper(folder: Path, *statements: str) -> None:
    """As somebody with the file and SQL, but without the private key."""
    with closing(sqlite3.connect(folder / "aiosd.db")) as db, db:
        for statement in statements:
            db.execute(statement)


def faults(report: Report) -> set[tuple[Fault, int, int]]:
    return {(problem.fault, problem.first, problem.last) for problem in report.problems}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    asyncio.run(written(tmp_path))
    return tmp_path


def test_a_trail_that_nobody_touched_is_sound(folder: Path) -> None:
    report = checked(folder)
    assert report.problems == ()
    assert (report.rows, report.first, report.last, report.signed) == (13, 1, 13, 5)


def test_each_commit_is_signed_once_by_its_last_row(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "aiosd.db")) as db:
        assert [row.seq for row in audit.all_rows(db) if row.signature] == [1, 4, 7, 10, 13]
    head = read_head(folder / HEAD_FILE)
    assert head is not None
    assert head.seq == 13
    assert (folder / HEAD_FILE).stat().st_mode & 0o777 == 0o600
    assert (folder / "audit-key").stat().st_mode & 0o777 == 0o600


def test_an_altered_record_is_named(folder: Path) -> None:
    tamper(folder, "UPDATE audit SET details = '{\"number\":99}' WHERE seq = 6")
    assert faults(checked(folder)) == {(Fault.ALTERED, 6, 6)}


@pytest.mark.parametrize("column", ["time = time + 1", "uid = 0", "actor = 'uid:0'", "kind = 'x'", "task_id = 'u'"])
def test_every_column_is_covered(folder: Path, column: str) -> None:
    tamper(folder, f"UPDATE audit SET {column} WHERE seq = 8")  # noqa: S608
    assert faults(checked(folder)) == {(Fault.ALTERED, 8, 8)}


def rechain(folder: Path, first: int) -> None:
    """Make all hashes from `first` on right again, as one who knows the algorithm would."""
    with closing(sqlite3.connect(folder / "aiosd.db")) as db, db:
        rows = list(audit.all_rows(db))
        previous = next(row.hash for row in rows if row.seq == first - 1)
        for row in (row for row in rows if row.seq >= first):
            text = audit.audit_record(
                time=row.time, uid=row.uid, actor=row.actor, kind=row.kind, task_id=row.task_id,
                details=json.loads(row.details),
            )  # fmt: skip
            digest = audit.chained(previous, text)
            db.execute("UPDATE audit SET previous = ?, hash = ? WHERE seq = ?", (previous, digest, row.seq))
            previous = digest


def test_a_record_altered_with_all_hashes_made_anew_breaks_the_signatures_from_its_commit_on(folder: Path) -> None:
    tamper(folder, "UPDATE audit SET details = '{\"number\":99}' WHERE seq = 6")
    rechain(folder, 6)
    found = checked(folder)
    assert (Fault.SIGNATURE, 5, 13) in faults(found)
    assert all(problem.first >= 5 for problem in found.problems)


def test_removed_records_are_named(folder: Path) -> None:
    tamper(folder, "DELETE FROM audit WHERE seq IN (5, 6)")
    assert faults(checked(folder)) == {(Fault.REMOVED, 5, 6)}


def test_removed_and_renumbered_records_are_named(folder: Path) -> None:
    tamper(folder, "DELETE FROM audit WHERE seq = 5", "UPDATE audit SET seq = seq - 1 WHERE seq > 5")
    assert (Fault.ALTERED, 4, 4) in faults(checked(folder))


def test_reordered_records_are_named(folder: Path) -> None:
    tamper(
        folder, "UPDATE audit SET seq = 99 WHERE seq = 5", "UPDATE audit SET seq = 5 WHERE seq = 6",
        "UPDATE audit SET seq = 6 WHERE seq = 99",
    )  # fmt: skip
    assert (Fault.REORDERED, 5, 7) in faults(checked(folder))


@pytest.mark.parametrize("last", [12, 10, 1])
def test_a_truncated_trail_is_named(folder: Path, last: int) -> None:
    tamper(folder, f"DELETE FROM audit WHERE seq > {last}")  # noqa: S608
    assert (Fault.TRUNCATED, last + 1, 13) in faults(checked(folder))


def test_truncation_inside_a_commit_needs_no_head(folder: Path) -> None:
    tamper(folder, "DELETE FROM audit WHERE seq > 12", "DELETE FROM sqlite_sequence")
    assert faults(checked(folder, head=False)) == {(Fault.UNSIGNED, 11, 12)}


def test_truncation_at_a_commit_is_told_by_a_witness_only(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "aiosd.db")) as db:
        journal = {row.seq: row.hash for row in audit.all_rows(db)}
    tamper(folder, "DELETE FROM audit WHERE seq > 10", "DELETE FROM sqlite_sequence")
    assert checked(folder, head=False).sound
    assert faults(checked(folder, head=False, witnesses=journal)) == {(Fault.TRUNCATED, 11, 13)}


def test_the_beginning_cannot_be_cut_without_the_key(folder: Path) -> None:
    tamper(folder, "DELETE FROM audit WHERE seq < 4")
    assert faults(checked(folder)) == {(Fault.REMOVED, 1, 3)}


def test_a_forged_head_is_named(folder: Path) -> None:
    head = (folder / HEAD_FILE).read_text().replace('"seq":13', '"seq":10')
    (folder / HEAD_FILE).write_text(head)
    assert faults(checked(folder)) == {(Fault.SIGNATURE, 10, 10)}


def test_another_trail_under_another_key_is_not_trusted(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    with closing(sqlite3.connect(folder / "aiosd.db")) as db:
        real = public_keys(db)[0].id
    forged = tmp_path_factory.mktemp("forged")
    asyncio.run(written(forged))
    assert checked(forged).sound  # by itself nothing is wrong with it
    report = checked(forged, trusted=frozenset({real}))
    assert (Fault.KEY, 1, 13) in faults(report)


def test_retention_leaves_a_trail_that_can_be_verified(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with trail(tmp_path) as database:
            await database.write(partial(records, numbers=range(6), apart=DAY))
            old = await database.read(lambda db: audit.last_before(db, NOW + 3 * DAY))
            for gone in (3, 1, 0):  # in steps, so that others come in between
                assert await database.write(partial(audit.cut, through=old, now=NOW + 7 * DAY, limit=3)) == gone
            assert await database.read(lambda db: audit.last_before(db, NOW + 3 * DAY)) == 0
            await database.write(lambda tx: record(tx, 9, time=NOW + 8 * DAY))

    asyncio.run(scenario())
    report = checked(tmp_path)
    assert report.problems == ()
    assert (report.first, report.last) == (5, 10)
    tamper(tmp_path, "DELETE FROM audit WHERE seq = 5")
    assert faults(checked(tmp_path)) == {(Fault.REMOVED, 1, 5)}


def test_a_trail_whose_rows_are_all_old_keeps_its_last(tmp_path: Path) -> None:
    asyncio.run(written(tmp_path))

    async def scenario() -> None:
        async with trail(tmp_path) as database:
            old = await database.read(lambda db: audit.last_before(db, NOW * 2))
            assert await database.write(lambda tx: audit.cut(tx, through=old, now=NOW + 1)) == 12

    asyncio.run(scenario())
    assert checked(tmp_path).sound


def test_rotation_keeps_old_records_verifiable_and_forgets_the_old_private_key(folder: Path) -> None:
    async def rotate() -> None:
        store = KeyStore(folder)
        async with trail(folder) as database:
            keys = await asyncio.to_thread(store.begin_rotation)
            assert await database.write(lambda tx: adopt(tx, keys, now=NOW + DAY))
            await asyncio.to_thread(store.forget_old)
        async with trail(folder) as database:
            await database.write(lambda tx: record(tx, 77))

    asyncio.run(rotate())
    report = checked(folder)
    assert report.problems == ()
    assert len((folder / "audit-key").read_text().split()) == 1
    with closing(sqlite3.connect(folder / "aiosd.db")) as db:
        old, new = public_keys(db)
        assert (old.endorser, new.endorser) == (None, old.id)
    assert checked(folder, trusted=frozenset({old.id})).sound
    assert checked(folder, trusted=frozenset({new.id})).sound


def test_a_crash_in_a_rotation_is_made_good_at_the_next_start(folder: Path) -> None:
    KeyStore(folder).begin_rotation()
    asyncio.run(written(folder, commits=1))
    assert checked(folder).sound
    with closing(sqlite3.connect(folder / "aiosd.db")) as db:
        assert [key.endorser is not None for key in public_keys(db)] == [False, True]


def test_a_key_that_nobody_endorsed_is_named(folder: Path) -> None:
    (folder / "audit-key").write_bytes(base64.b64encode(os.urandom(32)))
    asyncio.run(written(folder, commits=1))
    assert {problem.fault for problem in checked(folder).problems} == {Fault.KEY, Fault.SIGNATURE}


def test_the_key_can_be_a_credential(tmp_path: Path) -> None:
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    (credentials / "aiosd-audit-key").write_bytes(base64.b64encode(bytes(32)) + b"\n")
    store = KeyStore(tmp_path, credentials)
    assert (
        store.load()[0].public.hex() == "3b6a27bcceb6a42d62a3a8d02a6f0d73653215771de243a63ac048a18b59da29"
    )  # RFC 8032's
    assert not (tmp_path / "audit-key").exists()
    with pytest.raises(AuditKeyError, match="credential"):
        store.begin_rotation()


def test_a_credential_that_comes_later_is_endorsed_by_the_key_before_which_is_then_destroyed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As docs/security.md has it: an installed daemon has signed already when its administrator makes a credential."""
    given = tmp_path / "given-by-systemd"
    given.mkdir()
    (given / "aiosd-audit-key").write_bytes(base64.b64encode(bytes(32)) + b"\n")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(given))
    asyncio.run(written(folder, commits=1))
    assert checked(folder).problems == ()
    with closing(sqlite3.connect(folder / "aiosd.db")) as db:
        assert [key.endorser is not None for key in public_keys(db)] == [False, True]
    KeyStore(folder).forget_old()
    assert not (folder / "audit-key").exists()


@pytest.mark.parametrize("text", [b"", b"no base64!", base64.b64encode(b"short")])
def test_a_key_that_is_none_is_refused_without_showing_it(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "audit-key").write_bytes(text)
    with pytest.raises(AuditKeyError) as refused:
        KeyStore(tmp_path).load()
    assert text == b"" or text.decode() not in str(refused.value)


def test_a_record_whose_work_failed_is_neither_stored_nor_announced(tmp_path: Path) -> None:
    heard: list[object] = []

    def fails(transaction: Transaction) -> None:
        record(transaction, 1)
        raise RuntimeError

    async def scenario() -> None:
        async with trail(tmp_path) as database:
            database.on_commit(heard.extend)
            with pytest.raises(RuntimeError):
                await database.write(fails)
            await database.write(lambda tx: record(tx, 2))
            await asyncio.sleep(0.05)

    asyncio.run(scenario())
    entries = [item for item in heard if isinstance(item, AuditEntry)]
    assert [entry.task_id for entry in entries] == [None, "t2"]  # the key's, which was committed before, and the second
    assert checked(tmp_path).sound


def test_secrets_are_left_out_of_every_record(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with trail(tmp_path) as database:
            await database.write(
                lambda tx: audit.append_audit(
                    tx,
                    time=NOW,
                    uid=1,
                    actor="uid:1",
                    kind=AuditKind.TASK_INPUT,
                    task_id=None,
                    details={"input": {"apiKey": "hunter2", "deep": [{"new_password": "hunter2"}], "user": "x"}},
                )
            )

    asyncio.run(scenario())
    data = b"".join(path.read_bytes() for path in tmp_path.glob("aiosd.db*"))
    assert b"hunter2" not in data
    assert b"[redacted]" in data


def pages(db: sqlite3.Connection, wanted: audit.AuditFilter) -> list[int]:
    return [row.seq for row in audit.page(db, wanted)[0]]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (audit.AuditFilter(after=11), [12, 13]),
        (audit.AuditFilter(task_id="t3"), [5]),
        (audit.AuditFilter(kind_glob="audit.*"), [1]),
        (audit.AuditFilter(uid=1000, until=NOW + 2), [2, 3]),
        (audit.AuditFilter(since=NOW + 11), [13]),
    ],
)
def test_a_page_holds_what_was_asked_for(folder: Path, wanted: audit.AuditFilter, expected: list[int]) -> None:
    with closing(sqlite3.connect(folder / "aiosd.db")) as db:
        assert pages(db, wanted) == expected
