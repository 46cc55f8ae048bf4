"""The workers that the package brings along, in Python and for shells, over real sockets to the real core."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import textwrap
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aiosd.errors import AiosError, ErrorKind
from aiosd.worker.remote import Assignment, RemoteWorker, TakenAway
from tests.rpc.serving import door
from tests.unit.core.rig import ROOT, Config, Core, core, eventually
from tests.unit.core.session_rig import payload, plan, rows, session, timeline
from tests.unit.core.test_workers import LOGIN, assignments

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from aiosd.auth.caller import Caller
    from aiosd.core.operations import Reply
    from aiosd.model.jsontext import JsonObject

CHECKOUT = Path(__file__).parents[2]
TITLE = str(LOGIN["title"])
STAYS = Config(schedule_interval=30.0, worker_lease=3600.0)


LONG = 120.0
"""Seconds that processes of their own may take on a machine that is busy."""


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is waited for here is done by other processes."""
    monkeypatch.setattr("tests.unit.core.rig.PATIENCE", LONG)


def patiently(scenario: Awaitable[None]) -> None:
    """Run a scenario to its end."""

    async def bounded() -> None:
        async with asyncio.timeout(LONG):
            await scenario

    asyncio.run(bounded())


@contextlib.asynccontextmanager
async def serving(place: Path) -> AsyncIterator[Core]:
    """The core behind its sockets in `place`."""
    async with core(place, config=STAYS) as aios, door(place, aios.manager, aios.hub):
        yield aios


def works(place: Path, worker_id: str, handle: Callable[[Assignment], JsonObject | None], count: int = 1) -> None:
    """A worker that takes `count` assignments. Blocking. It serves all: the core's user is not who runs this."""
    with RemoteWorker(worker_id, capabilities=["git", "terminal"], serves="all", sockets=place) as worker:
        for number, job in enumerate(worker.assignments(), start=1):
            with contextlib.suppress(TakenAway):
                job.accept()
                job.complete(handle(job))
            if number == count:
                return


