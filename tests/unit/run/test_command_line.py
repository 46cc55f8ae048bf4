"""The command line that a process shows (`syscalls.set_command_line`), in processes of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from aiosd.run import syscalls

SAY = """
import sys
from aiosd.run.syscalls import set_command_line
set_command_line(sys.argv[1])
set_command_line(sys.argv[1])
print(open("/proc/self/cmdline", "rb").read(), open("/proc/self/comm").read().strip())
"""


@pytest.mark.parametrize(
    ("text", "shown", "name"),
    [
        ("aios-shim run-1", b"aios-shim run-1\0", "aios-shim"),
        ("aios-forkserver", b"aios-forkserver\0", "aios-forkserver"),
        ("a-name-longer-than-fifteen x", b"a-name-longer-than-fifteen x\0", "a-name-longer-t"),
    ],
)
def test_it_is_what_was_said_and_nothing_of_the_old(text: str, shown: bytes, name: str) -> None:
    assert _said(text) == f"{shown!r} {name}"


def test_a_longer_one_is_cut_before_the_environment() -> None:
    code = SAY.replace("sys.argv[1]", "'y' * 100_000") + "print(open('/proc/self/environ').read())"
    argv = [sys.executable, "-c", code]
    ran = subprocess.run(argv, check=True, capture_output=True, text=True, env={"AFTER": "whole"})
    line, _, after = ran.stdout.strip().partition("\n")
    room = sum(len(argument.encode()) + 1 for argument in argv)
    assert line == f"{b'y' * (room - 2) + bytes(1)!r} {'y' * 15}"
    assert after == "AFTER=whole\0"


def test_a_kernel_that_hides_the_place_is_let_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syscalls, "_arguments", lambda: (0, 0))
    line = Path("/proc/self/cmdline")
    before = line.read_bytes()
    syscalls.set_command_line(Path("/proc/self/comm").read_text().strip())
    assert line.read_bytes() == before


def _said(text: str) -> str:
    ran = subprocess.run([sys.executable, "-c", SAY, text], check=True, capture_output=True, text=True)
    return ran.stdout.strip()
