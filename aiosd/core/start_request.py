"""What the launcher is asked for a new run. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiosd.core.links import RESEARCH_ONLY
from aiosd.manifest import argv
from aiosd.model.manifest import Limits
from aiosd.run.client import StartRequest

if TYPE_CHECKING:
    from aiosd.core.watch import Watch
    from aiosd.model.jsontext import JsonObject
    from aiosd.model.task import Task

RUNTIME_MARGIN_MS = 10_000
"""What PID 1's own time limit gives beyond ours: it acts only when the daemon does not."""


def start_request(watch: Watch, task: Task, left: int | None, log_max_bytes: int) -> StartRequest:
    """The request. Raises ValueError when the arguments do not fit the manifest's `exec` (it changed since).

    `left`: of the task's time limit, in microseconds; None when it has not begun.
    """
    capability = watch.capability
    values = {} if capability is None else argv.argv_values(capability, task.arguments)
    limit = task.timeout_ms
    if left is not None:
        limit = max(1, left // 1000)
    return StartRequest(
        run=watch.run_id, task=task.id, capability=task.capability_id, uid=task.uid, argv_values=values,
        limits=_tighter(task.limits), read_only=task.execution_mode == RESEARCH_ONLY, log_max_bytes=log_max_bytes,
        runtime_max_usec=0 if limit is None else (limit + watch.grace_ms + RUNTIME_MARGIN_MS) * 1000,
    )  # fmt: skip


def _tighter(asked: JsonObject | None) -> Limits | None:
    if not asked:
        return None
    return Limits(**{name: value for name, value in asked.items() if isinstance(value, int)})
