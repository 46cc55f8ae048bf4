"""`aiosctl priority`: change a task's priority."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from aiosd.cli import options
from aiosd.cli.steer import each

if TYPE_CHECKING:
    from aiosd.cli.session import Session


@click.command
@click.argument("task", type=options.TaskId())
@click.argument("priority", type=options.PRIORITIES)
@click.option("--recursive", "-r", is_flag=True, help="Of what is under it, too.")
@options.common
@options.pass_session
def command(session: Session, *, task: str, priority: str, recursive: bool) -> int:
    """Change the priority of a task that has not started."""
    done = f"has priority {priority}"
    return session.run(
        each(
            session, (task,), lambda client, task_id: client.set_priority(task_id, priority, recursive=recursive), done
        )
    )  # fmt: skip
