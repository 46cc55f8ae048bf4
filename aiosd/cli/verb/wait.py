"""`aiosctl wait`: until tasks have ended, to exit with their status."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from aiosd.cli import options
from aiosd.cli.exit_status import ExitStatus, of_task
from aiosd.cli.failure import die
from aiosd.cli.follow import until_final
from aiosd.cli.ids import resolve
from aiosd.cli.views import say_end

if TYPE_CHECKING:
    from aiosd.cli.client import TaskManagerClient
    from aiosd.cli.session import Session
    from aiosd.model.jsontext import JsonObject


@click.command
@click.argument("tasks", metavar="TASK...", nargs=-1, required=True, type=options.TaskId())
@click.option(
    "--timeout", type=options.Duration(), default=0, help="Wait no longer than this: 90, 5min. Exit status 75."
)
@options.common
@options.pass_session
def command(session: Session, *, tasks: tuple[str, ...], timeout: int) -> int:
    """Wait until all the tasks have ended; exit with the status of the first of them that did not complete."""
    with session.interruptible("The tasks go on running."):
        return session.run(_wait(session, tasks, timeout))


async def _wait(session: Session, words: tuple[str, ...], timeout_ms: int) -> int:
    import asyncio

    async with session.connect() as client:
        ids = [await resolve(client, word) for word in words]
        try:
            async with asyncio.timeout(timeout_ms / 1000 if timeout_ms else None):
                ended = await _all(client, ids)
        except TimeoutError:
            die("The time passed before the task ended", hint="it goes on running", status=ExitStatus.TRY_AGAIN)
    for task in ended:
        if session.json:
            session.emit(task)
        else:
            say_end(session, task)
    return next((status for status in map(of_task, ended) if status), ExitStatus.SUCCESS)


async def _all(client: TaskManagerClient, ids: list[str]) -> list[JsonObject]:
    import asyncio

    async with asyncio.TaskGroup() as group:
        waiting = [group.create_task(until_final(client, task_id)) for task_id in ids]
    return [each.result() for each in waiting]
