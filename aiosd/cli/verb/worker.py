"""`aiosctl worker`: who carries out tasks of plans, and what each has."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from aiosd.cli import options, sessions, workers
from aiosd.cli.durations import ago, moment
from aiosd.cli.session import Session, Style
from aiosd.cli.table import Cell, render
from aiosd.cli.terminal import one_line
from aiosd.cli.timeline import say
from aiosd.cli.values import integer_at, list_at, string_at, text_of
from aiosd.cli.verb.list import user_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiosd.cli.values import TaskEvent
    from aiosd.cli.workers import WorkerRow
    from aiosd.model.jsontext import JsonObject

_STYLES = {"idle": Style.GOOD, "busy": Style.RUNNING, "draining": Style.WAITING, "gone": Style.DIM}

_GONE = ("worker.unregistered", "worker.lost")


@click.group(cls=options.Group)
@options.common
def command() -> None:
    """Workers: processes that carry out the tasks of plans that name no capability."""


@command.command("list")
@click.option("--all", "all_users", is_flag=True, help="Everybody's workers, not only your own.")
@click.option("--gone", is_flag=True, help="Those that are not there any more, too.")
@options.common
@options.pass_session
def list_(session: Session, *, all_users: bool, gone: bool) -> None:
    """List workers: where each is, what it can, what it does, when it was heard of."""
    session.run(_list(session, all_users=all_users, ended=gone))


async def _list(session: Session, *, all_users: bool, ended: bool) -> None:
    async with session.connect() as client:
        found = await workers.list_workers(client, all_users=all_users, ended=ended)
    if session.json:
        session.emit({"workers": [row._asdict() for row in found]})
    elif found:
        head = ["WORKER", "USER", "HOST", "OS", "STATUS", "LOAD", "HEARD", "TASK", "CAPABILITIES"]
        for line in render(session, head, [_row(row) for row in found]):
            session.say(line)
    else:
        session.note("No workers.")


def _row(row: WorkerRow) -> list[str | Cell]:
    return [
        row.worker_id, user_name(row.uid), row.hostname, row.os, Cell(row.status, _STYLES.get(row.status)),
        f"{row.load:.2f}", ago(row.heartbeat), row.current_task_id, " ".join(row.capabilities),
    ]  # fmt: skip


@command.command
@click.argument("worker", type=options.WorkerId())
@click.option("--uid", type=click.IntRange(0, (1 << 32) - 2), help="Of another user.")
@options.common
@options.pass_session
def show(session: Session, *, worker: str, uid: int | None) -> None:
    """Show all of a worker: what it said of itself, and the assignments that it has."""
    session.run(_show(session, worker, uid))


async def _show(session: Session, worker_id: str, uid: int | None) -> None:
    async with session.connect() as client:
        found = await workers.get_worker(client, worker_id, uid)
    if session.json:
        session.emit(found)
        return
    for name, text in _lines(session, found):
        session.say(f"{name:>12}: {text}" if name else f"{'':14}{text}")


def _lines(session: Session, worker: JsonObject) -> Iterator[tuple[str, str]]:
    status, uid = string_at(worker, "status"), integer_at(worker, "uid")
    yield "Worker", one_line(string_at(worker, "worker_id"))
    if uid is not None:
        yield "User", user_name(uid)
    reason = one_line(string_at(worker, "reason"))
    yield "Status", session.paint(one_line(status), _STYLES.get(status)) + (f" ({reason})" if reason else "")
    for key, name in (("hostname", "Host"), ("os", "OS"), ("shell", "Shell")):
        if string_at(worker, key):
            yield name, one_line(string_at(worker, key))
    yield "Can", one_line(" ".join(text_of(word) for word in list_at(worker, "capabilities"))) or "-"
    everybody = string_at(worker, "serves") == "all"
    yield "Works for", f"{'everybody' if everybody else 'its user'}, {text_of(worker.get('capacity'))} at a time"
    for key, name in (("registered_at", "Registered"), ("heartbeat_at", "Heard of"), ("ended_at", "Gone")):
        if string_at(worker, key):
            yield name, moment(string_at(worker, key))
    for index, row in enumerate(list_at(worker, "assignments")):
        if isinstance(row, dict):
            words = (string_at(row, name) for name in ("assignment_id", "task_id", "status"))
            yield ("" if index else "Has"), one_line("  ".join([*words, f"attempt {text_of(row.get('attempt'))}"]))


@command.command
@click.argument("worker", type=options.WorkerId(), default="")
@click.option("--since", metavar="EVENT", default="", help="First what came after this event (an id from --json).")
@options.common
@options.pass_session
def follow(session: Session, *, worker: str, since: str) -> None:
    """Print what happens with workers until Ctrl-C; with one that is named, until it is gone."""
    session.run(_follow(session, worker, since))


async def _follow(session: Session, worker_id: str, since: str) -> None:
    events: asyncio.Queue[TaskEvent] = asyncio.Queue()
    async with session.connect() as client, sessions.feed(client, "worker_feed", worker_id, since, events.put_nowait):
        gone = False
        while not (gone and worker_id):
            event = await events.get()
            say(session, event.data)
            gone = event.kind in _GONE
