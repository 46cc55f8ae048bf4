"""Sessions and plans as the verbs ask for them: calls of dbus/org.aios.TaskManager1.Session.xml, and the feeds."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

from aiosd.cli.client import MANAGER_PATH, Option
from aiosd.cli.exit_status import ExitStatus
from aiosd.cli.failure import die
from aiosd.cli.values import TaskEvent, list_at, read, read_json, rows, string_at
from aiosd.model.ids import Prefix, is_id
from aiosd.model.jsontext import dump

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from aiosd.cli.client import Argument, Notice, Options, TaskManagerClient
    from aiosd.model.jsontext import JsonObject

LAST = "last"
PAGE = 100
MAX_SEARCHED = 2000
"""Newest sessions among which a beginning is looked for."""


class SessionRow(NamedTuple):
    """A row of ListSessions. `created` in µs since the epoch."""

    session_id: str
    path: str
    title: str
    status: str
    active_objective: str
    uid: int
    created: int


def session_path(session_id: str) -> str:
    """The object path of a session."""
    return f"{MANAGER_PATH}/session/{session_id.replace('-', '_')}"


async def create(client: TaskManagerClient, title: str, *, objective: str = "", suppress: bool | None = None) -> str:
    """A new session; its id."""
    options: Options = {}
    if objective:
        options["objective"] = Option("s", objective)
    if suppress is not None:
        options["suppress_completion_signal"] = Option("b", suppress)
    return read((await client.ask("CreateSession", title, options)).body, 0, str)


async def page(
    client: TaskManagerClient, *, archived: bool = False, all_users: bool = False, limit: int = 50, cursor: str = ""
) -> tuple[list[SessionRow], str]:
    """Sessions, newest first, and where the next page begins ("" at the end)."""
    options: Options = {"limit": Option("u", limit)}
    if archived:
        options["status"] = Option("as", ["active", "closed", "archived"])
    if all_users:
        options["all_users"] = Option("b", value=True)
    if cursor:
        options["cursor"] = Option("s", cursor)
    body = (await client.ask("ListSessions", options)).body
    return [_row(each) for each in rows(body, 0)], read(body, 1, str)


def _row(row: object) -> SessionRow:
    assert isinstance(row, list | tuple)  # noqa: S101 - `rows` gives nothing else; for the type checker
    session_id, path, title, status, objective = (read(row, index, str) for index in range(5))
    return SessionRow(session_id, path, title, status, objective, read(row, 5, int), read(row, 6, int))


async def resolve(client: TaskManagerClient, word: str) -> str:
    """The session that a word means: an id, the beginning of one that no other has (without `ps-`, too), or `last`."""
    if is_id(word, Prefix.SESSION):
        return word
    fits: list[str] = []
    cursor, searched = "", 0
    while searched < MAX_SEARCHED:
        found, cursor = await page(client, archived=True, limit=PAGE, cursor=cursor)
        if word == LAST and found:
            return found[0].session_id
        fits += [row.session_id for row in found if row.session_id.startswith((word, f"ps-{word}"))]
        searched += PAGE
        if not cursor:
            break
    if len(fits) == 1:
        return fits[0]
    if fits:
        shown = ", ".join(fits[:4]) + (", …" if len(fits) > 4 else "")
        die(f"{word!r} is the beginning of several ids", hint=f"which one: {shown}", status=ExitStatus.USAGE)
    if word == LAST:
        die("There are no sessions", hint="'aiosctl session create' begins one", status=ExitStatus.NOT_FOUND)
    die(
        f"No session is {word!r}", hint="'aiosctl session list' shows those that there are",
        status=ExitStatus.NOT_FOUND,
    )  # fmt: skip


async def get(client: TaskManagerClient, session_id: str) -> JsonObject:
    """One session."""
    return read_json((await client.ask("GetSession", session_id)).body, 0)


async def call(client: TaskManagerClient, session_id: str, name: str, *body: Argument) -> tuple[object, ...]:
    """A method of one session."""
    return (await client.ask(name, *body, path=session_path(session_id))).body


async def call_json(client: TaskManagerClient, session_id: str, name: str, *body: Argument) -> JsonObject:
    """One that answers with a JSON object."""
    return read_json(await call(client, session_id, name, *body), 0)


async def timeline(
    client: TaskManagerClient, session_id: str, *, after: str = "", newest_first: bool = False, limit: int = 1000
) -> JsonObject:
    """A page of what happened."""
    options: Options = {"limit": Option("u", limit), "order": Option("s", "desc" if newest_first else "asc")}
    if after:
        options["last_event_id"] = Option("s", after)
    return await call_json(client, session_id, "GetTimeline", options)


async def whole_tree(ask: Callable[[Options], Awaitable[JsonObject]]) -> JsonObject:
    """All pages of a tree as one answer. `ask`: for the page of these options."""
    grown = await ask({})
    rows_ = [*list_at(grown, "tasks")]
    while cursor := string_at(grown, "next_cursor"):
        grown = await ask({"cursor": Option("s", cursor)})
        rows_ += list_at(grown, "tasks")
    return {**grown, "tasks": rows_}


async def apply_diff(
    client: TaskManagerClient, session_id: str, version: int, *, diff: JsonObject | None = None, diff_id: str = ""
) -> JsonObject:
    """Change the plan by a diff, or by one that was proposed."""
    options: Options = {"diff_id": Option("s", diff_id)} if diff_id else {}
    text = "" if diff is None else dump(diff)
    return await call_json(client, session_id, "ApplyDiff", version, text, options)


@contextlib.asynccontextmanager
async def feed(
    client: TaskManagerClient, kind: str, identifier: str, after: str, on_event: Callable[[TaskEvent], None]
) -> AsyncIterator[None]:
    """One of the feeds while the context lasts, from after an event on ("": from now on)."""
    wanted = ""
    early: list[Notice] = []

    def on_notice(notice: Notice) -> None:
        if not wanted:
            early.append(notice)
        elif read(notice.body, 0, str) == wanted:
            on_event(TaskEvent(read(notice.body, 1, str), read(notice.body, 2, str), read_json(notice.body, 3)))

    options: Options = {"last_event_id": Option("s", after)} if after else {}
    async with client.notices(("Event",), on_notice):
        body = (await client.ask("SubscribeFeed", kind, identifier, options)).body
        wanted = read(body, 0, str)
        for row in rows(body, 1):
            on_event(TaskEvent(read(row, 0, str), read(row, 1, str), read_json(row, 2)))
        for notice in early:
            on_notice(notice)
        yield
