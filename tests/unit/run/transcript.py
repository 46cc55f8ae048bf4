"""Transcripts of runs: what went through a control socket, beside the run directory that came of it.

Recorded with the real core, the real shim and the program of the fixture; a real socket pair stands between the two and
notes every packet with how many lines the event file had by then:

    python3 -m tests.unit.run.transcript DIRECTORY

makes `DIRECTORY/<scenario>/` with `control.jsonl`, `end.json` (what a caller saw of the task) and the run directory's
files. Made once for each version of the protocol and kept: `test_versions.py` plays both sides of it.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from aiosd.run.client import StartedRun, StartRequest
from aiosd.run.layout import RunPaths, unit_name
from aiosd.run.rundirs import RunRecord
from tests.unit.core.fakelauncher import FakeLauncher
from tests.unit.core.rig import OPEN, daemon, manifest, play
from tests.unit.core.test_approval import ADMIN, answer
from tests.unit.run.shimrig import PYTHON, Rig

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiosd.model.jsontext import JsonObject
    from tests.unit.core.rig import Core

PROGRAM = Path(__file__).parents[2] / "fixtures/shim_program.py"
CAPABILITY = "test.transcript.run"
MANIFEST = manifest(CAPABILITY, 'pausable = "cooperative"\n' + OPEN)
FILES = ("run.json", "events", "blobs", "stdout", "stderr", "exit")


async def progress(aios: Core, task: str, percent: int) -> None:
    """Wait until the program has come so far."""
    with aios.hub.watch(task):
        while True:
            found = await aios.task(task)
            if found.progress is not None and found.progress.get("percent") == percent:
                return
            await asyncio.sleep(0.01)


async def talks(aios: Core, task: str) -> None:
    """A question with its answer, a pause and going on."""
    await aios.until(task, "input_required")
    await aios.invoke("task.input", {"task_id": task, "input": {"n": 7}})
    await progress(aios, task, 60)
    await aios.invoke("task.pause", {"task_id": task})
    await aios.invoke("task.resume", {"task_id": task})
    await aios.ended(task)


async def asks(aios: Core, task: str) -> None:
    """An authentication and an approval."""
    await aios.until(task, "auth_required")
    code = {"type": "oauth2", "authorization_code": "a-code-of-nobody"}
    await aios.invoke("task.authenticate", {"task_id": task, "auth_response": code})
    found = await aios.until(task, "waiting_approval")
    assert found.auth_request is not None
    await answer(aios, str(found.auth_request["approval_id"]), "approve", ADMIN)
    await aios.ended(task)


async def ends(aios: Core, task: str) -> None:
    """A cancel of a program that listens."""
    await progress(aios, task, 1)
    await aios.invoke("task.cancel", {"task_id": task})
    await aios.ended(task)


async def alone(aios: Core, task: str) -> None:
    """Nobody says anything."""
    await aios.ended(task)


SCENARIOS: dict[str, Callable[[Core, str], Awaitable[None]]] = {
    "talks": talks, "asks": asks, "ends": ends, "plain": alone, "fails": alone,
}  # fmt: skip


async def created(aios: Core, mode: str) -> str:
    """The task of a scenario."""
    await aios.install(CAPABILITY, MANIFEST)
    return await aios.create(
        CAPABILITY, arguments={"mode": mode}, metadata={"colour": "blue"}, goal="know the protocol",
    )  # fmt: skip


async def outcome(aios: Core, task: str) -> JsonObject:
    """What a caller sees in the end, but for what differs from run to run."""
    shown = await aios.invoke("task.get", {"task_id": task})
    ended = shown.get("exit")
    artifacts = shown["artifacts"]
    assert isinstance(artifacts, list)
    logs = [event for event in await aios.log(task) if event.kind.value == "task.log"]
    assert ended is None or isinstance(ended, dict)
    return {
        **{name: shown.get(name) for name in ("status", "reason", "result", "attempt")},
        "exit": None if ended is None else {name: ended.get(name) for name in ("exit_status", "signal", "oom_kill")},
        "artifacts": [one["name"] for one in artifacts if isinstance(one, dict)], "logs": len(logs),
    }  # fmt: skip


@dataclass
class Recorder(FakeLauncher):
    """Starts real shims and listens in."""

    rig: Rig
    transcript: list[JsonObject] = field(default_factory=list)
    ends: list[tuple[socket.socket, socket.socket]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """As a launcher whose state is the rig's."""
        super().__init__(self.rig.state)

    async def start(self, request: StartRequest) -> StartedRun:
        """To the gate."""
        paths = RunPaths(request.run, self.state)
        spec = self.rig.spec([PYTHON, "-I", "-S", "-c", await asyncio.to_thread(PROGRAM.read_text)])
        scratch = str(paths.scratch)
        environment = {
            **spec.environment, "AIOS_ARGUMENTS": f"{scratch}/arguments.json", "AIOS_SCRATCH": scratch,
            "AIOS_CONTEXT": f"{scratch}/.aios-context",
        }  # fmt: skip
        spec = spec._replace(
            run=request.run, task=request.task, unit=unit_name(request.run), environment=environment,
            view=spec.view._replace(scratch=scratch),
        )  # fmt: skip
        run = await asyncio.to_thread(self.rig.start, spec)
        self.rig.runs.write(
            RunRecord(request.run, request.task, request.capability, spec.account.uid, spec.account.gid, spec.unit,
                      "4f0c7f2e-0000-4000-8000-000000000001", scratch, run.pid, request.uid)
        )  # fmt: skip
        daemons, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.ends.append((ours, run.control))
        self._pass(ours, run.control, "to_shim", paths)
        self._pass(run.control, ours, "from_shim", paths)
        return StartedRun(request.run, run.pid, spec.unit, "/", {}, (), daemons, os.dup(run.pidfd))

    def _pass(self, source: socket.socket, target: socket.socket, way: str, paths: RunPaths) -> None:
        loop = asyncio.get_running_loop()

        def ready() -> None:
            packet = source.recv(256 * 1024)
            if not packet:
                loop.remove_reader(source)
                return
            self.transcript.append({"events": paths.events.read_bytes().count(b"\n"), way: json.loads(packet)})
            target.send(packet)

        loop.add_reader(source, ready)

    def forget(self) -> None:
        """The run is over."""
        for ours, shims in self.ends:
            for one in (ours, shims):
                asyncio.get_running_loop().remove_reader(one)
            ours.close()


