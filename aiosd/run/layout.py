"""Names: of a run's unit, its directory and the files in it. The launcher makes them, the daemon reads them."""

from __future__ import annotations

from pathlib import Path

from aiosd.model.ids import Prefix, is_id

STATE_DIRECTORY = Path("/var/lib/aios-launcher")
"""Where the launcher keeps run directories and scratch directories."""

LAUNCHER_SOCKET = Path("/run/aios/launcher.sock")
SLICE = "aios-tasks.slice"

_UNIT_START = "aios-task-"
_UNIT_END = ".scope"


def unit_name(run: str) -> str:
    """The scope of a run."""
    return f"{_UNIT_START}{run}{_UNIT_END}"


def run_of_unit(unit: str) -> str | None:
    """The run of a scope, None when the unit is not one of ours."""
    run = unit.removeprefix(_UNIT_START).removesuffix(_UNIT_END)
    return run if unit == unit_name(run) and is_id(run, Prefix.RUN) else None


class RunPaths:
    """Where everything of one run is."""

    def __init__(self, run: str, state: Path = STATE_DIRECTORY) -> None:
        """`run`: a run id. Raises ValueError when it is not one: it becomes part of a path."""
        if not is_id(run, Prefix.RUN):
            raise ValueError("not the id of a run")
        self._run, self._state = run, state

    @property
    def directory(self) -> Path:
        """What aiosd reads."""
        return self._state / "runs" / self._run

    @property
    def scratch(self) -> Path:
        """The program's own; the place of it, where the program has a file system there."""
        return self._state / "scratch" / self._run

    @property
    def stdout(self) -> Path:
        """What the program wrote to its standard output."""
        return self.directory / "stdout"

    @property
    def stderr(self) -> Path:
        """What the program wrote to its standard error."""
        return self.directory / "stderr"

    @property
    def events(self) -> Path:
        """The event file (`records.read_events`)."""
        return self.directory / "events"

    @property
    def blobs(self) -> Path:
        """The content of artifacts."""
        return self.directory / "blobs"

    @property
    def exit(self) -> Path:
        """The exit record (`records.read_exit`)."""
        return self.directory / "exit"

    @property
    def record(self) -> Path:
        """What the launcher noted."""
        return self.directory / "run.json"