def in_thread(
    place: Path, worker_id: str, handle: Callable[[Assignment], JsonObject | None], count: int = 1
) -> asyncio.Future[None]:
    """The same, beside the loop; a test that fails need not wait for it."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def work() -> None:
        try:
            works(place, worker_id, handle, count)
        except Exception as error:  # noqa: BLE001  told to whoever waits
            loop.call_soon_threadsafe(done.set_exception, error)
        else:
            loop.call_soon_threadsafe(done.set_result, None)

    threading.Thread(target=work, daemon=True).start()
    return done


async def planned(aios: Core, *steps: JsonObject) -> tuple[str, dict[str, str]]:
    first = await session(aios)
    return first, await plan(aios, first, *steps)


def test_a_python_worker_does_a_task_and_asks_on_the_way(place: Path) -> None:
    def handle(job: Assignment) -> JsonObject:
        assert job.request["constraints"] == LOGIN["constraints"]
        job.step("run_tests")
        job.tool_call("pytest")
        answer = job.ask("Which branch?", schema={"type": "object", "required": ["branch"]})
        allowed = job.approve("dangerous_command", "rm -rf build-cache", "high")
        job.step("run_tests", "finished", "two fail")
        job.artifact("cause", text="the retry loops on 401")
        job.summary(summary="found", progress_percent=90, risk="low")
        return {"answer": answer, "allowed": allowed}

    async def scenario() -> None:
        async with serving(place) as aios:
            _, ids = await planned(aios, LOGIN)
            working = in_thread(place, "worker_py", handle)
            await aios.until(ids[TITLE], "input_required")
            await aios.invoke("task.input", {"task_id": ids[TITLE], "input": {"branch": "main"}})
            await aios.until(ids[TITLE], "auth_required")
            (approval,) = rows(await aios.invoke("approval.list", {"task_id": ids[TITLE]}), "approvals")
            await aios.invoke("approval.respond", {"approval_id": approval["id"], "action": "reject"})
            await working
            done = await aios.task(ids[TITLE])
            assert (done.status, done.result) == ("completed", {"answer": {"branch": "main"}, "allowed": False})
            (row,) = rows(await aios.invoke("worker.list", {"ended": True, "all_users": True}), "workers")
            assert (row["status"], row["reason"]) == ("gone", "it unregistered")

    patiently(scenario())


def test_a_word_to_a_daemon_that_is_stopping_is_said_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with serving(place) as aios:
            _, ids = await planned(aios, LOGIN)
            refused = {"worker.accept", "worker.complete"}
            invoke = aios.manager.invoke

            async def stopping(name: str, caller: Caller, params: JsonObject) -> Reply:
                if name in refused:
                    refused.discard(name)
                    raise AiosError(ErrorKind.SHUTTING_DOWN)
                return await invoke(name, caller, params)

            monkeypatch.setattr(aios.manager, "invoke", stopping)
            await in_thread(place, "worker_py", lambda _: {"done": True})
            assert not refused
            assert (await aios.task(ids[TITLE])).result == {"done": True}

    patiently(scenario())


def test_a_worker_waits_while_it_is_paused_and_stops_when_its_task_is_taken_away(place: Path) -> None:
    seen: list[str] = []

    def handle(job: Assignment) -> JsonObject:
        seen.append("begun")
        while True:
            try:
                job.checkpoint()
            except TakenAway:
                seen.append("taken away")
                raise
            if job.state == "running" and "resumed" not in seen and "paused" in seen:
                seen.append("resumed")

    async def scenario() -> None:
        async with serving(place) as aios:
            _, ids = await planned(aios, LOGIN)
            working = in_thread(place, "worker_py", handle)
            await aios.until(ids[TITLE], "running")
            await aios.invoke("task.pause", {"task_id": ids[TITLE]})
            seen.append("paused")
            await aios.invoke("task.resume", {"task_id": ids[TITLE]})
            await eventually(lambda: "resumed" in seen)
            await aios.invoke("task.cancel", {"task_id": ids[TITLE]})
            await working
            assert seen[-1] == "taken away"
            assert (await aios.task(ids[TITLE])).status == "canceled"

    patiently(scenario())


def test_a_python_worker_bridges_a_daemon_that_is_not_there(place: Path) -> None:
    """Its connections end, it registers again with its registration, and what it had it has still."""

    async def scenario() -> None:
        async with core(place, config=STAYS) as aios:
            async with door(place, aios.manager, aios.hub):
                _, ids = await planned(aios, LOGIN)
                go = asyncio.Event()
                loop = asyncio.get_running_loop()

                def handle(job: Assignment) -> JsonObject:
                    loop.call_soon_threadsafe(begun.set)
                    asyncio.run_coroutine_threadsafe(go.wait(), loop).result(LONG)
                    job.progress(50)
                    return {"attempt": job.attempt}

                begun = asyncio.Event()
                crew = aios.services.crew
                (_, task) = next(iter(ids.items()))
                working = in_thread(place, "worker_py", handle)
                await begun.wait()
                (member,) = crew.present.values()
                # The door closes, as in a restart; its end must not be taken for the worker's.
                asyncio.get_running_loop().remove_reader(member.descriptor or 0)
                first = member.worker.registration
            async with door(place, aios.manager, aios.hub):
                go.set()
                await working
                assert (await aios.task(task)).result == {"attempt": 1}
                (row,) = await assignments(aios, task)
                assert row.status == "completed"
                assert first

    patiently(scenario())


SCRIPT = """
    set -e
    aios_task() { "$PYTHON" -m aiosd.worker.command worker "$@"; }
    aios_task step run_tests started --summary "$(aios_task request goal)"
    if aios_task approve dangerous_command "rm -rf build-cache" --risk high
    then echo yes > answer; else echo no > answer; fi
    aios_task artifact cause answer
    aios_task step run_tests finished
    aios_task complete '{"root_cause": "retry"}'
