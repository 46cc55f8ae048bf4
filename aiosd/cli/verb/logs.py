"""`aiosctl logs`: what a task's program wrote, byte for byte."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from aiosd.cli import options
from aiosd.cli.follow import until_final
from aiosd.cli.ids import resolve
from aiosd.cli.logs import STREAMS, LogPump, LogReader
from aiosd.cli.output import ByteOutput
from aiosd.cli.views import JsonView

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiosd.cli.client import TaskManagerClient
    from aiosd.cli.session import Session


@click.command
@click.argument("task", type=options.TaskId())
@click.option("--follow", "-f", is_flag=True, help="Go on until the task has ended.")
@click.option("--stdout", is_flag=True, help="Only its stdout.")
@click.option("--stderr", is_flag=True, help="Only its stderr.")
@click.option("--attempt", type=click.IntRange(1, 100), help="Of this attempt; else of the last one.")
@options.common
@options.pass_session
def command(session: Session, *, task: str, follow: bool, stdout: bool, stderr: bool, attempt: int | None) -> None:
    """Print what a task's program wrote: its stdout on stdout, its stderr on stderr.

    Into a pipe or a file byte for byte; on a terminal without control sequences.
    """
    streams = STREAMS if stdout == stderr else ("stdout",) if stdout else ("stderr",)
    with session.interruptible(""):
        session.run(_logs(session, task, streams, attempt or 0, follow=follow))


async def _logs(session: Session, word: str, streams: tuple[str, ...], attempt: int, *, follow: bool) -> None:
    outputs = {"stdout": ByteOutput(session.out), "stderr": ByteOutput(session.err)}
    view = JsonView(session)

    def write(stream: str, data: bytes) -> None:
        if session.json:
            view.output(stream, data)
        else:
            outputs[stream].write(data)

    async with session.connect() as client:
        task_id = await resolve(client, word)
        if follow:
            await _follow(client, LogPump(client, task_id, write, streams=streams, attempt=attempt), task_id)
        else:
            await _copy(client, task_id, streams, attempt, write)
    for output in outputs.values():
        output.finish()


async def _copy(
    client: TaskManagerClient, task_id: str, streams: tuple[str, ...], attempt: int, write: Callable[[str, bytes], None]
) -> None:
    for stream in streams:
        with LogReader(await client.open_log(task_id, stream, attempt)) as reader:
            for piece in reader.pieces():
                write(stream, piece)


async def _follow(client: TaskManagerClient, pump: LogPump, task_id: str) -> None:
    import asyncio

    ended = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(pump.run(ended))
        await until_final(client, task_id)
        ended.set()
