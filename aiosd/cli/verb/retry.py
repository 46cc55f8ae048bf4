"""`aiosctl retry`: a finished task once more, as a new one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from aiosd.cli import options
from aiosd.cli.ids import resolve
from aiosd.cli.values import to_json
from aiosd.cli.verb.run import to_the_end

if TYPE_CHECKING:
    from aiosd.cli.session import Session


@click.command
@click.argument("task", type=options.TaskId())
@click.option("--follow", "-f", is_flag=True, help="Show progress and output until it ends; exit with its status.")
@click.option("--wait", "-w", is_flag=True, help="Wait until it ends, print its result; exit with its status.")
@options.common
@options.pass_session
def command(session: Session, *, task: str, follow: bool, wait: bool) -> int:
    """Run a finished task again, with the same capability and arguments, and print the new task's id."""
    return session.run(_retry(session, task, follow=follow, wait=wait))


async def _retry(session: Session, word: str, *, follow: bool, wait: bool) -> int:
    async with session.connect() as client:
        created = await client.retry(await resolve(client, word))
        if follow or wait:
            return await to_the_end(session, client, created.task_id, follow=follow)
    if session.json:
        session.emit(to_json(created))
    else:
        session.say(created.task_id)
    return 0
