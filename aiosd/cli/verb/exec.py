"""`aiosctl exec`: a command as a task, by the capability compat.command.run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from aiosd.cli import options
from aiosd.cli.verb.run import Wish, create_and_follow, wishes

if TYPE_CHECKING:
    from typing import Unpack

    from aiosd.cli.session import Session

CAPABILITY = "compat.command.run"


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("argv", metavar="COMMAND [ARGUMENT]...", nargs=-1, required=True, type=click.UNPROCESSED)
@wishes
@options.common
@options.pass_session
def command(session: Session, *, argv: tuple[str, ...], **wish: Unpack[Wish]) -> int:
    """Run a command as a task: short for 'run compat.command.run' with the command as its argv. There is no shell."""
    return session.run(_exec(session, argv, wish))


async def _exec(session: Session, argv: tuple[str, ...], wish: Wish) -> int:
    async with session.connect() as client:
        return await create_and_follow(session, client, CAPABILITY, {"argv": list(argv)}, wish)
