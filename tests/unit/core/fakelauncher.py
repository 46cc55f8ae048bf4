"""A launcher in memory: its runs have real directories, real event files, real control sockets, and programs that are
coroutines of the test. It outlives the core that uses it, as the real one does."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import socket
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aiosd.run.client import (
    AttachedRun,
    Hello,
    LauncherClient,
    LauncherError,
    LauncherErrorCode,
    RunInfo,
    StartedRun,
    StartRequest,
)
from aiosd.run.control import ControlSocket
from aiosd.run.eventfile import EventFile, timestamp
from aiosd.run.layout import RunPaths, unit_name
from aiosd.run.limits import as_json

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from aiosd.model.jsontext import JsonObject, JsonValue

USAGE: JsonObject = {
    "duration_usec": 1000, "cpu_usec": 500, "memory_peak": 4096, "io_read_bytes": 0, "io_write_bytes": 0,
    "tasks_peak": 2,
}  # fmt: skip


@dataclass
class FakeRun:
    """One run: what its shim and its program do is for the test to say."""

    request: StartRequest
    paths: RunPaths
    shim: ControlSocket
    daemon: socket.socket
    alive: int
    death: int
    active: bool = True
    frozen: bool = False
    went: JsonObject | None = None
    heard: list[tuple[str, JsonObject]] = field(default_factory=list)
    task: asyncio.Task[None] | None = None
    log: dict[str, int] = field(default_factory=lambda: {"stdout": 0, "stderr": 0})
    events: EventFile | None = None

    def is_frozen(self) -> bool:
        """Whether the launcher holds it."""
        return self.frozen

    async def _message(self) -> tuple[str, JsonObject]:
        loop = asyncio.get_running_loop()
        while True:
            found = self.shim.receive()
            if found is not None:
                self.heard.append((found[0].value, found[1]))
                return found[0].value, found[1]
            ready: asyncio.Future[None] = loop.create_future()
            loop.add_reader(self.shim.sock, _resolve, ready)
            try:
                await ready
            finally:
                loop.remove_reader(self.shim.sock)

    async def hear(self, kind: str) -> JsonObject:
        """The next message of that kind; others are passed over (and kept in `heard`)."""
        while True:
            found, message = await self._message()
            if found == kind:
                return message

    async def go(self) -> JsonObject:
        """The gate opens and the program starts."""
        self.went = await self.hear("go")
        self.say("started", {"pid": 4711})
        return self.went

    def say(self, kind: str, payload: JsonObject, *, poke: bool = True) -> None:
        """Append an event, as the shim does for a chunk of the program."""
        assert self.events is not None
        self.events.append(kind, payload)
        if poke:
            self.shim.tell({"type": "poke"})

    def write(self, stream: str, data: bytes, *, tell: bool = True) -> None:
        """The program writes to its output."""
        path = self.paths.stdout if stream == "stdout" else self.paths.stderr
        with path.open("ab") as file:
            file.write(data)
        self.log[stream] += len(data)
        if tell:
            self.shim.tell({"type": "log", **self.log}, always=True)

    def blob(self, data: bytes) -> dict[str, JsonValue]:
        """Put an artifact's content beside the events, and describe it as the shim does."""
        with self.paths.blobs.open("ab") as file:
            offset = file.tell()
            file.write(data)
        return {"offset": offset, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}

    def record(
        self,
        status: int | None = 0,
        *,
        signal: str | None = None,
        oom: bool = False,
        stopped_by: str | None = None,
        launch_error: str | None = None,
        started: bool = True,
    ) -> None:
        """Write the exit record, as docs/architecture.md has it."""
        assert self.events is not None
        record: JsonObject = {
            "version": 1, "run": self.request.run, "started": started,
            "exit_status": None if signal or launch_error else status, "signal": signal, "oom_kill": oom,
            "stopped_by": stopped_by, "launch_error": launch_error, "ended_at": timestamp(), "usage": USAGE,
            "stdout_bytes": self.log["stdout"], "stderr_bytes": self.log["stderr"], "stdout_dropped": 0,
            "stderr_dropped": 0, "events": self.events.count, "events_lost": 0,
        }  # fmt: skip
        self.paths.exit.write_text(json.dumps(record) + "\n")

    def end(self, status: int | None = 0, **how: object) -> None:
        """The program has ended: record, word, death of the shim."""
        self.record(status, **how)  # type: ignore[arg-type]  # the same names
        self.shim.tell({"type": "exited"}, always=True)
        self.vanish()

    def vanish(self) -> None:
        """The shim dies; without `record` before, it leaves no word."""
        self.active = False
        if self.death >= 0:
            os.close(self.death)
            self.death = -1

    def close(self) -> None:
        """Give everything back."""
        self.vanish()
        os.close(self.alive)
        self.shim.sock.close()
        self.daemon.close()
        if self.events is not None:
            os.close(self.events.fd)
            self.events = None


