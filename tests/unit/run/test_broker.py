"""The launcher's protocol, client and broker in one loop: real shims, a fake systemd."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aiosd.auth.enforced import EnforcedCeiling
from aiosd.model.ids import Prefix, new_id
from aiosd.model.manifest import Limits
from aiosd.run.broker import Broker
from aiosd.run.client import (
    ControlChannel,
    LauncherClient,
    LauncherError,
    LauncherErrorCode,
    StartRequest,
    on_death,
)
from aiosd.run.forkclient import ForkServer, spawn
from aiosd.run.identity import DYNAMIC_COUNT, DYNAMIC_FIRST, DynamicUids, IdentityError
from aiosd.run.layout import unit_name
from aiosd.run.records import read_events, read_exit
from aiosd.run.rundirs import RunDirectories
from aiosd.run.starting import Manifests, Starter
from aiosd.run.units import Units
from tests.unit.run.fakesystemd import FakeSystemd, fake_variant
from tests.unit.run.shimrig import PYTHON

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

MANIFEST = """
id = "{id}"
title = "Test"
description = "For a test."
level = "{level}"
exec = {exec}
[input]
type = "object"
properties = {{ text = {{ type = "string", default = "" }} }}
"""


class Launcher:
    """Everything of the launcher but its process."""

    def __init__(self, state: Path, systemd: FakeSystemd) -> None:
        self.systemd = systemd
        self.runs = RunDirectories(state, 0)
        self.runs.prepare()
        self.capabilities = state / "capabilities.d"
        self.capabilities.mkdir()
        self.address = state / "launcher.sock"
        self.users = DYNAMIC_COUNT
        self.policy = state / "permission-policy.toml"
        self.ceiling = EnforcedCeiling(self.policy, state / "permission-policy.d")

    def install(self, name: str, argv: list[str], level: str = "public") -> None:
        text = MANIFEST.format(id=name, level=level, exec=json.dumps(argv))
        (self.capabilities / f"{name}.toml").write_text(text)

    @asynccontextmanager
    async def serve(self, peer: int = 0) -> AsyncIterator[LauncherClient]:
        spawned = spawn()
        uids = DynamicUids(self.users)
        broker = Broker(peer, self.runs, uids)
        units = Units(self.systemd, fake_variant, broker.scope_ended)
        await units.start()
        forks = ForkServer(spawned.socket)
        starter = Starter(self.runs, Manifests((self.capabilities,)), self.ceiling.why_not, uids, forks, units)
        broker.adopt((), await units.active(), units, starter)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(str(self.address))
        listener.listen()
        served = [asyncio.create_task(forks.serve()), asyncio.create_task(broker.accept(listener))]
        try:
            async with LauncherClient(self.address) as client:
                yield client
        finally:
            for task in served:
                task.cancel()
            await asyncio.gather(*served, return_exceptions=True)
            broker.close()
            listener.close()
            await asyncio.to_thread(os.waitpid, spawned.pid, 0)


@pytest.fixture
def launcher() -> Iterator[Launcher]:
    if os.geteuid() != 0:
        pytest.skip("needs root") if not os.environ.get("CI") else pytest.fail("needs root")
    with tempfile.TemporaryDirectory(prefix="aiosd-test-", dir="/var/lib") as state:
        yield Launcher(Path(state), FakeSystemd())


def request(capability: str, **changes: object) -> StartRequest:
    fields = {"run": new_id(Prefix.RUN), "task": new_id(Prefix.TASK), "capability": capability, "uid": 0, **changes}
    return StartRequest(**fields)  # type: ignore[arg-type]  # the tests name StartRequest's own fields


async def wait_pidfd(pidfd: int) -> None:
    gone = asyncio.Event()
    with on_death(pidfd, gone.set):
        await gone.wait()


def children_of(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def finish(client: LauncherClient, launcher: Launcher, wanted: StartRequest, *, remove: bool = True) -> str:
    """Start, go, wait, and the program's output; the run is removed, or else has ended."""
    run = await client.start(wanted)
    channel = ControlChannel(run.control)
    await channel.send("go", {"arguments": {}, "task_id": wanted.task, "attempt": 1, "metadata": {}})
    await wait_pidfd(run.pidfd)
    os.close(run.pidfd)
    channel.close()
    output = launcher.runs.paths(wanted.run).stdout.read_text()
    launcher.systemd.end(run.unit)
    if remove:
        await client.remove(wanted.run)
    return output


