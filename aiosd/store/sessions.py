"""Sessions, threads and messages: insert, change, find, list. Functions take a transaction or a reader."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiosd.model import jsontext
from aiosd.model.later import dataclass
from aiosd.model.session import Message, Session, SessionStatus, Thread
from aiosd.store import pages
from aiosd.store.statements import update_one
from aiosd.store.tasks import Value

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence

    from aiosd.store.tasks import Executor

MAX_ROWS = 100

_SESSION = (
    "SELECT id, uid, title, status, active_objective, created_at, updated_at, seq, suppress_completion, metadata,"
    " closed_at, archived_at FROM sessions"
)
_MESSAGE = "SELECT id, session_id, thread_id, uid, role, channel, content, created_at, seq, metadata FROM messages"
_COLUMNS = frozenset(
    {"title", "status", "active_objective", "suppress_completion", "updated_at", "closed_at", "archived_at"}
)


def _session(row: sqlite3.Row) -> Session:
    identifier, uid, title, status, objective, created, updated, seq, suppress, metadata, closed, archived = row
    return Session(
        identifier, uid, title, SessionStatus(status), objective, created, updated, seq, bool(suppress),
        jsontext.parse_object(metadata, limit=1 << 24), closed, archived,
    )  # fmt: skip


def _message(row: sqlite3.Row) -> Message:
    identifier, session_id, thread_id, uid, role, channel, content, created, seq, metadata = row
    return Message(
        identifier, session_id, thread_id, uid, role, channel, content, created, seq,
        jsontext.parse_object(metadata, limit=1 << 24),
    )  # fmt: skip


def insert(db: Executor, session: Session) -> None:
    """Store a new session."""
    db.execute(
        "INSERT INTO sessions (id, uid, title, status, active_objective, suppress_completion, metadata, created_at,"
        " updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            session.id, session.uid, session.title, session.status, session.active_objective,
            int(session.suppress_completion), jsontext.dump(session.metadata), session.created_at, session.updated_at,
        ),
    )  # fmt: skip


def count_of(db: Executor, uid: int, most: int) -> int:
    """How many sessions of that user are not archived; `most` at most, which is what it costs."""
    row = db.execute(
        "SELECT count(*) FROM (SELECT 1 FROM sessions WHERE uid = ? AND status IN ('active', 'closed') LIMIT ?)",
        (uid, most),
    ).fetchone()
    return int(row[0])


def update(db: Executor, session_id: str, columns: Mapping[str, Value]) -> None:
    """Set columns of one session. Raises KeyError for a name that is no column to be changed."""
    db.execute(update_one("sessions", _COLUMNS, tuple(columns)), [*columns.values(), session_id])


def get(db: Executor, session_id: str) -> Session | None:
    """The session of that id."""
    row = db.execute(f"{_SESSION} WHERE id = ?", (session_id,)).fetchone()
    return None if row is None else _session(row)


@dataclass(frozen=True, slots=True)
class SessionPage:
    """One page, newest first. `next_sequence` continues it; None at the end."""

    sessions: tuple[Session, ...]
    next_sequence: int | None


def page(
    db: Executor, uid: int | None, statuses: Sequence[SessionStatus], *, before: int | None = None, limit: int = 50
) -> SessionPage:
    """Sessions of a user (None: of all) in these states. Each state is walked by its own index, and few rows of it."""
    limit = min(limit, MAX_ROWS)
    parts, values = [], list[Value]()
    for status in statuses:
        where = "status = ?"
        values.append(status)
        if uid is not None:
            where += " AND uid = ?"
            values.append(uid)
        if before is not None:
            where += " AND seq < ?"
            values.append(before)
        parts.append(f"SELECT * FROM ({_SESSION} WHERE {where} ORDER BY seq DESC LIMIT ?)")  # noqa: S608
        values.append(limit + 1)
    merged = " UNION ALL ".join(parts)
    rows = db.execute(f"{merged} ORDER BY seq DESC LIMIT ?", [*values, limit + 1])
    shown, more = pages.page(rows, limit, pages.size_of)
    found = tuple(_session(row) for row in shown)
    return SessionPage(found, found[-1].sequence if more else None)


def kept_bytes(db: Executor, uid: int) -> int:
    """Bytes that a user keeps by messages, diffs and the like (migrations/level_1_3.py): its quota."""
    row = db.execute("SELECT size FROM talk_usage WHERE uid = ?", (uid,)).fetchone()
    return 0 if row is None else int(row[0])


def has_active_tasks(db: Executor, session_id: str) -> bool:
    """Whether a task of it is pending or working and not held. A step for each held one, in an index of such tasks."""
    row = db.execute(
        "SELECT 1 FROM tasks WHERE session_id = ? AND status IN ('pending', 'working')"
        " AND NOT (held = 1 AND (status = 'pending' OR phase = 'retry_wait')) LIMIT 1",
        (session_id,),
    ).fetchone()
    return row is not None


def insert_thread(db: Executor, thread: Thread) -> None:
    """Store a new thread."""
    db.execute(
        "INSERT INTO threads (id, session_id, title, created_at) VALUES (?, ?, ?, ?)",
        (thread.id, thread.session_id, thread.title, thread.created_at),
    )


def thread(db: Executor, thread_id: str) -> Thread | None:
    """The thread of that id."""
    row = db.execute("SELECT id, session_id, title, created_at FROM threads WHERE id = ?", (thread_id,)).fetchone()
    return None if row is None else Thread(*row)


def threads(db: Executor, session_id: str) -> list[Thread]:
    """A session's threads, oldest first."""
    rows = db.execute(
        "SELECT id, session_id, title, created_at FROM threads WHERE session_id = ? ORDER BY seq", (session_id,)
    )
    return [Thread(*row) for row in rows]


def count_threads(db: Executor, session_id: str) -> int:
    """How many threads a session has."""
    return int(db.execute("SELECT count(*) FROM threads WHERE session_id = ?", (session_id,)).fetchone()[0])


def insert_message(db: Executor, message: Message) -> None:
    """Store a new message."""
    db.execute(
        "INSERT INTO messages (id, session_id, thread_id, uid, role, channel, content, metadata, created_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            message.id, message.session_id, message.thread_id, message.uid, message.role, message.channel,
            message.content, jsontext.dump(message.metadata), message.created_at,
        ),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class MessagePage:
    """One page, oldest first. `next_sequence` continues it; None at the end."""

    messages: tuple[Message, ...]
    next_sequence: int | None


def messages(
    db: Executor, session_id: str, thread_id: str | None = None, *, after: int = 0, limit: int = 50
) -> MessagePage:
    """Messages of a session, or of one of its threads."""
    limit = min(limit, MAX_ROWS)
    where = "session_id = ?" if thread_id is None else "thread_id = ?"
    rows = db.execute(
        f"{_MESSAGE} WHERE {where} AND seq > ? ORDER BY seq LIMIT ?",
        (session_id if thread_id is None else thread_id, after, limit + 1),
    )
    shown, more = pages.page(rows, limit, pages.size_of)
    found = tuple(_message(row) for row in shown)
    return MessagePage(found, found[-1].sequence if more else None)
