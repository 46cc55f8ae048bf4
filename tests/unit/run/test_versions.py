"""The first version of the shim's protocol, kept as it was recorded, against what is there now; see `run/versions.py`.

Both ways: a shim of the first version speaks to this daemon (after an upgrade), and this shim hears what the first
daemon said (after a rollback). And what a newer one may say without harm.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aiosd.run.records import RecordError, RunEventType, read_events, read_exit
from aiosd.run.rundirs import RunDirectories
from tests.unit.core.fakelauncher import FakeLauncher, FakeRun
from tests.unit.core.rig import PATIENCE, daemon, play
from tests.unit.run.shimrig import PYTHON
from tests.unit.run.transcript import PROGRAM, SCENARIOS, created, outcome

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonObject
    from tests.unit.run.shimrig import Rig, Run

FIRST = Path(__file__).parents[2] / "fixtures/shim-1"
OWN = ("id", "task_id", "data")
"""Fields that name this very task or message."""


def transcript(name: str) -> list[JsonObject]:
    """Packets in the order in which they passed."""
    return [json.loads(line) for line in (FIRST / name / "control.jsonl").read_text().splitlines()]


def packet(entry: JsonObject, way: str) -> dict[str, object] | None:
    found = entry.get(way)
    return dict(found) if isinstance(found, dict) else None


def end_of(name: str) -> JsonObject:
    found: JsonObject = json.loads((FIRST / name / "end.json").read_text())
    return found


@dataclass
class FirstShim:
    """Does to a run what the shim of a transcript did, when it did it."""

    name: str
    ids: dict[str, str] = field(default_factory=dict)
    """Of questions: as they were recorded, and as this daemon asked them."""

    async def __call__(self, run: FakeRun) -> None:
        """The whole run."""
        lines = (FIRST / self.name / "events").read_bytes().splitlines(keepends=True)
        shutil.copyfile(FIRST / self.name / "blobs", run.paths.blobs)
        written = 0
        for entry in transcript(self.name):
            count = entry["events"]
            assert isinstance(count, int)
            written = self._append(run, lines, written, count)
            if (said := packet(entry, "to_shim")) is not None:
                await self._heard(run, said)
            elif (told := packet(entry, "from_shim")) is not None:
                self._tell(run, told)
        run.vanish()

    def _append(self, run: FakeRun, lines: list[bytes], written: int, count: int) -> int:
        with run.paths.events.open("ab") as file:
            for line in lines[written:count]:
                for recorded, asked in self.ids.items():
                    line = line.replace(recorded.encode(), asked.encode())
                file.write(line)
        if count > written:  # while an earlier poke was unread the shim sent none
            run.shim.tell({"type": "poke"})
        return max(written, count)

    async def _heard(self, run: FakeRun, recorded: dict[str, object]) -> None:
        heard = await run.hear(str(recorded["type"]))
        run.went = run.went or heard
        assert {key: heard[key] for key in recorded if key not in OWN} == {
            key: value for key, value in recorded.items() if key not in OWN
        }
        self.ids[str(recorded["id"])] = str(heard["id"])

    def _tell(self, run: FakeRun, told: dict[str, object]) -> None:
        if told["type"] == "exited":
            for file in ("stdout", "stderr", "exit"):
                shutil.copyfile(FIRST / self.name / file, run.paths.directory / file)
        run.shim.tell(told, always=told["type"] != "poke")  # type: ignore[arg-type]  # JSON


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_shim_of_the_first_version_with_this_daemon(name: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        launcher = FakeLauncher(tmp_path / "launcher")
        launcher.program = FirstShim(name)
        async with launcher.serving(), daemon(tmp_path, launcher) as aios:
            task = await created(aios, name)
            await SCENARIOS[name](aios, task)
            assert await outcome(aios, task) == end_of(name)

    play(scenario())


@pytest.mark.parametrize("name", [name for name in SCENARIOS if name != "asks"])  # which waits for a daemon's answers
def test_what_a_shim_of_the_first_version_left_while_the_daemon_was_replaced(name: str, tmp_path: Path) -> None:
    """The whole directory is there when the new one comes."""

    async def waits(run: FakeRun) -> None:
        run.went = await run.hear("go")
        await asyncio.Event().wait()

    async def scenario() -> None:
        launcher = FakeLauncher(tmp_path / "launcher")
        launcher.program = waits
        async with launcher.serving():
            async with daemon(tmp_path, launcher) as aios:
                task = await created(aios, name)
                await aios.until(task, "running")
            (run,) = launcher.made(task)
            for file in ("events", "blobs", "stdout", "stderr", "exit"):
                shutil.copyfile(FIRST / name / file, run.paths.directory / file)
            run.vanish()
            async with daemon(tmp_path, launcher) as aios:
                await aios.ended(task)
                found, wanted = await outcome(aios, task), end_of(name)
                if name == "ends":  # here nobody asked for its end: the program ended by itself, well
                    wanted = {**wanted, "status": "completed", "reason": None, "result": found["result"]}
                assert found == wanted

    play(scenario())


def _started(rig: Rig) -> Run:
    spec = rig.spec([PYTHON, "-I", "-S", "-c", PROGRAM.read_text()], grace_ms=5000)
    context = spec.environment["AIOS_SCRATCH"] + "/.aios-context"
    return rig.start(spec._replace(environment={**spec.environment, "AIOS_CONTEXT": context}))


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def _await_lines(run: Run, count: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while _lines(run.paths.events) < count:
        assert time.monotonic() < deadline, f"{count} events do not come: {run.events()}"
        time.sleep(0.01)


def _essence(path: Path) -> list[tuple[int, str, object]]:
    """Events but for the time, the pid, and fields that came later."""
    events = read_events(path, 0)[0]
    return [
        (event.n, event.type.value, {} if event.type is RunEventType.STARTED else dict(event.payload))
        for event in events
    ]


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_first_daemons_packets_with_this_shim(name: str, rig: Rig) -> None:
    run = _started(rig)
    for entry in transcript(name):
        said = packet(entry, "to_shim")
        if said is not None:
            count = entry["events"]
            assert isinstance(count, int)
            _await_lines(run, count)
            run.control.send(json.dumps(said).encode())
    record = run.wait(PATIENCE)
    first = read_exit(FIRST / name / "exit")
    assert first is not None
    same = replace(record, run=first.run, ended_at=first.ended_at, usage=first.usage)
    assert same == first
    assert _essence(run.paths.events) == _essence(FIRST / name / "events")
    for file in ("stdout", "stderr", "blobs"):
        assert (run.paths.directory / file).read_bytes() == (FIRST / name / file).read_bytes()
    old, new = (json.loads(path.read_text()) for path in (FIRST / name / "exit", run.paths.exit))
    assert old.keys() <= new.keys(), "a field may be added, not taken away"
    assert _kinds(run) >= {"exited"}


def _kinds(run: Run) -> set[str]:
    """What the shim told; a poke only while nothing else is unread."""
    run.control.setblocking(False)
    kinds = set()
    try:
        while data := run.control.recv(1 << 17):
            kinds.add(str(json.loads(data)["type"]))
    except BlockingIOError:
        pass
    return kinds


# -- what a newer one says -------------------------------------------------------------------------------------------


def test_a_shim_ignores_messages_and_fields_of_a_later_daemon(rig: Rig) -> None:
    run = _started(rig)
    run.control.send(json.dumps({"type": "later", "id": "x-1", "more": [1]}).encode())
    run.say("context", name="context.json", data="e30=", first=True, later=True)
    run.say("go", version=99, arguments={"mode": "plain"}, task_id=run.spec.task, attempt=1, metadata={}, later={})
    run.say("later")
    assert run.wait(PATIENCE).exit_status == 7


def test_a_later_shims_event_is_told_and_the_rest_is_taken(tmp_path: Path) -> None:
    async def scenario() -> None:
        launcher = FakeLauncher(tmp_path / "launcher")

        async def later(run: FakeRun) -> None:
            await run.go()
            run.say("something_later", {"anything": True})
            run.say("processing", {"progress": {"percent": 5}, "later": True})
            run.say("task_completion", {"result": {"done": True}, "later": 1})
            run.end(0)

        launcher.program = later
        async with launcher.serving(), daemon(tmp_path, launcher) as aios:
            task = await created(aios, "plain")
            ended = await aios.ended(task)
            assert (ended.status.value, ended.result) == ("completed", {"done": True})

    play(scenario())


@pytest.mark.parametrize("name", SCENARIOS)
def test_this_launcher_knows_a_run_that_the_first_one_started(name: str, tmp_path: Path) -> None:
    told = json.loads((FIRST / name / "run.json").read_text())
    runs = RunDirectories(tmp_path, os.getgid())
    directory = runs.paths(told["run"]).directory
    directory.mkdir(parents=True)
    shutil.copyfile(FIRST / name / "run.json", directory / "run.json")
    record = runs.read(told["run"])
    assert record is not None
    assert {"version": 1, **asdict(record)} == told


def test_an_exit_record_of_a_later_version_is_not_guessed_at(tmp_path: Path) -> None:
    path = tmp_path / "exit"
    path.write_text(json.dumps({**json.loads((FIRST / "plain/exit").read_text()), "version": 2}) + "\n")
    with pytest.raises(RecordError, match="version"):
        read_exit(path)