"""


async def shell_worker(place: Path, worker_id: str, script: str, *words: str) -> asyncio.subprocess.Process:
    """`aios-task worker run`, in a process of its own."""
    file = place / f"{worker_id}.sh"
    await asyncio.to_thread(file.write_text, textwrap.dedent(script))
    surroundings = {**os.environ, "PYTHONPATH": str(CHECKOUT), "PYTHON": sys.executable}
    run = [sys.executable, "-m", "aiosd.worker.command", "worker", "run", worker_id, "--serve-all"]
    options = ["--capability", "git", "--capability", "terminal", "--sockets", str(place), *words]
    return await asyncio.create_subprocess_exec(*run, *options, "--", "sh", str(file), env=surroundings, cwd=place)


def test_a_shell_script_is_a_worker(place: Path) -> None:
    async def scenario() -> None:
        async with serving(place) as aios:
            first, ids = await planned(aios, LOGIN)
            process = await shell_worker(place, "worker_sh", SCRIPT, "--once")
            async with asyncio.timeout(LONG):
                await aios.until(ids[TITLE], "auth_required")
                (approval,) = rows(await aios.invoke("approval.list", {"task_id": ids[TITLE]}), "approvals")
                await aios.invoke("approval.respond", {"approval_id": approval["id"], "action": "approve_once"}, ROOT)
                assert await process.wait() == 0
            done = await aios.invoke("task.get", {"task_id": ids[TITLE]})
            assert (done["status"], done["result"]) == ("completed", {"root_cause": "retry"})
            (artifact,) = rows(done, "artifacts")
            got = await aios.invoke("artifact.get", {"artifact_id": artifact["id"]})
            assert isinstance(got["artifact"], dict)
            assert got["artifact"]["parts"] == [{"type": "text", "text": "yes\n"}]
            steps = [row for row in await timeline(aios, first) if str(row["type"]).startswith("task.step")]
            assert [payload(row).get("summary") for row in steps] == [LOGIN["goal"], None]

    patiently(scenario())


def test_a_command_that_cannot_be_started_is_said_and_its_task_goes_to_others(place: Path) -> None:
    script = place / "no-first-line.sh"
    script.write_text("aios-task worker complete\n")
    script.chmod(0o755)
    run = [sys.executable, "-m", "aiosd.worker.command", "worker", "run", "worker_sh", "--serve-all"]
    run += ["--capability", "git", "--capability", "terminal", "--sockets", str(place), "--"]

    async def said(command: str) -> tuple[int | None, str]:
        process = await asyncio.create_subprocess_exec(
            *run, command, env={**os.environ, "PYTHONPATH": str(CHECKOUT)}, stderr=asyncio.subprocess.PIPE
        )
        async with asyncio.timeout(LONG):
            _, errors = await process.communicate()
        return process.returncode, errors.decode()

    async def scenario() -> None:
        async with serving(place) as aios:
            _, ids = await planned(aios, LOGIN)
            missing = "/no/such/command"
            assert await said(missing) == (64, f"aios-task: {missing}: there is no such command that can be run\n")
            assert (await aios.task(ids[TITLE])).status == "pending"
            assert await said(str(script)) == (64, f"aios-task: {script} cannot be started: Exec format error\n")
            async with asyncio.timeout(LONG):
                await in_thread(place, "worker_py", lambda _: {"right": True})
            assert (await aios.task(ids[TITLE])).result == {"right": True}

    patiently(scenario())


def test_a_killed_shell_worker_loses_its_task_and_its_script_is_not_heard(place: Path) -> None:
    late = """
        echo "$AIOS_ASSIGNMENT_ID" > begun
        trap '' TERM
        while [ ! -e "go" ]; do sleep 0.1; done
        "$PYTHON" -m aiosd.worker.command worker complete '{"wrong": true}' 2> late || echo $? > status
    """

    async def scenario() -> None:
        async with serving(place) as aios:
            _, ids = await planned(aios, LOGIN)
            process = await shell_worker(place, "worker_sh", late)
            async with asyncio.timeout(LONG):
                while not (place / "begun").exists():  # noqa: ASYNC110  what is waited for is a file
                    await asyncio.sleep(0.05)
                process.send_signal(signal.SIGKILL)
                await process.wait()
                await aios.until(ids[TITLE], "retry_wait")
                await in_thread(place, "worker_py", lambda _: {"right": True})
                (place / "go").touch()
                while not (place / "status").exists():  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            assert (place / "status").read_text() == "1\n"
            assert "late reports are refused" in (place / "late").read_text()
            done = await aios.task(ids[TITLE])
            assert (done.status, done.result, done.retry_count) == ("completed", {"right": True}, 1)

    patiently(scenario())
