"""`aiosctl session`: sessions, what is said in them, and what happens in them."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aiosd.cli import options, sessions, talk
from aiosd.cli.client import Option
from aiosd.cli.durations import ago, moment
from aiosd.cli.exit_status import ExitStatus
from aiosd.cli.failure import Failure
from aiosd.cli.picture import drawing as picture_of
from aiosd.cli.table import render
from aiosd.cli.terminal import clean, one_line
from aiosd.cli.timeline import say, tree
from aiosd.cli.values import list_at, string_at, text_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aiosd.cli.client import Options, TaskManagerClient
    from aiosd.cli.session import Session
    from aiosd.cli.values import TaskEvent
    from aiosd.model.jsontext import JsonObject, JsonValue

_session = click.argument("which", metavar="SESSION", type=options.SessionId())


@click.group(cls=options.Group)
@options.common
def command() -> None:
    """Sessions: conversations with their plans and tasks, each on one timeline."""


@command.command
@click.argument("title", default="")
@click.option("--objective", default="", help="What the session is to reach.")
@click.option("--no-completion-signal", is_flag=True, help="Do not tell when none of its tasks is at work any more.")
@options.common
@options.pass_session
def create(session: Session, *, title: str, objective: str, no_completion_signal: bool) -> None:
    """Begin a session; prints its id."""
    session.run(_create(session, title, objective, suppress=True if no_completion_signal else None))


async def _create(session: Session, title: str, objective: str, *, suppress: bool | None) -> None:
    async with session.connect() as client:
        session_id = await sessions.create(client, title, objective=objective, suppress=suppress)
    if session.json:
        session.emit({"session_id": session_id})
    else:
        session.say(session_id)


@command.command("list")
@click.option("--archived", is_flag=True, help="Archived ones, too.")
@click.option("--all-users", is_flag=True, help="The sessions of all users, not only one's own.")
@click.option("--limit", "-n", type=click.IntRange(1, 100), default=50, show_default=True, help="Sessions at most.")
@click.option("--all", "every", is_flag=True, help="All of them.")
@options.common
@options.pass_session
def list_(session: Session, *, archived: bool, all_users: bool, limit: int, every: bool) -> None:
    """List sessions, the newest first."""
    session.run(_list(session, archived=archived, all_users=all_users, limit=limit, every=every))


async def _list(session: Session, *, archived: bool, all_users: bool, limit: int, every: bool) -> None:
    ask = partial(sessions.page, archived=archived, all_users=all_users, limit=sessions.PAGE if every else limit)
    async with session.connect() as client:
        found, cursor = await ask(client)
        while every and cursor:
            more, cursor = await ask(client, cursor=cursor)
            found += more
    if session.json:
        session.emit({"sessions": [row._asdict() for row in found], "has_more": bool(cursor)})
        return
    if not found:
        session.note("No sessions.")
        return
    rows = [[row.session_id, row.status, ago(row.created), row.title, row.active_objective] for row in found]
    for text in render(session, ["SESSION", "STATUS", "CREATED", "TITLE", "OBJECTIVE"], rows):
        session.say(text)
    if cursor:
        session.note(f"\nThe newest {len(found)}; --all shows all of them.")


@command.command
@_session
@options.common
@options.pass_session
def show(session: Session, *, which: str) -> None:
    """Show a session: its objective, its plan's version, its tasks as trees."""
    session.run(_show(session, which))


async def _show(session: Session, word: str) -> None:
    async with session.connect() as client:
        session_id = await sessions.resolve(client, word)
        found = await sessions.get(client, session_id)
        grown = await sessions.whole_tree(partial(sessions.call_json, client, session_id, "GetTaskTree"))
        plan: JsonObject = {}
        with contextlib.suppress(Failure):  # a session need not have a plan
            plan = await sessions.call_json(client, session_id, "GetPlan", {})
    if session.json:
        session.emit({**found, "tasks": grown.get("tasks"), "plan": plan or None})
        return
    objective = clean(string_at(found, "active_objective"))
    shown = [
        ("Session", one_line(f"{session_id} — {title}" if (title := string_at(found, "title")) else session_id)),
        ("Status", one_line(string_at(found, "status")) + (", idle" if found.get("idle") is True else "")),
        ("Created", moment(string_at(found, "created_at"))),
        *([("Objective", objective)] if objective else []),
        *([("Plan", f"version {text_of(plan.get('version'))}")] if plan else []),
    ]
    for name, text in shown:
        session.say(f"{name:>12}: {text}")
    rows = [row for row in list_at(grown, "tasks") if isinstance(row, dict)]
    if rows:
        session.say()
    for text in tree(session, rows):
        session.say(text)


@command.command
@_session
@click.option("--lines", "-n", type=click.IntRange(1, 1000), help="Only the newest.")
@click.option(
    "--svg", "picture", metavar="[FILE]", is_flag=False, flag_value="-",
    type=click.Path(dir_okay=False, allow_dash=True),
    help="Draw it: an SVG image in FILE, else on standard output. Give SESSION first.",
)  # fmt: skip
@options.common
@options.pass_session
def timeline(session: Session, *, which: str, lines: int | None, picture: str | None) -> None:
    """Print or draw what happened in a session, in order."""
    if picture is None:
        session.run(_timeline(session, which, lines))
        return
    drawn = session.run(_draw(session, which, lines))
    if picture == "-":
        session.say(drawn.rstrip())
    else:
        Path(picture).write_text(drawn, encoding="utf-8")


