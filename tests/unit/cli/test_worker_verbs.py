"""Workers on the command line, against the real core."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.unit.core.session_rig import plan, session
from tests.unit.core.worker_rig import register

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.cli.conftest import Ran
    from tests.unit.cli.core_transport import CoreThread
    from tests.unit.core.rig import Core

    Aiosctl = Callable[..., Ran]


def test_workers_are_listed_and_shown(typed: Aiosctl, thread: CoreThread) -> None:
    assert typed("worker", "list").err == "No workers.\n"
    assert typed("worker", "show", "nobody").status == 66

    async def working(aios: Core) -> str:
        first = await session(aios)
        ids = await plan(aios, first, {"title": "cache"})
        hand = await register(aios, worker_id="worker_mac_001")
        await hand.takes()
        await hand.beat(status="busy", load=0.25)
        gone = await register(aios, worker_id="worker_win_a")
        await aios.invoke("worker.unregister", {"worker_id": gone.id, "registration": gone.registration})
        return ids["cache"]

    assert thread.core is not None
    task = thread.run(working(thread.core))
    (row,) = typed("worker", "list", "--json").rows("workers")
    assert (row["worker_id"], row["status"], row["load"]) == ("worker_mac_001", "busy", 0.25)
    lines = typed("worker", "list", "--gone").out.splitlines()
    assert lines[0].split() == ["WORKER", "USER", "HOST", "OS", "STATUS", "LOAD", "HEARD", "TASK", "CAPABILITIES"]
    assert [line.split()[0] for line in lines[1:]] == ["worker_mac_001", "worker_win_a"]
    shown = typed("worker", "show", "worker_mac_001").out
    for text in ("Host: mac-studio", "OS: macos", "Can: git terminal playwright xcode", f"{task} accepted"):
        assert text in shown
    assert "it unregistered" in typed("worker", "show", "worker_win_a").out
    assert "Worker: worker_mac_001" in typed("show", str(task)).out


def test_a_worker_is_followed_until_it_is_gone(typed: Aiosctl, thread: CoreThread) -> None:
    async def working(aios: Core) -> str:
        first = await session(aios)
        before = aios.events[-1].id
        await plan(aios, first, {"title": "cache"})
        hand = await register(aios, worker_id="worker_mac_001")
        await register(aios, worker_id="worker_win_a")
        await hand.takes()
        await aios.invoke("worker.unregister", {"worker_id": hand.id, "registration": hand.registration})
        return str(before)

    assert thread.core is not None
    since = str(thread.run(working(thread.core)))
    followed = typed("worker", "follow", "worker_mac_001", "--since", since, "--json").json_lines
    assert [row["type"] for row in followed] == [
        "worker.registered", "task.assigned", "worker.assignment.accepted", "task.started",
        "worker.assignment.lost", "task.retry", "worker.unregistered",
    ]  # fmt: skip
