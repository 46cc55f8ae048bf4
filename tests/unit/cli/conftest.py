"""aiosctl in this process, against a daemon in memory."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from aiosd.cli.main import run as run_aiosctl
from tests.unit.cli.core_transport import CoreThread, CoreTransport
from tests.unit.cli.daemon import Daemon

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping
    from pathlib import Path

    from aiosd.cli.session import Session


@dataclass(frozen=True)
class Ran:
    """What one invocation left."""

    status: int
    raw: bytes
    err: str

    @property
    def out(self) -> str:
        return self.raw.decode()

    @property
    def json(self) -> Mapping[str, object]:
        found = json.loads(self.raw)
        assert isinstance(found, dict)
        return found

    def rows(self, key: str) -> list[Mapping[str, object]]:
        """The list of objects at `key`."""
        found = self.json[key]
        assert isinstance(found, list)
        return found

    @property
    def json_lines(self) -> list[Mapping[str, object]]:
        return [json.loads(line) for line in self.raw.splitlines()]


Aiosctl = "Callable[..., Ran]"


@pytest.fixture
def daemon(tmp_path: Path) -> Daemon:
    folder = tmp_path / "daemon"
    folder.mkdir()
    return Daemon(folder)


@pytest.fixture
def aiosctl(daemon: Daemon, capsysbinary: pytest.CaptureFixture[bytes]) -> Callable[..., Ran]:
    @contextlib.asynccontextmanager
    async def connect(_: Session) -> AsyncIterator[Daemon]:
        yield daemon

    def run(*words: str) -> Ran:
        status = run_aiosctl(words, connect)
        captured = capsysbinary.readouterr()
        return Ran(status, captured.out, captured.err.decode())

    return run


@pytest.fixture
def thread(tmp_path: Path) -> Iterator[CoreThread]:
    with CoreThread(tmp_path).running() as running:
        yield running


@pytest.fixture
def typed(thread: CoreThread, capsysbinary: pytest.CaptureFixture[bytes]) -> Callable[..., Ran]:
    @contextlib.asynccontextmanager
    async def connect(_: Session) -> AsyncIterator[CoreTransport]:
        yield CoreTransport(thread)

    def run(*words: str) -> Ran:
        status = run_aiosctl(words, connect)
        captured = capsysbinary.readouterr()
        return Ran(status, captured.out, captured.err.decode())

    return run
