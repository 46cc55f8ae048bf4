"""`aiosctl kill-all`: the emergency stop."""

from __future__ import annotations

import os

import click

from aiosd.cli import guard, options
from aiosd.cli.exit_status import ExitStatus
from aiosd.cli.failure import die
from aiosd.cli.session import Session, Style
from aiosd.cli.terminal import one_line
from aiosd.cli.values import object_at, text_of


@click.command
@click.option("--user", metavar="USER", default="", help="Stop this user instead: a name, or a uid.")
@click.option("--machine", is_flag=True, help="Stop everybody. What root does without an option.")
@click.option("--lift", is_flag=True, help="End such a stop: tasks may be created again.")
@click.option("--reason", default="", help="Why; kept with every task that it ends.")
@options.common
@options.pass_session
def command(session: Session, *, user: str, machine: bool, lift: bool, reason: str) -> int:
    """Kill all of your tasks at once (root: everybody's), revoke grants, and let nothing start until --lift.

    The programs get no warning and no time. Exit status 1 when one of them could not be killed.
    """
    if user and machine:
        die("--user and --machine do not go together", status=ExitStatus.USAGE)
    scope = "machine" if machine or (not user and os.geteuid() == 0) else "user"
    uid = _uid(user) if user else None
    if lift:
        return session.run(_lift(session, scope, uid))
    whose = f" --user {one_line(user)}" if user else " --machine" if machine else ""
    return session.run(_stop(session, scope, uid, reason, f"aiosctl kill-all{whose} --lift"))


def _uid(word: str) -> int:
    import pwd

    if word.isascii() and word.isdigit():
        return int(word)
    try:
        return pwd.getpwnam(word).pw_uid
    except KeyError:
        die(f"there is no user {word}", status=ExitStatus.NOT_FOUND)


async def _stop(session: Session, scope: str, uid: int | None, reason: str, lifts: str) -> int:
    async with session.connect() as client:
        outcome = await guard.emergency(client, scope, uid, reason)
    failed = object_at(outcome, "failed")
    if session.json:
        session.emit(outcome)
    else:
        session.say(f"{text_of(outcome.get('stopped'))} stopped; nothing starts until {lifts}")
        for run, why in failed.items():
            session.say(session.paint(f"{one_line(run)} could not be killed: {one_line(text_of(why))}", Style.BAD))
        if outcome.get("launcher"):
            session.say(session.paint(one_line(text_of(outcome["launcher"])), Style.BAD))
        if outcome.get("recorded") is not True:
            session.note("The store does not answer; it will be written down when it does.")
    return ExitStatus.FAILURE if failed or outcome.get("launcher") else ExitStatus.SUCCESS


async def _lift(session: Session, scope: str, uid: int | None) -> int:
    async with session.connect() as client:
        await guard.lift_emergency(client, scope, uid)
    if session.json:
        session.emit({})
    else:
        session.note("Lifted; tasks may be created again.")
    return ExitStatus.SUCCESS
