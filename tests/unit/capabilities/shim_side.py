"""The test plays the shim: it starts a program of the pack as its manifest says and speaks the chunk protocol with it.

`Run` holds arguments and result against the manifest's schemas, so a test of a program is a test of its manifest too.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from aiosd.manifest.parse import parse_manifest
from aiosd.manifest.schema import validate

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from aiosd.model.jsontext import JsonObject
    from aiosd.model.manifest import Capability

ROOT = Path(__file__).parents[3]
TIMEOUT = 60
Chunk = dict[str, object]


def manifest(name: str) -> Capability:
    """The shipped manifest of a capability."""
    path = ROOT / "packaging/capabilities.d" / f"{name}.toml"
    capability = parse_manifest(path.read_bytes(), str(path)).capability
    assert capability is not None
    return capability


def payload(chunk: Chunk) -> dict[str, object]:
    """The chunk's payload, which is always an object."""
    found = chunk["payload"]
    assert isinstance(found, dict)
    return found


@dataclass
class Outcome:
    """How a run ended."""

    chunks: list[Chunk]
    returncode: int
    stdout: bytes
    stderr: bytes

    def of(self, type_: str) -> list[dict[str, object]]:
        """The payloads of all chunks of one type."""
        return [payload(chunk) for chunk in self.chunks if chunk["type"] == type_]

    @property
    def failure(self) -> str:
        """The message of the one failure."""
        (found,) = self.of("task_failed")
        return str(found["message"])


@dataclass
class Run:
    """One program, running. Use as a context manager; nothing of it is left afterwards.

    `capability` and `argv`: when they are not the shipped ones of `name`. `prefix`: goes before the argv.
    """

    name: str
    arguments: JsonObject
    scratch: Path
    prefix: Sequence[str] = ()
    capability: Capability | None = None
    argv: Sequence[str] = ()
    path: str = os.defpath
    chunks: list[Chunk] = field(default_factory=list)

    def __enter__(self) -> Run:
        """Start it, and send it its first line."""
        self._installed = self.capability or manifest(self.name)
        assert validate(self._installed.input_schema, self.arguments) == []
        ours, theirs = socket.socketpair()
        ours.settimeout(TIMEOUT)
        self.socket, self._buffer = ours, b""
        with theirs:
            self.process = subprocess.Popen(
                [*self.prefix, *(self.argv or self._argv())],
                cwd=self.scratch,
                env=self._environment(theirs.fileno()),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        start = {"type": "start", "arguments": self.arguments, "task_id": "task-1", "attempt": 1, "metadata": {}}
        self.send(start)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill what still runs."""
        self.process.kill()
        self.process.communicate()
        self.socket.close()

    def _argv(self) -> list[str]:
        """As in the manifest, but with this interpreter, and not isolated: the package under test is not installed."""
        assert self._installed.exec[:3] == ("/usr/bin/python3", "-I", "-m")
        return [sys.executable, "-m", *self._installed.exec[3:]]

    def _environment(self, descriptor: int) -> dict[str, str]:
        file = self.scratch / ".arguments.json"
        file.write_text(json.dumps(self.arguments), encoding="utf-8")
        names = {"TASK_FD": str(descriptor), "TASK_ID": "task-1", "RUN_ID": "run-1", "ATTEMPT": "1"}
        names |= {"CAPABILITY": self.name, "ARGUMENTS": str(file), "SCRATCH": str(self.scratch)}
        fixed = {"PATH": self.path, "LANG": "C.UTF-8", "HOME": "/", "TMPDIR": str(self.scratch)}
        return {**fixed, "PYTHONPATH": str(ROOT), **{f"AIOS_{name}": value for name, value in names.items()}}

    def send(self, message: dict[str, object]) -> None:
        """One line to the program."""
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    def read(self) -> Chunk | None:
        """The next line from the program; None at its end."""
        while b"\n" not in self._buffer:
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError:
                data = b""  # it ended without having read its first line, as plain programs do
            if not data:
                assert self._buffer == b""
                return None
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        chunk = json.loads(line)
        assert isinstance(chunk, dict)
        self.chunks.append(chunk)
        return chunk

    def until(self, type_: str) -> dict[str, object]:
        """Read on to the next chunk of this type: its payload."""
        while (chunk := self.read()) is not None:
            if chunk["type"] == type_:
                return payload(chunk)
        raise AssertionError(f"ended without {type_}: {self.process.communicate()}")

    def finish(self) -> Outcome:
        """Read to the end and check what holds for every run."""
        while self.read() is not None:
            pass
        stdout, stderr = self.process.communicate(timeout=TIMEOUT)
        last = [chunk["type"] for chunk in self.chunks if chunk.get("last_chunk")]
        assert last in ([], [chunk["type"] for chunk in self.chunks[-1:]]), "nothing follows the last chunk"
        numbers = [int(str(chunk["index"])) for chunk in self.chunks]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else True
        return Outcome(self.chunks, self.process.returncode, stdout, stderr)

    def result(self) -> dict[str, object]:
        """The result of a run that has to succeed, once it has been held against the manifest's schema."""
        outcome = self.finish()
        assert outcome.stderr == b""
        assert outcome.returncode == 0
        (completion,) = outcome.of("task_completion")
        result = completion["result"]
        assert isinstance(result, dict)
        assert self._installed.result_schema is not None
        assert validate(self._installed.result_schema, result) == []
        return result
