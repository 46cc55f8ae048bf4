"""`aiosctl show`: all of a task."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from aiosd.cli import options
from aiosd.cli.durations import duration, moment
from aiosd.cli.ids import resolve
from aiosd.cli.session import Session, Style
from aiosd.cli.terminal import clean, one_line
from aiosd.cli.values import integer_at, list_at, object_at, string_at, text_of
from aiosd.cli.verb.list import user_name
from aiosd.cli.verb.status import size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiosd.model.jsontext import JsonObject, JsonValue

_LINKS = (
    ("retry_of", "Retry of"), ("parent_task_id", "Parent"), ("session_id", "Session"), ("worker_id", "Worker"),
)  # fmt: skip
_TIMES = ("created_at", "started_at", "ended_at")


@click.command
@click.argument("task", type=options.TaskId())
@click.option("--history", is_flag=True, help="Every state that it was in, too.")
@options.common
@options.pass_session
def command(session: Session, *, task: str, history: bool) -> None:
    """Show all of a task: its state and why, its scope and limits, what it used, its result."""
    session.run(_show(session, task, history=history))


async def _show(session: Session, word: str, *, history: bool) -> None:
    async with session.connect() as client:
        task = await client.get(await resolve(client, word), history=history)
    if session.json:
        session.emit(task)
        return
    for name, text in lines(session, task):
        session.say(f"{name:>12}: {text}" if name else f"{'':14}{text}")


def lines(session: Session, task: JsonObject) -> Iterator[tuple[str, str]]:
    """The rows of the display; an empty name continues the row above."""
    title = one_line(string_at(task, "title"))
    yield "Task", one_line(string_at(task, "task_id")) + (f" — {title}" if title else "")
    yield "Capability", f"{_text(task, 'capability_id')} (level {_text(task, 'level')})"
    uid = integer_at(task, "uid")
    if uid is not None:
        yield "User", f"{user_name(uid)} ({uid})" if user_name(uid) != str(uid) else str(uid)
    yield "Status", _status(session, task)
    yield from _progress(task)
    yield "Priority", _text(task, "priority") or "normal"
    for key in _TIMES:
        if string_at(task, key):
            yield key.removesuffix("_at").capitalize(), moment(string_at(task, key))
    if integer_at(task, "attempt"):
        yield "Attempt", _text(task, "attempt")
    for key, name in _LINKS:
        if string_at(task, key):
            yield name, _text(task, key)
    yield from _scope(object_at(task, "run"))
    yield from _exit(object_at(task, "exit"))
    yield from _question(object_at(task, "question"))
    yield from _authorization(task)
    yield from _values(task)
    yield from _history(session, task)


def _text(value: JsonObject, key: str) -> str:
    return one_line(text_of(value.get(key)))


def _status(session: Session, task: JsonObject) -> str:
    status, phase, reason = _text(task, "status"), _text(task, "phase"), _text(task, "reason")
    parts = [session.status(status) + (f" ({phase})" if phase and phase != status else "")]
    error = object_at(task, "error")
    if reason:
        parts.append(f"reason {reason}")
    if error:
        parts.append(session.paint(_text(error, "message"), Style.BAD))
    if string_at(task, "waiting_for"):
        parts.append(f"waiting for {_text(task, 'waiting_for')}")
    return ", ".join(parts)


_SUMMARY = (("summary", "Summary"), ("current_step", "Step"), ("next_step", "Next step"), ("risk", "Risk"))


def _progress(task: JsonObject) -> Iterator[tuple[str, str]]:
    progress = object_at(task, "progress")
    percent, message = integer_at(progress, "percent"), _text(progress, "message")
    parts = ([f"{percent}%"] if percent is not None else []) + ([message] if message else [])
    if parts:
        yield "Progress", " ".join(parts)
    said = object_at(task, "summary")  # seed 003's structured summary
    done = integer_at(said, "progress_percent")
    if done is not None and percent is None:
        yield "Progress", f"{done}%"
    for key, name in _SUMMARY:
        if string_at(said, key):
            yield name, _text(said, key)


def _scope(run: JsonObject) -> Iterator[tuple[str, str]]:
    if string_at(run, "unit"):
        yield "Unit", _text(run, "unit")
    if string_at(run, "control_group"):
        yield "CGroup", _text(run, "control_group")
    if integer_at(run, "pid"):
        yield "Main PID", _text(run, "pid")
    limits = object_at(run, "limits")
    shown = [f"{key} {_limit(key, value)}" for key, value in limits.items() if value is not None]
    if shown:
        yield "Limits", one_line(", ".join(shown))


def _limit(key: str, value: JsonValue) -> str:
    if key.startswith("memory") or key in ("scratch_max", "log_max"):
        return size(value)
    return f"{text_of(value)}%" if key.endswith("_percent") else text_of(value)


def _exit(report: JsonObject) -> Iterator[tuple[str, str]]:
    if string_at(report, "signal"):
        yield "Ended by", _text(report, "signal") + (", for want of memory" if report.get("oom_kill") is True else "")
    elif integer_at(report, "exit_status") is not None:
        yield "Exit status", _text(report, "exit_status")
    usage = object_at(report, "usage")
    cpu, peak, tasks = (integer_at(usage, key) for key in ("cpu_usec", "memory_peak", "tasks_peak"))
    spent = integer_at(usage, "duration_usec")
    parts = [f"{duration(spent / 1e6)} in all"] if spent is not None else []
    parts += [f"CPU {duration(cpu / 1e6)}"] if cpu is not None else []
    parts += [f"memory peak {size(peak)}"] if peak is not None else []
    parts += [f"{tasks} tasks at most"] if tasks is not None else []
    read, written = integer_at(usage, "io_read_bytes"), integer_at(usage, "io_write_bytes")
    parts += [f"read {size(read)}, wrote {size(written)}"] if read is not None else []
    if parts:
        yield "Used", ", ".join(parts)


def _question(question: JsonObject) -> Iterator[tuple[str, str]]:
    if question:
        yield "Question", _text(question, "prompt")
        for option in list_at(question, "options"):
            yield "", one_line(text_of(option))


def _authorization(task: JsonObject) -> Iterator[tuple[str, str]]:
    """What a task that waits for somebody's word waits for, and how it is given."""
    asked, task_id = object_at(task, "auth_request"), _text(task, "task_id")
    if string_at(task, "status") != "auth_required" or not asked:
        return
    if string_at(asked, "type") == "approval":
        yield "Waits for", f"an approval: aiosctl approve {_text(asked, 'approval_id')}"
    else:
        yield "Waits for", f"an authentication ({_text(asked, 'type')}): aiosctl auth {task_id}"
    for key in ("provider", "reason", "summary"):
        if string_at(asked, key):
            yield "", _text(asked, key)


def _values(task: JsonObject) -> Iterator[tuple[str, str]]:
    for artifact in list_at(task, "artifacts"):
        if isinstance(artifact, dict):
            yield "Artifact", one_line(f"{text_of(artifact.get('id'))} {text_of(artifact.get('name'))}")
    for key in ("arguments", "metadata", "result"):
        value = task.get(key)
        if value:
            first, *rest = clean(json.dumps(value, ensure_ascii=False, indent=2)).splitlines()
            yield key.capitalize(), first
            yield from (("", line) for line in rest)


def _history(session: Session, task: JsonObject) -> Iterator[tuple[str, str]]:
    for index, row in enumerate(list_at(task, "state_history")):
        if isinstance(row, dict):
            state, phase, reason = (_text(row, key) for key in ("state", "phase", "reason"))
            detail = f" ({phase})" if phase and phase != state else ""
            text = f"{moment(_text(row, 'timestamp'))}  {session.status(state)}{detail}"
            yield ("" if index else "History"), text + (f", {reason}" if reason else "")
