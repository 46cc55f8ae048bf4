"""`aiosctl webhook`: have a task's events sent to a web address."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import click

from aiosd.cli import options, secret
from aiosd.cli.ids import resolve
from aiosd.cli.session import Style
from aiosd.cli.table import Cell, render
from aiosd.cli.values import string_at

if TYPE_CHECKING:
    from aiosd.cli.session import Session
    from aiosd.model.jsontext import JsonObject

EVENTS = (
    "status", "progress", "artifact", "input_required", "auth_required", "log", "result", "error", "completed",
    "failed", "canceled",
)  # fmt: skip
_STYLES = {"active": Style.GOOD, "parked": Style.BAD, "ended": Style.DIM}


@click.group(cls=options.Group)
@options.common
def command() -> None:
    """Have tasks' events sent to web addresses."""


@command.command("list")
@click.argument("task", type=options.TaskId(), required=False, default="")
@click.option("--all", "all_users", is_flag=True, help="Everybody's webhooks, not only your own.")
@options.common
@options.pass_session
def list_(session: Session, *, task: str, all_users: bool) -> None:
    """List webhooks, of one task or of all: whether they are parked, what waits for them, the last error."""
    session.run(_list(session, task, all_users=all_users))


async def _list(session: Session, word: str, *, all_users: bool) -> None:
    async with session.connect() as client:
        task_id = await resolve(client, word) if word else ""
        found = await client.webhooks(task_id, all_users=all_users)
    if session.json:
        session.emit({"webhooks": [*found]})
    elif found:
        for line in render(
            session, ["WEBHOOK", "STATE", "WAITING", "SENT", "URL", "ERROR"], [_row(one) for one in found]
        ):
            session.say(line)
    else:
        session.note("No webhooks.")


def _row(hook: JsonObject) -> list[str | Cell]:
    state = string_at(hook, "state")
    return [
        string_at(hook, "webhook_id"), Cell(state, _STYLES.get(state)), str(hook.get("waiting", 0)),
        str(hook.get("delivered", 0)), string_at(hook, "webhook_url"), string_at(hook, "last_error"),
    ]  # fmt: skip


@command.command
@click.argument("task", type=options.TaskId())
@click.argument("url")
@click.option(
    "--event", "events", metavar="NAME", multiple=True, type=click.Choice(EVENTS),
    help="Send only these: a kind of event, or a final state. May be given several times; all when not given.",
)  # fmt: skip
@click.option(
    "--token-file", metavar="FILE",
    help="The bearer token, which also signs; '-' reads it from stdin. Asked for when not given.",
)  # fmt: skip
@click.option("--no-token", is_flag=True, help="Send neither token nor signature: the receiver believes whoever sends.")
@click.option("--max-retries", type=click.IntRange(0, 20), default=3, show_default=True, help="Tries after the first.")
@click.option(
    "--retry-delay", type=options.Duration(), default="1s", show_default=True,
    help="Wait before the second try; it doubles with every further one.",
)  # fmt: skip
@options.common
@options.pass_session
def add(
    session: Session, *, task: str, url: str, events: tuple[str, ...], token_file: str | None, no_token: bool,
    max_retries: int, retry_delay: int,
) -> None:  # fmt: skip
    """Send a task's events to a web address; the same address again changes what is asked. Prints the webhook's id."""
    given: JsonObject | None = None
    if not no_token:
        token = secret.from_file(token_file) if token_file else secret.asked(session, "Token", "--token-file")
        given = {"type": "bearer", "token": token}
    session.run(_add(session, task, url, events, given, max_retries, retry_delay))


async def _add(
    session: Session, word: str, url: str, events: tuple[str, ...], given: JsonObject | None, retries: int, delay: int
) -> None:
    async with session.connect() as client:
        task_id = await resolve(client, word)
        with contextlib.ExitStack() as stack:
            fd = None if given is None else stack.enter_context(secret.descriptor(given))
            identifier = await client.subscribe_webhook(
                task_id, url, list(events), authentication=fd, max_retries=retries, retry_delay_ms=delay
            )
    if session.json:
        session.emit({"webhook_id": identifier, "task_id": task_id})
    else:
        session.say(identifier)


@command.command
@click.argument("task", type=options.TaskId())
@click.argument("url")
@options.common
@options.pass_session
def remove(session: Session, *, task: str, url: str) -> None:
    """Send no more to a web address, and forget what waits for it."""
    session.run(_remove(session, task, url))


async def _remove(session: Session, word: str, url: str) -> None:
    async with session.connect() as client:
        task_id = await resolve(client, word)
        await client.unsubscribe_webhook(task_id, url)
    if session.json:
        session.emit({"task_id": task_id, "webhook_url": url})
    session.note(f"{task_id}: removed")


@command.command
@click.argument("webhook")
@options.common
@options.pass_session
def resume(session: Session, *, webhook: str) -> None:
    """Deliver again to a webhook that was parked, from where it stopped."""
    session.run(_resume(session, webhook))


async def _resume(session: Session, webhook: str) -> None:
    async with session.connect() as client:
        await client.resume_webhook(webhook)
    if session.json:
        session.emit({"webhook_id": webhook})
    session.note(f"{webhook} resumed")
