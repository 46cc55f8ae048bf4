"""`aiosctl capability`: list, show and check capabilities."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aiosd.cli import options
from aiosd.cli.exit_status import ExitStatus
from aiosd.cli.failure import die
from aiosd.cli.session import Style
from aiosd.cli.table import Cell, render
from aiosd.cli.terminal import one_line
from aiosd.cli.values import list_at, to_json
from aiosd.cli.verb.status import problem_line

if TYPE_CHECKING:
    from aiosd.cli.session import Session
    from aiosd.manifest.problem import Problem
    from aiosd.model.jsontext import JsonValue

_LEVELS = {"high": Style.WAITING, "critical": Style.BAD}


@click.group(cls=options.Group)
@options.common
def command() -> None:
    """List, show and check capabilities."""


@command.command("list")
@click.argument("pattern", required=False, default="*")
@options.common
@options.pass_session
def list_(session: Session, *, pattern: str) -> None:
    """List the installed capabilities, or those that a glob such as 'system.*' names."""
    session.run(_list(session, pattern))


async def _list(session: Session, pattern: str) -> None:
    async with session.connect() as client:
        found = [row for row in await client.capabilities() if fnmatchcase(row.capability_id, pattern)]
        problems = list_at(await client.status(), "problems")
    if session.json:
        session.emit({"capabilities": [to_json(row) for row in found], "problems": problems})
        return
    if found:
        rows: list[list[str | Cell]] = [
            [row.capability_id, Cell(row.level, _LEVELS.get(row.level)), row.title] for row in found
        ]
        for line in render(session, ["CAPABILITY", "LEVEL", "TITLE"], rows):
            session.say(line)
    else:
        session.note("No capabilities.")
    for problem in problems:
        session.note(session.paint(problem_line(problem), Style.WAITING, session.err))


@command.command
@click.argument("capability", type=options.CapabilityId())
@options.common
@options.pass_session
def show(session: Session, *, capability: str) -> None:
    """Show a capability: its manifest, the defaults of its level filled in."""
    session.run(_show(session, capability))


async def _show(session: Session, capability: str) -> None:
    from aiosd.cli.terminal import clean

    async with session.connect() as client:
        manifest = await client.capability(capability)
    if session.json:
        session.emit(manifest)
        return
    for key, value in manifest.items():
        if value is not None:
            first, *rest = clean(_shown(value)).splitlines() or [""]
            session.say(f"{one_line(key):>22}: {first}")
            for line in rest:
                session.say(f"{'':24}{line}")


def _shown(value: JsonValue) -> str:
    import json

    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)


@command.command
@click.argument("file", type=click.Path(path_type=Path))
@options.common
@options.pass_session
def check(session: Session, *, file: Path) -> int:
    """Check a manifest without installing it; the daemon is not asked. Exit status 65 when it would be refused."""
    from aiosd.manifest.parse import parse_manifest
    from aiosd.manifest.schema import check_for_manifest

    try:
        text = file.read_bytes()
    except OSError as error:
        die(f"{file}: {error.strerror}", status=ExitStatus.NOT_FOUND)
    parsed = parse_manifest(text, str(file), check_schema=check_for_manifest)
    good = parsed.capability is not None
    if session.json:
        session.emit({"valid": good, "problems": [_problem(problem) for problem in parsed.problems]})
    for problem in parsed.problems:
        session.note(one_line(str(problem)))
    if parsed.capability is not None:
        session.note(f"{file}: {parsed.capability.id}, level {parsed.capability.level.wire}: good")
    return ExitStatus.SUCCESS if good else ExitStatus.DATA


def _problem(problem: Problem) -> dict[str, JsonValue]:
    from dataclasses import asdict

    return asdict(problem)
