"""The audit trail: rows that are only ever added, each chained to the one before it by SHA-256.

`append_audit` writes a row in the transaction of what it records, so neither is there without the other. The writer
signs the last row of each commit (`audit_seal.py`); retention cuts the oldest rows off and records where, in the trail
itself. Whether all of it is as it was written is `audit_verify.py`'s question.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from aiosd.model import jsontext
from aiosd.model.audit import AuditEntry, AuditKind
from aiosd.model.later import dataclass
from aiosd.model.redact import redacted
from aiosd.store import pages
from aiosd.store.tasks import Value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiosd.model.jsontext import JsonObject
    from aiosd.store.database import Transaction
    from aiosd.store.tasks import Executor

GENESIS = bytes(32)
"""What stands before the first audit row."""

_COLUMNS = "seq, time, uid, actor, kind, task_id, details, previous, hash, key_id, signature"
MAX_PAGE = 1000
CUT_STEP = 2000
"""Rows that are removed at a time: others want to write in between."""


@dataclass(frozen=True, slots=True)
class AuditRow:
    """A row as it is stored. `details` is JSON text; `signature` is there on the last row of each commit."""

    seq: int
    time: int
    uid: int | None
    actor: str
    kind: str
    task_id: str | None
    details: str
    previous: bytes
    hash: bytes
    key_id: str | None = None
    signature: bytes | None = None


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which rows. `uid`: whose they are about; times in microseconds since the epoch, the end not included."""

    uid: int | None = None
    task_id: str | None = None
    kind_glob: str | None = None
    after: int = 0
    since: int | None = None
    until: int | None = None


def append_audit(
    transaction: Transaction, *, time: int, uid: int | None, actor: str, kind: str, task_id: str | None,
    details: JsonObject,
) -> None:  # fmt: skip
    """Record an auditable fact, and announce it after the commit. What has a secret's name is left out of `details`."""
    shown = redacted(details)
    row = transaction.execute("SELECT hash FROM audit ORDER BY seq DESC LIMIT 1").fetchone()
    previous = GENESIS if row is None else bytes(row[0])
    record = audit_record(time=time, uid=uid, actor=actor, kind=kind, task_id=task_id, details=shown)
    digest, text = chained(previous, record), jsontext.dump(shown)
    cursor = transaction.execute(
        "INSERT INTO audit (time, uid, actor, kind, task_id, details, previous, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (time, uid, actor, kind, task_id, text, previous, digest),
    )
    transaction.emit(AuditEntry(cursor.lastrowid or 0, time, uid, actor, kind, task_id, shown, digest.hex(), text))


def audit_record(
    *, time: int, uid: int | None, actor: str, kind: str, task_id: str | None, details: JsonObject
) -> str:  # fmt: skip
    """The canonical text of an audit row: what its hash covers besides the row before it."""
    return jsontext.canonical(
        {"time": time, "uid": uid, "actor": actor, "kind": kind, "task_id": task_id, "details": details}
    )


def chained(previous: bytes, record: str) -> bytes:
    """The hash of a row: SHA-256 over the previous row's hash and its own canonical text."""
    return hashlib.sha256(previous + record.encode()).digest()


def page(db: Executor, wanted: AuditFilter, *, limit: int = MAX_PAGE) -> tuple[list[AuditRow], bool]:
    """Rows in the order in which they were written, at most `limit`; and whether there are more."""
    clauses, values = ["seq > ?"], list[Value]((wanted.after,))
    for clause, value in (
        ("task_id = ?", wanted.task_id), ("uid = ?" if wanted.task_id is None else "+uid = ?", wanted.uid),
        ("kind GLOB ?", wanted.kind_glob),
        ("time >= ?", wanted.since), ("time < ?", wanted.until),
    ):  # fmt: skip
        if value is not None:
            clauses.append(clause)
            values.append(value)
    found = db.execute(
        f"SELECT {_COLUMNS} FROM audit WHERE {' AND '.join(clauses)} ORDER BY seq LIMIT ?",  # noqa: S608  own names
        [*values, limit + 1],
    )
    rows, more = pages.page(found, limit, pages.size_of)
    return [AuditRow(*row) for row in rows], more


def all_rows(db: Executor) -> Iterator[AuditRow]:
    """The whole trail, from the oldest row that is kept."""
    for row in db.execute(f"SELECT {_COLUMNS} FROM audit ORDER BY seq"):  # noqa: S608  own names
        yield AuditRow(*row)


def issued(db: Executor) -> int:
    """The largest number that any row was ever given; 0 for none."""
    row = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'audit'").fetchone()
    return 0 if row is None else int(row[0])


def last_before(db: Executor, moment: int) -> int:
    """The number of the last row that was written before that moment (microseconds since the epoch); 0 for none."""
    # By the index, which only the old rows are read of; by number, all that are not old would be gone through.
    row = db.execute("SELECT max(seq) FROM audit INDEXED BY audit_by_time WHERE time < ?", (moment,)).fetchone()
    return int(row[0] or 0)


def cut(transaction: Transaction, *, through: int, now: int, limit: int = CUT_STEP) -> int:
    """Remove rows up to that number, the oldest first and at most `limit`, and say in the trail where it was cut; how
    many went.

    The last row always stays, so that what follows is chained to something. `now`: microseconds since the epoch.
    """
    last = transaction.execute(
        "SELECT seq, hash FROM (SELECT seq, hash FROM audit WHERE seq <= ? AND seq < (SELECT max(seq) FROM audit)"
        " ORDER BY seq LIMIT ?) ORDER BY seq DESC LIMIT 1",
        (through, limit),
    ).fetchone()
    if last is None:
        return 0
    gone = transaction.execute("DELETE FROM audit WHERE seq <= ?", (last[0],)).rowcount
    append_audit(
        transaction, time=now, uid=None, actor="system", kind=AuditKind.AUDIT_CUT, task_id=None,
        details={"through": last[0], "hash": bytes(last[1]).hex(), "records": gone},
    )  # fmt: skip
    return gone
