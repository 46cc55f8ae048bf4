"""What a bug report says, in sections: each is asked of somebody else, and says why when there is no answer.

Collected is what tells how aiosd was doing, not what it was doing for whom: of tasks their states, not their titles,
arguments, results or output. Everything is asked as the user who asks, so nobody sees more here than elsewhere.
"""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from aiosd import __version__
from aiosd.cli.client import ListFilter
from aiosd.cli.failure import Failure
from aiosd.cli.redact import redact
from aiosd.cli.report_files import of_configuration, of_policy
from aiosd.cli.terminal import clean
from aiosd.cli.values import list_at
from aiosd.config.files import DIRECTORIES, chosen_files
from aiosd.store import maintenance
from aiosd.store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiosd.cli.session import Session

UNITS = ("aiosd.service", "aiosd.socket", "aiosd-lines.socket", "aios-launcher.service", "aios-launcher.socket")
SLICE = ("aios-tasks.slice", "ActiveState,TasksCurrent,MemoryCurrent,CPUUsageNSec")
"""The tasks', and what is asked of it: systemctl status would show their command lines."""
LIBRARIES = ("aiohttp", "click", "cryptography", "dbus-fast", "jsonschema", "pydantic", "pyroute2", "rich", "sdnotify")
DATABASE = Path("/var/lib/aiosd/aiosd.db")
SYSTEM = ("PRETTY_NAME", "IMAGE_ID", "IMAGE_VERSION")
POLICIES = ("permission-policy.toml",)
TASKS = 50
SECONDS = 60.0
"""How long a program may take to answer."""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the report."""

    title: str
    text: str


def section(title: str, text: str) -> Section:
    """A section without secrets and control characters."""
    return Section(title, redact(clean(text)).strip("\n") or "nothing")


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Cells below each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(lines)


def of_system() -> list[Section]:
    """The versions of everything, and who asks."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        release = {}
    systemd = _told(["systemctl", "--version"]).partition("\n")[0]
    rows = [
        ["aiosctl", __version__],
        ["asked by", f"uid {os.geteuid()}" + ("" if os.geteuid() == 0 else ", who sees what that user may see")],
        ["at", datetime.now(UTC).isoformat(timespec="seconds")],
        *([name, release[name]] for name in SYSTEM if name in release),
        ["kernel", f"{platform.system()} {platform.release()} {platform.machine()}"],
        ["systemd", systemd.removeprefix("systemd ")],
        ["Python", platform.python_version()],
        *([name, _installed(name)] for name in LIBRARIES),
    ]
    return [section("Versions", columns(rows))]


def _installed(library: str) -> str:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return "not installed"


async def of_daemon(session: Session) -> list[Section]:
    """What the daemon says of itself; one section that tells why when it says nothing."""
    try:
        async with session.connect() as client:
            status = await client.status()
            capabilities = await client.capabilities()
            page = await client.list_tasks(ListFilter(limit=TASKS, all_users=os.geteuid() == 0))
    except Failure as error:
        return [section("Daemon", f"{error.what} ({error.error_id})")]
    problems = [_problem(problem) for problem in list_at(status, "problems")]
    rows = [
        [row.task_id, row.capability_id, f"{row.status} ({row.phase})", f"uid {row.uid}", _moment(row.created)]
        for row in page.tasks
    ]
    return [
        section("Daemon", _pretty(status)),
        section("Problems of manifests and configuration", "\n".join(problems)),
        section("Capabilities", columns([[row.capability_id, row.level] for row in capabilities])),
        section(f"Tasks: the newest {len(rows)} of {page.total}", columns(rows)),
    ]


def _pretty(value: object) -> str:
    import json

    return json.dumps(value, ensure_ascii=False, indent=2)


def _problem(problem: object) -> str:
    from aiosd.cli.verb.status import problem_line

    return problem_line(problem)


def _moment(microseconds: int) -> str:
    return datetime.fromtimestamp(microseconds / 1e6, UTC).isoformat(timespec="seconds")


def of_systemd(lines: int) -> list[Section]:
    """The units, and what they wrote into the journal: the newest `lines` of it."""
    journal = ["journalctl", "--quiet", "--no-pager", f"--lines={lines}", "--output=short-iso-precise"]
    unit, properties = SLICE
    return [
        section("Units", _told(["systemctl", "--no-pager", "--full", "--lines=0", "status", *UNITS])),
        section(f"All tasks: {unit}", _told(["systemctl", "show", f"--property={properties}", unit])),
        section(f"Journal: at most {lines} lines", _told([*journal, *(f"--unit={unit}" for unit in UNITS)])),
    ]


def of_files(directories: Sequence[Path] = DIRECTORIES, database: Path = DATABASE) -> list[Section]:
    """The configuration, what lies beside it, and how the database is."""
    policies = [directory / name for directory in directories for name in POLICIES]
    listing = _told(["ls", "-lR", *(str(directory) for directory in directories[:1])])
    read = [(path, of_configuration(path)) for path in chosen_files(directories)]
    read += [(path, of_policy(path)) for path in policies if path.exists()]
    texts = [section(f"Configuration: {path}", text) for path, text in read]
    return [*texts, section(f"Files of {directories[0]}", listing), section("Database", _checked(database))]


def _checked(database: Path) -> str:
    try:
        report = maintenance.check(database)
    except PermissionError:
        return "not read: it is root's and aiosd's"
    except (StoreError, OSError) as error:
        return f"not read: {error}"
    rows = [[table, str(count)] for table, count in report.tables.items()]
    sound = "\n".join(report.problems) or "sound"
    return f"{sound}, version {report.version}, this aiosd knows {report.newest}\n{columns(rows)}"


def _told(argv: list[str]) -> str:
    """What a program says, on both streams."""
    try:
        done = subprocess.run(  # noqa: S603 - fixed words and a number
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{argv[0]}: {error}"
    return done.stdout + done.stderr