async def record(root: Path, rig: Rig, name: str, target: Path) -> None:
    """One scenario into its directory."""
    recorder = Recorder(rig)
    async with recorder.serving(), daemon(root, recorder) as aios:
        task = await created(aios, name)
        await SCENARIOS[name](aios, task)
        seen = await outcome(aios, task)
        (run,) = await aios.runs(task)
        recorder.forget()
    await asyncio.to_thread(_write, target, recorder.transcript, seen, RunPaths(run.id, rig.state).directory)


def _write(target: Path, transcript: list[JsonObject], seen: JsonObject, directory: Path) -> None:
    target.mkdir(parents=True)
    lines = [json.dumps(entry, ensure_ascii=False) + "\n" for entry in transcript]
    (target / "control.jsonl").write_text("".join(lines))
    (target / "end.json").write_text(json.dumps(seen, indent=1, ensure_ascii=False) + "\n")
    for file in FILES:
        shutil.copyfile(directory / file, target / file)


def main() -> None:
    """Record all of them. As root, as the launcher is."""
    target = Path(sys.argv[1])
    for name in SCENARIOS:
        state = Path(tempfile.mkdtemp(prefix="aiosd-transcript-", dir="/var/lib"))
        rig = Rig(state)
        try:
            with tempfile.TemporaryDirectory() as root:
                play(record(Path(root), rig, name, target / name))
        finally:
            rig.close()


if __name__ == "__main__":
    main()
