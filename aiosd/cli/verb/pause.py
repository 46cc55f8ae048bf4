"""`aiosctl pause`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from aiosd.cli import options
from aiosd.cli.steer import each

if TYPE_CHECKING:
    from aiosd.cli.session import Session


@click.command
@click.argument("tasks", metavar="TASK...", nargs=-1, required=True, type=options.TaskId())
@click.option("--recursive", "-r", is_flag=True, help="What is under them, too.")
@options.common
@options.pass_session
def command(session: Session, *, tasks: tuple[str, ...], recursive: bool) -> int:
    """Hold tasks where they are: by the program itself where its capability says so, else by freezing its scope."""
    return session.run(
        each(session, tasks, lambda client, task_id: client.pause(task_id, recursive=recursive), "paused")
    )
