"""Approvals in the store: asked for beside the task that waits for them, decided once."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from aiosd.model.approval import Approval, ApprovalAction, ApprovalStatus

if TYPE_CHECKING:
    from aiosd.store.tasks import Executor, Value

_NAMES = tuple(field.name for field in fields(Approval))
_SELECT = f"SELECT {', '.join(_NAMES)} FROM approvals"  # noqa: S608  the names are the dataclass's own
MAX_LISTED = 1000


def _from_row(row: tuple[Value, ...]) -> Approval:
    values: dict[str, object] = dict(zip(_NAMES, row, strict=True))
    values["status"] = ApprovalStatus(str(values["status"]))
    decision = values["decision"]
    values["decision"] = None if decision is None else ApprovalAction(str(decision))
    return Approval(**values)  # type: ignore[arg-type]  # the columns' types are those of the STRICT table


def insert(db: Executor, approval: Approval) -> None:
    """Store a new one."""
    marks = ", ".join("?" * len(_NAMES))
    db.execute(
        f"INSERT INTO approvals ({', '.join(_NAMES)}) VALUES ({marks})",  # noqa: S608
        [getattr(approval, name) for name in _NAMES],
    )


def get(db: Executor, identifier: str) -> Approval | None:
    """The approval of that id."""
    row = db.execute(f"{_SELECT} WHERE id = ?", (identifier,)).fetchone()
    return None if row is None else _from_row(tuple(row))


def of_task(db: Executor, task_id: str) -> list[Approval]:
    """All approvals that were asked for a task, oldest first."""
    return [_from_row(tuple(row)) for row in db.execute(f"{_SELECT} WHERE task_id = ? ORDER BY seq", (task_id,))]


def listed(
    db: Executor, uid: int | None, *, pending: bool, task_id: str | None = None, session_id: str | None = None
) -> list[Approval]:
    """Approvals to show, newest first, at most MAX_LISTED. `uid` None: everybody's."""
    terms: list[str] = []
    values: list[Value] = []
    for column, value in (("uid", uid), ("task_id", task_id), ("session_id", session_id)):
        if value is not None:
            terms.append(f"{column} = ?")
            values.append(value)
    order = "seq"
    if pending:  # which are few and have an index of their own; with the `+` SQLite sees no better one
        terms = [f"+{term}" for term in terms] + ["status = 'pending'"]
        order = "+seq"
    where = f" WHERE {' AND '.join(terms)}" if terms else ""
    rows = db.execute(f"{_SELECT}{where} ORDER BY {order} DESC LIMIT {MAX_LISTED}", values)
    return [_from_row(tuple(row)) for row in rows]


def pending(db: Executor) -> list[Approval]:
    """All that nobody has decided, the first to expire first."""
    return [_from_row(tuple(row)) for row in db.execute(f"{_SELECT} WHERE status = 'pending' ORDER BY expires_at")]


def for_session(db: Executor, session_id: str, request_hash: str) -> Approval | None:
    """The answer that was given once for a whole session, to exactly this; the first one."""
    row = db.execute(
        f"{_SELECT} WHERE session_id = ? AND request_hash = ? AND status = 'approved'"
        " AND decision = 'approve_for_session' ORDER BY seq LIMIT 1",
        (session_id, request_hash),
    ).fetchone()
    return None if row is None else _from_row(tuple(row))


def end_for_session(db: Executor, uid: int | None) -> int:
    """Answers given for a whole session count no more, of a user (None: of everybody); how many there were."""
    where = "" if uid is None else " AND uid = ?"
    return db.execute(
        "UPDATE approvals SET status = 'withdrawn' WHERE status = 'approved'"  # noqa: S608
        f" AND decision = 'approve_for_session'{where}",
        () if uid is None else (uid,),
    ).rowcount


def settle(
    db: Executor,
    identifier: str,
    status: ApprovalStatus,
    now: int,
    *,
    decision: ApprovalAction | None = None,
    by: int | None = None,
    note: str | None = None,
) -> bool:
    """Decide it; False when that has happened before."""
    cursor = db.execute(
        "UPDATE approvals SET status = ?, decision = ?, decided_by = ?, decided_at = ?, note = ?"
        " WHERE id = ? AND status = 'pending'",
        (status, decision, by, now, note, identifier),
    )
    return cursor.rowcount == 1