def test_a_run_from_hello_to_removed(launcher: Launcher) -> None:
    launcher.install("test.echo", ["/bin/echo", "{text}", "--"])

    async def scenario() -> None:
        async with launcher.serve() as client:
            hello = await client.hello()
            assert (hello.version, hello.systemd_version) == (1, "257 (fake)")
            wanted = request("test.echo", argv_values={"text": "a b; $(c)"})
            run = await client.start(wanted)
            assert run.unit == unit_name(wanted.run)
            paths = launcher.runs.paths(wanted.run)
            assert paths.directory.stat().st_mode & 0o777 == 0o750
            assert paths.events.stat().st_mode & 0o777 == 0o640
            assert json.loads(paths.record.read_text())["pid"] == run.pid
            channel = ControlChannel(run.control)
            await channel.send("go", {"arguments": {"text": "x"}, "task_id": wanted.task, "attempt": 1})
            await wait_pidfd(run.pidfd)
            os.close(run.pidfd)
            channel.close()
            record = read_exit(paths.exit)
            assert record is not None
            assert record.exit_status == 0
            assert paths.stdout.read_text() == "a b; $(c) --\n"
            assert [event.type for event in read_events(paths.events, 0)[0]] == ["started"]
            launcher.systemd.end(run.unit)
            await client.remove(wanted.run)
            assert not paths.directory.exists()
            assert not paths.scratch.exists()
            assert await client.list_runs() == []

    asyncio.run(scenario())


def test_the_scope_has_both_processes_and_the_limits(launcher: Launcher) -> None:
    launcher.install("test.true", ["/bin/true"])

    async def scenario() -> None:
        async with launcher.serve() as client:
            limits = Limits(memory_max=1 << 20, tasks_max=10**6)
            run = await client.start(request("test.true", limits=limits, runtime_max_usec=5_000_000))
            told = launcher.systemd.units[run.unit]
            assert told["PIDs"] == [run.pid, *children_of(run.pid)]
            assert told["Slice"] == "aios-tasks.slice"
            # public: 16 tasks, 20 % of a CPU; asking for more changes nothing, for less does
            assert (told["MemoryMax"], told["MemorySwapMax"], told["TasksMax"]) == (1 << 20, 0, 16)
            assert told["CPUQuotaPerSecUSec"] == 200_000
            assert told["RuntimeMaxUSec"] == 5_000_000
            assert (told["OOMPolicy"], told["CollectMode"]) == ("continue", "inactive-or-failed")
            assert run.limits["memory_max"] == 1 << 20
            run.control.close()
            os.close(run.pidfd)
            await client.stop(run.run)

    asyncio.run(scenario())


def test_a_property_that_systemd_does_not_know_is_left_out_and_remembered(launcher: Launcher) -> None:
    launcher.systemd.unknown = frozenset({"MemorySwapMax", "OOMPolicy"})
    launcher.install("test.true", ["/bin/true"])

    async def scenario() -> None:
        async with launcher.serve() as client:
            for tries in (3, 1):
                launcher.systemd.calls.clear()
                run = await client.start(request("test.true"))
                assert sorted(run.left_out) == ["MemorySwapMax", "OOMPolicy"]
                assert [name for name, _ in launcher.systemd.calls].count("StartTransientUnit") == tries
                run.control.close()
                os.close(run.pidfd)
                await client.stop(run.run)

    asyncio.run(scenario())


def test_dynamic_users_differ_while_they_run(launcher: Launcher) -> None:
    launcher.install("test.id", [PYTHON, "-I", "-S", "-c", "import os; print(os.getuid())"])

    async def scenario() -> None:
        async with launcher.serve() as client:
            outputs = await asyncio.gather(*(finish(client, launcher, request("test.id")) for _ in range(4)))
            uids = {int(output) for output in outputs}
            assert len(uids) == 4
            assert all(DYNAMIC_FIRST <= uid < DYNAMIC_FIRST + DYNAMIC_COUNT for uid in uids)

    asyncio.run(scenario())


def test_a_dynamic_user_is_given_back_when_the_run_has_ended_and_not_when_it_is_removed(launcher: Launcher) -> None:
    launcher.users = 2
    launcher.install("test.id", [PYTHON, "-I", "-S", "-c", "import os; print(os.getuid())"])
    launcher.install("test.true", ["/bin/true"])

    async def scenario() -> None:
        async with launcher.serve() as client:
            waiting = await client.start(request("test.true"))
            kept = [request("test.id") for _ in range(3)]
            users = [int(await finish(client, launcher, wanted, remove=False)) for wanted in kept]
            assert len(set(users)) == 1  # the other is taken
            for wanted in kept:  # whoever gets the number does not get the files
                scratch = launcher.runs.paths(wanted.run).scratch.stat()
                assert (scratch.st_uid, scratch.st_gid, scratch.st_mode & 0o777) == (0, 0, 0o700)
            second = await client.start(request("test.true"))
            for wanted in kept:  # an old run does not give back what another has by now
                await client.remove(wanted.run)
            with pytest.raises(LauncherError, match="all 2 dynamic users are in use"):
                await client.start(request("test.true"))
            for run in (waiting, second):
                run.control.close()
                os.close(run.pidfd)
                await client.stop(run.run)

    asyncio.run(scenario())


