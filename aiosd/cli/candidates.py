"""What the shell can complete to, asked of the daemon by busctl(1): quick, and without the D-Bus library.

Completion never starts the daemon, never has anyone asked for a password, and never says what went wrong: a person who
presses Tab wants words or nothing.
"""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

TIMEOUT = 2.0
_BUSCTL = (
    "busctl", "--system", "--json=short", "--timeout=1", "--auto-start=no", "--allow-interactive-authorization=no",
    "call", "org.aios.TaskManager", "/org/aios/TaskManager", "org.aios.TaskManager1",
)  # fmt: skip


def _rows(*call: str) -> list[list[str]]:
    """The first array of a method's answer, its fields as text."""
    try:
        done = subprocess.run(  # noqa: S603 - a fixed program, and words of ours
            [*_BUSCTL, *call], capture_output=True, timeout=TIMEOUT, check=True, stdin=subprocess.DEVNULL
        )
        found = json.loads(done.stdout)["data"][0]
        return [[str(field) for field in row] for row in found]
    except (OSError, subprocess.SubprocessError, ValueError, LookupError, TypeError):
        return []


def task(beginning: str) -> list[tuple[str, str]]:
    """The newest tasks, with what each is; and `last`."""
    rows = _rows("ListTasks", "a{sv}", "1", "limit", "u", "100")
    words = [(row[0], f"{row[2]}, {row[3]}") for row in rows if len(row) > 3]
    return [word for word in [*words, ("last", "the newest task")] if word[0].startswith(beginning)]


def session(beginning: str) -> list[tuple[str, str]]:
    """The newest sessions, with their titles; and `last`."""
    rows = _rows("ListSessions", "a{sv}", "1", "limit", "u", "100")
    words = [(row[0], row[2]) for row in rows if len(row) > 2]
    return [word for word in [*words, ("last", "the newest session")] if word[0].startswith(beginning)]


def capability(beginning: str) -> list[tuple[str, str]]:
    """The installed capabilities, with their titles."""
    rows = _rows("ListCapabilities", "a{sv}", "0")
    return [(row[0], row[1]) for row in rows if len(row) > 1 and row[0].startswith(beginning)]


def worker(beginning: str) -> list[tuple[str, str]]:
    """The caller's workers, with where each is."""
    rows = _rows("ListWorkers", "a{sv}", "1", "limit", "u", "100")
    return [(row[0], row[3]) for row in rows if len(row) > 3 and row[0].startswith(beginning)]


SOURCES: Mapping[str, Callable[[str], list[tuple[str, str]]]] = {
    "task": task,
    "session": session,
    "capability": capability,
    "worker": worker,
}
"""What completes which type of argument (options.TaskId and its like)."""
