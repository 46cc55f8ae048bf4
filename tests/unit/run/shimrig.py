"""Real runs without systemd: the real fork server forks real shims that run real small programs.

No scope is made, so the shim knows its descendants only; everything else is as in the product.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from aiosd.model.ids import Prefix, new_id
from aiosd.run.forkclient import spawn
from aiosd.run.layout import unit_name
from aiosd.run.records import ExitRecord, RunEvent, read_events, read_exit
from aiosd.run.rundirs import RunDirectories
from aiosd.run.spec import ShimSpec, View
from aiosd.run.syscalls import Account

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aiosd.model.jsontext import JsonObject
    from aiosd.run.layout import RunPaths

UID = 1_879_113_800
PYTHON = next(path for path in ("/usr/bin/python3", "/usr/local/bin/python3", sys.executable) if Path(path).exists())
"""One that every user may execute: the interpreter of the tests may lie in somebody's home."""


@dataclass
class Run:
    """A run at its gate or beyond."""

    spec: ShimSpec
    paths: RunPaths
    control: socket.socket
    pidfd: int
    pid: int
    _ids: Iterator[int] = field(default_factory=lambda: iter(range(1, 1000)))

    def say(self, kind: str, **fields: object) -> None:
        """A control message."""
        self.control.send(json.dumps({"type": kind, "id": next(self._ids), **fields}).encode())

    def go(self, arguments: Mapping[str, object] | None = None) -> Run:
        """Open the gate."""
        self.say("go", arguments=arguments or {}, task_id=self.spec.task, attempt=2, metadata={"colour": "blue"})
        return self

    def wait(self, seconds: float = 20.0) -> ExitRecord:
        """Until the shim is gone; its record."""
        ready, _, _ = select.select([self.pidfd], [], [], seconds)
        assert ready, "the shim is still there"
        record = read_exit(self.paths.exit)
        assert record is not None, "the shim left no exit record"
        return record

    def events(self) -> list[RunEvent]:
        """Everything in the event file."""
        return read_events(self.paths.events, 0)[0]

    def wait_for(self, kind: str, seconds: float = 30.0) -> RunEvent:
        """The first event of that type."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for event in self.events():
                if event.type == kind:
                    return event
            time.sleep(0.01)
        raise AssertionError(f"no {kind}: {self.events()}")

    def stdout(self) -> bytes:
        """What is in the file."""
        return self.paths.stdout.read_bytes()

    def stderr(self) -> bytes:
        """What is in the file."""
        return self.paths.stderr.read_bytes()


class Rig:
    """One fork server, and the directory of its runs."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.runs = RunDirectories(state, 0)
        self.runs.prepare()
        self._spawned = spawn()
        self.server = self._spawned.socket
        self._running: list[Run] = []

    def close(self) -> None:
        """End what this rig started, and only that."""
        for run in self._running:
            try:
                signal.pidfd_send_signal(run.pidfd, signal.SIGKILL)
            except ProcessLookupError:
                pass
            os.close(run.pidfd)
            run.control.close()
        self.server.close()
        os.waitpid(self._spawned.pid, 0)
        shutil.rmtree(self.state)

    def view(self, run: str, **changes: object) -> View:
        """A harmless view: everything as it is, but the scratch directory."""
        return View(
            confined=False,
            read_only=False,
            private_tmp=False,
            private_devices=False,
            private_ipc=False,
            private_network=False,
            route_sockets_only=False,
            hidden=(),
            home=None,
            home_writable=False,
            writable=(),
            scratch=str(self.runs.paths(run).scratch),
            scratch_max=None,
        )._replace(**changes)  # type: ignore[arg-type]  # the tests name View's own fields

    def spec(self, argv: list[str], view: Mapping[str, object] | None = None, **changes: object) -> ShimSpec:
        """A spec for `argv`, with `changes`."""
        run = new_id(Prefix.RUN)
        scratch = str(self.runs.paths(run).scratch)
        environment = {"PATH": "/usr/bin:/bin", "AIOS_ARGUMENTS": scratch + "/arguments.json", "AIOS_SCRATCH": scratch}
        spec = ShimSpec(
            run=run,
            task=new_id(Prefix.TASK),
            capability="test.program",
            unit=unit_name(run),
            argv=tuple(argv),
            environment=environment,
            account=Account(UID, UID, ()),
            keep_capabilities=False,
            view=self.view(run, **(view or {})),
            open_files=None,
            log_max_bytes=16 * 1024 * 1024,
            blobs_max_bytes=4 * 1024 * 1024,
            grace_ms=1000,
        )
        return spec._replace(**changes)  # type: ignore[arg-type]  # the tests name ShimSpec's own fields

    def start(self, spec: ShimSpec) -> Run:
        """To the closed gate."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.server.send(b"1")
        data, fds, _, _ = socket.recv_fds(self.server, 4096, 2)
        answer: JsonObject = json.loads(data)
        assert "error" not in answer, answer
        with socket.socket(fileno=fds[0]) as spare, self.runs.create(spec.run, spec.account) as files:
            socket.send_fds(spare, [spec.encode()], [theirs.fileno(), *files.fds])
        theirs.close()
        run = Run(spec, self.runs.paths(spec.run), ours, fds[1], int(str(answer["pid"])))
        self._running.append(run)
        return run

    def run(self, argv: list[str], view: Mapping[str, object] | None = None, **changes: object) -> Run:
        """To the end."""
        run = self.start(self.spec(argv, view, **changes)).go()
        run.wait()
        return run

    def python(self, code: str, **changes: object) -> ShimSpec:
        """A spec for a small Python program."""
        return self.spec([PYTHON, "-I", "-S", "-c", code], **changes)  # type: ignore[arg-type]  # as above
