"""The kill switch: everything dies at once, nothing starts, and neither needs the store."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from aiosd.core import stops
from aiosd.core.stops import FILE, FILE_BYTES, Stops
from aiosd.model.audit import AuditEntry
from aiosd.run.client import LauncherError, LauncherErrorCode
from tests.unit.core.fakelauncher import FakeLauncher
from tests.unit.core.rig import OTHER, PLAIN, ROOT, USER, Core, Decision, core, daemon, eventually, play

if TYPE_CHECKING:
    from pathlib import Path

    from aiosd.model.jsontext import JsonObject
    from tests.unit.core.fakelauncher import FakeRun


async def works(run: FakeRun) -> None:
    """A program that does not end by itself."""
    await run.go()
    await asyncio.get_running_loop().create_future()


async def busy(aios: Core) -> dict[str, str]:
    """One task of each of two users at work."""
    aios.launcher.program = works
    made = {"mine": await aios.create(), "theirs": await aios.create(caller=OTHER)}
    for task in made.values():
        await aios.until(task, "running")
    return made


def test_a_user_stops_what_is_theirs_and_only_that(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            made = await busy(aios)
            answer = await aios.invoke("emergency.stop", {"scope": "user", "reason": "it shops"})
            assert answer == {"scope": "user", "uid": 1000, "stopped": 1, "failed": {}, "recorded": True}
            assert aios.authority.asked[-1][1] != "manage"
            after = await aios.ended(made["mine"])
            assert (after.status, after.reason) == ("canceled", "emergency: it shops")
            assert (await aios.task(made["theirs"])).status == "working"
            refused = await aios.refused("task.create", {"capability_id": PLAIN})
            assert (refused.kind.name, refused.reason) == ("PERMISSION_DENIED", "emergency")
            assert await aios.create(caller=OTHER)
            kinds = await aios.database.read(
                lambda db: [row[0] for row in db.execute("SELECT kind FROM audit WHERE uid = 1000 ORDER BY seq")]
            )
            assert kinds[-1] == "emergency.stopped" or "emergency.stopped" in kinds

    play(scenario())


def test_the_machine_takes_who_may_manage(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            made = await busy(aios)
            aios.authority.answers["manage"] = Decision.DENIED
            assert (await aios.refused("emergency.stop", {"scope": "machine"})).kind.name == "PERMISSION_DENIED"
            others: JsonObject = {"scope": "user", "uid": OTHER.uid}
            assert (await aios.refused("emergency.stop", others)).kind.name == "PERMISSION_DENIED"
            assert (await aios.task(made["theirs"])).status == "working"
            answer = await aios.invoke("emergency.stop", {"scope": "machine"}, ROOT)
            assert answer["stopped"] == 2
            for task in made.values():
                assert (await aios.ended(task)).status == "canceled"
            for caller in (USER, OTHER, ROOT):
                assert (await aios.refused("task.create", {"capability_id": PLAIN}, caller)).reason == "emergency"
            assert (await aios.invoke("service.status", {}))["emergency"] == {"machine": True, "users": []}

    play(scenario())


def test_what_waits_is_canceled_and_nothing_is_started(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path, schedule=False) as aios:
            task = await aios.create()
            await aios.invoke("emergency.stop", {"scope": "user"})
            assert (await aios.ended(task)).reason == "emergency"
            assert aios.launcher.runs == {}

    play(scenario())


def test_a_lifted_stop_lets_work_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await aios.invoke("emergency.stop", {"scope": "user"})
            await aios.invoke("emergency.lift", {"scope": "user"})
            assert (await aios.ended(await aios.create())).status == "completed"
            assert (await aios.refused("emergency.lift", {"scope": "user"})).reason == "no-stop"

    play(scenario())


def test_a_stop_by_the_administrator_is_not_lifted_by_the_user(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await aios.invoke("emergency.stop", {"scope": "user", "uid": USER.uid}, ROOT)
            aios.authority.answers["manage"] = Decision.DENIED
            assert (await aios.refused("emergency.lift", {"scope": "user"})).kind.name == "PERMISSION_DENIED"
            await aios.invoke("emergency.stop", {"scope": "user"})  # by the user as well: that makes it not theirs
            assert (await aios.refused("emergency.lift", {"scope": "user"})).kind.name == "PERMISSION_DENIED"
            await aios.invoke("emergency.lift", {"scope": "user", "uid": USER.uid}, ROOT)
            assert await aios.create()

    play(scenario())


def test_a_stop_holds_over_a_restart_and_kills_what_lived_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        launcher = FakeLauncher(tmp_path / "launcher")
        async with launcher.serving():
            async with daemon(tmp_path, launcher) as aios:
                made = await busy(aios)
                # As if the daemon had died right after the stop was saved: nobody has killed anything.
                aios.settings.stops.stop(USER.uid, USER.uid)
                await asyncio.to_thread(stops.save, tmp_path / FILE, aios.settings.stops)
            async with daemon(tmp_path, launcher) as again:
                await eventually(lambda: not launcher.made(made["mine"])[0].active)
                assert launcher.made(made["theirs"])[0].active
                assert (await again.refused("task.create", {"capability_id": PLAIN})).reason == "emergency"

    play(scenario())


@pytest.mark.parametrize("scope", [{"scope": "user"}, {"scope": "machine"}])
def test_it_works_while_the_store_is_stuck(tmp_path: Path, scope: dict[str, str]) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            made = await busy(aios)
            release = threading.Event()
            stuck = asyncio.ensure_future(aios.database.write(lambda _tx: release.wait(20)))
            try:
                started = asyncio.get_running_loop().time()
                answer = await aios.invoke("emergency.stop", dict(scope), USER if scope["scope"] == "user" else ROOT)
                assert asyncio.get_running_loop().time() - started < 15
                assert answer["recorded"] is False
                assert not aios.launcher.made(made["mine"])[0].active
                assert (await aios.refused("task.create", {"capability_id": PLAIN})).reason == "emergency"
            finally:
                release.set()
                await stuck
            assert (await aios.ended(made["mine"])).status == "canceled"
            await eventually(lambda: not aios.settings.stops.covers(OTHER.uid) or scope["scope"] == "machine")

    play(scenario())


def test_a_start_under_way_does_not_slip_through(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            aios.launcher.program = works
            aios.launcher.held = asyncio.Event()
            task = await aios.create()
            await eventually(lambda: any(name == "start" for name, _ in aios.launcher.calls))
            await aios.invoke("emergency.stop", {"scope": "user"})
            aios.launcher.held.set()
            assert (await aios.ended(task)).status == "canceled"
            (run,) = aios.launcher.made(task)
            assert run.went is None

    play(scenario())


def test_what_cannot_be_killed_is_named(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            made = await busy(aios)
            run = aios.launcher.made(made["mine"])[0].request.run
            aios.launcher.broken["stop"] = LauncherError(LauncherErrorCode.SYSTEMD, "it will not die")
            answer = await aios.invoke("emergency.stop", {"scope": "user"})
            assert answer["failed"] == {run: "systemd: it will not die"}
            aios.launcher.broken.clear()

    play(scenario())


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b'{"version":1,"machine_by":"x","users":{}}', b"[]"])
def test_a_damaged_file_stops_the_machine(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    found = Stops()
    stops.load(tmp_path / FILE, found)
    assert found.covers(12345)


def test_the_file_takes_its_space_in_advance_and_keeps_what_it_was_told(tmp_path: Path) -> None:
    made = Stops()
    stops.load(tmp_path / FILE, made)
    assert (tmp_path / FILE).stat().st_size == FILE_BYTES
    assert not made.any
    for uid in range(1000, 1000 + stops.MAX_USERS):
        made.stop(uid, 0)
    stops.save(tmp_path / FILE, made)
    assert (tmp_path / FILE).stat().st_size == FILE_BYTES
    again = Stops()
    stops.load(tmp_path / FILE, again)
    assert again.view() == made.view()
    made.stop(5, 0)  # one too many: the machine then
    assert made.covers(4)


def test_a_long_queue_is_canceled_in_steps_and_what_runs_in_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others write in between: one transaction of twenty thousand tasks would hold up the watchdog's question, too."""
    monkeypatch.setattr("aiosd.core.steps.STEP", 5)

    async def scenario() -> None:
        async with core(tmp_path) as aios:
            later = [await aios.create(not_before="2100-01-05T10:00:00Z") for _ in range(12)]
            made = await busy(aios)
            more = [await aios.create(not_before="2100-01-05T10:00:00Z") for _ in range(12)]
            others = await aios.create(caller=OTHER, not_before="2100-01-05T10:00:00Z")
            steps: list[list[str]] = []
            aios.database.on_commit(
                lambda items: steps.append(
                    [str(one.task_id) for one in items if isinstance(one, AuditEntry) and one.kind == "task.cancel"]
                )
            )
            answer = await aios.invoke("emergency.stop", {"scope": "user"})
            assert answer["recorded"] is True
            asked = [one for one in steps if one]
            assert made["mine"] in asked[0]
            assert max(map(len, asked)) <= 5
            assert sorted(one for step in asked for one in step) == sorted([*later, *more, made["mine"]])
            assert {(await aios.ended(one)).status for one in (*later, *more, made["mine"])} == {"canceled"}
            assert (await aios.task(others)).status == "pending"

    play(scenario())
