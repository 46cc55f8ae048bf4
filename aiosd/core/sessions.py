"""Sessions and messages in the store: each change with its event, in the caller's transaction; and what callers see.

Who may is asked before (`session_operations`); here is whether it can be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiosd.auth.decision import Decision
from aiosd.auth.policy import Access, required_action
from aiosd.core import clock, timeline
from aiosd.errors import AiosError, ErrorKind
from aiosd.model.event import Source
from aiosd.model.ids import Prefix, new_id
from aiosd.model.session import SOURCES, Message, Session, SessionStatus, Thread
from aiosd.store import sessions

if TYPE_CHECKING:
    from aiosd.auth.caller import Caller
    from aiosd.core.authorization import Authorizer
    from aiosd.model import wire_sessions as wire
    from aiosd.model.jsontext import JsonObject, JsonValue
    from aiosd.store.database import Transaction
    from aiosd.store.tasks import Executor

MAX_SESSIONS = 10_000
"""Sessions of one user other than root that are not archived."""
MAX_THREADS = 1000
"""Threads of one session."""


def require_room(transaction: Transaction, uid: int, quota: int, field: str | None) -> None:
    """Raises RATE_LIMITED when the user keeps as much as it may; root may any amount. `quota` in bytes, `field`: what
    brings more. Ending, closing and putting away need no room."""
    used = 0 if uid == 0 else sessions.kept_bytes(transaction, uid)
    if used >= quota:
        raise AiosError(
            ErrorKind.RATE_LIMITED, f"session_quota_bytes: {used} bytes of this user's are kept, of {quota}",
            field=field, reason="session-quota", data={"used": used, "max": quota},
        )  # fmt: skip


def session_not_found() -> AiosError:
    """The one answer for a session that is not there and for one that the caller may not see."""
    return AiosError(
        ErrorKind.SESSION_NOT_FOUND, "there is no such session, or it is another user's", field="session_id"
    )


async def require_session(authorizer: Authorizer, caller: Caller, access: Access, found: Session | None) -> Session:
    """The session, when the caller may have that access to it (as for tasks); otherwise it does not exist for them."""
    if found is None:
        raise session_not_found()
    action = required_action(access, own=found.uid == caller.uid)
    if action is not None:
        details = {"session": found.id, "owner": str(found.uid)}
        if await authorizer.decide(caller, action, details) is not Decision.ALLOWED:
            raise session_not_found()
    return found


def current(db: Executor, session_id: str) -> Session:
    """The session as it is now. Raises SESSION_NOT_FOUND."""
    found = sessions.get(db, session_id)
    if found is None:
        raise session_not_found()
    return found


def open_session(db: Executor, session_id: str) -> Session:
    """The session, which must be active. Raises SESSION_NOT_FOUND or INVALID_STATE."""
    found = current(db, session_id)
    if found.status is not SessionStatus.ACTIVE:
        raise AiosError(
            ErrorKind.INVALID_STATE, f"the session is {found.status}", field="session_id", reason=found.status.value
        )
    return found


def for_task(db: Executor, session_id: str, uid: int) -> Session:
    """The session that a task of `uid` is to belong to: active, and theirs (root may work in anybody's)."""
    found = sessions.get(db, session_id)
    if found is None or (found.uid != uid and uid != 0):
        raise session_not_found()
    return open_session(db, session_id)


def create(transaction: Transaction, caller: Caller, params: wire.SessionCreate, *, suppress: bool) -> Session:
    """A new session. `suppress`: what is configured for those that do not say. Raises RATE_LIMITED."""
    if not caller.is_root and sessions.count_of(transaction, caller.uid, MAX_SESSIONS) >= MAX_SESSIONS:
        message = f"{MAX_SESSIONS} sessions of this user are not archived"
        raise AiosError(ErrorKind.RATE_LIMITED, message, reason="sessions", data={"max": MAX_SESSIONS})
    moment = clock.now()
    wanted = params.suppress_completion_signal
    session = Session(
        id=new_id(Prefix.SESSION), uid=caller.uid, title=params.title, status=SessionStatus.ACTIVE,
        active_objective=params.objective, created_at=moment, updated_at=moment, metadata=params.metadata,
        suppress_completion=suppress if wanted is None else wanted,
    )  # fmt: skip
    sessions.insert(transaction, session)
    shown: dict[str, JsonValue] = {"title": session.title, "status": session.status.value}
    if session.active_objective is not None:
        shown["active_objective"] = session.active_objective
    timeline.tell(transaction, session, "session.created", shown)
    return session


def _set(transaction: Transaction, session: Session, **columns: str | int | None) -> Session:
    sessions.update(transaction, session.id, {**columns, "updated_at": clock.now()})
    return current(transaction, session.id)


def update(transaction: Transaction, params: wire.SessionUpdate) -> Session:
    """Change the title, or whether the completion signal is wanted; a session that is idle gets it at once then."""
    session = open_session(transaction, params.session_id)
    columns: dict[str, str | int | None] = {}
    if params.title is not None:
        columns["title"] = params.title
    if params.suppress_completion_signal is not None:
        columns["suppress_completion"] = int(params.suppress_completion_signal)
    after = _set(transaction, session, **columns)
    shown: dict[str, JsonValue] = {"title": after.title, "suppress_completion_signal": after.suppress_completion}
    timeline.tell(transaction, after, "session.updated", shown)
    if session.suppress_completion and not after.suppress_completion:
        timeline.tell_when_idle(transaction, after.id)
    return after


def set_objective(
    transaction: Transaction, session: Session, objective: str, *, reason: str, message_id: str | None = None
) -> Session:
    """What the session is to reach from now on."""
    after = _set(transaction, session, active_objective=objective)
    shown: dict[str, JsonValue] = {"active_objective": objective, "previous": session.active_objective}
    if reason:
        shown["reason"] = reason
    if message_id is not None:
        shown["message_id"] = message_id
    timeline.tell(transaction, after, "session.objective.updated", shown)
    return after


def close(transaction: Transaction, session: Session, reason: str) -> Session:
    """No more messages, plans and tasks. The caller has seen to its tasks."""
    after = _set(transaction, session, status=SessionStatus.CLOSED.value, closed_at=clock.now())
    timeline.tell(transaction, after, "session.closed", {"status": after.status.value, "reason": reason})
    return after


def archive(transaction: Transaction, session_id: str) -> Session:
    """Out of the usual lists. Only of a closed one."""
    session = current(transaction, session_id)
    if session.status is not SessionStatus.CLOSED:
        raise AiosError(
            ErrorKind.INVALID_STATE, f"only a closed session can be archived; this one is {session.status}",
            field="session_id", reason="not-closed",
        )  # fmt: skip
    after = _set(transaction, session, status=SessionStatus.ARCHIVED.value, archived_at=clock.now())
    timeline.tell(transaction, after, "session.archived", {"status": after.status.value})
    return after


def add_thread(transaction: Transaction, params: wire.ThreadCreate) -> Thread:
    """A new thread of messages."""
    session = open_session(transaction, params.session_id)
    if sessions.count_threads(transaction, session.id) >= MAX_THREADS:
        raise AiosError(ErrorKind.INVALID_STATE, f"the session has {MAX_THREADS} threads", reason="too-many-threads")
    thread = Thread(new_id(Prefix.THREAD), session.id, params.title, clock.now())
    sessions.insert_thread(transaction, thread)
    timeline.tell(transaction, session, "session.thread.created", {"thread_id": thread.id, "title": thread.title})
    return thread


def add_message(transaction: Transaction, caller: Caller, params: wire.MessageAdd) -> Message:
    """A new message of an active session. Its content is in the event too: the timeline is complete by itself."""
    session = open_session(transaction, params.session_id)
    if params.thread_id is not None:
        thread = sessions.thread(transaction, params.thread_id)
        if thread is None or thread.session_id != session.id:
            raise AiosError(ErrorKind.INVALID_PARAMS, "the session has no such thread", field="thread_id")
    message = Message(
        id=new_id(Prefix.MESSAGE), session_id=session.id, thread_id=params.thread_id, uid=caller.uid,
        role=params.role, channel=params.channel, content=params.content, created_at=clock.now(),
        metadata=params.metadata,
    )  # fmt: skip
    sessions.insert_message(transaction, message)
    shown = message_view(message)
    if params.objective_change:
        shown["objective_change"] = True
    source = SOURCES.get(message.role, Source.USER)
    timeline.tell(transaction, session, "session.message.added", shown, source=source)
    return message


def session_view(session: Session) -> dict[str, JsonValue]:
    """Seed 003's `project_session`, and ours beyond it."""
    view: dict[str, JsonValue] = {
        "id": session.id,
        "session_id": session.id,
        "title": session.title,
        "status": session.status.value,
        "active_objective": session.active_objective or "",
        "created_at": clock.rfc3339(session.created_at),
        "updated_at": clock.rfc3339(session.updated_at),
        "uid": session.uid,
        "suppress_completion_signal": session.suppress_completion,
        "metadata": session.metadata,
    }
    for name, moment in (("closed_at", session.closed_at), ("archived_at", session.archived_at)):
        if moment is not None:
            view[name] = clock.rfc3339(moment)
    return view


def message_view(message: Message) -> dict[str, JsonValue]:
    """Seed 003's `message`."""
    view: dict[str, JsonValue] = {
        "id": message.id,
        "session_id": message.session_id,
        "role": message.role,
        "channel": message.channel,
        "content": message.content,
        "created_at": clock.rfc3339(message.created_at),
        "uid": message.uid,
    }
    if message.thread_id is not None:
        view["thread_id"] = message.thread_id
    if message.metadata:
        view["metadata"] = message.metadata
    return view


def thread_view(thread: Thread) -> JsonObject:
    """A thread."""
    return {
        "id": thread.id,
        "session_id": thread.session_id,
        "title": thread.title,
        "created_at": clock.rfc3339(thread.created_at),
    }
