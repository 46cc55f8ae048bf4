"""Object paths: the manager's, and one for each task, session, approval and worker, found from the id and back without
a table.

A task's path is its id with every "-" written as "_": `task-01jdx…` is `/org/aios/TaskManager/task/task_01jdx…`,
`task-u1000-my_token` is `…/task/task_u1000_my_token`. That can be undone because an id has the form `task-<ulid>` or
`task-<owner>-<token>` and neither ulid nor owner contains "_": a client computes a path with one replacement, and knows
it before the task exists (`handle_token`). A session's and an approval's are made in the same way. A worker's id is
free text of its user, so its path has the user and the id escaped. Pure.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING

from aiosd.model.later import dataclass

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonValue

BUS_NAME = "org.aios.TaskManager"
MANAGER_PATH = "/org/aios/TaskManager"
TASKS_PATH = f"{MANAGER_PATH}/task"
APPROVALS_PATH = f"{MANAGER_PATH}/approval"
SESSIONS_PATH = f"{MANAGER_PATH}/session"
WORKERS_PATH = f"{MANAGER_PATH}/worker"
MAX_ID = 128
"""Characters in an id (model/wire.py, Identifier)."""

_ID = re.compile(r"task-[A-Za-z0-9]+(?:-[A-Za-z0-9_]+)?")
_LABEL = re.compile(r"task_([A-Za-z0-9]+)(?:_([A-Za-z0-9_]+))?")
_SESSION_ID = re.compile(r"ps-[A-Za-z0-9]+")
_SESSION_LABEL = re.compile(r"ps_([A-Za-z0-9]+)")
_APPROVAL_ID = re.compile(r"apr-[a-z0-9]{1,64}")
_APPROVAL_LABEL = re.compile(r"apr_([a-z0-9]{1,64})")
_WORKER_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_WORKER_PATH = re.compile(rf"{WORKERS_PATH}/u(0|[1-9][0-9]{{0,9}})(?:/([A-Za-z0-9_]{{1,384}}))?")
_ESCAPED = re.compile(r"_([0-9a-f]{2})")
_PARENTS = {"/": "org", "/org": "aios", "/org/aios": "TaskManager"}


class Place(Enum):
    """What kind of object a path names."""

    PARENT = "parent"
    """Above the manager: there only so that tools can walk down."""
    MANAGER = "manager"
    TASKS = "tasks"
    """The folder of all tasks; its children are not listed, see ListTasks."""
    TASK = "task"
    SESSIONS = "sessions"
    """The folder of all sessions; see ListSessions."""
    SESSION = "session"
    APPROVALS = "approvals"
    """The folder of all approvals; see ListApprovals."""
    APPROVAL = "approval"
    WORKERS = "workers"
    """The folder of all workers, and that of one user's; see ListWorkers."""
    WORKER = "worker"


@dataclass(frozen=True, slots=True)
class Target:
    """What a path names. `task_id` for a task, and so on; `child`: the one child that is listed."""

    place: Place
    task_id: str = ""
    child: str = ""
    session_id: str = ""
    approval_id: str = ""
    worker_id: str = ""
    worker_uid: int = 0

    @property
    def params(self) -> dict[str, JsonValue]:
        """What an operation on the object is about."""
        if self.worker_id:
            return {"worker_id": self.worker_id, "uid": self.worker_uid}
        named = {"task_id": self.task_id, "session_id": self.session_id, "approval_id": self.approval_id}
        return {name: value for name, value in named.items() if value}


@lru_cache(maxsize=256)
def task_path(task_id: str) -> str:
    """The path of a task, which is named eight times in its life. Raises ValueError for what is not a task's id."""
    if len(task_id) > MAX_ID or _ID.fullmatch(task_id) is None:
        raise ValueError("not a task's id")
    return f"{TASKS_PATH}/{task_id.replace('-', '_')}"


def session_path(session_id: str) -> str:
    """The path of a session. Raises ValueError for what is not a session's id."""
    if len(session_id) > MAX_ID or _SESSION_ID.fullmatch(session_id) is None:
        raise ValueError("not a session's id")
    return f"{SESSIONS_PATH}/{session_id.replace('-', '_')}"


def approval_path(approval_id: str) -> str:
    """The path of an approval. Raises ValueError for what is not an approval's id."""
    if _APPROVAL_ID.fullmatch(approval_id) is None:
        raise ValueError("not an approval's id")
    return f"{APPROVALS_PATH}/{approval_id.replace('-', '_')}"


def worker_path(uid: int, worker_id: str) -> str:
    """The path of a worker: its id as sd_bus_path_encode(3) writes it. Raises ValueError for what is none's id."""
    if _WORKER_ID.fullmatch(worker_id) is None:
        raise ValueError("not a worker's id")
    label = "".join(
        sign if sign.isalnum() and not (place == 0 and sign.isdigit()) else f"_{ord(sign):02x}"
        for place, sign in enumerate(worker_id)
    )
    return f"{WORKERS_PATH}/u{uid}/{label}"


def _worker(path: str) -> Target | None:
    """The worker of that path, or the folder that holds some."""
    named = _WORKER_PATH.fullmatch(path)
    if named is None or int(named[1]) >= 1 << 32:
        return None
    if named[2] is None:
        return Target(Place.WORKERS)
    worker_id = _ESCAPED.sub(lambda escape: chr(int(escape[1], 16)), named[2])
    uid = int(named[1])
    if _WORKER_ID.fullmatch(worker_id) is None or worker_path(uid, worker_id) != path:
        return None
    return Target(Place.WORKER, worker_id=worker_id, worker_uid=uid)


def find(path: str) -> Target | None:
    """What is at `path`, or None when nothing can be there (a task's path may still name no task)."""
    if path == MANAGER_PATH:
        return Target(Place.MANAGER, child="task")
    if path == TASKS_PATH:
        return Target(Place.TASKS)
    if path == SESSIONS_PATH:
        return Target(Place.SESSIONS)
    if path == APPROVALS_PATH:
        return Target(Place.APPROVALS)
    if path in _PARENTS:
        return Target(Place.PARENT, child=_PARENTS[path])
    if path.startswith(WORKERS_PATH):
        return Target(Place.WORKERS) if path == WORKERS_PATH else _worker(path)
    folder, _, label = path.rpartition("/")
    if folder == SESSIONS_PATH:
        named = _SESSION_LABEL.fullmatch(label) if len(label) <= MAX_ID else None
        return None if named is None else Target(Place.SESSION, session_id=f"ps-{named[1]}")
    if folder == APPROVALS_PATH:
        asked = _APPROVAL_LABEL.fullmatch(label)
        return None if asked is None else Target(Place.APPROVAL, approval_id=f"apr-{asked[1]}")
    match = _LABEL.fullmatch(label) if folder == TASKS_PATH and len(label) <= MAX_ID else None
    if match is None:
        return None
    owner, token = match.groups()
    return Target(Place.TASK, task_id=f"task-{owner}" if token is None else f"task-{owner}-{token}")
