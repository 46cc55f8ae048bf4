"""After a secret has been handed over it is nowhere: not in the daemon's memory, not in its files, not in its log."""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests import prerequisites

ROOT = Path(__file__).parents[3]


def memory_of(pid: int) -> bytes:
    """Everything that the process can read and write (proc_pid_mem(5))."""
    pieces = []
    with Path(f"/proc/{pid}/maps").open() as maps, Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in maps:
            found = re.match(r"([0-9a-f]+)-([0-9a-f]+) rw", line)
            if found is None:
                continue
            begin, end = int(found[1], 16), int(found[2], 16)
            try:
                memory.seek(begin)
                pieces.append(memory.read(end - begin))
            except (OSError, OverflowError, ValueError):
                continue  # [vvar] and the like
    return b"\n".join(pieces)


def test_a_secret_is_nowhere_once_its_program_has_it(tmp_path: Path) -> None:
    secret, canary = secrets.token_hex(16), secrets.token_hex(16)
    reading, writing = os.pipe()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    argv = [
        sys.executable,
        "-m",
        "tests.unit.core.keeps_nothing",
        str(tmp_path),
        str(reading),
        str(theirs.fileno()),
        canary,
    ]
    with ours, theirs, (tmp_path / "log").open("wb") as log:
        child = subprocess.Popen(
            argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
            pass_fds=(reading, theirs.fileno()),
        )  # fmt: skip
        with child:
            os.close(reading)
            given = {"type": "password", "username": "somebody", "password": secret}
            os.write(writing, json.dumps(given).encode())
            os.close(writing)
            assert child.stdout is not None
            assert child.stdout.readline() == b"done\n", (tmp_path / "log").read_text()
            message = json.loads(ours.recv(65536))
            assert message["type"] == "authentication"
            assert message["interaction"] == 1
            assert message["input"] == given
            try:
                memory = memory_of(child.pid)
            except PermissionError:
                prerequisites.missing("this machine does not let a parent read its child's memory")
            assert canary.encode() in memory
            for piece in (secret, secret[:20], secret[-20:]):
                assert piece.encode() not in memory
            files = {path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
            assert {"aiosd.db", "aiosd.db-wal", "key", "log"} <= files.keys()
            assert [name for name, content in files.items() if secret.encode() in content] == []
            assert child.stdin is not None
            child.stdin.close()
        assert child.returncode == 0


def test_the_look_at_memory_finds_what_is_there(tmp_path: Path) -> None:
    word = secrets.token_hex(16)
    code = f"import sys; kept = bytearray(b'{word}'); print('there', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        try:
            assert word.encode() in memory_of(child.pid)
        except PermissionError:
            pytest.skip("this machine does not let a parent read its child's memory")
        assert child.stdin is not None
        child.stdin.close()
