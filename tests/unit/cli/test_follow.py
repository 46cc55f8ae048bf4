"""Following outlives the daemon: a task goes on while aiosd is away, and so does whoever waits for it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from aiosd.cli import follow
from aiosd.cli.client import Reply, TaskManagerClient
from aiosd.cli.exit_status import ExitStatus
from aiosd.cli.failure import Failure, of_dbus
from aiosd.cli.values import TaskEvent
from aiosd.cli.views import remark
from aiosd.errors import ErrorKind
from tests.unit.cli.daemon import ONE, Daemon

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from aiosd.model.jsontext import JsonObject
    from tests.unit.cli.conftest import Ran


@contextlib.asynccontextmanager
async def _nobody() -> AsyncIterator[None]:
    yield


def _away(daemon: Daemon, times: int) -> None:
    """Wait ends that often as it does when the daemon dies: the bus answers in its place."""
    wait, left = daemon._Wait, [times]

    async def answer(task_id: str, **_: object) -> Reply:
        if left[0]:
            left[0] -= 1
            raise of_dbus("org.freedesktop.DBus.Error.NoReply", "Message recipient disconnected from message bus")
        return await wait(task_id)

    daemon._Wait = answer  # type: ignore[method-assign]  # a scripted answer


def test_a_restart_is_waited_for(aiosctl: Callable[..., Ran], daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "_RESTART_PAUSE", 0.01)
    daemon.add(ONE, "completed")
    _away(daemon, 3)
    ran = aiosctl("watch", ONE)
    assert (ran.status, ran.err.splitlines()[-1]) == (0, f"{ONE} completed")
    assert ran.err.count("aiosd went away") == 1
    assert [name for name, _ in daemon.calls].count("Subscribe") == 4, "the daemon forgets subscriptions when it ends"


def test_output_goes_on_after_a_restart(
    aiosctl: Callable[..., Ran], daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "_RESTART_PAUSE", 0.01)

    async def life(daemon: Daemon, task_id: str) -> None:
        daemon.change(task_id, "working", attempt=1)
        daemon.log(task_id, "stdout", b"before ")
        daemon.log(task_id, "stderr", b"")
        await asyncio.sleep(0.4)
        daemon.refusals = dict.fromkeys(("GetTask", "Subscribe", "OpenLog", "Wait"), ErrorKind.SHUTTING_DOWN)
        daemon.log(task_id, "stdout", b"meanwhile ")
        daemon.break_waits()
        await asyncio.sleep(1.3)
        daemon.refusals = {}
        daemon.log(task_id, "stdout", b"after")
        daemon.change(task_id, "completed")

    daemon.script = life
    ran = aiosctl("run", "files.checksum", "--follow")
    assert (ran.status, ran.out) == (0, "before meanwhile after")
    assert ran.err.count("aiosd went away") == 1


def test_but_not_for_ever(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "_RESTART_PAUSE", 0.01)
    monkeypatch.setattr(follow, "RESTART_TIMEOUT", 0.1)
    daemon.add(ONE, "completed")
    _away(daemon, 1000)
    with pytest.raises(Failure) as caught:
        asyncio.run(follow.until_final(TaskManagerClient(daemon, _nobody), ONE))
    assert caught.value.status == ExitStatus.UNAVAILABLE


def test_a_refusal_is_final(daemon: Daemon) -> None:
    with pytest.raises(Failure) as caught:
        asyncio.run(follow.until_final(TaskManagerClient(daemon, _nobody), ONE))
    assert caught.value.status == ExitStatus.NOT_FOUND


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (
            {"type": "oauth2", "provider": "google", "reason": "to read your files"},
            f"It waits for an authentication: oauth2 of google: to read your files\n  answer: aiosctl auth {ONE}",
        ),
        (
            {"type": "polkit", "action": "org.aios.TaskManager.run-high"},
            f"It waits for an authentication: polkit\n  answer: aiosctl auth {ONE}",
        ),
        (
            {"type": "approval", "approval_id": "apr-1", "summary": "rm -rf \x1b[2Jbuild-cache"},
            "It waits for an approval: rm -rf build-cache\n  answer: aiosctl approve apr-1",
        ),
    ],
    ids=["oauth2", "polkit", "approval"],
)
def test_what_somebody_is_to_do_is_said_with_the_verb_that_does_it(asked: JsonObject, said: str) -> None:
    data: JsonObject = {"task_id": ONE, "status": "auth_required", "auth_request": asked}
    assert remark(TaskEvent("evt-1", "task.auth_required", data)) == said
