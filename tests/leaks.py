"""What a test leaves behind in its own process: tasks of asyncio, threads, child processes, open descriptors."""

from __future__ import annotations

import asyncio
import asyncio.runners
import contextlib
import gc
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Seconds that threads and processes which are already ending get.
GRACE = 1.0

#: The only place where asyncio knows of them: it has no public hook, and cancels in silence.
_CANCEL_ALL = "_cancel_all_tasks"


@dataclass(frozen=True)
class Possessions:
    """What the process has at a moment; each is a set of names that say what it is."""

    threads: frozenset[str]
    children: frozenset[str]
    descriptors: frozenset[str]

    @classmethod
    def now(cls) -> Possessions:
        """Look."""
        threads = frozenset(f"thread {thread.name} ({thread.ident})" for thread in threading.enumerate())
        return cls(threads, frozenset(_children()), frozenset(_descriptors()))

    def beyond(self, before: Possessions) -> list[str]:
        """What is there now and was not before."""
        fresh = (self.threads - before.threads) | (self.children - before.children)
        return sorted(fresh | (self.descriptors - before.descriptors))


def left_since(before: Possessions) -> list[str]:
    """What is there beyond `before`, once garbage is collected and what was ending has ended."""
    if not Possessions.now().beyond(before):
        return []
    gc.collect()
    deadline = time.monotonic() + GRACE
    while (left := Possessions.now().beyond(before)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return left


@contextlib.contextmanager
def recorded_tasks() -> Iterator[list[str]]:
    """Names of the tasks that asyncio.run (or Runner) had to cancel, because nobody had awaited them."""
    left: list[str] = []
    cancel_all: Callable[[asyncio.AbstractEventLoop], None] = getattr(asyncio.runners, _CANCEL_ALL)

    def recording(loop: asyncio.AbstractEventLoop) -> None:
        left.extend(f"task {task.get_name()}: {task.get_coro()!r}" for task in asyncio.all_tasks(loop))
        cancel_all(loop)

    with mock.patch.object(asyncio.runners, _CANCEL_ALL, recording):
        yield left


def _children() -> Iterator[str]:
    for task in Path("/proc/self/task").iterdir():
        try:
            pids = (task / "children").read_text().split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        for pid in pids:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                yield f"process {pid} {Path(f'/proc/{pid}/comm').read_text().strip()}"


def _descriptors() -> Iterator[str]:
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the one that this very listing has open
            yield f"descriptor {entry.name} -> {entry.readlink()}"
