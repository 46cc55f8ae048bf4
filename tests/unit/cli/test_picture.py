"""The picture of a timeline: whatever happens, nothing lies over anything else, and it is well-formed SVG."""

from __future__ import annotations

import unicodedata
from itertools import pairwise
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from hypothesis import given, settings
from hypothesis import strategies as st

from aiosd.cli.picture import CHARACTER, ROW, State, drawing, rows_of

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonObject, JsonValue

SVG = "{http://www.w3.org/2000/svg}"
STATUSES = ("pending", "working", "paused", "input_required", "auth_required", "completed", "failed", "canceled")


def event(
    number: int, type_: str, task: str | None = None, *, source: str = "system", **payload: JsonValue
) -> JsonObject:
    return {
        "id": f"evt-{number:016d}", "session_id": "ps-1", "task_id": task, "source": source, "type": type_,
        "timestamp": f"2026-03-23T12:10:{number % 60:02d}.000Z", "payload": payload,
    }  # fmt: skip


STORY = [
    event(1, "session.created", source="user", title="Login", active_objective="find the cause"),
    event(2, "task.created", "a", status="pending", title="cache", kind="implementation"),
    event(3, "task.created", "b", status="pending", title="ui"),
    event(4, "task.started", "b", status="working"),
    *(event(5, "task.progress", "b", source="worker", progress={"percent": done}) for done in (10, 20, 30)),
    event(6, "task.cancelled", "a", status="canceled", reason="the retry first"),
    event(7, "task.blocked", "b", status="auth_required"),
    event(8, "task.blocked", "b", auth_request={"summary": "rm -rf build-cache"}),
    event(9, "task.created", "c", status="pending", title="retry"),
    event(10, "task.paused", "c", status="pending", held=True),
    event(11, "task.completed", "b", status="completed"),
    event(12, "task.completed", "b", result={"fixed": True}),
    event(13, "all_tasks_processed", message="no task is at work"),
]


def texts(svg: str) -> list[tuple[float, float, str]]:
    """Where each text begins, its baseline, and what it says."""
    tree = ElementTree.fromstring(svg)  # noqa: S314 - our own
    return [(float(one.get("x", "0")), float(one.get("y", "0")), one.text or "") for one in tree.iter(f"{SVG}text")]


def wide(text: str) -> float:
    """What a text takes in a fixed-width font, in pixels."""
    return CHARACTER * sum(
        0 if unicodedata.combining(one) else 2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in text
    )


def assert_tidy(svg: str) -> None:
    """No text reaches another one, or beyond the edge."""
    width = float(ElementTree.fromstring(svg).get("width", "0"))  # noqa: S314 - our own
    lines: dict[float, list[tuple[float, str]]] = {}
    for x, y, text in texts(svg):
        lines.setdefault(y, []).append((x, text))
    for line in lines.values():
        for (x, text), (following, _) in pairwise([*sorted(line), (width, "")]):
            assert x + wide(text) <= following, text
    baselines = sorted(lines)
    assert all(below - above >= ROW - 1 for above, below in pairwise(baselines))


def test_a_row_for_each_event_and_a_lane_for_each_task() -> None:
    rows = rows_of(STORY)
    assert [row.lane for row in rows] == [0, 1, 2, 2, 2, 1, 2, 1, 1, 2, 0], "c has the lane that a had"
    assert [row.state for row in rows if row.title == "ui"] == [
        State.WAITING, State.WORKING, State.WORKING, State.ASKING, State.COMPLETED
    ]  # fmt: skip
    assert [row.state for row in rows if row.title == "retry"] == [State.WAITING, State.PAUSED]
    assert [row.ends for row in rows if row.title == "cache"] == [False, True]


def test_what_is_told_several_times_is_one_row_with_all_that_was_said() -> None:
    svg = drawing(STORY, "Login", "find the cause")
    said = [text for _, _, text in texts(svg)]
    assert "30% (3 times)" in said
    assert said.count("task.progress") == said.count("task.blocked") == said.count("task.completed") == 1
    assert {"cache", "the retry first", "objective: find the cause · 2026-03-23, UTC"} <= set(said)
    assert_tidy(svg)


def test_an_approvals_own_status_is_not_its_tasks() -> None:
    story = [*STORY[:9], event(9, "approval.requested", "b", status="pending", summary="rm -rf build-cache")]
    assert rows_of(story)[-1].state is State.ASKING


def test_both_schemes_of_colour_have_every_state() -> None:
    style = ElementTree.fromstring(drawing(STORY, "x")).findtext(f"{SVG}style") or ""  # noqa: S314 - our own
    light, _, dark = style.partition("@media (prefers-color-scheme: dark)")
    for state in State:
        assert f".{state}" in light
        assert f".{state}" in dark


def test_nothing_is_a_picture_too() -> None:
    assert_tidy(drawing([], ""))


_words = st.text(max_size=120)
_events = st.lists(
    st.builds(
        lambda kind, task, status, held, title, message: event(
            1, kind, task, title=title, message=message, held=held, **({"status": status} if status else {})
        ),
        st.sampled_from(["task.created", "task.progress", "task.blocked", "tool.call.requested", "task.x"]) | _words,
        st.none() | st.sampled_from("abcdefgh"), st.none() | st.sampled_from(STATUSES), st.booleans(), _words, _words,
    ),
    max_size=40,
)  # fmt: skip


@settings(deadline=None, max_examples=100)
@given(events=_events, title=_words, objective=_words)
def test_whatever_is_said_it_stays_tidy(events: list[JsonObject], title: str, objective: str) -> None:
    assert_tidy(drawing(events, title, objective))
    living: dict[int, str] = {}
    for row in rows_of(events):
        task = row.event["task_id"]
        if task is not None:
            assert living.setdefault(row.lane, str(task)) == task, "a lane is one task's at a time"
            if row.ends:
                del living[row.lane]