def _resolve(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


async def exits_at_once(run: FakeRun) -> None:
    """The shortest program."""
    await run.go()
    run.end(0)


class FakeLauncher(LauncherClient):
    """The launcher. `program`: what the next runs do; `programs`: those of a capability.

    `refusals`: raised by the next starts. `away`: not there. `stuck`: runs that cannot be removed.
    """

    def __init__(self, state: Path) -> None:
        super().__init__(state / "no-socket")
        self.state = state
        self.program: Callable[[FakeRun], Awaitable[None]] = exits_at_once
        self.programs: dict[str, Callable[[FakeRun], Awaitable[None]]] = {}
        self.refusals: list[LauncherError] = []
        self.away = False
        self.stuck: set[str] = set()
        self.broken: dict[str, LauncherError] = {}
        self.held: asyncio.Event | None = None
        self.runs: dict[str, FakeRun] = {}
        self.calls: list[tuple[str, str]] = []
        self._group: asyncio.TaskGroup | None = None

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[FakeLauncher]:
        """Runs live in here."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                try:
                    yield self
                finally:
                    for run in self.runs.values():
                        if run.task is not None:
                            run.task.cancel()
        finally:
            for run in self.runs.values():
                run.close()

    def _call(self, name: str, run: str) -> None:
        self.calls.append((name, run))
        if self.away:
            raise LauncherError(LauncherErrorCode.UNREACHABLE, "nobody listens")
        if name in self.broken:
            raise self.broken[name]

    def _known(self, run: str) -> FakeRun:
        if run not in self.runs or not self.runs[run].active:
            raise LauncherError(LauncherErrorCode.GONE, "there is no such run")
        return self.runs[run]

    async def hello(self) -> Hello:
        self._call("hello", "")
        return Hello(1, "boot", "257")

    async def start(self, request: StartRequest) -> StartedRun:
        self._call("start", request.run)
        if self.held is not None:
            await self.held.wait()
        if self.refusals:
            raise self.refusals.pop(0)
        run = self.make(request)
        if self._group is not None:
            run.task = self._group.create_task(self._run(run))
        limits = {} if request.limits is None else as_json(request.limits)
        return StartedRun(
            request.run, 4711, unit_name(request.run), f"/aios.slice/{request.run}", limits, (), run.daemon.dup(),
            os.dup(run.alive),
        )  # fmt: skip

    def make(self, request: StartRequest) -> FakeRun:
        """A run at its gate."""
        paths = RunPaths(request.run, self.state)
        paths.directory.mkdir(parents=True)
        for path in (paths.stdout, paths.stderr, paths.events, paths.blobs):
            path.touch()
        daemon, shim = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        alive, death = os.pipe()
        run = FakeRun(request, paths, ControlSocket(shim), daemon, alive, death)
        run.events = EventFile(os.open(paths.events, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC))
        self.runs[request.run] = run
        return run

    async def _run(self, run: FakeRun) -> None:
        await self.programs.get(run.request.capability, self.program)(run)

    async def attach(self, run: str) -> AttachedRun:
        self._call("attach", run)
        known = self._known(run)
        return AttachedRun(run, 4711, unit_name(run), True, known.daemon.dup(), os.dup(known.alive))

    async def list_runs(self, *, living: bool = False) -> list[RunInfo]:
        self._call("list", "")
        return [
            RunInfo(name, unit_name(name), run.active, 4711 if run.active else 0, run.request.uid)
            for name, run in self.runs.items()
            if run.active or (not living and run.paths.directory.is_dir())
        ]

    async def signal(self, run: str, name: str) -> None:
        self._call(f"signal {name}", run)

    async def stop(self, run: str) -> None:
        """SIGKILL to all of it, the shim as well: no record is left."""
        self._call("stop", run)
        found = self.runs.get(run)
        if found is not None:
            if found.task is not None:
                found.task.cancel()
            found.vanish()

    async def freeze(self, run: str) -> None:
        self._call("freeze", run)
        self._known(run).frozen = True

    async def thaw(self, run: str) -> None:
        self._call("thaw", run)
        self._known(run).frozen = False

    async def remove(self, run: str) -> None:
        self._call("remove", run)
        if run in self.stuck:
            raise LauncherError(LauncherErrorCode.BUSY, "the run's supervisor is there")
        await asyncio.to_thread(shutil.rmtree, RunPaths(run, self.state).directory, ignore_errors=True)

    def made(self, task_id: str) -> list[FakeRun]:
        """Runs of a task, in order."""
        return [run for run in self.runs.values() if run.request.task == task_id]
