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
    """Answer the question of a task that waits for input: in a form, or with KEY=VALUE words or JSON."""
    if (words and arguments) or not (words or arguments or session.can_ask):
        die("The answer is either KEY=VALUE words or one JSON object", status=ExitStatus.USAGE)
    session.run(_answer(session, task, words, arguments) if words or arguments else _ask(session, task))


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


async def _ask(session: Session, word: str) -> None:
    from aiosd.cli.form import answer
    from aiosd.cli.keyboard import Keyboard

    async with session.connect() as client:
        task_id = await resolve(client, word)
        question = object_at(await client.get(task_id), "question")
        if not question:
            die(f"{task_id} asks nothing", hint=f"'aiosctl show {task_id}' tells its state", status=ExitStatus.DATA)
        with session.interruptible(f"{task_id} still waits for the answer."):
            try:
                await answer(session, client, Keyboard(), task_id, question)
            except Keyboard.NoMore:
                die("Nothing was answered", status=ExitStatus.TRY_AGAIN)
    session.note(f"{task_id} answered")


async def _schema(client: TaskManagerClient, task_id: str) -> JsonObject:
    return object_at(object_at(await client.get(task_id), "question"), "schema")
