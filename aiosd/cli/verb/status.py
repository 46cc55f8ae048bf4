"""`aiosctl status`: what the daemon is doing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from aiosd.cli import options
from aiosd.cli.session import Session, Style
from aiosd.cli.terminal import one_line
from aiosd.cli.values import list_at, object_at, text_of

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonObject


@click.command
@options.common
@options.pass_session
def command(session: Session) -> None:
    """Show what aiosd is doing: its state, its tasks, its limits, and what is wrong."""
    session.run(_status(session))


async def _status(session: Session) -> None:
    async with session.connect() as client:
        status = await client.status()
    if session.json:
        session.emit(status)
        return
    for name, text in _lines(session, status):
        session.say(f"{name:>10}: {text}")


def _lines(session: Session, status: JsonObject) -> list[tuple[str, str]]:
    state = one_line(text_of(status.get("state")))
    problems = list_at(status, "problems")
    style = Style.GOOD if state in ("ready", "running") and not problems else Style.WAITING
    tasks, limits = object_at(status, "tasks"), object_at(status, "limits")
    store, launcher = object_at(status, "store"), object_at(status, "launcher")
    version, protocol = (one_line(text_of(status.get(key))) for key in ("version", "protocol_version"))
    result = [
        ("aiosd", f"{session.paint('●', style)} {session.paint(state, style)}, version {version}, protocol {protocol}"),
        ("Tasks", ", ".join(f"{_number(tasks, key)} {key}" for key in ("running", "queued", "waiting", "total"))),
        (
            "Limits",
            f"{_number(limits, 'max_concurrent_tasks')} at once, {_number(limits, 'max_tasks_per_tool')} of one "
            f"capability, {_number(limits, 'max_queue_size')} in the queue",
        ),
        ("Store", f"{one_line(text_of(store.get('path')))}, {size(store.get('bytes'))}"),
        *_read_only(session, store),
        ("Launcher", _launcher(session, launcher)),
        *_emergency(session, object_at(status, "emergency")),
    ]
    return [*result, *(("Problem", session.paint(problem_line(problem), Style.WAITING)) for problem in problems)]


def _number(counts: JsonObject, key: str) -> str:
    return one_line(text_of(counts.get(key))) or "-"


def _emergency(session: Session, stops: JsonObject) -> list[tuple[str, str]]:
    """Who may start nothing; aiosctl kill-all."""
    users = ", ".join(one_line(text_of(uid)) for uid in list_at(stops, "users"))
    who = "the machine" if stops.get("machine") is True else f"users {users}" if users else ""
    return [("EMERGENCY", session.paint(f"stop of {who}; nothing starts", Style.BAD))] if who else []


def _read_only(session: Session, store: JsonObject) -> list[tuple[str, str]]:
    """Why nothing can be changed; aiosctl state."""
    why = one_line(text_of(store.get("read_only")))
    return [("READ ONLY", session.paint(why, Style.BAD))] if why else []


def _launcher(session: Session, launcher: JsonObject) -> str:
    if launcher.get("connected") is not True:
        return session.paint("not connected", Style.BAD)
    return f"connected, systemd {one_line(text_of(launcher.get('systemd_version')))}"


def problem_line(problem: object) -> str:
    """A problem with a manifest, as compilers write them: file:line: message."""
    if not isinstance(problem, dict):
        return one_line(text_of(problem))
    place = ":".join(text_of(problem[key]) for key in ("file", "line") if problem.get(key) is not None)
    return one_line(f"{place}: {text_of(problem.get('message'))}")


def size(count: object) -> str:
    """Bytes for people, in powers of 1024."""
    if not isinstance(count, int) or isinstance(count, bool):
        return "-"
    amount = float(count)
    for unit in ("B", "K", "M", "G"):
        if amount < 1024:
            return f"{amount:.0f}{unit}" if unit == "B" or amount >= 10 else f"{amount:.1f}{unit}"
        amount /= 1024
    return f"{amount:.1f}T"
