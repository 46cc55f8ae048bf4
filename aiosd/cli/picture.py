"""A session's timeline as a picture: pure, from events to SVG 1.1.

One row an event, so that nothing can lie over anything else; every column is as wide as it says and cuts off what is
longer. Between source and type stand the lanes: the session's own first, then one for each task, from its making to its
end, drawn in the state that it is in. A lane is used again once its task has ended. States differ in shape, not in
colour alone; colours follow the viewer's preference (`prefers-color-scheme`).
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from heapq import heappop, heappush
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from aiosd.cli.terminal import one_line
from aiosd.cli.timeline import gist
from aiosd.cli.values import object_at, string_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aiosd.model.jsontext import JsonObject

ROW, LANE, CHARACTER = 24, 20, 7.25
"""Height of a row, width of a lane, and what one character of the font takes at most, in pixels."""
MARGIN, HEAD = 20, 84
TIME, SOURCE, TYPE, TASK, SAID = 13, 9, 28, 30, 76
"""Width of the columns, in characters."""
TWICE = frozenset({"task.blocked", "task.completed", "task.failed"})
"""Told twice, as the state and with what it is about (a question, a result, an error): one row."""
PROGRESS = "task.progress"
"""Several of the same task in a row are one row, the last, which says how many."""


class State(StrEnum):
    """How a task's lane is drawn."""

    WAITING = "waiting"
    WORKING = "working"
    PAUSED = "paused"
    ASKING = "asking"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"


