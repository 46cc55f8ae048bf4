"""`aiosctl plan`: a session's plan, and changing it as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from aiosd.cli import options, sessions
from aiosd.cli.client import Option
from aiosd.cli.session import STATUS_STYLES
from aiosd.cli.table import Cell, render
from aiosd.cli.talk import read_json_file
from aiosd.cli.terminal import clean, one_line
from aiosd.cli.values import integer_at, list_at, object_at, string_at, text_of
from aiosd.model.jsontext import dump

if TYPE_CHECKING:
    from aiosd.cli.client import Options
    from aiosd.cli.session import Session
    from aiosd.model.jsontext import JsonObject

_session = click.argument("which", metavar="SESSION", type=options.SessionId())
_file = click.argument("file", required=False, type=click.Path(dir_okay=False, allow_dash=True))


@click.group(cls=options.Group)
@options.common
def command() -> None:
    """A session's plan: show it, make it, change it as a whole or not at all."""


@command.command
@_session
@click.option("--diffs", is_flag=True, help="What was proposed and applied, too.")
@options.common
@options.pass_session
def show(session: Session, *, which: str, diffs: bool) -> None:
    """Show a session's plan and its tasks."""
    session.run(_show(session, which, diffs=diffs))


async def _show(session: Session, word: str, *, diffs: bool) -> None:
    given: Options = {"diffs": Option("b", value=True)} if diffs else {}
    async with session.connect() as client:
        session_id = await sessions.resolve(client, word)
        plan = await sessions.call_json(client, session_id, "GetPlan", given)
    _print(session, plan)


def _print(session: Session, plan: JsonObject) -> None:
    if session.json:
        session.emit(plan)
        return
    session.say(f"{one_line(string_at(plan, 'plan_id'))}, version {text_of(plan.get('version'))}")
    if string_at(plan, "objective"):
        session.say(clean(string_at(plan, "objective")))
    found = [row for row in list_at(plan, "tasks") if isinstance(row, dict)]
    if found:
        head = ["TASK", "STATUS", "PHASE", "PRIORITY", "VERSION", "KIND", "TITLE"]
        for text in render(session, head, [_row(row) for row in found]):
            session.say(text)
    for diff in list_at(plan, "diffs"):
        if isinstance(diff, dict):
            state = "applied" if diff.get("applied") is True else "proposed"
            reason = string_at(object_at(diff, "diff"), "change_reason")
            session.say(one_line(f"{string_at(diff, 'diff_id')} for version {diff.get('version')}, {state}: {reason}"))


def _row(row: JsonObject) -> list[str | Cell]:
    status, phase = string_at(row, "status"), string_at(row, "phase")
    return [
        string_at(row, "task_id"), Cell(status, STATUS_STYLES.get(status)),
        "held" if row.get("held") is True else phase, string_at(row, "priority"), text_of(row.get("version")),
        string_at(row, "kind"), string_at(row, "title"),
    ]  # fmt: skip


@command.command
@_session
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
@click.option("--objective", default="", help="What it is for; the session's objective when not given.")
@options.common
@options.pass_session
def create(session: Session, *, which: str, file: str, objective: str) -> None:
    """Make a session's plan from a JSON file, {"tasks": [{"title": …, "kind": …}]}."""
    session.run(_create(session, which, read_json_file(file), objective))


async def _create(session: Session, word: str, tasks: JsonObject, objective: str) -> None:
    given: Options = {"objective": Option("s", objective)} if objective else {}
    async with session.connect() as client:
        session_id = await sessions.resolve(client, word)
        plan = await sessions.call_json(client, session_id, "CreatePlan", dump(tasks), given)
    _print(session, plan)


@command.command
@_session
@_file
@click.option("--diff-id", default="", help="A diff that was proposed, instead of a file.")
@click.option(
    "--version", "version", type=click.IntRange(1), help="Of the plan it was made for; the present one if none."
)
@options.common
@options.pass_session
def apply(session: Session, *, which: str, file: str | None, diff_id: str, version: int | None) -> None:
    """Change a plan by a diff, whole or not at all.

    The diff: {"cancel_tasks": […], "pause_tasks": […], "continue_tasks": […], "create_tasks": […]}.
    """
    if (file is None) == (not diff_id):
        raise click.UsageError("give either a file or --diff-id")
    session.run(_apply(session, which, None if file is None else read_json_file(file), diff_id, version))


@command.command
@_session
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
@click.option(
    "--version", "version", type=click.IntRange(1), help="Of the plan it was made for; the present one if none."
)
@options.common
@options.pass_session
def propose(session: Session, *, which: str, file: str, version: int | None) -> None:
    """Check a diff and keep it, without applying it; prints its id."""
    session.run(_propose(session, which, read_json_file(file), version))


async def _propose(session: Session, word: str, diff: JsonObject, version: int | None) -> None:
    async with session.connect() as client:
        session_id = await sessions.resolve(client, word)
        if version is None:
            version = integer_at(await sessions.call_json(client, session_id, "GetPlan", {}), "version") or 1
        (made,) = await sessions.call(client, session_id, "ProposeDiff", version, dump(diff), {})
    if session.json:
        session.emit({"diff_id": str(made), "version": version})
        return
    session.say(one_line(str(made)))
    session.note(f"Apply it: aiosctl plan apply {session_id} --version {version} --diff-id {made}")


async def _apply(session: Session, word: str, diff: JsonObject | None, diff_id: str, version: int | None) -> None:
    async with session.connect() as client:
        session_id = await sessions.resolve(client, word)
        if version is None:
            version = integer_at(await sessions.call_json(client, session_id, "GetPlan", {}), "version") or 1
        plan = await sessions.apply_diff(client, session_id, version, diff=diff, diff_id=diff_id)
    _print(session, plan)
    for row in list_at(plan, "refused"):
        if isinstance(row, dict):
            session.note(one_line(f"{row.get('task_id')} goes on: {row.get('reason')}"))
