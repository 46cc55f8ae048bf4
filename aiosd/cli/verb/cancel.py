"""`aiosctl cancel`: stop tasks for good."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from aiosd.cli import options
from aiosd.cli.steer import each

if TYPE_CHECKING:
    from aiosd.cli.session import Session


@click.command
@click.argument("tasks", metavar="TASK...", nargs=-1, required=True, type=options.TaskId())
@click.option("--reason", default="user_request", show_default=True, help="Why; kept with the task.")
@click.option("--alone", is_flag=True, help="Not what is under them.")
@options.common
@options.pass_session
def command(session: Session, *, tasks: tuple[str, ...], reason: str, alone: bool) -> int:
    """Stop tasks for good, and what is under them.

    A program has a moment to end by itself, then its whole scope is killed.
    """
    return session.run(
        each(
            session, tasks, lambda client, task_id: client.cancel(task_id, reason, recursive=not alone), "canceled"
        )
    )  # fmt: skip
