"""`aiosctl top`: what the scopes of running tasks use, live."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from aiosd.cli import cgroup, options
from aiosd.cli.client import ListFilter
from aiosd.cli.failure import Failure
from aiosd.cli.session import STATUS_STYLES
from aiosd.cli.table import Cell, render
from aiosd.cli.values import object_at, string_at
from aiosd.cli.verb.list import user_name
from aiosd.cli.verb.status import size
from aiosd.cli.verb.watch import screen, screen_height

if TYPE_CHECKING:
    from aiosd.cli.cgroup import Sample
    from aiosd.cli.client import TaskManagerClient
    from aiosd.cli.session import Session
    from aiosd.cli.values import TaskRow
    from aiosd.model.jsontext import JsonValue

_RUNNING = ("working", "paused", "input_required", "auth_required")
FIRST_INTERVAL = 0.3
"""Seconds between the two looks that a first figure for CPU needs."""


@dataclass(frozen=True, slots=True)
class Usage:
    """A row: a task with a scope, and what the scope uses. `cpu` in percent of one CPU."""

    row: TaskRow
    unit: str
    control_group: str
    cpu: float | None
    memory: int | None
    tasks: int | None

    def wire(self) -> dict[str, JsonValue]:
        """As --json shows it."""
        return {
            "task_id": self.row.task_id,
            "capability_id": self.row.capability_id,
            "uid": self.row.uid,
            "status": self.row.status,
            "unit": self.unit,
            "control_group": self.control_group,
            "cpu_percent": None if self.cpu is None else round(self.cpu, 1),
            "memory_bytes": self.memory,
            "tasks": self.tasks,
        }


class Meter:
    """Looks at the running tasks' scopes again and again; remembers the look before."""

    def __init__(self, client: TaskManagerClient, wanted: ListFilter) -> None:
        """`wanted`: which tasks."""
        self._client = client
        self._wanted = wanted
        self._scopes: dict[str, tuple[str, str]] = {}
        self._before: dict[str, Sample] = {}

    async def look(self) -> list[Usage]:
        """The rows now, the busiest first."""
        page = await self._client.list_tasks(self._wanted)
        found = [usage for row in page.tasks if (usage := await self._usage(row)) is not None]
        return sorted(found, key=lambda usage: (-(usage.cpu or 0), -(usage.memory or 0), usage.row.task_id))

    async def _usage(self, row: TaskRow) -> Usage | None:
        unit, control_group = self._scopes.get(row.task_id) or await self._scope(row)
        if not control_group:
            return None
        now = cgroup.sample(control_group)
        before = self._before.get(control_group)
        self._before[control_group] = now
        cpu = cgroup.cpu_percent(before, now) if before else None
        if now.tasks is None and now.cpu is None:
            self._scopes.pop(row.task_id, None)  # a retry has another scope: ask again
        return Usage(row, unit, control_group, cpu, now.memory, now.tasks)

    async def _scope(self, row: TaskRow) -> tuple[str, str]:
        try:
            run = object_at(await self._client.get(row.task_id), "run")
        except Failure:
            return "", ""
        scope = string_at(run, "unit"), string_at(run, "control_group")
        if scope[1]:
            self._scopes[row.task_id] = scope
        return scope


@click.command
@click.option("--once", is_flag=True, help="Print one table and end.")
@click.option(
    "--interval", "-d", type=options.Duration(), default=1000, help="Time between two looks; 1s if not given."
)
@click.option("--all-users", is_flag=True, help="The tasks of all users, not only one's own.")
@options.common
@options.pass_session
def command(session: Session, *, once: bool, interval: int, all_users: bool) -> None:
    """Show what the scopes of running tasks use: CPU in percent of one CPU, memory, processes and threads.

    Live on a terminal until Ctrl-C. A dash stands where the kernel has no figure (its controller is not enabled).
    """
    session.run(_top(session, max(interval, 100) / 1000, once=once, all_users=all_users))


async def _top(session: Session, interval: float, *, once: bool, all_users: bool) -> None:
    async with session.connect() as client:
        meter = Meter(client, ListFilter(status=_RUNNING, all_users=all_users, limit=100))
        await meter.look()
        await asyncio.sleep(min(interval, FIRST_INTERVAL))
        if once or session.json or not session.is_screen(session.out):
            _print(session, await meter.look())
            while not once:
                await asyncio.sleep(interval)
                _print(session, await meter.look())
            return
        with screen(session) as show:
            while True:
                show(lines(session, await meter.look())[: screen_height()])
                await asyncio.sleep(interval)


def _print(session: Session, found: list[Usage]) -> None:
    if session.json:
        session.emit({"tasks": [usage.wire() for usage in found]})
        return
    for line in lines(session, found):
        session.say(line)
    session.out.flush()


def lines(session: Session, found: list[Usage]) -> list[str]:
    """The table."""
    head = ["TASK", "USER", "STATUS", "%CPU", "MEMORY", "TASKS", "CAPABILITY"]
    return render(session, head, [_cells(usage) for usage in found])


def _cells(usage: Usage) -> list[str | Cell]:
    return [
        usage.row.task_id,
        user_name(usage.row.uid),
        Cell(usage.row.status, STATUS_STYLES.get(usage.row.status)),
        "-" if usage.cpu is None else f"{usage.cpu:.1f}",
        size(usage.memory),
        "-" if usage.tasks is None else str(usage.tasks),
        usage.row.capability_id,
    ]
