"""`aiosctl tree`: a task and all under it, or all tasks of a session, drawn as trees."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from aiosd.cli import options, sessions
from aiosd.cli.ids import resolve
from aiosd.cli.timeline import tree
from aiosd.cli.values import list_at

if TYPE_CHECKING:
    from aiosd.cli.session import Session


@click.command
@click.argument("which", metavar="TASK|SESSION", type=options.TaskId())
@options.common
@options.pass_session
def command(session: Session, *, which: str) -> None:
    """Draw a task with all under it, or a session's tasks, as trees."""
    session.run(_tree(session, which))


async def _tree(session: Session, word: str) -> None:
    async with session.connect() as client:
        if word.startswith("ps-"):
            session_id = await sessions.resolve(client, word)
            found = await sessions.whole_tree(partial(sessions.call_json, client, session_id, "GetTaskTree"))
        else:
            found = await sessions.whole_tree(partial(client.tree, await resolve(client, word)))
    if session.json:
        session.emit(found)
        return
    rows = [row for row in list_at(found, "tasks") if isinstance(row, dict)]
    for text in tree(session, rows):
        session.say(text)
    if not rows:
        session.note("No tasks.")
