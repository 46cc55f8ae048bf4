"""`aiosctl reload`: have the daemon read its configuration and manifests again."""

from __future__ import annotations

import click

from aiosd.cli import options
from aiosd.cli.session import Session, Style
from aiosd.cli.values import list_at
from aiosd.cli.verb.status import problem_line


@click.command
@options.common
@options.pass_session
def command(session: Session) -> None:
    """Have aiosd read its configuration and capabilities again. Problems with manifests are shown."""
    session.run(_reload(session))


async def _reload(session: Session) -> None:
    async with session.connect() as client:
        await client.reload()
        problems = list_at(await client.status(), "problems")
    if session.json:
        session.emit({"problems": problems})
    for problem in problems:
        session.note(session.paint(problem_line(problem), Style.WAITING, session.err))
