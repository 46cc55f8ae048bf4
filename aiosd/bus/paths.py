"""Object paths: the manager's, and one for each task, found from the id and back without a table.

A task's path is its id with every "-" written as "_": `task-01jdx…` is `/org/aios/TaskManager/task/task_01jdx…`,
`task-u1000-my_token` is `…/task/task_u1000_my_token`. That can be undone because an id has the form `task-<ulid>` or
`task-<owner>-<token>` and neither ulid nor owner contains "_": a client computes a path with one replacement, and knows
it before the task exists (`handle_token`). Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

BUS_NAME = "org.aios.TaskManager"
MANAGER_PATH = "/org/aios/TaskManager"
TASKS_PATH = f"{MANAGER_PATH}/task"
MAX_ID = 128
"""Characters in an id (model/wire.py, Identifier)."""

_ID = re.compile(r"task-[A-Za-z0-9]+(?:-[A-Za-z0-9_]+)?")
_LABEL = re.compile(r"task_([A-Za-z0-9]+)(?:_([A-Za-z0-9_]+))?")
_PARENTS = {"/": "org", "/org": "aios", "/org/aios": "TaskManager"}


class Place(Enum):
    """What kind of object a path names."""

    PARENT = "parent"
    """Above the manager: there only so that tools can walk down."""
    MANAGER = "manager"
    TASKS = "tasks"
    """The folder of all tasks; its children are not listed, see ListTasks."""
    TASK = "task"


@dataclass(frozen=True, slots=True)
class Target:
    """What a path names. `task_id` for a task; `child`: the one child that is listed."""

    place: Place
    task_id: str = ""
    child: str = ""


def task_path(task_id: str) -> str:
    """The path of a task. Raises ValueError for what is not a task's id."""
    if len(task_id) > MAX_ID or _ID.fullmatch(task_id) is None:
        raise ValueError("not a task's id")
    return f"{TASKS_PATH}/{task_id.replace('-', '_')}"


def find(path: str) -> Target | None:
    """What is at `path`, or None when nothing can be there (a task's path may still name no task)."""
    if path == MANAGER_PATH:
        return Target(Place.MANAGER, child="task")
    if path == TASKS_PATH:
        return Target(Place.TASKS)
    if path in _PARENTS:
        return Target(Place.PARENT, child=_PARENTS[path])
    folder, _, label = path.rpartition("/")
    match = _LABEL.fullmatch(label) if folder == TASKS_PATH and len(label) <= MAX_ID else None
    if match is None:
        return None
    owner, token = match.groups()
    return Target(Place.TASK, task_id=f"task-{owner}" if token is None else f"task-{owner}-{token}")
