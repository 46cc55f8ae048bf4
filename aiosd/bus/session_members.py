"""The rows of `members` for sessions, plans and feeds (dbus/org.aios.TaskManager1.Session.xml, and the manager's)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiosd.bus.member import SESSION_ID, Argument, Member, nothing, text, whole
from aiosd.bus.paths import session_path
from aiosd.bus.values import (
    Option,
    Reading,
    invalid,
    json_argument,
    object_of,
    rows_of,
    text_argument,
    text_of,
    time_of,
)
from aiosd.core.operations import MANAGER, SESSION
from aiosd.model.bounds import MAX_CONTENT
from aiosd.model.jsontext import dump

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiosd.bus.message import BusValue
    from aiosd.model.jsontext import JsonObject, JsonValue


def _new_session(body: JsonObject) -> tuple[BusValue, ...]:
    session_id = text_of(body, "session_id")
    return (session_id, session_path(session_id))


def _sessions(body: JsonObject) -> tuple[BusValue, ...]:
    rows: list[BusValue] = []
    for row in rows_of(body, "sessions"):
        session_id, uid = text_of(row, "session_id"), row.get("uid")
        rows.append(
            (
                session_id,
                session_path(session_id),
                text_of(row, "title"),
                text_of(row, "status"),
                text_of(row, "active_objective"),
                uid if isinstance(uid, int) else 0,
                time_of(row, "created_at"),
            )
        )
    return (rows, text_of(body, "next_cursor"))


def _content(field: str, value: BusValue) -> str:
    """A message: longer than other strings may be."""
    if not isinstance(value, str) or len(value) > MAX_CONTENT:
        raise invalid(field, f"must be a string of at most {MAX_CONTENT} characters")
    return value


def _tasks(field: str, value: BusValue) -> JsonValue:
    """`{"tasks": […]}`, as every JSON argument is an object."""
    return json_argument(field, value).get("tasks", [])


def _diff(field: str, value: BusValue) -> JsonValue:
    """A diff, or "" where one proposed before is named."""
    return "" if value == "" else json_argument(field, value)


def _number(field: str, value: BusValue) -> JsonValue:
    del field
    return int(str(value))


def _feed(body: JsonObject) -> tuple[BusValue, ...]:
    missed: list[BusValue] = [
        (text_of(row, "id"), text_of(row, "event"), dump(object_of(row, "data")))
        for row in rows_of(body, "missed_events")
    ]
    return (text_of(body, "subscription_id"), missed)


_NO_OPTIONS: Mapping[str, Option] = {}
_SUPPRESS = {"suppress_completion_signal": Option("b", ("suppress_completion_signal",))}
_PAGE = {"limit": Option("u", ("limit",)), "cursor": Option("s", ("cursor",))}

_VERSION = Argument("version", _number)
_DIFF = Argument("diff", json_argument)

SESSION_ROWS = (
    Member(
        MANAGER,
        "CreateSession",
        "session.create",
        _new_session,
        (Argument("title", text_argument),),
        {
            "objective": Option("s", ("objective",)),
            "metadata": Option("s", ("metadata",), Reading.JSON),
            **_SUPPRESS,
        },
    ),
    Member(MANAGER, "GetSession", "session.get", whole, (SESSION_ID,)),
    Member(
        MANAGER,
        "ListSessions",
        "session.list",
        _sessions,
        (),
        {"status": Option("as", ("status",)), "all_users": Option("b", ("all_users",)), **_PAGE},
    ),
    Member(
        MANAGER,
        "SubscribeFeed",
        "feed.subscribe",
        _feed,
        (Argument("feed", text_argument), Argument("id", text_argument)),
        {"all_users": Option("b", ("all_users",)), "last_event_id": Option("s", ("last_event_id",))},
    ),
    Member(SESSION, "Update", "session.update", nothing, (), {"title": Option("s", ("title",)), **_SUPPRESS}),
    Member(
        SESSION,
        "UpdateObjective",
        "session.update_objective",
        nothing,
        (Argument("objective", text_argument),),
        {"reason": Option("s", ("reason",))},
    ),
    Member(
        SESSION,
        "Close",
        "session.close",
        nothing,
        (),
        {"cancel_tasks": Option("b", ("cancel_tasks",)), "reason": Option("s", ("reason",))},
    ),
    Member(SESSION, "Archive", "session.archive", nothing, (), _NO_OPTIONS),
    Member(
        SESSION,
        "GetTimeline",
        "session.timeline",
        whole,
        (),
        {
            "last_event_id": Option("s", ("last_event_id",)),
            "order": Option("s", ("order",)),
            "limit": Option("u", ("limit",)),
        },
    ),
    Member(SESSION, "CreateThread", "thread.create", text("id"), (Argument("title", text_argument),), _NO_OPTIONS),
    Member(SESSION, "ListThreads", "thread.list", whole),
    Member(SESSION, "ListMessages", "message.list", whole, (), {"thread_id": Option("s", ("thread_id",)), **_PAGE}),
    Member(
        SESSION,
        "AddMessage",
        "message.add",
        whole,
        (Argument("role", text_argument), Argument("content", _content)),
        {
            "channel": Option("s", ("channel",)),
            "thread_id": Option("s", ("thread_id",)),
            "metadata": Option("s", ("metadata",), Reading.JSON),
            "objective_change": Option("b", ("objective_change",)),
            "objective": Option("s", ("objective",)),
            "diff": Option("s", ("diff",), Reading.JSON),
        },
    ),
    Member(
        SESSION,
        "CreatePlan",
        "plan.create",
        whole,
        (Argument("tasks", _tasks),),
        {"objective": Option("s", ("objective",))},
    ),
    Member(
        SESSION,
        "GetPlan",
        "plan.get",
        whole,
        (),
        {"diffs": Option("b", ("diffs",)), **_PAGE},
    ),
    Member(SESSION, "ProposeDiff", "plan.propose_diff", text("diff_id"), (_VERSION, _DIFF), _NO_OPTIONS),
    Member(
        SESSION,
        "ApplyDiff",
        "plan.apply_diff",
        whole,
        (_VERSION, Argument("diff", _diff, omit_empty=True)),
        {"diff_id": Option("s", ("diff_id",))},
    ),
    Member(SESSION, "GetTaskTree", "session.tree", whole, (), _PAGE),
)
"""One row a method, in the order of the XML files."""
