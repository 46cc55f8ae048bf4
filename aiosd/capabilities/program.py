"""What every program of the pack does around its own work: connect, work, complete or fail in one clear sentence."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from aiosd.worker import Task

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aiosd.model.jsontext import JsonObject

MAX_ERROR = 500
"""Longest message of another program that is passed on, in characters."""


class WorkFailed(Exception):
    """The task fails; `str()` says why, for the person who asked."""


def serve(work: Callable[[Task], JsonObject]) -> None:
    """Do `work` as this process's task. What it returns is the result; WorkFailed and OSError fail the task."""
    with Task.connect() as task:
        try:
            result = work(task)
        except WorkFailed as error:
            task.fail(str(error))
        except OSError as error:
            task.fail(in_words(error))
        else:
            task.complete(result)


def in_words(error: OSError) -> str:
    """The system's own words and the file they are about, without Python's quoting."""
    words = error.strerror or str(error)
    if not isinstance(error.filename, str | bytes):
        return words
    return f"{words}: {os.fsencode(error.filename).decode('utf-8', 'replace')}"


def run(argv: Sequence[str], *, accept: frozenset[int] = frozenset({0})) -> str:
    """What another program prints, as text. Raises WorkFailed with its own words for an exit status not in `accept`."""
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False)  # noqa: S603 - argv list
    except FileNotFoundError:
        raise WorkFailed(f"{argv[0]} is not installed") from None
    if done.returncode not in accept:
        words = " ".join(done.stderr.decode("utf-8", "replace").split())[:MAX_ERROR]
        raise WorkFailed(words or f"{argv[0]} ended with exit status {done.returncode}")
    return done.stdout.decode("utf-8", "replace")


def text_argument(arguments: JsonObject, name: str, default: str = "") -> str:
    """A string argument; the schema has seen to its type before the task was made."""
    value = arguments.get(name, default)
    if not isinstance(value, str):
        raise WorkFailed(f"argument {name} must be a string")
    return value


def number_argument(arguments: JsonObject, name: str, default: int) -> int:
    """A whole-number argument (JSON has 3 and 3.0 for the same number)."""
    value = arguments.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WorkFailed(f"argument {name} must be a whole number")
    return int(value)
