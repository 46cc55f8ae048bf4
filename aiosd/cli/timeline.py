"""Events of a session as lines, and task trees as drawings, for people."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from aiosd.cli.session import STATUS_STYLES, Session, Style
from aiosd.cli.terminal import one_line
from aiosd.cli.values import integer_at, list_at, object_at, string_at, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from aiosd.model.jsontext import JsonObject

_STYLES = {
    "task.completed": Style.GOOD,
    "task.failed": Style.BAD,
    "task.cancelled": Style.DIM,
    "task.blocked": Style.WAITING,
    "task.paused": Style.WAITING,
    "task.progress": Style.DIM,
    "session.message.added": Style.HEAD,
    "approval.requested": Style.WAITING,
    "worker.assignment.rejected": Style.WAITING,
    "worker.assignment.lost": Style.BAD,
}


def line(session: Session, event: JsonObject) -> str:
    """One event: when, who, what, which task, in a few words."""
    kind = string_at(event, "type")
    parts = [
        _clock(string_at(event, "timestamp")),
        f"{one_line(string_at(event, 'source')):<8}",
        session.paint(one_line(kind), _STYLES.get(kind)),
    ]
    if string_at(event, "task_id"):
        parts.append(session.paint(one_line(string_at(event, "task_id")), Style.DIM))
    said = gist(kind, object_at(event, "payload"))
    return "  ".join([*parts, *([said] if said else [])])


def say(session: Session, event: JsonObject) -> None:
    """Print one event as it comes: a line, or the event itself with `--json`."""
    if session.json:
        session.emit(event)
    else:
        session.say(line(session, event))
        session.out.flush()


def gist(kind: str, payload: JsonObject) -> str:
    """What an event's payload says, in a few words."""
    if kind == "session.message.added":
        return one_line(f"{string_at(payload, 'role')}: {string_at(payload, 'content')}")
    if kind == "plan.diff.generated":
        return _change(object_at(payload, "diff"), _DIFF)
    if kind == "plan.updated":
        return _change(payload, _DONE)
    if kind == "plan.created":
        return f"{len(list_at(payload, 'created'))} tasks"
    artifact = object_at(payload, "artifact")
    if artifact:
        return one_line(f"artifact {string_at(artifact, 'name')}")
    progress = object_at(payload, "progress")
    if progress:
        percent = integer_at(progress, "percent")
        return one_line(f"{'' if percent is None else f'{percent}% '}{string_at(progress, 'message')}")
    asked = object_at(payload, "auth_request")
    if asked:
        return one_line(string_at(asked, "summary") or string_at(asked, "reason") or string_at(asked, "type"))
    for key in (
        "active_objective",
        "prompt",
        "summary",
        "message",
        "reason",
        "title",
        "step",
        "tool",
        "objective",
        "worker_id",
        "text",
    ):
        value = payload.get(key)
        if isinstance(value, dict):
            value = value.get("summary")
        if value:
            return one_line(text_of(value))
    return ""


_DIFF = {"cancel_tasks": "cancel", "pause_tasks": "pause", "continue_tasks": "continue", "create_tasks": "create"}
_DONE = {"canceled": "canceled", "paused": "paused", "continued": "continued", "created": "created"}


def _change(told: JsonObject, words: Mapping[str, str]) -> str:
    """Why a plan changes, and how many tasks that concerns in which way."""
    counts = [f"{word} {len(found)}" for key, word in words.items() if (found := list_at(told, key))]
    return one_line(f"{string_at(told, 'change_reason')} ({', '.join(counts) or 'nothing'})".strip())


def _clock(timestamp: str) -> str:
    try:
        return f"{datetime.fromisoformat(timestamp).astimezone():%H:%M:%S.%f}"[:-3]
    except ValueError:
        return one_line(timestamp)


def tree(session: Session, rows: Sequence[JsonObject]) -> Iterator[str]:
    """A drawing of rows that have a `depth`, each parent before its children (as task.tree answers)."""
    depths = [integer_at(row, "depth") or 0 for row in rows]
    open_levels: list[bool] = []
    for row, depth, more in zip(rows, depths, _have_a_sibling_below(depths), strict=True):
        del open_levels[depth:]
        bars = "".join("│  " if level else "   " for level in open_levels[1:])
        yield bars + ("" if depth == 0 else "├─ " if more else "└─ ") + _node(session, row)
        open_levels.append(more)


def _have_a_sibling_below(depths: Sequence[int]) -> list[bool]:
    """Of each row, whether the next one that is not under it stands beside it."""
    found: list[bool] = []
    below: list[int] = []
    for depth in reversed(depths):
        while below and below[-1] > depth:
            below.pop()
        found.append(bool(below) and below[-1] == depth)
        if not found[-1]:
            below.append(depth)
    return found[::-1]


def _node(session: Session, row: JsonObject) -> str:
    status, phase = string_at(row, "status"), string_at(row, "phase")
    shown = session.paint(one_line(status), STATUS_STYLES.get(status))
    detail = "held" if row.get("held") is True else phase if phase != status else ""
    title = one_line(string_at(row, "title") or string_at(row, "capability_id"))
    name = session.paint(one_line(string_at(row, "task_id")), Style.DIM)
    return f"{title}  {shown}{f' ({one_line(detail)})' if detail else ''}  {name}"
