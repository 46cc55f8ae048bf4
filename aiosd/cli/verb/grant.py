"""`aiosctl grant`: what you have consented to, and taking it back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from aiosd.cli import options, permissions
from aiosd.cli.arguments import from_words
from aiosd.cli.durations import ago, duration
from aiosd.cli.failure import Failure
from aiosd.cli.table import render
from aiosd.cli.verb.list import user_name

if TYPE_CHECKING:
    from aiosd.cli.permissions import GrantRow
    from aiosd.cli.session import Session
    from aiosd.model.jsontext import JsonObject


@click.group(cls=options.Group)
@options.common
def command() -> None:
    """What you have consented to: list it, take it back, add to it."""


@command.command("list")
@click.option("--all", "all_users", is_flag=True, help="Everybody's grants, not only your own.")
@click.option("--ended", is_flag=True, help="Those that were revoked, used up or have expired, too.")
@options.common
@options.pass_session
def list_(session: Session, *, all_users: bool, ended: bool) -> None:
    """List grants, newest first: for what, how long, how often used."""
    session.run(_list(session, all_users=all_users, ended=ended))


async def _list(session: Session, *, all_users: bool, ended: bool) -> None:
    async with session.connect() as client:
        found = await permissions.list_grants(client, all_users=all_users, ended=ended)
    if session.json:
        session.emit({"grants": [row._asdict() for row in found]})
    elif found:
        head = ["GRANT", "USER", "CAPABILITY", "LEVEL", "SCOPE", "LEFT", "USED", "LAST", "ARGUMENTS"]
        for line in render(session, head, [_row(row) for row in found]):
            session.say(line)
    else:
        session.note("No grants.")


def _row(row: GrantRow) -> list[str]:
    import time

    left = duration(max(0.0, row.expires / 1e6 - time.time())) if row.expires else ""
    arguments = "" if row.arguments == "{}" else row.arguments
    return [
        row.grant_id, user_name(row.uid), row.capability_id, row.level, row.scope, left, str(row.used),
        ago(row.last_used), arguments,
    ]  # fmt: skip


@command.command
@click.argument("grant", nargs=-1, required=True)
@options.common
@options.pass_session
def revoke(session: Session, *, grant: tuple[str, ...]) -> int:
    """End grants: the next use asks again."""
    return session.run(_revoke(session, grant))


async def _revoke(session: Session, grants: tuple[str, ...]) -> int:
    status = 0
    done: list[str] = []
    async with session.connect() as client:
        for grant_id in grants:
            try:
                await permissions.revoke_grant(client, grant_id)
            except Failure as failure:
                if len(grants) == 1:
                    raise
                session.note(f"aiosctl: {grant_id}: {failure.what}")
                status = failure.status
            else:
                done.append(grant_id)
                session.note(f"{grant_id} revoked")
    if session.json:
        session.emit({"revoked": [*done]})
    return status


@command.command
@click.argument("capability")
@click.argument("words", metavar="[KEY=VALUE | KEY:=JSON]...", nargs=-1)
@click.option("--scope", default="persistent", show_default=True, help="once, timed:SECONDS or persistent.")
@click.option("--glob", "globs", metavar="KEY=GLOB", multiple=True, help="An argument within a glob (repeatable).")
@options.common
@options.pass_session
def add(session: Session, *, capability: str, words: tuple[str, ...], scope: str, globs: tuple[str, ...]) -> None:
    """Consent now to what you would be asked at the next use. CAPABILITY is an id or a glob.

    KEY=VALUE holds it to that value of an argument.
    """
    arguments: dict[str, JsonObject] = {key: {"equals": value} for key, value in from_words(words, {}).items()}
    arguments |= {key: {"glob": value} for key, value in from_words(globs, {}).items()}
    session.run(_add(session, capability, scope, arguments))


async def _add(session: Session, capability: str, scope: str, arguments: JsonObject) -> None:
    async with session.connect() as client:
        grant_id = await permissions.request_grant(client, capability, scope, arguments)
    if session.json:
        session.emit({"grant_id": grant_id})
    else:
        session.say(grant_id)
