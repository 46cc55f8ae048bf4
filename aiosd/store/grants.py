"""Grants in the store. What a grant covers is decided by `aiosd.auth.grants`; here they are kept, found and counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiosd.model import jsontext
from aiosd.model.grant import Grant, Scope
from aiosd.model.status import Level

if TYPE_CHECKING:
    from aiosd.store.tasks import Executor

_COLUMNS = (
    "id, uid, capability_id, level, scope, granted_by, created_at, constraints, task_id, session_id, expires_at,"
    " revoked_at, used_count, last_used_at"
)
_SELECT = f"SELECT {_COLUMNS} FROM grants"  # noqa: S608  the names are this module's own
_VALID = (
    "revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?) AND (scope <> 'once' OR used_count = 0)"
    " AND NOT EXISTS (SELECT 1 FROM sessions WHERE sessions.id = grants.session_id AND sessions.status <> 'active')"
)
"""Takes the present, in microseconds."""

MAX_LISTED = 1000


def _from_row(row: tuple[str | int | None, ...]) -> Grant:
    identifier, uid, capability, level, scope, by, created, constraints, task, session, *times = row
    expires, revoked, used, last = (None if value is None else int(value) for value in times)
    return Grant(
        str(identifier), int(uid or 0), str(capability), Level(int(level or 0)), Scope(str(scope)), int(by or 0),
        int(created or 0), jsontext.parse_object(str(constraints)), None if task is None else str(task),
        None if session is None else str(session), expires, revoked, used or 0, last,
    )  # fmt: skip


def insert(db: Executor, grant: Grant) -> None:
    """Store a new grant."""
    db.execute(
        f"INSERT INTO grants ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
        (
            grant.id, grant.uid, grant.capability, int(grant.level), grant.scope, grant.granted_by, grant.created_at,
            jsontext.dump(grant.constraints), grant.task_id, grant.session_id, grant.expires_at, grant.revoked_at,
            grant.used_count, grant.last_used_at,
        ),
    )  # fmt: skip


def get(db: Executor, identifier: str) -> Grant | None:
    """The grant of that id, whether valid or not."""
    row = db.execute(f"{_SELECT} WHERE id = ?", (identifier,)).fetchone()
    return None if row is None else _from_row(tuple(row))


def valid_of(db: Executor, uid: int, now: int) -> list[Grant]:
    """What a user has consented to and can still be used, oldest first. `now`: microseconds since the epoch."""
    rows = db.execute(f"{_SELECT} WHERE uid = ? AND {_VALID} ORDER BY seq LIMIT {MAX_LISTED}", (uid, now))
    return [_from_row(tuple(row)) for row in rows]


def listed(db: Executor, uid: int | None, now: int, *, ended: bool) -> list[Grant]:
    """Grants to show, newest first, at most MAX_LISTED. `uid` None: everybody's. `ended`: revoked and used ones too."""
    terms, values = [] if ended else [_VALID], [] if ended else [now]
    if uid is not None:
        terms.append("uid = ?")
        values.append(uid)
    where = f" WHERE {' AND '.join(terms)}" if terms else ""
    rows = db.execute(f"{_SELECT}{where} ORDER BY seq DESC LIMIT {MAX_LISTED}", values)
    return [_from_row(tuple(row)) for row in rows]


def use(db: Executor, identifier: str, now: int) -> bool:
    """Count one use; False when the grant cannot be used any more, and then nothing is counted."""
    cursor = db.execute(
        f"UPDATE grants SET used_count = used_count + 1, last_used_at = ? WHERE id = ? AND {_VALID}",  # noqa: S608
        (now, identifier, now),
    )
    return cursor.rowcount == 1


def revoke(db: Executor, identifier: str, now: int) -> bool:
    """End a grant; False when it was revoked before or is not there."""
    cursor = db.execute("UPDATE grants SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL", (now, identifier))
    return cursor.rowcount == 1


def forget_ended(db: Executor, before: int, limit: int) -> int:
    """Delete grants that ended before that moment, at most `limit`; how many there were. The audit trail keeps them."""
    ended = "coalesce(revoked_at, expires_at, CASE WHEN scope = 'once' THEN last_used_at END)"
    cursor = db.execute(
        f"DELETE FROM grants WHERE seq IN (SELECT seq FROM grants WHERE {ended} < ? LIMIT ?)",  # noqa: S608
        (before, limit),
    )
    return cursor.rowcount


def revoke_all(db: Executor, uid: int | None, now: int) -> int:
    """End all grants of a user (None: of everybody); how many there were."""
    where = "" if uid is None else " AND uid = ?"
    values = [now] if uid is None else [now, uid]
    return db.execute(f"UPDATE grants SET revoked_at = ? WHERE revoked_at IS NULL{where}", values).rowcount  # noqa: S608
