"""Workers as the verbs ask for them: ListWorkers and GetWorker of dbus/org.aios.TaskManager1.xml."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aiosd.cli.client import Option
from aiosd.cli.values import read, read_json, rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiosd.cli.client import Options, TaskManagerClient
    from aiosd.model.jsontext import JsonObject

PAGE = 100


class WorkerRow(NamedTuple):
    """A row of ListWorkers. `heartbeat`: when it was heard of last, in µs since the epoch."""

    worker_id: str
    path: str
    uid: int
    hostname: str
    os: str
    shell: str
    capabilities: list[str]
    status: str
    current_task_id: str
    load: float
    heartbeat: int


def _worker(row: Sequence[object]) -> WorkerRow:
    worker_id, path, uid = read(row, 0, str), read(row, 1, str), read(row, 2, int)
    hostname, system, shell = (read(row, index, str) for index in range(3, 6))
    capabilities = [str(word) for word in read(row, 6, list)]
    status, task_id, load = read(row, 7, str), read(row, 8, str), read(row, 9, float)
    return WorkerRow(
        worker_id, path, uid, hostname, system, shell, capabilities, status, task_id, load, read(row, 10, int)
    )


async def list_workers(client: TaskManagerClient, *, all_users: bool = False, ended: bool = False) -> list[WorkerRow]:
    """All workers, page by page, oldest first. `ended`: those that are gone, too."""
    found: list[WorkerRow] = []
    cursor = ""
    while True:
        options: Options = {"limit": Option("u", PAGE)}
        options |= {
            name: Option("b", value=True) for name, wanted in (("all_users", all_users), ("ended", ended)) if wanted
        }
        if cursor:
            options["cursor"] = Option("s", cursor)
        body = (await client.ask("ListWorkers", options)).body
        found += [_worker(row) for row in rows(body, 0)]
        cursor = read(body, 1, str)
        if not cursor:
            return found


async def get_worker(client: TaskManagerClient, worker_id: str, uid: int | None = None) -> JsonObject:
    """One worker with its open assignments."""
    options: Options = {} if uid is None else {"uid": Option("u", uid)}
    return read_json((await client.ask("GetWorker", worker_id, options)).body, 0)
