"""`aiosctl watch`: tasks, or one task, as they change."""

from __future__ import annotations

import contextlib
from datetime import datetime
from typing import TYPE_CHECKING

import click

from aiosd.cli import options
from aiosd.cli.client import ListFilter
from aiosd.cli.ids import resolve
from aiosd.cli.values import StateChange, to_json
from aiosd.cli.verb.list import table

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator

    from aiosd.cli.client import TaskManagerClient
    from aiosd.cli.session import Session

REFRESH_SECONDS = 2.0
"""How often the table is made anew when nothing changes: progress and ages move without signals of their own."""


@click.command
@click.argument("task", required=False, type=options.TaskId())
@click.option("--all-users", is_flag=True, help="The tasks of all users, not only one's own.")
@options.common
@options.pass_session
def command(session: Session, *, task: str | None, all_users: bool) -> None:
    """Watch one task until it ends, or all tasks until Ctrl-C: live on a terminal, a line for each change in a pipe."""
    if task is not None:
        session.run(_one(session, task))
    else:
        session.run(_all(session, all_users=all_users))


async def _one(session: Session, word: str) -> None:
    from aiosd.cli.follow import follow
    from aiosd.cli.views import say_end, view_for

    async with session.connect() as client:
        task_id = await resolve(client, word)
        with session.interruptible(f"{task_id} goes on running."):
            with view_for(session) as view:
                task = await follow(client, task_id, view, output=False)
            if session.json:
                session.emit({"kind": "task", "data": task})
            else:
                say_end(session, task)


async def _all(session: Session, *, all_users: bool) -> None:
    import asyncio
    import os

    changes: asyncio.Queue[StateChange] = asyncio.Queue()

    def keep(change: StateChange) -> None:
        if all_users or change.uid == os.getuid():
            changes.put_nowait(change)

    async with session.connect() as client, client.changes(keep):
        wanted = ListFilter(all_users=all_users)
        if session.json or not session.is_screen(session.out):
            await client.list_tasks(wanted)  # fails here and now when the daemon is not there or says no
            while True:
                _line(session, await changes.get())
        await _screen(session, client, wanted, changes)


def _line(session: Session, change: StateChange) -> None:
    if session.json:
        session.emit(to_json(change))
        return
    what = f"{change.old} -> {change.new}" if change.old else f"new, {change.new}" if change.new else "removed"
    phase = f" ({change.phase})" if change.phase and change.phase != change.new else ""
    session.say(f"{datetime.now().astimezone():%H:%M:%S} {change.task_id} {what}{phase}")
    session.out.flush()


async def _screen(
    session: Session, client: TaskManagerClient, wanted: ListFilter, changes: asyncio.Queue[StateChange]
) -> None:
    import asyncio

    with screen(session) as show:
        while True:
            height = max(screen_height() - 2, 1)
            page = await client.list_tasks(wanted._replace(limit=min(height, 100)))
            show([*table(session, page.tasks, users=wanted.all_users), f"{page.total} tasks"])
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changes.get(), REFRESH_SECONDS)
            while not changes.empty():
                changes.get_nowait()


def screen_height() -> int:
    """Lines of the terminal."""
    import shutil

    return shutil.get_terminal_size().lines


@contextlib.contextmanager
def screen(session: Session) -> Iterator[Callable[[list[str]], None]]:
    """The terminal's alternate screen; what it gives shows lines on it, from the top."""
    from rich.live import Live
    from rich.text import Text

    from aiosd.cli.live import console_for

    live = Live(console=console_for(session, session.out), screen=True, auto_refresh=False)
    with live:
        yield lambda lines: live.update(Text("\n").join(map(Text.from_ansi, lines)), refresh=True)
