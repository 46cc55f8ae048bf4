"""busctl(1) as the client: what `test_busctl_parity.py` and `test_busctl_control.py` have in common."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from tests.system.caller import MANAGER, MANAGER_PATH, TASK, path_of

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonObject, JsonValue
    from tests.rig.container import Container

SERVICE = "org.aios.TaskManager"
SESSION = "org.aios.TaskManager1.Session"
APPROVAL = "org.aios.TaskManager1.Approval"
PASSING = 'LISTEN_FDS=1 LISTEN_PID=$$ exec "$@" 3<&0'
"""Standard input as busctl takes descriptors: as sd_listen_fds(3) does."""

LONG = '{"seconds": 300}'


class Busctl:
    """busctl(1) as a user, asked to print JSON."""

    def __init__(self, box: Container, user: str) -> None:
        self.box = box
        self.user = user

    def call(
        self, path: str, interface: str, member: str, signature: str = "", *words: str, passed: str = ""
    ) -> list[JsonValue]:
        """The answer's values. `passed`: what the pipe gives that the word "3" stands for, of type h."""
        signed = [signature] if signature else []
        argv = ["busctl", "--json=short", "call", SERVICE, path, interface, member, *signed, *words]
        if passed:
            argv = ["sh", "-c", PASSING, "passing", *argv]
        shown = self.box.run(*argv, user=self.user, input=passed).stdout
        if not shown.strip():
            return []
        data = json.loads(shown)["data"]
        assert isinstance(data, list)
        return data

    def manager(self, member: str, signature: str = "", *words: str) -> list[JsonValue]:
        """Call a method of the manager."""
        return self.call(MANAGER_PATH, MANAGER, member, signature, *words)

    def task(self, task_id: str, member: str, signature: str = "", *words: str) -> list[JsonValue]:
        """Call a method of a task's object."""
        return self.call(path_of(task_id), TASK, member, signature, *words)

    def property(self, path: str, interface: str, name: str) -> JsonValue:
        """One property."""
        shown = self.box.run("busctl", "--json=short", "get-property", SERVICE, path, interface, name, user=self.user)
        value: JsonValue = json.loads(shown.stdout)["data"]
        return value

    def manager_json(self, member: str, signature: str = "", *words: str) -> JsonObject:
        """Call a method of the manager that answers with JSON."""
        value: JsonObject = json.loads(str(self.manager(member, signature, *words)[0]))
        return value

    def create(self, capability: str, arguments: str, *options: str) -> str:
        """A new task's id; options are a{sv} in busctl's words."""
        return str(self.manager("CreateTask", "ssa{sv}", capability, arguments, *(options or ("0",)))[0])

    def until(self, task_id: str, status: str) -> None:
        """Wait until the task is in that status and, when that is working, its program runs."""
        deadline = time.monotonic() + 60
        wanted = (status, "running" if status == "working" else status)
        path = path_of(task_id)
        while (found := (self.property(path, TASK, "Status"), self.property(path, TASK, "Phase"))) != wanted:
            assert time.monotonic() < deadline, f"{found}, not {wanted}"
            time.sleep(0.05)


def approval_of(busctl: Busctl, task_id: str) -> str:
    """The object of the approval that the task waits for."""
    rows = busctl.manager("ListApprovals", "a{sv}", "1", "task_id", "s", task_id)[0]
    assert isinstance(rows, list)
    ((_, path, of_task, *_),) = [row for row in rows if isinstance(row, list)]
    assert of_task == task_id
    return str(path)