async def _timeline(session: Session, word: str, lines: int | None) -> None:
    async with session.connect() as client:
        session_id = await sessions.resolve(client, word)
        async for event in _events(client, session_id, lines):
            say(session, event)


async def _draw(session: Session, word: str, lines: int | None) -> str:
    async with session.connect() as client:
        session_id = await sessions.resolve(client, word)
        found = await sessions.get(client, session_id)
        events = [event async for event in _events(client, session_id, lines)]
    title = string_at(found, "title") or session_id
    return picture_of(events, one_line(title), one_line(string_at(found, "active_objective")))


async def _events(client: TaskManagerClient, session_id: str, lines: int | None) -> AsyncIterator[JsonObject]:
    """All of a timeline, oldest first, page by page; or only its newest."""
    if lines is not None:
        found: list[JsonValue] = []
        after, more = "", True
        while more and len(found) < lines:  # a page ends at a size, too
            page = await sessions.timeline(client, session_id, newest_first=True, after=after, limit=lines - len(found))
            found += list_at(page, "events")
            after, more = string_at(page, "last_event_id"), page.get("has_more") is True
        for event in reversed(found):
            yield event if isinstance(event, dict) else {}
        return
    after, more = "", True
    while more:
        page = await sessions.timeline(client, session_id, after=after)
        for event in list_at(page, "events"):
            yield event if isinstance(event, dict) else {}
        after, more = string_at(page, "last_event_id"), page.get("has_more") is True


@command.command
@_session
@click.option("--until-idle", is_flag=True, help="Only until none of its tasks is pending or working any more.")
@options.common
@options.pass_session
def follow(session: Session, *, which: str, until_idle: bool) -> None:
    """Print what happened in a session, and what happens from now on, until Ctrl-C."""
    session.run(_follow(session, which, until_idle=until_idle))


async def _follow(session: Session, word: str, *, until_idle: bool) -> None:
    """All of the past by pages; then the feed, which begins where they ended."""
    events: asyncio.Queue[TaskEvent] = asyncio.Queue()
    async with session.connect() as client:
        session_id = await sessions.resolve(client, word)
        after = ""
        while True:
            page = await sessions.timeline(client, session_id, after=after)
            for event in list_at(page, "events"):
                say(session, event if isinstance(event, dict) else {})
            after = string_at(page, "last_event_id") or after
            if page.get("has_more") is not True:
                break
        async with sessions.feed(client, "session_feed", session_id, after, events.put_nowait):
            idle = until_idle and (await sessions.get(client, session_id)).get("idle") is True
            while not (idle and events.empty()):
                event_ = await events.get()
                say(session, event_.data)
                idle = until_idle and event_.kind == "all_tasks_processed"


@command.command
@_session
@click.option("--cancel-tasks", is_flag=True, help="End its unfinished tasks; without it they must have ended.")
@options.common
@options.pass_session
def close(session: Session, *, which: str, cancel_tasks: bool) -> int:
    """End a session: no more messages, plans and tasks."""
    given: Options = {"cancel_tasks": Option("b", value=True)} if cancel_tasks else {}
    return session.run(_do(session, which, "Close", given, done="closed"))


@command.command
@_session
@options.common
@options.pass_session
def archive(session: Session, *, which: str) -> int:
    """Take a closed session out of the list."""
    return session.run(_do(session, which, "Archive", {}, done="archived"))


@command.command
@_session
@click.option("--title", help="What it is called from now on.")
@click.option(
    "--completion-signal/--no-completion-signal",
    "signal",
    default=None,
    help="Whether to tell when none of its tasks is at work any more; an idle session tells at once.",
)
@options.common
@options.pass_session
def edit(session: Session, *, which: str, title: str | None, signal: bool | None) -> int:
    """Change a session's title, or whether it tells that it is idle."""
    given: Options = {}
    if title is not None:
        given["title"] = Option("s", title)
    if signal is not None:
        given["suppress_completion_signal"] = Option("b", value=not signal)
    if not given:
        raise click.UsageError("nothing is to be changed")
    return session.run(_do(session, which, "Update", given, done="changed"))


@command.command
@_session
@click.argument("text")
@options.common
@options.pass_session
def objective(session: Session, *, which: str, text: str) -> int:
    """Say what a session is to reach from now on."""
    return session.run(_do(session, which, "UpdateObjective", text, {}, done="has a new objective"))


async def _do(session: Session, word: str, name: str, *body: str | Options, done: str) -> int:
    async with session.connect() as client:
        session_id = await sessions.resolve(client, word)
        await sessions.call(client, session_id, name, *body)
    if session.json:
        session.emit({"session_id": session_id})
    session.note(f"{session_id} {done}")
    return ExitStatus.SUCCESS


for _verb in (talk.say, talk.messages, talk.thread):
    command.add_command(_verb)
