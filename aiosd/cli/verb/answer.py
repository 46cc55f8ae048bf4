"""`aiosctl answer`: answer the question that a task waits with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from aiosd.cli import options
from aiosd.cli.arguments import from_json, from_words, needs_schema
from aiosd.cli.exit_status import ExitStatus
from aiosd.cli.failure import die
from aiosd.cli.ids import resolve
from aiosd.cli.values import object_at

if TYPE_CHECKING:
    from aiosd.cli.client import TaskManagerClient
    from aiosd.cli.session import Session
    from aiosd.model.jsontext import JsonObject


@click.command(cls=options.JsonArguments)
@click.argument("task", type=options.TaskId())
@click.argument("words", metavar="[KEY=VALUE | KEY:=JSON]...", nargs=-1)
@options.arguments_option
@options.common
@options.pass_session
def command(session: Session, *, task: str, words: tuple[str, ...], arguments: str) -> None:
    """Answer the question of a task that waits for input; 'aiosctl show TASK' shows it."""
    if bool(words) == bool(arguments):
        die("The answer is either KEY=VALUE words or one JSON object", status=ExitStatus.USAGE)
    session.run(_answer(session, task, words, arguments))


async def _answer(session: Session, word: str, words: tuple[str, ...], json_text: str) -> None:
    async with session.connect() as client:
        task_id = await resolve(client, word)
        if json_text:
            given = from_json(options.read_arguments(json_text), "--arguments")
        else:
            given = from_words(words, await _schema(client, task_id) if needs_schema(words) else {})
        await client.answer(task_id, given)
    if session.json:
        session.emit({"task_id": task_id})
    session.note(f"{task_id} answered")


async def _schema(client: TaskManagerClient, task_id: str) -> JsonObject:
    return object_at(object_at(await client.get(task_id), "question"), "schema")
