"""What is said in a session: the verbs of `aiosctl session` about its messages and threads."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aiosd.cli import options, sessions
from aiosd.cli.arguments import from_json
from aiosd.cli.client import Option
from aiosd.cli.durations import moment
from aiosd.cli.session import Style
from aiosd.cli.table import render
from aiosd.cli.terminal import clean, one_line
from aiosd.cli.values import list_at, string_at, text_of
from aiosd.model.jsontext import dump

if TYPE_CHECKING:
    from aiosd.cli.client import Options
    from aiosd.cli.session import Session
    from aiosd.model.jsontext import JsonObject

_session = click.argument("which", metavar="SESSION", type=options.SessionId())


@click.command
@_session
@click.argument("words", nargs=-1, required=True)
@click.option(
    "--role", type=click.Choice(["user", "assistant", "manager", "system", "worker"]), default="user",
    show_default=True, help="As whom it is said; a message also names the user who wrote it.",
)  # fmt: skip
@click.option("--channel", default="cli", show_default=True, help="Where it was said.")
@click.option("--thread", default="", help="The thread that it belongs to.")
@click.option("--objective-change", is_flag=True, help="It says what is wanted from now on: a plan's diff is proposed.")
@click.option("--diff", type=click.Path(dir_okay=False, allow_dash=True), help="The diff to propose, as JSON.")
@options.common
@options.pass_session
def say(
    session: Session, *, which: str, words: tuple[str, ...], role: str, channel: str, thread: str,
    objective_change: bool, diff: str | None,
) -> None:  # fmt: skip
    """Put a message on a session's timeline."""
    given: Options = {"channel": Option("s", channel)}
    if thread:
        given["thread_id"] = Option("s", thread)
    if objective_change:
        given["objective_change"] = Option("b", value=True)
    if diff is not None:
        given["diff"] = Option("s", dump(read_json_file(diff)))
    session.run(_say_message(session, which, role, " ".join(words), given))


async def _say_message(session: Session, word: str, role: str, content: str, given: Options) -> None:
    async with session.connect() as client:
        session_id = await sessions.resolve(client, word)
        message = await sessions.call_json(client, session_id, "AddMessage", role, content, given)
    if session.json:
        session.emit(message)
        return
    session.say(one_line(string_at(message, "id")))
    proposed = message.get("proposed")
    if isinstance(proposed, dict):
        diff_id, version = one_line(text_of(proposed.get("diff_id"))), text_of(proposed.get("version"))
        session.note(clean(json.dumps(proposed.get("diff"), ensure_ascii=False, indent=2)))
        session.note(f"Apply it: aiosctl plan apply {session_id} --version {version} --diff-id {diff_id}")


def read_json_file(name: str) -> JsonObject:
    """A JSON object from a file, or from stdin for `-`."""
    return from_json(sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes(), name)


@click.command
@_session
@click.option("--thread", default="", help="Only those of this thread.")
@options.common
@options.pass_session
def messages(session: Session, *, which: str, thread: str) -> None:
    """Print what was said in a session, oldest first."""
    session.run(_messages(session, which, thread))


async def _messages(session: Session, word: str, thread: str) -> None:
    given: Options = {"limit": Option("u", 100)}
    if thread:
        given["thread_id"] = Option("s", thread)
    async with session.connect() as client:
        session_id = await sessions.resolve(client, word)
        more = True
        while more:
            page = await sessions.call_json(client, session_id, "ListMessages", given)
            for found in list_at(page, "messages"):
                _print(session, found if isinstance(found, dict) else {})
            more = page.get("has_more") is True
            given = {**given, "cursor": Option("s", string_at(page, "next_cursor"))}


def _print(session: Session, message: JsonObject) -> None:
    if session.json:
        session.emit(message)
        return
    role, channel = one_line(string_at(message, "role")), one_line(string_at(message, "channel"))
    place = f" ({channel})" if channel else ""
    session.say(session.paint(f"{moment(string_at(message, 'created_at'))}  {role}{place}", Style.HEAD))
    for text in clean(string_at(message, "content")).splitlines():
        session.say(f"  {text}")


@click.command
@_session
@click.argument("title", default="")
@options.common
@options.pass_session
def thread(session: Session, *, which: str, title: str) -> None:
    """Begin a thread of messages, and print its id; without TITLE list the threads that there are."""
    session.run(_begin(session, which, title) if title else _threads(session, which))


async def _begin(session: Session, word: str, title: str) -> None:
    async with session.connect() as client:
        session_id = await sessions.resolve(client, word)
        (made,) = await sessions.call(client, session_id, "CreateThread", title, {})
    if session.json:
        session.emit({"id": str(made)})
    else:
        session.say(one_line(str(made)))


async def _threads(session: Session, word: str) -> None:
    async with session.connect() as client:
        session_id = await sessions.resolve(client, word)
        found = await sessions.call_json(client, session_id, "ListThreads")
    if session.json:
        session.emit(found)
        return
    rows = [
        [string_at(row, "id"), moment(string_at(row, "created_at")), string_at(row, "title")]
        for row in list_at(found, "threads")
        if isinstance(row, dict)
    ]
    for text in render(session, ["THREAD", "CREATED", "TITLE"], rows) if rows else ():
        session.say(text)
    if not rows:
        session.note("No threads.")
