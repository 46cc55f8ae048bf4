"""`aiosctl bug-report`: one text that says what somebody who looks into a bug would ask for next."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aiosd.cli import options
from aiosd.cli.exit_status import ExitStatus
from aiosd.cli.failure import die

if TYPE_CHECKING:
    from aiosd.cli.report import Section
    from aiosd.cli.session import Session

HEAD = """\
Bug report of aiosd. What was recognised as a secret has been taken out: [removed]. Recognising is no guarantee, so
read it before you send it.
"""


@click.command
@click.option("--output", "-o", type=click.Path(path_type=Path), help="A new file for it, readable by you alone.")
@click.option(
    "--lines",
    type=click.IntRange(0, 100_000),
    default=500,
    show_default=True,
    help="How much of the journal, in lines.",
)
@options.common
@options.pass_session
def command(session: Session, *, output: Path | None, lines: int) -> None:
    """Collect what a bug report needs: versions, state, units, journal, configuration; secrets are taken out.

    It holds what you may see; run by root, all of the machine's. Of tasks it has their states, not their arguments,
    results or output; of the configuration what aiosd's own keys say. It works while aiosd does not.
    """
    from aiosd.cli import report

    sections = [
        *report.of_system(),
        *session.run(report.of_daemon(session)),
        *report.of_systemd(lines),
        *report.of_files(),
    ]
    if output is not None:
        _save(output, _text(sections))
        session.note(f"Saved as {output}; read it before you send it.")
    elif session.json:
        session.emit({"sections": [{"title": each.title, "text": each.text} for each in sections]})
    else:
        session.say(_text(sections).rstrip("\n"))


def _text(sections: list[Section]) -> str:
    return "\n".join([HEAD, *(f"== {each.title}\n{each.text}\n" for each in sections)])


def _save(path: Path, text: str) -> None:
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
            file.write(text)
    except FileExistsError:
        die(f"{path} is there already", hint="--output takes a new file", status=ExitStatus.CANNOT_CREATE)
    except OSError as error:
        die(f"{path} cannot be written: {error.strerror}", status=ExitStatus.CANNOT_CREATE)
