"""Run directories: made, listed and removed by the launcher alone.

What is in them is root's and readable by aiosd's group; the scratch directory beside it is the task's own.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from contextlib import suppress
from dataclasses import fields
from typing import TYPE_CHECKING

from aiosd.model.ids import Prefix, is_id
from aiosd.model.jsontext import JsonTextError, parse_object
from aiosd.model.later import dataclass
from aiosd.run.layout import RunPaths
from aiosd.run.versions import SHIM

if TYPE_CHECKING:
    from pathlib import Path

    from aiosd.run.syscalls import Account

_APPEND = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW


@dataclass(frozen=True, slots=True)
class RunRecord:
    """`run.json`: what the launcher must know of a run after its own restart. `pid`: the shim's.

    `uid`, `gid`: as whom it runs; `caller`: the uid of who asked for it.
    """

    run: str
    task: str
    capability: str
    uid: int
    gid: int
    unit: str
    boot_id: str
    scratch: str
    pid: int
    caller: int


_FILES = ("stdout", "stderr", "events", "blobs", "exit")
"""In the order of `spec.Descriptor`; the names of `layout.RunPaths`."""


class RunFiles:
    """The open files of a new run, in the order of `spec.Descriptor`; a context manager that closes them."""

    def __init__(self, directory: str, gid: int) -> None:
        """`gid`: the group that may read."""
        self.fds: list[int] = []
        try:
            for name in _FILES:
                self.fds.append(_create(f"{directory}/{name}", gid))
        except OSError:
            self.close()
            raise

    def __enter__(self) -> RunFiles:
        """Themselves."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close them; the shim has its own."""
        self.close()

    def close(self) -> None:
        """Close them."""
        while self.fds:
            os.close(self.fds.pop())


def _create(path: str, gid: int) -> int:
    fd = os.open(path, _APPEND, 0o640)
    os.fchown(fd, 0, gid)
    return fd


class RunDirectories:
    """All of them, below the launcher's state directory."""

    def __init__(self, state: Path, gid: int) -> None:
        """`gid`: aiosd's group."""
        self._state = state
        self._gid = gid

    def prepare(self) -> None:
        """Make the state directory what it must be. Raises OSError."""
        os.umask(0o027)
        for name, mode in ((".", 0o711), ("runs", 0o750), ("scratch", 0o711)):
            path = self._state / name
            path.mkdir(parents=True, exist_ok=True)
            path.chmod(mode)
            os.chown(path, 0, self._gid if name == "runs" else 0)

    def paths(self, run: str) -> RunPaths:
        """Where the parts of a run are. Raises ValueError when `run` is not an id."""
        return RunPaths(run, self._state)

    def create(self, run: str, account: Account) -> RunFiles:
        """Make directory, files and scratch. Raises FileExistsError when the run has been there before, OSError.

        `run.json` follows when there is a pid to put in it: a run without one never got as far as a scope.
        """
        directory, scratch = self._places(run)
        os.mkdir(directory, 0o750)
        try:
            os.chown(directory, 0, self._gid)
            os.mkdir(scratch, 0o700)
            os.chown(scratch, account.uid, account.gid)
            return RunFiles(directory, self._gid)
        except OSError:
            self.remove(run)
            raise

    def write(self, record: RunRecord) -> None:
        """Write `run.json`, once. Raises OSError."""
        told = {"version": SHIM, **{field.name: getattr(record, field.name) for field in _FIELDS}}
        text = json.dumps(told).encode() + b"\n"
        # In one write(2): who reads it meanwhile finds all of it, or nothing and so no record.
        fd = _create(f"{self._places(record.run)[0]}/run.json", self._gid)
        try:
            if os.write(fd, text) != len(text):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(fd)

    def read(self, run: str) -> RunRecord | None:
        """A run's record; None when there is no such run, or no record that could be read."""
        try:
            value = parse_object(_content(f"{self._places(run)[0]}/run.json"))
            return RunRecord(
                run=str(value["run"]),
                task=str(value["task"]),
                capability=str(value["capability"]),
                uid=_int(value["uid"]),
                gid=_int(value["gid"]),
                unit=str(value["unit"]),
                boot_id=str(value["boot_id"]),
                scratch=str(value["scratch"]),
                pid=_int(value["pid"]),
                caller=_int(value["caller"]),
            )
        except (OSError, ValueError, KeyError, JsonTextError):
            return None

    def _places(self, run: str) -> tuple[str, str]:
        """Directory and scratch. Raises ValueError when `run` is not an id."""
        if not is_id(run, Prefix.RUN):
            raise ValueError("not the id of a run")
        return f"{self._state}/runs/{run}", f"{self._state}/scratch/{run}"

    def runs(self) -> list[str]:
        """The ids of every run directory there is."""
        try:
            return sorted(path.name for path in (self._state / "runs").iterdir() if is_id(path.name, Prefix.RUN))
        except FileNotFoundError:
            return []

    def seal(self, record: RunRecord) -> None:
        """Take an ended run's scratch from its user, whose number another run may get. Raises OSError."""
        os.chown(self.paths(record.run).scratch, 0, 0, follow_symlinks=False)

    def remove(self, run: str) -> None:
        """Delete a run's directory and scratch; blocks on the disk. Symbolic links in them are not followed."""
        for path in reversed(self._places(run)):
            with suppress(FileNotFoundError):
                shutil.rmtree(path)


def _content(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.readall()


_FIELDS = fields(RunRecord)


def _int(value: object) -> int:
    if not isinstance(value, int):
        raise ValueError("not a number")
    return value
