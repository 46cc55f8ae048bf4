"""`files.checksum`: checksums of a file or of every file in a tree, with progress, pausable, as a list to check by.

Two walks: the first counts, so that progress can be told in bytes; the second reads. The list is the format of
sha256sum(1), with paths relative to the argument (`cd PATH && sha256sum -c LIST`); the tree's digest is the digest of
the list itself. A file that cannot be read is an error of that file, not of the task.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aiosd.capabilities.program import WorkFailed, serve, text_argument
from aiosd.capabilities.tree import File, walk

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonObject, JsonValue
    from aiosd.worker import Task

LIST_NAME = "checksums.txt"
ALGORITHMS = ("sha256", "sha512", "blake2b")
PROGRESS_SECONDS = 0.2
"""Shortest time between two reports: five a second are enough for an eye and cheap for everyone who listens."""

_BLOCK = 1 << 20
_TOLD_ERRORS = 100
_ESCAPES = {b"\\": b"\\\\", b"\n": b"\\n", b"\r": b"\\r"}
"""What coreutils escapes in a file name, with a backslash before the whole line (since 9.0 the carriage return too)."""


@dataclass(slots=True)
class Count:
    """Where the work is: how much there is, how much is done, what went wrong."""

    task: Task
    files: int = 0
    size: int = 0
    files_done: int = 0
    bytes_done: int = 0
    errors: int = 0
    told: list[JsonValue] = field(default_factory=list)
    reported: float = 0.0

    def failed(self, relative: bytes, error: OSError) -> None:
        """Remember the first errors by name and all of them by number."""
        self.errors += 1
        if len(self.told) < _TOLD_ERRORS:
            self.told.append({"path": _shown(relative), "message": error.strerror or str(error)})

    def report(self, message: str, *, now: bool = False) -> None:
        """Tell progress, unless it was told a moment ago."""
        moment = time.monotonic()
        if now or moment - self.reported >= PROGRESS_SECONDS:
            self.reported = moment
            percent = 100 * self.bytes_done / self.size if self.size else 0.0
            # Files may have grown since they were counted.
            self.task.progress(
                min(round(percent, 1), 100.0), message, current_step=self.files_done, total_steps=self.files
            )


def work(task: Task) -> JsonObject:
    """Count, then read."""
    root = os.fsencode(text_argument(task.arguments, "path"))
    algorithm = text_argument(task.arguments, "algorithm", "sha256")
    pattern = text_argument(task.arguments, "pattern") or None
    one_file_system = task.arguments.get("one_file_system", True) is not False
    if algorithm not in ALGORITHMS:
        raise WorkFailed(f"algorithm {algorithm} is not known")
    count = Count(task)
    for file in walk(root, pattern, lambda _path, _error: None, one_file_system=one_file_system):
        count.files += 1
        count.size += file.size
        task.checkpoint()
        count.report(f"Counting: {count.files} files")
    tree = hashlib.new(algorithm)
    with open(LIST_NAME, "wb") as listing:  # noqa: PTH123 - in the scratch directory, which is the working directory
        for file in walk(root, pattern, count.failed, one_file_system=one_file_system):
            line = _line(file, algorithm, count)
            listing.write(line)
            tree.update(line)
    count.report("Done", now=True)
    summary: dict[str, JsonValue] = {
        "algorithm": algorithm,
        "files": count.files_done,
        "bytes": count.bytes_done,
        "errors": count.errors,
        "digest": tree.hexdigest(),
    }
    _publish(task, summary, count.told)
    return summary


def _line(file: File, algorithm: str, count: Count) -> bytes:
    """One line of the list; empty when the file could not be read."""
    before = count.bytes_done
    try:
        with _opened(file.path) as stream:
            digest = _digest(stream, algorithm, count, f"Reading {_shown(file.relative)}")
    except OSError as error:
        count.bytes_done = before
        count.failed(file.relative, error)
        return b""
    count.files_done += 1
    name = file.relative
    for char, escaped in _ESCAPES.items():
        name = name.replace(char, escaped)
    mark = b"\\" if name != file.relative else b""
    return mark + digest.encode("ascii") + b"  " + name + b"\n"


def _opened(path: bytes) -> io.FileIO:
    """The regular file that was seen, even when somebody puts a link or a pipe in its place meanwhile."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError("is no longer a regular file")
    return io.FileIO(descriptor, "rb")


def _digest(stream: io.FileIO, algorithm: str, count: Count, message: str) -> str:
    digest = hashlib.new(algorithm)
    block = bytearray(_BLOCK)
    view = memoryview(block)
    while True:
        count.task.checkpoint()
        got = stream.readinto(block)
        if not got:
            return digest.hexdigest()
        digest.update(view[:got])
        count.bytes_done += got
        count.report(message)


def _publish(task: Task, summary: JsonObject, errors: list[JsonValue]) -> None:
    task.artifact("checksums", path=LIST_NAME, mime_type="text/plain")
    data: JsonObject = {**summary, "first_errors": errors}
    task.artifact("summary", type="data", data=data, mime_type="application/json")


def _shown(path: bytes) -> str:
    return path.decode("utf-8", "replace")[-200:]


def main() -> None:
    """Run as a task."""
    serve(work)


if __name__ == "__main__":
    main()
