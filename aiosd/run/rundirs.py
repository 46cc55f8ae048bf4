"""Run directories: made, listed and removed by the launcher alone.

What is in them is root's and readable by aiosd's group; the scratch directory beside it is the task's own.
"""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from aiosd.model.ids import Prefix, is_id
from aiosd.model.jsontext import JsonTextError, parse_object
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


class RunFiles:
    """The open files of a new run, in the order of `spec.Descriptor`; a context manager that closes them."""

    def __init__(self, paths: RunPaths, gid: int) -> None:
        """`gid`: the group that may read."""
        self.fds: list[int] = []
        try:
            for path in (paths.stdout, paths.stderr, paths.events, paths.blobs, paths.exit):
                self.fds.append(_create(path, gid))
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


def _create(path: Path, gid: int) -> int:
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
        paths = self.paths(run)
        paths.directory.mkdir(mode=0o750)
        try:
            os.chown(paths.directory, 0, self._gid)
            paths.scratch.mkdir(mode=0o700)
            os.chown(paths.scratch, account.uid, account.gid)
            return RunFiles(paths, self._gid)
        except OSError:
            self.remove(run)
            raise

    def write(self, record: RunRecord) -> None:
        """Write `run.json`, whole or not at all. Raises OSError."""
        path = self.paths(record.run).record
        temporary = path.with_suffix(".new")
        with temporary.open("w", encoding="utf-8") as file:
            os.fchown(file.fileno(), 0, self._gid)
            json.dump({"version": SHIM, **asdict(record)}, file)
            file.write("\n")
        temporary.replace(path)

    def read(self, run: str) -> RunRecord | None:
        """A run's record; None when there is no such run, or no record that could be read."""
        try:
            value = parse_object(self.paths(run).record.read_bytes())
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
        paths = self.paths(run)
        for path in (paths.scratch, paths.directory):
            with suppress(FileNotFoundError):
                shutil.rmtree(path)


def _int(value: object) -> int:
    if not isinstance(value, int):
        raise ValueError("not a number")
    return value