def test_a_new_launcher_counts_the_dynamic_users_of_runs_that_live(launcher: Launcher) -> None:
    launcher.users = 2
    launcher.install("test.id", [PYTHON, "-I", "-S", "-c", "import os; print(os.getuid())"])
    launcher.install("test.true", ["/bin/true"])

    async def scenario() -> None:
        async with launcher.serve() as client:
            living = await client.start(request("test.true"))
            user = launcher.runs.paths(living.run).scratch.stat().st_uid
            ended = await client.start(request("test.true"))
            ended.control.close()
        await wait_pidfd(ended.pidfd)  # nobody has the other end of its control socket any more
        os.close(ended.pidfd)
        launcher.systemd.units.pop(ended.unit)
        launcher.address.unlink()
        async with launcher.serve() as client:
            assert launcher.runs.paths(ended.run).scratch.stat().st_uid == 0
            assert int(await finish(client, launcher, request("test.id"))) != user
            second = await client.start(request("test.true"))
            with pytest.raises(LauncherError, match="all 2 dynamic users are in use"):
                await client.start(request("test.true"))
            for run in (living, second):
                run.control.close()
                os.close(run.pidfd)
                await client.stop(run.run)

    asyncio.run(scenario())


def test_root_as_caller_is_root_without_any_power(launcher: Launcher) -> None:
    code = "print([l.split()[1] for l in open('/proc/self/status') if l.startswith(('Uid', 'CapEff', 'CapBnd'))])"
    launcher.install("test.root", [PYTHON, "-I", "-S", "-c", code], level="high")

    async def scenario() -> None:
        async with launcher.serve() as client:
            assert await finish(client, launcher, request("test.root")) == f"{['0', '0' * 16, '0' * 16]}\n"

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"capability": "test.missing"}, LauncherErrorCode.CAPABILITY_MISSING),
        ({"capability": "../../etc/passwd"}, LauncherErrorCode.CAPABILITY_MISSING),
        ({"run": "run-../../../etc"}, LauncherErrorCode.BAD_REQUEST),
        ({"run": "task-01arz3ndektsv4rrffq69g5fav"}, LauncherErrorCode.BAD_REQUEST),
        ({"argv_values": {"text": "x"}}, LauncherErrorCode.BAD_REQUEST),
        ({"argv_values": {"other": 1}}, LauncherErrorCode.BAD_REQUEST),
        ({"uid": -1}, LauncherErrorCode.BAD_REQUEST),
        ({"uid": 2**32}, LauncherErrorCode.BAD_REQUEST),
        ({"uid": "0"}, LauncherErrorCode.BAD_REQUEST),
        ({"log_max_bytes": -1}, LauncherErrorCode.BAD_REQUEST),
        ({"runtime_max_usec": 1.5}, LauncherErrorCode.BAD_REQUEST),
        ({"limits": Limits(memory_max=0)}, LauncherErrorCode.BAD_REQUEST),
        ({"capability": "test.caller", "uid": 3_999_999_999}, LauncherErrorCode.LAUNCH),
    ],
)
def test_a_start_that_cannot_be_leaves_nothing(
    launcher: Launcher, changes: dict[str, object], code: LauncherErrorCode
) -> None:
    launcher.install("test.true", ["/bin/true"])
    launcher.install("test.caller", ["/bin/true"], level="low")

    async def scenario() -> None:
        async with launcher.serve() as client:
            with pytest.raises(LauncherError) as caught:
                await client.start(request(**{"capability": "test.true", **changes}))  # type: ignore[arg-type]  # bad
            assert caught.value.code is code
            assert await client.list_runs() == []

    asyncio.run(scenario())


def test_what_the_administrator_forbids_is_not_started_whoever_asks(launcher: Launcher) -> None:
    """The daemon has looked at the policy; the launcher looks again, and at what is in it now."""
    launcher.install("test.true", ["/bin/true"])

    async def scenario() -> None:
        async with launcher.serve() as client:
            await finish(client, launcher, request("test.true"))
            launcher.policy.write_text('always_deny = ["test.*"]')
            with pytest.raises(LauncherError, match=r"always_deny 'test\.\*' forbids it") as caught:
                await client.start(request("test.true"))
            assert caught.value.code is LauncherErrorCode.DENIED
            assert launcher.runs.runs() == []
            launcher.policy.write_text('always_deny = ["other.*"]')
            await finish(client, launcher, request("test.true"))

    asyncio.run(scenario())