_STATES = {
    "pending": State.WAITING, "working": State.WORKING, "paused": State.PAUSED, "input_required": State.ASKING,
    "auth_required": State.ASKING, "completed": State.COMPLETED, "failed": State.FAILED, "canceled": State.CANCELED,
}  # fmt: skip
_FINAL = frozenset({State.COMPLETED, State.FAILED, State.CANCELED})
_LEGEND = {
    State.WAITING: "waits", State.WORKING: "works", State.PAUSED: "paused or held", State.ASKING: "asks a person",
    State.COMPLETED: "completed", State.FAILED: "failed", State.CANCELED: "canceled",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """One row. `lane` 0 is the session's; `state`: of the task from here on, None for the session's rows.

    `ends`: nothing more of the task comes after it. `count`: events that it stands for.
    """

    event: JsonObject
    lane: int = 0
    state: State | None = None
    title: str = ""
    said: str = ""
    count: int = 1
    ends: bool = False


@dataclass(slots=True)
class _Lanes:
    """Which task has which lane, what it is called, and how it is."""

    of: dict[str, int] = field(default_factory=dict)
    titles: dict[str, str] = field(default_factory=dict)
    states: dict[str, State] = field(default_factory=dict)
    free: list[int] = field(default_factory=list)

    def take(self, task_id: str) -> int:
        if task_id not in self.of:
            self.of[task_id] = heappop(self.free) if self.free else len(self.of) + 1
        return self.of[task_id]

    def leave(self, task_id: str) -> None:
        heappush(self.free, self.of.pop(task_id))


def rows_of(events: Sequence[JsonObject]) -> list[Row]:
    """The rows: which lane each event is in, and the state that its task is in from there on."""
    last = {string_at(event, "task_id"): index for index, event in enumerate(events)}
    lanes, rows = _Lanes(), list[Row]()
    for index, event in enumerate(events):
        row = _row(event, lanes)
        task_id = string_at(event, "task_id")
        if row.state in _FINAL and last[task_id] == index:
            row = replace(row, ends=True)
            lanes.leave(task_id)
        before = rows[-1] if rows else None
        if before is not None and _is_same(before.event, event):
            more = string_at(event, "type") == PROGRESS
            rows[-1] = replace(row, count=before.count + 1 if more else 1, said=row.said or before.said)
        else:
            rows.append(row)
    return rows


def _row(event: JsonObject, lanes: _Lanes) -> Row:
    task_id, payload = string_at(event, "task_id"), object_at(event, "payload")
    if not task_id:
        return Row(event, said=_said(event))
    if string_at(payload, "title"):
        lanes.titles[task_id] = one_line(string_at(payload, "title"))
    # An approval has a status of its own.
    status = string_at(payload, "status") if string_at(event, "type").startswith("task.") else ""
    state = _STATES.get(status, lanes.states.get(task_id, State.WAITING))
    if payload.get("held") is True:
        state = State.PAUSED
    lanes.states[task_id] = state
    title = lanes.titles.get(task_id, f"…{task_id[-8:]}")
    return Row(event, lanes.take(task_id), state, title, _said(event))


def _said(event: JsonObject) -> str:
    kind, payload = string_at(event, "type"), object_at(event, "payload")
    return one_line(string_at(payload, "kind") if kind == "task.created" else gist(kind, payload))


def _is_same(before: JsonObject, event: JsonObject) -> bool:
    kind = string_at(event, "type")
    same = string_at(event, "task_id") == string_at(before, "task_id") and kind == string_at(before, "type")
    return same and (kind == PROGRESS or kind in TWICE)


def drawing(events: Sequence[JsonObject], title: str, objective: str = "") -> str:
    """The picture of these events, oldest first; a whole SVG document. `title`, `objective`: of the session."""
    rows = rows_of(events)
    lanes = max((row.lane for row in rows), default=0) + 1
    columns = _columns(lanes)
    width = columns.end + MARGIN
    height = HEAD + ROW * len(rows) + 2 * ROW + MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        ' role="img" aria-labelledby="name what">',
        f'<title id="name">{_text(title)}</title>',
        f'<desc id="what">The timeline of a session: {len(events)} events, oldest first.</desc>',
        _STYLE,
        f'<rect class="paper" width="{width}" height="{height}"/>',
        *_heading(events, title, objective, width),
        *_lanes(rows, columns),
        *(line for index, row in enumerate(rows) for line in _words(row, index, columns)),
        *_legend(height),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


@dataclass(frozen=True, slots=True)
class _Columns:
    """Where the columns begin, in pixels."""

    time: int
    source: int
    lanes: int
    type: int
    task: int
    said: int
    end: int

    def lane(self, number: int) -> int:
        """The middle of a lane."""
        return self.lanes + LANE * number + LANE // 2


def _columns(lanes: int) -> _Columns:
    time = MARGIN
    source = time + _wide(TIME)
    begin = source + _wide(SOURCE)
    kind = begin + LANE * lanes + LANE
    task = kind + _wide(TYPE)
    said = task + _wide(TASK)
    return _Columns(time, source, begin, kind, task, said, said + _wide(SAID))


def _wide(characters: int) -> int:
    return round(characters * CHARACTER)


def _heading(events: Sequence[JsonObject], title: str, objective: str, width: int) -> Iterator[str]:
    room = int((width - 2 * MARGIN) / CHARACTER)
    yield f'<text class="title" x="{MARGIN}" y="34">{_text(_cut(title, int(room * 0.7)))}</text>'
    begin = _moment(events[0]) if events else None
    day = "" if begin is None else f"{begin:%Y-%m-%d}, UTC"
    told = " · ".join(word for word in (objective and f"objective: {objective}", day) if word)
    yield f'<text class="dim" x="{MARGIN}" y="58">{_text(_cut(told, room))}</text>'


def _lanes(rows: Sequence[Row], columns: _Columns) -> Iterator[str]:
    """Lines first, marks over them."""
    if not rows:
        return
    yield f'<path class="session" d="M{columns.lane(0)} {_middle(0)}V{_middle(len(rows) - 1)}"/>'
    last: dict[int, tuple[int, State]] = {}
    marks: list[str] = []
    for index, row in enumerate(rows):
        x, y = columns.lane(row.lane), _middle(index)
        if row.state is None:
            marks.append(f'<circle class="session" cx="{x}" cy="{y}" r="4"/>')
            continue
        if row.lane in last:
            since, state = last.pop(row.lane)
            yield f'<path class="line {state}" d="M{x} {since}V{y}"/>'
        else:
            yield f'<path class="branch" d="M{columns.lane(0)} {y}H{x}"/>'
        if not row.ends:
            last[row.lane] = (y, row.state)
        marks.append(_mark(row.state, x, y))
    for lane, (since, state) in last.items():
        yield f'<path class="line {state}" d="M{columns.lane(lane)} {since}V{_middle(len(rows) - 1) + ROW // 2}"/>'
    yield from marks


def _mark(state: State, x: int, y: int) -> str:
    """What an event leaves on its lane: a shape for each state."""
    if state is State.FAILED:
        return f'<path class="cross {state}" d="M{x - 5} {y - 5}l10 10m0-10l-10 10"/>'
    if state is State.CANCELED:
        return f'<path class="cross {state}" d="M{x - 6} {y}h12"/>'
    if state is State.PAUSED:
        return f'<path class="cross {state}" d="M{x - 3} {y - 5}v10m6-10v10"/>'
    if state is State.ASKING:
        return f'<path class="mark {state}" d="M{x} {y - 6}l6 6-6 6-6-6z"/>'
    hollow = " hollow" if state is State.WAITING else ""
    return f'<circle class="mark {state}{hollow}" cx="{x}" cy="{y}" r="{6 if state is State.COMPLETED else 4}"/>'


def _words(row: Row, index: int, columns: _Columns) -> Iterator[str]:
    event = row.event
    moment, kind = _moment(event), one_line(string_at(event, "type"))
    when = one_line(string_at(event, "timestamp")) if moment is None else f"{moment:%H:%M:%S.%f}"[:-3]
    said = f"{row.said} ({row.count} times)" if row.count > 1 else row.said
    y = _middle(index) + 4
    cells = (
        ("dim", columns.time, when, TIME), ("dim", columns.source, one_line(string_at(event, "source")), SOURCE),
        ("kind", columns.type, kind, TYPE), ("task", columns.task, row.title, TASK), ("said", columns.said, said, SAID),
    )  # fmt: skip
    whole = " ".join(word for word in (string_at(event, "id"), kind, row.title, said) if word)
    yield f"<g><title>{_text(whole)}</title>"
    for style, x, text, most in cells:
        if text:
            yield f'<text class="{style}" x="{x}" y="{y}">{_text(_cut(text, most - 1))}</text>'
    yield "</g>"


def _legend(height: int) -> Iterator[str]:
    x, y = MARGIN + LANE // 2, height - MARGIN - ROW // 2
    for state, name in _LEGEND.items():
        yield _mark(state, x, y)
        yield f'<text class="dim" x="{x + 12}" y="{y + 4}">{name}</text>'
        x += _wide(len(name)) + 44


def _middle(index: int) -> int:
    return HEAD + ROW * index + ROW // 2


def _moment(event: JsonObject) -> datetime | None:
    try:
        return datetime.fromisoformat(string_at(event, "timestamp")).astimezone(UTC)
    except ValueError:
        return None


def _cut(text: str, most: int) -> str:
    """At most so many columns of a fixed-width font; what is left out is shown as an ellipsis."""
    if sum(map(_columns_of, text)) <= most:
        return text
    kept, taken = "", 1
    for character in text:
        taken += _columns_of(character)
        if taken > most:
            break
        kept += character
    return kept.rstrip() + "…"


def _columns_of(character: str) -> int:
    """Unicode Standard Annex 11."""
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _text(text: str) -> str:
    """Characters that XML may hold, and no markup."""
    return escape("".join(each for each in text if each.isprintable()))


_STYLE = """<style>
text { font: 12px "DejaVu Sans Mono", ui-monospace, Menlo, Consolas, monospace; fill: #1f2328; }
.title { font-size: 17px; font-weight: bold; }
.dim { fill: #59636e; }
.task { fill: #0550ae; }
.paper { fill: #ffffff; }
path { fill: none; stroke-width: 2.5; }
path.session { stroke: #d1d9e0; }
circle.session { fill: #59636e; }
.branch { stroke: #d1d9e0; stroke-width: 1; }
.waiting { stroke: #818b98; } .line.waiting { stroke-dasharray: 2 4; }
circle.waiting { fill: #ffffff; stroke-width: 2; }
.working { stroke: #0969da; } circle.working { fill: #0969da; }
.paused { stroke: #9a6700; } .line.paused { stroke-dasharray: 7 4; }
.asking { stroke: #8250df; } .mark.asking { fill: #8250df; } .line.asking { stroke-dasharray: 1 3; }
.completed { stroke: #1a7f37; } circle.completed { fill: #1a7f37; }
.failed { stroke: #d1242f; }
.canceled { stroke: #818b98; }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc; } .dim { fill: #9198a1; } .task { fill: #79c0ff; } .paper { fill: #0d1117; }
path.session, .branch { stroke: #3d444d; } circle.session { fill: #9198a1; }
.waiting, .canceled { stroke: #9198a1; } circle.waiting { fill: #0d1117; }
.working { stroke: #4493f8; } circle.working { fill: #4493f8; }
.paused { stroke: #d29922; } .asking { stroke: #ab7df8; } .mark.asking { fill: #ab7df8; }
.completed { stroke: #3fb950; } circle.completed { fill: #3fb950; } .failed { stroke: #f85149; }
}
</style>"""
