"""What the tests of sessions, trees and plans have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.unit.core.rig import USER

if TYPE_CHECKING:
    from aiosd.auth.caller import Caller
    from aiosd.model.jsontext import JsonObject, JsonValue
    from tests.unit.core.fakelauncher import FakeRun
    from tests.unit.core.rig import Core


async def patient(run: FakeRun) -> None:
    """Runs until it is canceled, and goes then."""
    await run.go()
    await run.hear("cancel")
    run.end(0, stopped_by="cancel")


async def session(aios: Core, caller: Caller = USER, **params: JsonValue) -> str:
    """A new session; its id."""
    return str((await aios.invoke("session.create", {"title": "Fix the login", **params}, caller))["session_id"])


async def timeline(aios: Core, session_id: str) -> list[JsonObject]:
    """All of it, page by page."""
    found: list[JsonObject] = []
    last: JsonObject = {}
    while True:
        page = await aios.invoke("session.timeline", {"session_id": session_id, "limit": 7, **last})
        found += rows(page, "events")
        if not page["has_more"]:
            return found
        last = {"last_event_id": page["last_event_id"]}


async def types(aios: Core, session_id: str) -> list[str]:
    """The types of a session's events, in order."""
    return [str(event["type"]) for event in await timeline(aios, session_id)]


def rows(body: JsonObject, key: str) -> list[JsonObject]:
    """The objects of the array at `key`."""
    value = body[key]
    assert isinstance(value, list)
    assert all(isinstance(row, dict) for row in value)
    return value  # type: ignore[return-value]  # just looked at


def payload(event: JsonObject) -> JsonObject:
    """An event's payload."""
    found = event["payload"]
    assert isinstance(found, dict)
    return found


async def plan(aios: Core, session_id: str, *steps: JsonObject) -> dict[str, str]:
    """A plan of these tasks; their ids by title."""
    made = await aios.invoke("plan.create", {"session_id": session_id, "tasks": list(steps)})
    return {str(row["title"]): str(row["task_id"]) for row in rows(made, "tasks")}