def test_a_scope_that_systemd_does_not_make_is_a_run_that_never_was(launcher: Launcher) -> None:
    launcher.systemd.result = "failed"
    launcher.install("test.true", ["/bin/true"])

    async def scenario() -> None:
        async with launcher.serve() as client:
            with pytest.raises(LauncherError) as caught:
                await client.start(request("test.true"))
            assert caught.value.code is LauncherErrorCode.SYSTEMD
            assert launcher.runs.runs() == []
            assert list((launcher.runs.paths(new_id(Prefix.RUN)).scratch.parent).iterdir()) == []

    asyncio.run(scenario())


def test_the_same_run_is_not_started_twice(launcher: Launcher) -> None:
    launcher.install("test.true", ["/bin/true"])

    async def scenario() -> None:
        async with launcher.serve() as client:
            wanted = request("test.true")
            run = await client.start(wanted)
            with pytest.raises(LauncherError) as caught:
                await client.start(wanted)
            assert caught.value.code is LauncherErrorCode.BUSY
            assert [info.run for info in await client.list_runs()] == [wanted.run]
            run.control.close()
            os.close(run.pidfd)
            await client.stop(wanted.run)

    asyncio.run(scenario())


@pytest.mark.parametrize("wanted", ["attach", "stop", "remove"])
def test_what_the_next_daemon_wants_of_a_run_waits_until_it_has_started(launcher: Launcher, wanted: str) -> None:
    """The last one died while systemd made the scope. A run that is not there yet must not be taken for one that is
    over: it would come afterwards, and stay with nobody to open its gate."""
    launcher.install("test.sleep", ["/bin/sleep", "60"])

    async def scenario() -> None:
        async with launcher.serve() as client:
            asked = request("test.sleep")
            launcher.systemd.held = asyncio.Event()
            async with LauncherClient(launcher.address) as dying:
                start = asyncio.create_task(dying.start(asked))
                while not any(name == "StartTransientUnit" for name, _ in launcher.systemd.calls):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                start.cancel()
                await asyncio.gather(start, return_exceptions=True)
            asks = {"attach": client.attach, "stop": client.stop, "remove": client.remove}
            asking = asyncio.create_task(asks[wanted](asked.run))
            await asyncio.sleep(0)
            await client.hello()
            assert not asking.done()
            launcher.systemd.held.set()
            (answer,) = await asyncio.gather(asking, return_exceptions=True)
            if wanted != "stop":
                # its shim is not in a scope here, and so not known again; but there is a run now
                assert isinstance(answer, LauncherError)
                assert answer.code is (LauncherErrorCode.GONE if wanted == "attach" else LauncherErrorCode.BUSY)
                assert asked.run in [one.run for one in await client.list_runs(living=True)]
                await client.stop(asked.run)
            assert launcher.systemd.units == {}

    asyncio.run(scenario())


def test_only_the_daemons_user_is_served(launcher: Launcher) -> None:
    async def scenario() -> None:
        async with launcher.serve(peer=12345) as client:
            with pytest.raises(LauncherError) as caught:
                await client.hello()
            assert caught.value.code in (LauncherErrorCode.GONE_AWAY, LauncherErrorCode.DENIED)

    asyncio.run(scenario())


def test_operations_on_what_is_not_there(launcher: Launcher) -> None:
    async def scenario() -> None:
        async with launcher.serve() as client:
            run = new_id(Prefix.RUN)
            for operation in (client.attach, client.freeze, client.thaw):
                with pytest.raises(LauncherError) as caught:
                    await operation(run)
                assert caught.value.code is LauncherErrorCode.GONE
            await client.stop(run)
            await client.remove(run)

    asyncio.run(scenario())


def test_dynamic_users_run_out_instead_of_being_shared() -> None:
    uids = DynamicUids()
    uids.adopt({"run-old": DYNAMIC_FIRST + 1, "run-of-a-caller": 1000})
    taken = {uids.take(f"run-{number}") for number in range(DYNAMIC_COUNT - 1)}
    assert len(taken) == DYNAMIC_COUNT - 1
    assert DYNAMIC_FIRST + 1 not in taken
    with pytest.raises(IdentityError):
        uids.take("run-new")
    uids.give_back(DYNAMIC_FIRST + 1, "run-other")
    with pytest.raises(IdentityError):
        uids.take("run-new")
    uids.give_back(DYNAMIC_FIRST + 1, "run-old")
    assert uids.take("run-new") == DYNAMIC_FIRST + 1
