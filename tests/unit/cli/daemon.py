"""A task manager in memory behind the CLI's `Transport`: it holds every call to dbus/*.xml; tests script the rest."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aiosd.cli.client import MANAGER_PATH, Notice, Option, Reply, task_path
from aiosd.cli.failure import of_dbus
from aiosd.core.answers import check_answer
from aiosd.errors import AiosError, ErrorKind
from aiosd.model.jsontext import dump, parse_object
from tests.unit.cli import contract

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from aiosd.cli.client import Argument, Member
    from aiosd.model.jsontext import JsonObject, JsonValue

ONE = "task-01hzy3q8e0000000000000000a"
TWO = "task-01hzy3q8e0000000000000000b"
THREE = "task-01hzz000000000000000000000"

CHECKSUM: dict[str, JsonValue] = {
    "id": "files.checksum",
    "title": "Checksums of a tree",
    "level": "low",
    "cancelable": True,
    "input_schema": {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "path": {"type": "string"},
            "depth": {"type": "integer"},
            "hidden": {"type": "boolean"},
            "exclude": {"type": "array", "items": {"type": "string"}},
        },
    },
}


def refuse(kind: ErrorKind, message: str = "", field: str | None = None) -> None:
    error = AiosError(kind, message, field=field)
    raise of_dbus(kind.dbus_name, message or kind.value.message, error.data())


@dataclass
class Daemon:
    """What aiosd would answer. `script` is run when a task is made or retried: it makes the task's life."""

    folder: Path
    tasks: dict[str, dict[str, JsonValue]] = field(default_factory=dict)
    calls: list[tuple[str, tuple[object, ...]]] = field(default_factory=list)
    refusals: dict[str, ErrorKind] = field(default_factory=dict)
    script: Callable[[Daemon, str], Awaitable[None]] | None = None
    artifacts: dict[str, bytes] = field(default_factory=dict)
    problems: list[JsonValue] = field(default_factory=list)
    approvals: dict[str, dict[str, JsonValue]] = field(default_factory=dict)
    auth_request: JsonObject | None = None
    audit: list[JsonValue] = field(default_factory=list)
    proof: dict[str, JsonValue] = field(default_factory=dict)
    unkillable: dict[str, JsonValue] = field(default_factory=dict)
    listeners: list[tuple[tuple[str, ...], Callable[[Notice], None]]] = field(default_factory=list)
    subscribed: set[str] = field(default_factory=set)
    secrets: list[bytes] = field(default_factory=list)
    webhooks: list[JsonValue] = field(default_factory=list)
    _changed: asyncio.Event | None = None
    _scripts: set[asyncio.Future[None]] = field(default_factory=set)

    def add(self, task_id: str, status: str = "working", **more: JsonValue) -> dict[str, JsonValue]:
        task: dict[str, JsonValue] = {
            "task_id": task_id, "capability_id": "files.checksum", "title": "Checksums", "uid": os.getuid(),
            "level": "low", "status": status, "phase": "running" if status == "working" else status,
            "priority": "normal", "attempt": 1, "created_at": "2026-03-01T10:00:00.000Z", "arguments": {}, **more,
        }  # fmt: skip
        self.tasks[task_id] = task
        return task

    def log(self, task_id: str, stream: str, data: bytes, attempt: int = 1) -> None:
        with (self.folder / f"{task_id}.{attempt}.{stream}").open("ab") as file:
            file.write(data)

    def options(self, name: str) -> Mapping[str, object]:
        """The options of the last call of that name, as plain values."""
        for called, body in reversed(self.calls):
            if called == name:
                found = next(each for each in body if isinstance(each, Mapping))
                return {key: option.value for key, option in found.items()}
        raise AssertionError(f"{name} was not called")

    # What the daemon does by itself.

    def emit(self, name: str, *body: object) -> None:
        for names, listener in list(self.listeners):
            if name in names:
                listener(Notice(name, body))

    def event(self, task_id: str, kind: str, **data: JsonValue) -> None:
        if "progress" in data:
            self.tasks[task_id]["progress"] = data["progress"]  # so that one who comes late sees it, too
        if task_id in self.subscribed:
            self.emit("Event", f"sub-{task_id}", "evt-1", kind, dump({"task_id": task_id, **data}))

    def change(self, task_id: str, status: str, **more: JsonValue) -> None:
        task = self.tasks[task_id]
        old = task["status"]
        task.update(status=status, phase="running" if status == "working" else status, **more)
        self.event(task_id, "task.status", status=status, phase=task["phase"])
        self.emit("StateChanged", task_id, task_path(task_id), task["uid"], old, status, task["phase"])
        if self._changed is not None:
            self._changed.set()

    async def becomes(self, task_id: str, status: str) -> None:
        """Wait for a state."""
        changed = asyncio.Event()
        async with self.listen(("StateChanged",), lambda _: changed.set()):
            while self.tasks[task_id]["status"] != status:
                await changed.wait()
                changed.clear()

    def break_waits(self) -> None:
        """Who waits is refused now, by `refusals`."""
        if self._changed is not None:
            self._changed.set()

    # Transport.

    async def call(
        self, member: Member, path: str, body: tuple[Argument, ...], seconds: float | None, fds: tuple[int, ...] = ()
    ) -> Reply:
        self.secrets = [os.pread(fd, 65536, 0) for fd in fds]
        method = contract.methods()[member.name]
        assert (method.interface, method.taken) == (member.interface, member.signature)
        for options in (each for each in body if isinstance(each, Mapping)):
            for name, option in options.items():
                assert isinstance(option, Option)
                assert method.options.get(name) == option.signature, f"{member.name}: {name} ({option.signature})"
        self.calls.append((member.name, body))
        if member.name in self.refusals:
            refuse(self.refusals[member.name])
        words = [each for each in body if isinstance(each, str | int)]
        if path.startswith(f"{MANAGER_PATH}/approval/"):
            return self._on_approval(path, member.name, body)
        task_id = path.removeprefix(f"{MANAGER_PATH}/task/").replace("_", "-") if path != MANAGER_PATH else ""
        if task_id and task_id not in self.tasks:
            refuse(ErrorKind.TASK_NOT_FOUND, f"Task not found: {task_id}", "task_id")
        handler = getattr(self, f"_{member.name}")
        given = body[-1] if body and isinstance(body[-1], Mapping) else {}
        plain = {name: option.value for name, option in given.items()}
        result = handler(*([task_id] if task_id else []), *words, **plain)
        reply = await result if asyncio.iscoroutine(result) else result
        assert isinstance(reply, Reply)
        return reply

    @contextlib.asynccontextmanager
    async def listen(self, names: tuple[str, ...], listener: Callable[[Notice], None]) -> AsyncIterator[None]:
        assert set(names) <= contract.signals().keys()
        self.listeners.append((names, listener))
        try:
            yield
        finally:
            self.listeners.remove((names, listener))

    # The methods, by their D-Bus names.

    def _CreateTask(self, capability: str, arguments: str, **_: object) -> Reply:
        task_id = f"task-01hzzzzzzz{len(self.tasks):016d}"
        self.add(task_id, "pending", capability_id=capability, arguments=parse_object(arguments), attempt=0)
        if self.auth_request is not None:
            self.tasks[task_id].update(status="auth_required", auth_request=self.auth_request)
        self._live(task_id)
        return Reply((task_id, task_path(task_id)))

    def _live(self, task_id: str) -> None:
        if self.script is not None:
            self._scripts.add(asyncio.ensure_future(self.script(self, task_id)))

    def _GetTask(self, task_id: str, **_: object) -> Reply:
        if task_id not in self.tasks:
            refuse(ErrorKind.TASK_NOT_FOUND, f"Task not found: {task_id}", "task_id")
        return Reply((dump(self.tasks[task_id]),))

    def _ListTasks(self, *, limit: int = 50, offset: int = 0, **options: object) -> Reply:
        chosen = options.get("status")
        found = [t for t in reversed(self.tasks.values()) if not chosen or t["status"] in list(chosen)]  # type: ignore[call-overload]  # a list of text here
        page = [
            [t["task_id"], task_path(str(t["task_id"])), t["capability_id"], t["status"], t["phase"], t["uid"], -1, 0]
            for t in found[offset : offset + limit]
        ]
        return Reply((page, len(found), offset + limit < len(found)))

    _ListHistory = _ListTasks

    async def _Wait(self, task_id: str, **_: object) -> Reply:
        while self.tasks[task_id]["status"] not in ("completed", "failed", "canceled"):
            self._changed = asyncio.Event()
            await self._changed.wait()
            if "Wait" in self.refusals:
                refuse(self.refusals["Wait"])
        return Reply((self.tasks[task_id]["status"], dump(self.tasks[task_id])))

    def _Cancel(self, task_id: str, reason: str) -> Reply:
        self.change(task_id, "canceled", reason=reason)
        return Reply(())

    def _Pause(self, task_id: str) -> Reply:
        self.change(task_id, "paused")
        return Reply(())

    def _Resume(self, task_id: str) -> Reply:
        self.change(task_id, "working")
        return Reply(())

    def _Retry(self, task_id: str) -> Reply:
        return self._CreateTask(str(self.tasks[task_id]["capability_id"]), "{}")

    def _SetPriority(self, task_id: str, priority: str) -> Reply:
        self.tasks[task_id]["priority"] = priority
        return Reply(())

    def _ProvideInput(self, task_id: str, given: str) -> Reply:
        asked, answer = self.tasks[task_id].get("question"), parse_object(given)
        if isinstance(asked, Mapping):
            try:
                check_answer(asked, answer)
            except AiosError as error:
                refuse(error.kind, error.text)
        self.change(task_id, "working", answered=answer, question=None)
        return Reply(())

    def _Authenticate(self, task_id: str, _: int) -> Reply:
        self.change(task_id, "working", auth_request=None)
        return Reply(())

    def _OpenLog(self, task_id: str, stream: str, *, attempt: int = 0) -> Reply:
        file = self.folder / f"{task_id}.{attempt or self.tasks[task_id]['attempt']}.{stream}"
        if not file.exists():
            refuse(ErrorKind.INVALID_STATE, "There is no log yet")
        return Reply((0,), (os.open(file, os.O_RDONLY),))

    def _ListCapabilities(self) -> Reply:
        return Reply(([[CHECKSUM["id"], CHECKSUM["title"], CHECKSUM["level"], "Reads a tree"],
                       ["system.power.reboot", "Restart", "critical", ""]],))  # fmt: skip

    def _GetCapability(self, capability: str) -> Reply:
        if capability != CHECKSUM["id"]:
            refuse(ErrorKind.CAPABILITY_NOT_FOUND, f"Capability not found: {capability}")
        return Reply((dump(CHECKSUM),))

    def _Subscribe(self, task_id: str) -> Reply:
        self.subscribed.add(task_id)
        return Reply((f"sub-{task_id}",))

    def _Unsubscribe(self, subscription: str) -> Reply:
        self.subscribed.discard(subscription.removeprefix("sub-"))
        return Reply(())

    def _ListArtifacts(self, task_id: str) -> Reply:
        rows = [[name, f"../{name}.txt", "file", "text/plain", len(data)] for name, data in self.artifacts.items()]
        return Reply((rows,))

    def _GetArtifact(self, artifact: str) -> Reply:
        if artifact not in self.artifacts:
            refuse(ErrorKind.ARTIFACT_NOT_FOUND)
        found: JsonObject = {"id": artifact, "name": f"../{artifact}.txt", "type": "file"}
        return Reply((dump(found),))

    def _OpenArtifact(self, artifact: str, part: int) -> Reply:
        self._GetArtifact(artifact)
        file = self.folder / f"{artifact}.{part}"
        file.write_bytes(self.artifacts[artifact])
        return Reply((0,), (os.open(file, os.O_RDONLY),))

    def _QueryAudit(self, *, limit: int, after: int = 0, proof: bool = False, **_: object) -> Reply:
        found: list[JsonValue] = [row for row in self.audit if isinstance(row, dict) and int(str(row["seq"])) > after]
        more = dict(self.proof) if proof else {}
        return Reply((dump({"records": found[:limit], "has_more": len(found) > limit, **more}),))

    def _RotateAuditKey(self) -> Reply:
        return Reply(("0123456789abcdef0123456789abcdef",))

    def _Emergency(self, scope: str, **_: object) -> Reply:
        return Reply((dump({"scope": scope, "stopped": 2, "failed": self.unkillable, "recorded": True}),))

    def _LiftEmergency(self, scope: str, **_: object) -> Reply:
        return Reply(())

    def _SubscribeWebhook(self, task_id: str, url: str, **_: object) -> Reply:
        hook: JsonValue = {"webhook_id": "hook-1", "task_id": task_id, "webhook_url": url, "state": "parked",
                           "waiting": 3, "delivered": 4, "last_error": "the receiver answered \x1b[31m500"}  # fmt: skip
        self.webhooks.append(hook)
        return Reply(("hook-1",))

    def _UnsubscribeWebhook(self, task_id: str, url: str) -> Reply:
        self.webhooks.clear()
        return Reply(())

    def _ListWebhooks(self, task_id: str, **_: object) -> Reply:
        return Reply((dump({"webhooks": self.webhooks}),))

    def _ResumeWebhook(self, webhook_id: str) -> Reply:
        return Reply(())

    def _on_approval(self, path: str, method: str, body: tuple[Argument, ...]) -> Reply:
        approval = self.approvals.get(path.rpartition("/")[2].replace("_", "-"))
        if approval is None:
            refuse(ErrorKind.APPROVAL_NOT_FOUND)
        assert approval is not None
        if method == "Get":
            return Reply((dump(approval),))
        approval["status"] = "rejected" if body[0] == "reject" else "approved"
        return Reply((approval["status"],))

    def _ListApprovals(self, **_: object) -> Reply:
        rows = [[key, "/", one["task_id"], one["uid"], one["capability_id"], one["title"], one["risk_level"],
                 one["status"], 4102444800000000] for key, one in self.approvals.items()]  # fmt: skip
        return Reply((rows,))

    def _ListGrants(self, **_: object) -> Reply:
        row = ["grant-1", os.getuid(), "files.*", "low", "persistent", '{"path":{"equals":"/usr"}}', 1, 0, 3, 0]
        return Reply(([row],))

    def _RevokeGrant(self, grant_id: str) -> Reply:
        if grant_id != "grant-1":
            refuse(ErrorKind.GRANT_NOT_FOUND, "Grant not found")
        return Reply(())

    def _RequestGrant(self, *_: object) -> Reply:
        return Reply(("grant-2",))

    def _ExplainPermission(self, capability: str, *_: object, **__: object) -> Reply:
        because: list[JsonValue] = [
            f"{capability} has level low: a person is asked the first time.", "polkit asks.\x1b[2J"
        ]  # fmt: skip
        return Reply((dump({"outcome": "ask", "because": because}),))

    def _Drain(self, **options: object) -> Reply:
        return Reply((dump({"draining": "lift" not in options, "running": 0}),))

    def _Reload(self) -> Reply:
        return Reply(())

    def _GetStatus(self) -> Reply:
        return Reply((dump({
            "version": "0.1.0", "protocol_version": "1.0", "state": "ready",
            "tasks": {"running": 1, "queued": 2, "waiting": 0, "total": 3},
            "limits": {"max_concurrent_tasks": 10, "max_tasks_per_tool": 3, "max_queue_size": 100},
            "problems": self.problems, "store": {"path": "/var/lib/aiosd/tasks.db", "bytes": 12288},
            "launcher": {"connected": True, "systemd_version": "257"},
        }),))  # fmt: skip
