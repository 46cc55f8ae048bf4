"""`aiosctl state`: the database in the hands of the person who looks after the machine.

It works on the file and asks the daemon nothing, so it works when there is none; root only, as the file is.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aiosd.cli import options
from aiosd.cli.exit_status import ExitStatus
from aiosd.cli.failure import die
from aiosd.cli.session import Session, Style
from aiosd.store import maintenance
from aiosd.store.errors import StoreError, StoreFailure

if TYPE_CHECKING:
    from typing import NoReturn

DATABASE = Path("/var/lib/aiosd/aiosd.db")


@click.group(cls=options.Group)
@options.common
def command() -> None:
    """Check, back up, put back and export the database. While aiosd runs, too, restore excepted."""


_database = click.option(
    "--database", type=click.Path(path_type=Path), default=DATABASE, show_default=True, help="The database's file."
)


def _refused(error: StoreError | OSError) -> NoReturn:
    if isinstance(error, StoreError) and error.failure is StoreFailure.BUSY:
        hint = "systemctl stop aiosd.socket aiosd-lines.socket aiosd.service"
        die("aiosd is running", hint=hint, status=ExitStatus.TRY_AGAIN)
    if isinstance(error, PermissionError):
        die("the database is root's and aiosd's", status=ExitStatus.DENIED)
    die(str(error), status=ExitStatus.IO)


@command.command
@_database
@options.common
@options.pass_session
def check(session: Session, *, database: Path) -> int:
    """Look at every page and every reference. Exit status 1 when something is wrong."""
    try:
        report = maintenance.check(database)
    except (StoreError, OSError) as error:
        _refused(error)
    if session.json:
        session.emit({
            "sound": not report.problems, "version": str(report.version or ""), "known": str(report.newest),
            "writable": report.writable, "problems": [*report.problems], "rows": {**report.tables},
        })  # fmt: skip
    else:
        for problem in report.problems:
            session.say(session.paint(problem, Style.BAD))
        if not report.problems:
            note = "" if report.writable else f"; newer than {report.newest}, so this aiosd only reads it"
            session.say(f"sound, version {report.version}, {sum(report.tables.values())} rows{note}")
    return ExitStatus.FAILURE if report.problems else ExitStatus.SUCCESS


@command.command
@click.argument("file", type=click.Path(path_type=Path))
@_database
@options.common
@options.pass_session
def backup(session: Session, *, file: Path, database: Path) -> None:
    """Copy the database as it is now to FILE, which must not exist."""
    if file.exists():
        die(f"{file} is there already", status=ExitStatus.CANNOT_CREATE)
    try:
        maintenance.backup(database, file)
    except (StoreError, OSError) as error:
        _refused(error)
    session.note(f"Copied to {file}")


@command.command
@click.argument("file", type=click.Path(path_type=Path, exists=True))
@_database
@options.common
@options.pass_session
def restore(session: Session, *, file: Path, database: Path) -> None:
    """Put the copy FILE in the place of the database, which is kept beside it. aiosd must be stopped."""
    try:
        aside = maintenance.restore(database, file, now=lambda: time.time_ns() // 1000)
    except (StoreError, OSError) as error:
        _refused(error)
    session.note("Restored" if aside is None else f"Restored; what was there is kept as {aside}")


@command.command
@_database
@options.common
@options.pass_session
def export(session: Session, *, database: Path) -> None:
    """Print every row as a line of JSON; sealed secrets are left out."""
    try:
        for line in maintenance.export(database):
            session.emit(line)
    except BrokenPipeError:  # whoever reads has seen enough; exit status 141
        raise
    except (StoreError, OSError) as error:
        _refused(error)
