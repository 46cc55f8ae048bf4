"""The machine is rebooted with a task in every status and every phase: each is where it was, or ends as it must.

`test_reboot.py` has what ran, by recovery policy; here is the whole table of seed 000's states and their phases. What
waited for a person, for a time or for its turn goes on from there, to its end.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from aiosd.model.status import PHASES, Phase
from tests.unit.core.fakelauncher import FakeLauncher, exits_at_once
from tests.unit.core.rig import OPEN, ROOT, Config, Core, daemon, eventually, manifest, play
from tests.unit.core.session_rig import plan, session
from tests.unit.core.test_approval import ADMIN, answer, waiting
from tests.unit.core.test_consent import HIGH, MUTE, installed
from tests.unit.reliability.scenarios import asks, fails, holds, waits
from tests.unit.reliability.test_reboot import rebooted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from tests.unit.core.fakelauncher import FakeRun

CAPABILITY = "test.state.run"
SLOW = 'idempotent = true\n[retry]\nmax_attempts = 2\ndelay = "1h"\n'
ESCALATES = 'on_failure = "escalate"\n'
LATER = "2099-01-01T00:00:00Z"


async def made(aios: Core, extra: str = "", **options: object) -> str:
    await aios.install(CAPABILITY, manifest(CAPABILITY, f'pausable = "cooperative"\n{extra}' + OPEN))
    return await aios.create(CAPABILITY, **options)  # type: ignore[arg-type]  # passed on


async def working(aios: Core) -> str:
    task = await made(aios)
    await aios.until(task, "running")
    await eventually(lambda: aios.launcher.made(task)[0].went is not None)
    return task


async def planning(aios: Core) -> str:
    made_ = await plan(aios, await session(aios), {"title": "Find out", "kind": "investigation"})
    return made_["Find out"]


async def queued(aios: Core) -> str:
    aios.scheduler.draining = True
    return await made(aios)


async def assigned(aios: Core) -> str:
    aios.launcher.held = asyncio.Event()  # the launcher does not answer before the power goes
    return await made(aios)


async def paused(aios: Core) -> str:
    task = await working(aios)
    await aios.invoke("task.pause", {"task_id": task})
    return task


async def consent(aios: Core) -> str:
    await installed(aios)
    return await aios.create(HIGH, MUTE)


async def approval(aios: Core) -> str:
    return (await waiting(aios))[0]


async def canceled(aios: Core) -> str:
    task = await made(aios, not_before=LATER)
    await aios.invoke("task.cancel", {"task_id": task})
    return task


async def retried(aios: Core) -> str:
    return await made(aios, SLOW)


async def escalated(aios: Core) -> str:
    return await made(aios, ESCALATES)


async def nothing(_aios: Core, _task: str) -> None:
    """Nobody has to do anything."""


async def authenticates(aios: Core, task: str) -> None:
    aios.authority.challenge("run-high")
    await aios.invoke("task.authenticate", {"task_id": task})


async def approves(aios: Core, task: str) -> None:
    asked = (await aios.task(task)).auth_request
    assert asked is not None
    await answer(aios, str(asked["approval_id"]), "approve", ADMIN)


async def tries_again(aios: Core, task: str) -> None:
    await aios.invoke("task.input", {"task_id": task, "input": {"action": "retry"}})


async def gives_up(aios: Core, task: str) -> None:
    await aios.invoke("task.cancel", {"task_id": task}, ROOT)


@dataclass(frozen=True)
class Row:
    """`after`: the phase that the next daemon finds it in and leaves it in, None when it acts at once.

    `goes_on`: what a person then does; `end`: status and reason in the end.
    """

    before: Callable[[Core], Awaitable[str]]
    after: Phase | None
    end: tuple[str, str | None]
    program: Callable[[FakeRun], Awaitable[None]] = exits_at_once
    goes_on: Callable[[Core, str], Awaitable[None]] = nothing


LOST = ("failed", "reboot")
DONE = ("completed", None)
GIVEN_UP = ("canceled", "user_request")
TABLE = {
    Phase.PLANNING: Row(planning, Phase.PLANNING, GIVEN_UP, goes_on=gives_up),
    Phase.WAITING: Row(lambda aios: made(aios, not_before=LATER), Phase.WAITING, GIVEN_UP, goes_on=gives_up),
    Phase.QUEUED: Row(queued, None, DONE),
    Phase.ASSIGNED: Row(assigned, None, DONE),
    Phase.RUNNING: Row(working, None, LOST, waits),
    Phase.RETRY_WAIT: Row(retried, Phase.RETRY_WAIT, GIVEN_UP, fails, gives_up),
    Phase.PAUSED: Row(paused, None, LOST, holds),
    Phase.WAITING_INPUT: Row(made, None, LOST, asks),
    Phase.BLOCKED: Row(escalated, Phase.BLOCKED, DONE, fails, tries_again),
    Phase.WAITING_AUTH: Row(consent, Phase.WAITING_AUTH, DONE, goes_on=authenticates),
    Phase.WAITING_APPROVAL: Row(approval, Phase.WAITING_APPROVAL, DONE, goes_on=approves),
    Phase.COMPLETED: Row(made, Phase.COMPLETED, DONE),
    Phase.FAILED: Row(made, Phase.FAILED, ("failed", "exit-status"), fails),
    Phase.CANCELED: Row(canceled, Phase.CANCELED, GIVEN_UP),
}


def test_the_table_is_whole() -> None:
    assert set(TABLE) == {phase for phases in PHASES.values() for phase in phases} == set(Phase)


@pytest.mark.parametrize("phase", TABLE)
def test_rebooted_in(phase: Phase, tmp_path: Path) -> None:
    row = TABLE[phase]

    async def scenario() -> None:
        launcher = FakeLauncher(tmp_path / "launcher")
        launcher.program = row.program
        async with launcher.serving():
            async with daemon(tmp_path, launcher, config=Config(schedule_interval=3600.0)) as aios:
                task = await row.before(aios)
                await _reached(aios, task, phase)
            launcher.held = None
            async with rebooted(tmp_path, launcher) as aios:
                if row.after is not None:
                    other = await aios.ended(await aios.create())
                    assert other.status == "completed", "a pass of the scheduler has gone by"
                    assert (await aios.task(task)).phase == row.after
                await row.goes_on(aios, task)
                ended = await aios.ended(task)
                assert (ended.status, ended.reason) == row.end
                runs = await aios.runs(task)
                assert all(run.state.value == "ended" for run in runs)
                started = [run for run in launcher.made(task) if run.went is not None]
                assert len(started) <= (2 if phase is Phase.BLOCKED else 1), "a program was started twice"

    play(scenario())


async def _reached(aios: Core, task: str, phase: Phase) -> None:
    """Wait for it: final ones, too."""
    with aios.hub.watch(task) as changed:
        while (await aios.task(task)).phase != phase:
            await changed.wait()
            changed.clear()
