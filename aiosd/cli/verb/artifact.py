"""`aiosctl artifact`: what tasks produced."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import click

from aiosd.cli import options
from aiosd.cli.exit_status import ExitStatus
from aiosd.cli.failure import die
from aiosd.cli.ids import resolve
from aiosd.cli.logs import LogReader
from aiosd.cli.output import ByteOutput
from aiosd.cli.table import render
from aiosd.cli.terminal import clean, one_line
from aiosd.cli.values import string_at, to_json
from aiosd.cli.verb.status import size

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from aiosd.cli.session import Session

_PART = click.option("--part", type=click.IntRange(0, 10_000), default=0, show_default=True, help="Which part of it.")


@click.group(cls=options.Group)
@options.common
def command() -> None:
    """List and fetch what tasks produced."""


@command.command("list")
@click.argument("task", type=options.TaskId())
@options.common
@options.pass_session
def list_(session: Session, *, task: str) -> None:
    """List a task's artifacts."""
    session.run(_list(session, task))


async def _list(session: Session, word: str) -> None:
    async with session.connect() as client:
        found = await client.artifacts(await resolve(client, word))
    if session.json:
        session.emit({"artifacts": [to_json(row) for row in found]})
    elif found:
        rows = [[row.artifact_id, row.type, row.mime_type, size(row.size), row.name] for row in found]
        for line in render(session, ["ARTIFACT", "TYPE", "MIME TYPE", "SIZE", "NAME"], rows):
            session.say(line)
    else:
        session.note("No artifacts.")


@command.command
@click.argument("artifact")
@options.common
@options.pass_session
def get(session: Session, *, artifact: str) -> None:
    """Show an artifact's description, as JSON."""
    session.run(_get(session, artifact))


async def _get(session: Session, artifact: str) -> None:
    async with session.connect() as client:
        found = await client.artifact(artifact)
    if session.json:
        session.emit(found)
    else:
        import json

        session.say(clean(json.dumps(found, ensure_ascii=False, indent=2)))


@command.command
@click.argument("artifact")
@_PART
@options.common
@options.pass_session
def cat(session: Session, *, artifact: str, part: int) -> None:
    """Print an artifact's content: into a pipe byte for byte, on a terminal without control sequences."""
    session.run(_cat(session, artifact, part))


async def _cat(session: Session, artifact: str, part: int) -> None:
    from aiosd.cli.views import encoded

    async with session.connect() as client:
        with LogReader(await client.open_artifact(artifact, part)) as reader:
            if session.json:
                session.emit({"artifact_id": artifact, "part": part, **encoded(b"".join(reader.pieces()))})
                return
            output = ByteOutput(session.out)
            for piece in reader.pieces():
                output.write(piece)
            output.finish()


@command.command
@click.argument("artifact")
@click.option("--output", "-o", type=click.Path(path_type=Path), help="Where to: a file or a directory.")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@_PART
@options.common
@options.pass_session
def save(session: Session, *, artifact: str, output: Path | None, force: bool, part: int) -> None:
    """Save an artifact's content in a file: of the artifact's own name, here, unless --output says otherwise."""
    session.run(_save(session, artifact, output, part, force=force))


async def _save(session: Session, artifact: str, output: Path | None, part: int, *, force: bool) -> None:
    async with session.connect() as client:
        target = output or Path()
        if target.is_dir():
            target /= file_name(string_at(await client.artifact(artifact), "name"), artifact)
        if target.exists() and not force:
            die(f"{target} is there already", hint="--force replaces it", status=ExitStatus.CANNOT_CREATE)
        with LogReader(await client.open_artifact(artifact, part)) as reader, _new_file(target, force=force) as file:
            written = sum(file.write(piece) for piece in reader.pieces())
    if session.json:
        session.emit({"artifact_id": artifact, "path": str(target), "size": written})
    else:
        session.say(one_line(str(target)))


def file_name(name: str, artifact: str) -> str:
    """A name to save under that stays in its directory and hides nothing: the task chose it."""
    last = one_line(PurePosixPath(name).name).lstrip(".")
    return last.encode()[:200].decode(errors="ignore") or artifact


@contextlib.contextmanager
def _new_file(target: Path, *, force: bool) -> Iterator[BinaryIO]:
    """A file that is there whole or not at all."""
    try:
        descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=".aiosctl-")
    except OSError as error:
        die(f"{target.parent}: {error.strerror}", status=ExitStatus.CANNOT_CREATE)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            mask = os.umask(0)
            os.umask(mask)
            os.fchmod(descriptor, 0o666 & ~mask)
        if force:
            temporary.replace(target)
        else:
            os.link(temporary, target)
    except FileExistsError:
        die(f"{target} is there already", hint="--force replaces it", status=ExitStatus.CANNOT_CREATE)
    finally:
        temporary.unlink(missing_ok=True)
