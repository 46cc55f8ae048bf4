"""pkttyagent is there for the length of a call and not longer, and only where a person can be asked."""

from __future__ import annotations

import asyncio
import io
import os
import sys
from typing import TYPE_CHECKING

import pytest

from aiosd.cli.password_agent import agent
from aiosd.cli.session import Session

if TYPE_CHECKING:
    from pathlib import Path

_AGENT = """#!{python}
import os, signal, sys
words = sys.argv[1:]
with open({seen!r}, "a") as file:
    file.write(" ".join(words[:-1]) + "\\n")
signal.signal(signal.SIGTERM, lambda *_: (open({seen!r}, "a").write("ended\\n"), os._exit(0)))
os.close(int(words[-1]))  # registered
signal.pause()
"""


@pytest.fixture
def seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What an agent in the place of pkttyagent was told."""
    file = tmp_path / "seen"
    program = tmp_path / "pkttyagent"
    program.write_text(_AGENT.format(python=sys.executable, seen=str(file)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    return file


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - no Path is wanted


def test_registered_before_the_call_and_ended_after_it(seen: Path) -> None:
    async def call() -> str:
        async with agent():
            return seen.read_text()  # noqa: ASYNC240 - a test, and nothing else on the loop

    before = _descriptors()
    assert asyncio.run(call()) == f"--process {os.getpid()} --fallback --notify-fd\n"
    assert seen.read_text().splitlines()[1:] == ["ended"]
    assert _descriptors() == before


def test_ended_when_the_call_fails(seen: Path) -> None:
    async def call() -> None:
        async with agent():
            raise ValueError

    with pytest.raises(ValueError):
        asyncio.run(call())
    assert seen.read_text().splitlines()[1:] == ["ended"]


def test_a_broken_agent_does_not_keep_the_call_from_being_made(seen: Path) -> None:
    (seen.parent / "pkttyagent").write_text("#!/nonexistent\n")

    async def call() -> bool:
        async with agent():
            return True

    assert asyncio.run(call())
    (seen.parent / "pkttyagent").unlink()
    assert asyncio.run(call())


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("uid", "stdin", "ask", "started"),
    [
        (1000, _Terminal(), True, True),
        (0, _Terminal(), True, False),
        (1000, io.StringIO(), True, False),
        (1000, _Terminal(), False, False),
    ],
)
def test_only_where_a_person_can_be_asked(
    monkeypatch: pytest.MonkeyPatch, seen: Path, *, uid: int, stdin: io.StringIO, ask: bool, started: bool
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setattr(sys, "stdin", stdin)

    async def call() -> None:
        async with Session(ask_password=ask).asking():
            pass

    asyncio.run(call())
    assert seen.exists() is started
