"""Pages end at a size, too: whatever callers have written, an answer is for one message, and all of it can be had."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aiosd.core.operations import OPERATIONS
from aiosd.model.jsontext import dump
from aiosd.store.pages import PAGE_SIZE, page
from tests.unit.core.rig import core, play
from tests.unit.core.session_rig import rows, session

if TYPE_CHECKING:
    from pathlib import Path

    from aiosd.model.jsontext import JsonObject, JsonValue
    from tests.unit.core.rig import Core

LONG = "x" * 60_000
COUNT = 80
"""More than twice what one page holds, of the smallest here."""
MOST = PAGE_SIZE + 200_000


@pytest.mark.parametrize(
    ("sizes", "limit", "found", "more"),
    [
        ([], 5, 0, False), ([1, 1], 2, 2, False), ([1, 1, 1], 2, 2, True), ([9, 9], 5, 1, True), ([99], 5, 1, False),
        ([99, 1], 5, 1, True), ([4, 5, 1], 5, 3, False), ([4, 5, 2], 5, 2, True),
    ],
)  # fmt: skip
def test_a_page(sizes: list[int], limit: int, found: int, more: bool) -> None:  # noqa: FBT001
    assert page(sizes, limit, int, most=10) == (sizes[:found], more)


async def _walk(aios: Core, operation: str, params: JsonObject, key: str, *, by_event: bool) -> list[JsonObject]:
    """All pages, each of them small enough."""
    found: list[JsonObject] = []
    more: JsonObject = {}
    for _ in range(COUNT + 5):
        body = await aios.invoke(operation, {**params, **more})
        assert len(dump(body)) < MOST
        found += rows(body, key)
        if not (body.get("has_more") or body.get("more")):
            return found
        more = {"last_event_id": body["last_event_id"]} if by_event else {"cursor": body["next_cursor"]}
    raise AssertionError("there is no end to the pages")


@pytest.mark.parametrize(
    ("operation", "params", "key"),
    [
        ("session.timeline", {"limit": 1000}, "events"),
        ("session.timeline", {"limit": 1000, "order": "desc"}, "events"),
        ("message.list", {"limit": 100}, "messages"),
        ("feed.subscribe", {"feed": "session_feed", "last_event_id": "evt-0000000000000000"}, "missed_events"),
    ],
)
def test_a_long_conversation_is_had_in_small_pages(
    tmp_path: Path, operation: str, params: JsonObject, key: str
) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            one = await session(aios)
            for number in range(COUNT):
                await aios.invoke("message.add", {"session_id": one, "content": f"{number} {LONG}"})
            named: JsonObject = {"id": one} if operation == "feed.subscribe" else {"session_id": one}
            by_event = operation != "message.list"
            found = await _walk(aios, operation, {**named, **params}, key, by_event=by_event)
            told = [dump(row) for row in found]
            assert len(told) == COUNT + by_event, "each once"
            order = [next(number for number in range(COUNT) if f'"{number} x' in text) for text in told if LONG in text]
            assert order == (list(range(COUNT))[::-1] if params.get("order") == "desc" else list(range(COUNT)))

    play(scenario())


def test_sessions_with_much_metadata_are_listed_in_small_pages(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            made = [await session(aios, metadata={"note": LONG}) for _ in range(COUNT)]
            found = await _walk(aios, "session.list", {"limit": 100}, "sessions", by_event=False)
            assert [row["session_id"] for row in found] == made[::-1]

    play(scenario())


def test_a_plan_with_long_goals_is_shown_in_small_pages(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            one = await session(aios)
            tasks: list[JsonValue] = [
                {"title": f"task {number}", "goal": "g" * 4000, "constraints": ["c" * 200] * 60} for number in range(15)
            ]
            await aios.invoke("plan.create", {"session_id": one, "tasks": tasks})
            for version in range(1, 14):
                diff: JsonObject = {"create_tasks": tasks}
                await aios.invoke("plan.apply_diff", {"session_id": one, "version": version, "diff": diff})
            found = await _walk(aios, "plan.get", {"session_id": one}, "tasks", by_event=False)
            assert len({row["task_id"] for row in found}) == len(found) == 14 * 15
            shown = await aios.invoke("plan.get", {"session_id": one, "diffs": True, "limit": 1})
            assert 1 < len(rows(shown, "diffs")) <= 14
            assert len(dump(shown)) < MOST + PAGE_SIZE

    play(scenario())


def test_every_operation_with_pages_is_known_here() -> None:
    """A new one has to be looked at: what is the largest row that a caller can bring about?"""
    paged = {name for name, one in OPERATIONS.items() if {"limit", "pagination"} & one.params.model_fields.keys()}
    assert paged == {
        "session.timeline", "message.list", "feed.subscribe", "task.resubscribe", "session.list", "plan.get",
        "audit.query",  # by size, in the store
        "task.list", "task.history", "task.tree", "session.tree", "worker.list",  # rows of a KiB or two
        "task.logs", "task.open_log",  # bytes
    }  # fmt: skip
