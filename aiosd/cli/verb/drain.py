"""`aiosctl drain`: let no more tasks start, before the machine or the service goes down."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from aiosd.cli import options
from aiosd.cli.values import object_at, text_of

if TYPE_CHECKING:
    from aiosd.cli.session import Session

POLL = 0.5
"""Seconds between two looks at how many still run."""


@click.command
@click.option("--lift", is_flag=True, help="Let tasks start again.")
@click.option("--wait", is_flag=True, help="Return when no task holds a place any more.")
@options.common
@options.pass_session
def command(session: Session, *, lift: bool, wait: bool) -> None:
    """Let no more tasks start. What runs runs on; new tasks are stored and wait. It ends with --lift or a restart."""
    session.run(_drain(session, lift=lift, wait=wait and not lift))


async def _drain(session: Session, *, lift: bool, wait: bool) -> None:
    async with session.connect() as client:
        outcome = await client.drain(lift=lift)
        while wait and outcome.get("running") != 0:
            await asyncio.sleep(POLL)
            outcome = {**outcome, "running": object_at(await client.status(), "tasks").get("running")}
    if session.json:
        session.emit(outcome)
    elif lift:
        session.note("Tasks start again.")
    else:
        session.note(f"No more tasks start; {text_of(outcome.get('running'))} still hold a place.")
