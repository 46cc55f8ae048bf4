"""Handlers of sessions, threads and messages, of timelines and feeds (seed 003)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from aiosd.auth.policy import Access, Action
from aiosd.core import sessions as life
from aiosd.core import tree
from aiosd.core.operations import Reply
from aiosd.core.steps import thin
from aiosd.errors import AiosError, ErrorKind
from aiosd.model.ids import Prefix, event_sequence, new_id
from aiosd.model.session import SessionStatus
from aiosd.model.subscription import Feed, granted
from aiosd.store import journal, sessions, tasks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from aiosd.auth.caller import Caller
    from aiosd.core.authorization import Authorizer
    from aiosd.core.control import Control
    from aiosd.core.settings import Settings
    from aiosd.model import wire_sessions as wire
    from aiosd.model.jsontext import JsonValue
    from aiosd.model.session import Session, Thread
    from aiosd.model.task import Task
    from aiosd.store.database import Database, Transaction

_NEWEST = 1 << 62


class SessionOperations:
    """Sessions as callers handle them."""

    def __init__(self, database: Database, authorizer: Authorizer, settings: Settings, control: Control) -> None:
        """`control`: cancels what a session that is closed leaves."""
        self._database = database
        self._authorizer = authorizer
        self._settings = settings
        self._control = control

    def handlers(self) -> Mapping[str, Callable[..., Awaitable[Reply]]]:
        """By operation name."""
        return {
            "session.create": self.create,
            "session.get": self.get,
            "session.list": self.list_sessions,
            "session.update": self.update,
            "session.update_objective": self.update_objective,
            "session.close": self.close,
            "session.archive": self.archive,
            "session.timeline": self.timeline,
            "thread.create": self.create_thread,
            "thread.list": self.list_threads,
            "message.list": self.list_messages,
            "feed.subscribe": self.subscribe,
        }

    async def create(self, caller: Caller, params: wire.SessionCreate) -> Reply:
        """A new session of the caller's."""
        suppress = self._settings.current.suppress_completion_signal
        room = self._room(caller, None)

        def make(transaction: Transaction) -> Session:
            room(transaction)
            return life.create(transaction, caller, params, suppress=suppress)

        return Reply(life.session_view(await self._database.write(make)))

    async def get(self, caller: Caller, params: wire.SessionRef) -> Reply:
        """One session."""
        session = await self._session(caller, Access.VIEW, params.session_id)
        view = life.session_view(session)
        view["idle"] = not await self._database.read(lambda db: sessions.has_active_tasks(db, session.id))
        return Reply(view)

    async def list_sessions(self, caller: Caller, params: wire.SessionList) -> Reply:
        """A page of the caller's sessions, or of everybody's for who may see them."""
        uid: int | None = caller.uid
        if params.all_users:
            await self._authorizer.require(caller, Action.VIEW_OTHERS, {"list": "sessions"})
            uid = None
        statuses = list(dict.fromkeys(SessionStatus(name) for name in params.status)) or list(SessionStatus)
        before = None if params.cursor is None else int(params.cursor)
        page = await self._database.read(lambda db: sessions.page(db, uid, statuses, before=before, limit=params.limit))
        body: dict[str, JsonValue] = {
            "sessions": [life.session_view(one) for one in page.sessions],
            "has_more": page.next_sequence is not None,
        }
        if page.next_sequence is not None:
            body["next_cursor"] = str(page.next_sequence)
        return Reply(body)

    async def update(self, caller: Caller, params: wire.SessionUpdate) -> Reply:
        """Change a session's title, or whether it wants the completion signal."""
        await self._session(caller, Access.CONTROL, params.session_id)
        room = self._room(caller, None)

        def change(transaction: Transaction) -> Session:
            room(transaction)
            return life.update(transaction, params)

        return Reply(life.session_view(await self._database.write(change)))

    async def update_objective(self, caller: Caller, params: wire.SessionObjective) -> Reply:
        """Say what a session is to reach, without a message."""
        await self._session(caller, Access.CONTROL, params.session_id)
        room = self._room(caller, "objective")

        def change(transaction: Transaction) -> Session:
            room(transaction)
            session = life.open_session(transaction, params.session_id)
            return life.set_objective(transaction, session, params.objective, reason=params.reason)

        return Reply(life.session_view(await self._database.write(change)))

    async def close(self, caller: Caller, params: wire.SessionClose) -> Reply:
        """End a session; its unfinished tasks are canceled when that is asked for, and else keep it from being closed.

        One transaction writes that it is closed and what is to end; programs that run are asked before it, as for any
        cancel (a refusal keeps the session open), and stopped after it.
        """
        await self._session(caller, Access.CONTROL, params.session_id)
        if params.cancel_tasks:
            await self._cancel_most(caller, params)
        stopping: list[Task] = []

        def change(transaction: Transaction) -> Session:
            session = life.open_session(transaction, params.session_id)
            if params.cancel_tasks:
                stopping.extend(
                    tree.request_cancel(transaction, task, f"uid:{caller.uid}", params.reason)
                    for task in tasks.open_of_session(transaction, session.id)
                    if task.cancel_reason is None
                )
            elif tasks.has_open(transaction, session.id):
                raise AiosError(
                    ErrorKind.INVALID_STATE, "tasks of the session have not ended", field="session_id",
                    reason="unfinished-tasks",
                )  # fmt: skip
            return life.close(transaction, session, params.reason)

        closed = await self._database.write(change)
        await self._control.stop(stopping)
        return Reply(life.session_view(closed))

    async def _cancel_most(self, caller: Caller, params: wire.SessionClose) -> None:
        """Ask the programs, and of very many tasks end all but some beforehand."""
        unfinished = partial(tasks.open_ids_of_session, session_id=params.session_id)
        await self._control.ask_programs(await self._database.read(self._control.running(unfinished)), [])
        each = partial(tree.request_cancel, actor=f"uid:{caller.uid}", reason=params.reason)
        async for step in thin(self._database, unfinished, each):
            await self._control.stop(step)

    async def archive(self, caller: Caller, params: wire.SessionRef) -> Reply:
        """Take a closed session out of the usual lists."""
        await self._session(caller, Access.CONTROL, params.session_id)
        return Reply(life.session_view(await self._database.write(lambda tx: life.archive(tx, params.session_id))))

    async def timeline(self, caller: Caller, params: wire.SessionTimeline) -> Reply:
        """A page of everything that happened in a session, by event id."""
        session = await self._session(caller, Access.VIEW, params.session_id)
        at = _sequence(params.last_event_id)
        limit = params.limit
        if params.order == "asc":
            shown, more = await self._database.read(
                lambda db: journal.events_after(db, at or 0, session_id=session.id, limit=limit)
            )
        else:
            before = _NEWEST if at is None else at
            shown, more = await self._database.read(lambda db: journal.events_before(db, before, session.id, limit))
        body: dict[str, JsonValue] = {
            "session_id": session.id,
            "events": [event.record() for event in shown],
            "has_more": more,
        }
        if shown:
            body["last_event_id"] = shown[-1].id
        return Reply(body)

    async def create_thread(self, caller: Caller, params: wire.ThreadCreate) -> Reply:
        """A new thread of messages in a session."""
        await self._session(caller, Access.CONTROL, params.session_id)
        room = self._room(caller, "title")

        def add(transaction: Transaction) -> Thread:
            room(transaction)
            return life.add_thread(transaction, params)

        return Reply(life.thread_view(await self._database.write(add)))

    async def list_threads(self, caller: Caller, params: wire.SessionRef) -> Reply:
        """A session's threads."""
        session = await self._session(caller, Access.VIEW, params.session_id)
        found = await self._database.read(lambda db: sessions.threads(db, session.id))
        return Reply({"threads": [life.thread_view(one) for one in found]})

    async def list_messages(self, caller: Caller, params: wire.MessageList) -> Reply:
        """A page of a session's messages, or of one of its threads."""
        session = await self._session(caller, Access.VIEW, params.session_id)
        if params.thread_id is not None:
            thread = await self._database.read(lambda db: sessions.thread(db, params.thread_id or ""))
            if thread is None or thread.session_id != session.id:
                raise AiosError(ErrorKind.INVALID_PARAMS, "the session has no such thread", field="thread_id")
        after = 0 if params.cursor is None else int(params.cursor)
        page = await self._database.read(
            lambda db: sessions.messages(db, session.id, params.thread_id, after=after, limit=params.limit)
        )
        body: dict[str, JsonValue] = {
            "messages": [life.message_view(one) for one in page.messages],
            "has_more": page.next_sequence is not None,
        }
        if page.next_sequence is not None:
            body["next_cursor"] = str(page.next_sequence)
        return Reply(body)

    async def subscribe(self, caller: Caller, params: wire.FeedSubscribe) -> Reply:
        """Grant one of the three feeds; with `last_event_id` also what was missed, in pages as task.resubscribe."""
        body = await self._grant(caller, params)
        last = _sequence(params.last_event_id)
        if last is None:
            return Reply(body)
        subscription = granted(body, after=last)
        newest, (missed, more) = await self._database.read(
            lambda db: (
                journal.last_sequence(db),
                journal.events_after(
                    db, last, task_id=subscription.task_id or None, uid=subscription.uid,
                    session_id=subscription.session_id or None, worker_id=subscription.worker_id or None,
                    limit=params.limit,
                ),
            )
        )  # fmt: skip
        if last > newest:
            raise AiosError(ErrorKind.INVALID_PARAMS, "is newer than any event that there is", field="last_event_id")
        body["missed_events"] = [
            {"id": event.id, "event": event.type, "data": event.record()}
            for event in missed
            if subscription.wants(event)
        ]
        body["last_event_id"] = missed[-1].id if missed else params.last_event_id
        body["more"] = more
        return Reply(body)

    async def _grant(self, caller: Caller, params: wire.FeedSubscribe) -> dict[str, JsonValue]:
        """The scope. A session's feed shows all of the session to whoever may see the session."""
        feed = Feed(params.feed)
        body: dict[str, JsonValue] = {
            "subscription_id": new_id(Prefix.SUBSCRIPTION), "feed": feed.value, "task_id": "", "uid": caller.uid,
            "events": [],
        }  # fmt: skip
        if feed is Feed.SESSION_FEED and params.id:
            body["session_id"] = (await self._session(caller, Access.VIEW, params.id)).id
            body["uid"] = None
        elif feed is Feed.TASK_FEED and params.id:
            task = await self._database.read(lambda db: tasks.get(db, params.id))
            body["task_id"] = (await self._authorizer.require_task(caller, Access.VIEW, task)).id
            body["uid"] = None
        else:
            if feed is Feed.WORKER_FEED and params.id:
                body["worker_id"] = params.id
            if params.all_users:
                await self._authorizer.require(caller, Action.VIEW_OTHERS, {"events": "all"})
                body["uid"] = None
        return body

    def _room(self, caller: Caller, field: str | None) -> Callable[[Transaction], None]:
        quota = self._settings.current.session_quota_bytes
        return partial(life.require_room, uid=caller.uid, quota=quota, field=field)

    async def _session(self, caller: Caller, access: Access, session_id: str) -> Session:
        found = await self._database.read(lambda db: sessions.get(db, session_id))
        return await life.require_session(self._authorizer, caller, access, found)


def _sequence(identifier: str | None) -> int | None:
    if identifier is None:
        return None
    found = event_sequence(identifier)
    if found is None:
        raise AiosError(ErrorKind.INVALID_PARAMS, "is not the id of an event", field="last_event_id")
    return found
