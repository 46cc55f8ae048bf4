"""Sessions, plans and trees on the command line, against the real core: seed 003's story as a person types it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from aiosd.cli.session import Session
from aiosd.cli.timeline import tree
from tests.unit.core.session_rig import patient

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from aiosd.model.jsontext import JsonObject
    from tests.unit.cli.conftest import Ran
    from tests.unit.cli.core_transport import CoreThread

    Aiosctl = Callable[..., Ran]


def written(folder: Path, name: str, value: object) -> str:
    path = folder / name
    path.write_text(json.dumps(value))
    return str(path)


PLAN = {
    "tasks": [
        {"ref": "cache", "title": "cache", "kind": "implementation"},
        {"ref": "ui", "title": "ui", "kind": "implementation"},
        {"title": "api", "kind": "implementation", "priority": "high"},
        {"title": "styles", "parent_task_id": "ui"},
    ]
}


def ids(plan: Mapping[str, object]) -> dict[str, str]:
    found = plan["tasks"]
    assert isinstance(found, list)
    return {row["title"]: row["task_id"] for row in found}


def test_the_seeds_story_as_it_is_typed(typed: Aiosctl, tmp_path: Path) -> None:
    session = typed("session", "create", "Fix the login", "--objective", "find the cause first").out.strip()
    assert session.startswith("ps-")
    assert typed("session", "say", session, "look", "at", "the", "login").out.startswith("msg-")
    made = typed("plan", "create", session, written(tmp_path, "plan.json", PLAN), "--json")
    tasks = ids(made.json)
    assert made.json["objective"] == "find the cause first"
    diff = {
        "change_reason": "the retry first", "cancel_tasks": [tasks["cache"]], "pause_tasks": [tasks["ui"]],
        "continue_tasks": [tasks["api"]], "create_tasks": [{"title": "retry", "kind": "implementation"}],
    }  # fmt: skip
    proposal = written(tmp_path, "diff.json", diff)
    said = typed("session", "say", "last", "retry first", "--objective-change", "--diff", proposal)
    hint = said.err.splitlines()[-1]
    assert hint.startswith(f"Apply it: aiosctl plan apply {session} --version 1 --diff-id diff-")
    applied = typed(*hint.removeprefix("Apply it: aiosctl ").split())
    assert applied.status == 0
    assert "version 2" in applied.out.splitlines()[0]
    shown = typed("tree", session).out
    assert [line.split("  ")[:2] for line in shown.splitlines()] == [
        ["cache", "canceled"], ["ui", "pending (held)"], ["└─ styles", "pending (planning)"],
        ["api", "pending (planning)"], ["retry", "pending (planning)"],
    ]  # fmt: skip
    lines = typed("session", "timeline", session).out.splitlines()
    kinds = [line.split()[2] for line in lines]
    assert kinds == [
        "session.created", "session.message.added", *["task.created"] * 4, "plan.created", "session.message.added",
        "session.objective.updated", "plan.diff.generated", "task.created", "task.cancelled", "task.paused",
        "plan.updated",
    ]  # fmt: skip
    assert lines[9].endswith("the retry first (cancel 1, pause 1, continue 1, create 1)")
    again = typed(*hint.removeprefix("Apply it: aiosctl ").split())
    assert (again.status, "version 2" in again.err) == (65, True)


def test_a_session_is_listed_shown_closed_and_archived(typed: Aiosctl) -> None:
    session = typed("session", "create", "One").out.strip()
    assert typed("session", "objective", session, "be quick").status == 0
    assert "be quick" in typed("session", "show", session[:20]).out
    refused = typed("session", "archive", session)
    assert refused.status == 65
    assert typed("session", "close", session).err.strip() == f"{session} closed"
    assert typed("session", "archive", session).status == 0
    assert "No sessions." in typed("session", "list").err
    assert session in typed("session", "list", "--archived").out
    assert typed("session", "show", "ps-zz").status == 66
    assert typed("session", "list", "--archived", "--json").rows("sessions")[0]["status"] == "archived"


def test_more_sessions_than_a_page_has(typed: Aiosctl) -> None:
    made = [typed("session", "create", f"Session {number}").out.strip() for number in range(105)]
    shown = typed("session", "list")
    assert (len(shown.out.splitlines()), shown.err.strip()) == (51, "The newest 50; --all shows all of them.")
    every = typed("session", "list", "--all", "--json")
    assert [row["session_id"] for row in every.rows("sessions")] == made[::-1]
    assert every.json["has_more"] is False
    assert typed("session", "show", made[0][:-1]).status == 0, "its beginning is looked for on all pages"
    assert typed("session", "show", made[0].removeprefix("ps-")[:-1]).status == 0
    several = typed("session", "show", "ps-")
    assert (several.status, "is the beginning of several ids" in several.err) == (64, True)


def test_a_tree_larger_than_a_page_is_drawn_whole(typed: Aiosctl, thread: CoreThread) -> None:
    session = typed("session", "create", "One").out.strip()

    async def fill() -> None:
        assert thread.core is not None
        for first in range(0, 1100, 220):
            diff = {"create_tasks": [{"title": f"task {first + number}"} for number in range(220)]}
            if first == 0:
                params = {"session_id": session, "tasks": diff["create_tasks"]}
                await thread.core.invoke("plan.create", params)  # type: ignore[arg-type]  # JSON
            else:
                asked = {"session_id": session, "version": first // 220, "diff": diff}
                await thread.core.invoke("plan.apply_diff", asked)  # type: ignore[arg-type]

    thread.run(fill())
    assert [line.split("  ")[0] for line in typed("tree", session).out.splitlines()] == [
        f"task {number}" for number in range(1100)
    ]
    assert len(typed("session", "show", session, "--json").rows("tasks")) == 1100


def test_a_large_drawing_takes_time_in_proportion_to_its_rows() -> None:
    """A comb: each of the outer rows has one under it."""
    rows: list[JsonObject] = [{"depth": number % 2, "title": "x", "status": "pending"} for number in range(60_000)]
    drawn = list(tree(Session(), rows))
    assert (drawn[0][:1], drawn[1][:3], len(drawn)) == ("x", "└─ ", 60_000)


def test_following_shows_the_past_and_what_comes(typed: Aiosctl, thread: CoreThread) -> None:
    session = typed("session", "create", "One").out.strip()
    typed("session", "say", session, "hello")

    async def work() -> None:
        assert thread.core is not None
        await thread.core.ended(await thread.core.create(session_id=session))

    thread.run(work())
    past = typed("session", "follow", session, "--until-idle", "--json").json_lines
    assert [event["type"] for event in past] == [event["type"] for event in typed_timeline(typed, session)]

    async def start() -> None:
        assert thread.core is not None
        import asyncio

        thread.launcher.program = patient
        task = await thread.core.create(session_id=session)
        await thread.core.until(task, "running")
        asyncio.get_running_loop().call_later(
            0.3,
            lambda: kept.append(asyncio.ensure_future(thread.core.invoke("task.cancel", {"task_id": task}))),  # type: ignore[union-attr]  # looked at above
        )

    kept: list[object] = []
    thread.run(start())
    whole = typed("session", "follow", session, "--until-idle", "--json").json_lines
    assert whole == typed_timeline(typed, session), "each once, in order, in the same form"
    assert whole[-1]["type"] == "all_tasks_processed"
    assert typed("session", "timeline", session, "-n", "2").out.count("\n") == 2


def typed_timeline(typed: Aiosctl, session: str) -> list[Mapping[str, object]]:
    return typed("session", "timeline", session, "--json").json_lines


def test_a_plan_is_shown_with_its_diffs(typed: Aiosctl, tmp_path: Path) -> None:
    session = typed("session", "create", "One").out.strip()
    assert typed("plan", "show", session).status == 66
    typed("plan", "create", session, written(tmp_path, "plan.json", PLAN))
    added = written(tmp_path, "diff.json", {"change_reason": "more", "create_tasks": [{"title": "docs"}]})
    assert typed("plan", "apply", session, added).status == 0
    shown = typed("plan", "show", session, "--diffs").out
    assert "docs" in shown
    assert ", applied: more" in shown
    assert typed("plan", "apply", session).status == 64
    assert typed("plan", "apply", session, added, "--version", "1").status == 65


def test_a_tree_of_a_task_is_steered_as_a_whole(typed: Aiosctl, tmp_path: Path) -> None:
    session = typed("session", "create", "One").out.strip()
    tasks = ids(typed("plan", "create", session, written(tmp_path, "plan.json", PLAN), "--json").json)
    assert typed("pause", "--recursive", tasks["ui"]).status == 0
    assert "styles  pending (held)" in typed("tree", tasks["ui"]).out
    assert typed("resume", "-r", tasks["ui"]).status == 0
    assert typed("priority", "-r", tasks["ui"], "high").status == 0
    found = typed("tree", tasks["ui"], "--json").rows("tasks")
    assert [row["priority"] for row in found] == ["high", "high"]
    assert typed("cancel", tasks["ui"]).status == 0
    assert [row["status"] for row in typed("tree", tasks["ui"], "--json").rows("tasks")] == ["canceled"] * 2


def test_a_drawing_shows_who_is_under_whom() -> None:
    rows = [("a", 0), ("b", 1), ("c", 2), ("d", 1), ("e", 2), ("f", 3), ("g", 0)]
    drawn = tree(Session(), [{"title": name, "status": "pending", "depth": depth} for name, depth in rows])
    assert [line.split("  pending")[0] for line in drawn] == [
        "a", "├─ b", "│  └─ c", "└─ d", "   └─ e", "      └─ f", "g",
    ]  # fmt: skip


def test_what_a_session_says_cannot_hurt_a_terminal(typed: Aiosctl) -> None:
    session = typed("session", "create", "One").out.strip()
    typed("session", "say", session, "\x1b]0;owned\x07\nsecond line")
    out = typed("session", "timeline", session).out
    assert "\x1b" not in out
    assert "\x07" not in out
    assert len(out.splitlines()) == 2


def test_a_timeline_is_drawn(typed: Aiosctl, tmp_path: Path) -> None:
    session = typed("session", "create", "Fix the <login>", "--objective", "find it & mend it").out.strip()
    typed("session", "say", session, "look")
    file = tmp_path / "timeline.svg"
    assert typed("session", "timeline", session, "--svg", str(file)).out == ""
    drawn = file.read_text()
    assert typed("session", "timeline", session, "--svg").out == drawn
    assert "Fix the &lt;login&gt;" in drawn
    assert "user: look" in drawn
    newest = typed("session", "timeline", session, "-n", "1", "--svg").out
    assert "user: look" in newest
    assert "session.created" not in newest


def test_threads_and_what_was_said_in_them(typed: Aiosctl) -> None:
    session = typed("session", "create", "One").out.strip()
    assert "No threads." in typed("session", "thread", session).err
    thread = typed("session", "thread", session, "The login").out.strip()
    assert thread.startswith("th-")
    assert typed("session", "thread", session).out.splitlines()[1].endswith("The login")
    assert typed("session", "thread", session, "--json").rows("threads")[0]["id"] == thread
    typed("session", "say", session, "hello", "--channel", "web")
    typed("session", "say", session, "why\n\x1b[31mthough", "--thread", thread, "--role", "manager")
    lines = typed("session", "messages", session).out.splitlines()
    assert [line.split("  ")[-1] for line in lines] == ["user (web)", "hello", "manager (cli)", "why", "though"]
    only = typed("session", "messages", session, "--thread", thread, "--json").json_lines
    assert [message["role"] for message in only] == ["manager"]


def test_a_long_conversation_is_printed_whole(typed: Aiosctl, thread: CoreThread) -> None:
    session = typed("session", "create", "One").out.strip()

    async def talk() -> None:
        assert thread.core is not None
        for number in range(205):
            await thread.core.invoke("message.add", {"session_id": session, "content": f"{number}"})

    thread.run(talk())
    said = typed("session", "messages", session, "--json").json_lines
    assert [message["content"] for message in said] == [f"{number}" for number in range(205)]


def test_a_session_is_edited(typed: Aiosctl) -> None:
    session = typed("session", "create", "One", "--no-completion-signal").out.strip()
    assert typed("session", "edit", session).status == 64
    assert typed("session", "edit", session, "--title", "Two").err.strip() == f"{session} changed"
    assert "Two" in typed("session", "show", session).out
    typed("session", "edit", session, "--completion-signal")
    assert [event["type"] for event in typed_timeline(typed, session)][-1] == "all_tasks_processed"


def test_a_diff_is_proposed_and_then_applied(typed: Aiosctl, tmp_path: Path) -> None:
    session = typed("session", "create", "One").out.strip()
    tasks = ids(typed("plan", "create", session, written(tmp_path, "plan.json", PLAN), "--json").json)
    diff = written(tmp_path, "diff.json", {"change_reason": "not now", "pause_tasks": [tasks["cache"]]})
    proposed = typed("plan", "propose", session, diff)
    assert proposed.out.startswith("diff-")
    applied = typed(*proposed.err.strip().removeprefix("Apply it: aiosctl ").split())
    assert "version 2" in applied.out.splitlines()[0]
    wrong = written(tmp_path, "wrong.json", {"pause_tasks": ["task-that-is-not-there"]})
    assert typed("plan", "propose", session, wrong).status == 66
