"""What can be asked of the daemon, typed: `TaskManagerClient` over a `Transport`.

Everything here is the contract of `dbus/org.aios.TaskManager1*.xml`; a test holds `MEMBERS` to those files. The
transport is D-Bus (`wire.py`) in the product and a scripted one in the tests.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from aiosd.cli import values
from aiosd.cli.values import read, read_json
from aiosd.model.jsontext import dump

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
    from contextlib import AbstractAsyncContextManager

    from aiosd.cli.values import ArtifactRow, CapabilityRow, Created, StateChange, TaskEvent, TaskPage
    from aiosd.model.jsontext import JsonObject

MANAGER = "org.aios.TaskManager1"
TASK = "org.aios.TaskManager1.Task"
SESSION = "org.aios.TaskManager1.Session"
MANAGER_PATH = "/org/aios/TaskManager"
CALL_TIMEOUT = 25.0
ASKING_TIMEOUT = 300.0
"""Seconds that a call waits when a person may be asked for a password meanwhile."""

_INS = {
    MANAGER: {
        "CreateTask": "ssa{sv}", "GetTask": "sa{sv}", "ListTasks": "a{sv}", "ListHistory": "a{sv}",
        "ListCapabilities": "a{sv}", "GetCapability": "s", "Subscribe": "sasa{sv}", "Unsubscribe": "s",
        "ListArtifacts": "s", "GetArtifact": "s", "OpenArtifact": "su", "Reload": "a{sv}", "GetStatus": "",
        "QueryAudit": "a{sv}", "RotateAuditKey": "a{sv}", "Emergency": "sa{sv}", "LiftEmergency": "sa{sv}",
        "SubscribeWebhook": "ssasa{sv}", "UnsubscribeWebhook": "ssa{sv}", "ListWebhooks": "sa{sv}",
        "ResumeWebhook": "sa{sv}", "Drain": "a{sv}",
        "RequestGrant": "sssa{sv}", "ListGrants": "a{sv}", "RevokeGrant": "sa{sv}", "ExplainPermission": "ssa{sv}",
        "ListApprovals": "a{sv}",
        "CreateSession": "sa{sv}", "GetSession": "s", "ListSessions": "a{sv}", "SubscribeFeed": "ssa{sv}",
        "ListWorkers": "a{sv}", "GetWorker": "sa{sv}",
    },
    TASK: {
        "Cancel": "sa{sv}", "Pause": "a{sv}", "Resume": "a{sv}", "Retry": "a{sv}", "SetPriority": "sa{sv}",
        "ProvideInput": "sa{sv}", "Authenticate": "ha{sv}", "Wait": "a{sv}", "OpenLog": "sa{sv}", "GetTree": "a{sv}",
    },
    f"{MANAGER}.Approval": {"Get": "", "Respond": "sa{sv}"},
    SESSION: {
        "Update": "a{sv}", "UpdateObjective": "sa{sv}", "Close": "a{sv}", "Archive": "a{sv}", "GetTimeline": "a{sv}",
        "CreateThread": "sa{sv}", "ListThreads": "", "ListMessages": "a{sv}", "AddMessage": "ssa{sv}",
        "CreatePlan": "sa{sv}", "GetPlan": "a{sv}", "ProposeDiff": "usa{sv}", "ApplyDiff": "usa{sv}",
        "GetTaskTree": "a{sv}",
    },
}  # fmt: skip


class Member(NamedTuple):
    """A method and the signature of what it is given."""

    interface: str
    name: str
    signature: str


MEMBERS: Mapping[str, Member] = {
    name: Member(interface, name, signature)
    for interface, methods in _INS.items()
    for name, signature in methods.items()
}
"""Every method that aiosctl calls, by name."""


class Option(NamedTuple):
    """A value of an options dictionary (a{sv}) with its D-Bus signature."""

    signature: str
    value: str | int | bool | list[str]


Argument: TypeAlias = "str | int | list[str] | Mapping[str, Option]"


class Reply(NamedTuple):
    """What a method answered. `fds` are the receiver's to close."""

    body: tuple[object, ...]
    fds: tuple[int, ...] = ()


class Notice(NamedTuple):
    """A signal of the daemon's main object."""

    name: str
    body: tuple[object, ...]


class Transport(Protocol):
    """How calls and signals travel. Raises `Failure` for whatever goes wrong."""

    async def call(
        self, member: Member, path: str, body: tuple[Argument, ...], seconds: float | None, fds: tuple[int, ...] = ()
    ) -> Reply:
        """Call a method and wait for its answer `seconds`, None for ever. `fds`: what an `h` in the body indexes."""

    def listen(self, names: tuple[str, ...], listener: Callable[[Notice], None]) -> AbstractAsyncContextManager[None]:
        """Call `listener` with each signal of these names while the context lasts."""


def task_path(task_id: str) -> str:
    """The object path of a task (dbus/org.aios.TaskManager1.Task.xml)."""
    return f"{MANAGER_PATH}/task/{task_id.replace('-', '_')}"


Options: TypeAlias = "dict[str, Option]"


class ListFilter(NamedTuple):
    """Which tasks, and which page of them. `since` and `until` in µs since the epoch (0: open) ask the history."""

    status: tuple[str, ...] = ()
    capability: str = ""
    all_users: bool = False
    limit: int = 50
    offset: int = 0
    sort: str = "created_at"
    ascending: bool = False
    since: int = 0
    until: int = 0
    session: str = ""
    parent: str = ""
    tag: str = ""
    uid: int | None = None

    @property
    def of_others(self) -> bool:
        """Whether it may ask for others' tasks."""
        return self.all_users or self.uid is not None

    def options(self) -> Options:
        """As ListTasks and ListHistory take them."""
        history = bool(self.since or self.until)
        found: Options = {"limit": Option("u", self.limit), "offset": Option("u", self.offset)}
        if self.status:
            found["status"] = Option("as", list(self.status))
        texts = {"capability_id": self.capability, "session_id": self.session, "parent_task_id": self.parent,
                 "tag": self.tag}  # fmt: skip
        found |= {name: Option("s", text) for name, text in texts.items() if text}
        if self.uid is not None:
            found["uid"] = Option("u", self.uid)
        if self.all_users:
            found["all_users"] = Option("b", value=True)
        if self.since:
            found["start_time"] = Option("t", self.since)
        if self.until:
            found["end_time"] = Option("t", self.until)
        if not history:
            found["sort_field"] = Option("s", self.sort)
            found["order"] = Option("s", "asc" if self.ascending else "desc")
        return found


class TaskManagerClient:
    """The daemon, as the verbs see it. Every method raises `Failure`."""

    def __init__(self, transport: Transport, asking: Callable[[], AbstractAsyncContextManager[None]]) -> None:
        """`asking`: a context in which a person can be asked for a password; entered for calls that may need it."""
        self._transport = transport
        self._asking = asking

    async def _call(
        self, name: str, *body: Argument, path: str = MANAGER_PATH, seconds: float | None = CALL_TIMEOUT
    ) -> Reply:
        return await self._transport.call(MEMBERS[name], path, body, seconds)

    async def _ask(self, name: str, *body: Argument, path: str = MANAGER_PATH, fds: tuple[int, ...] = ()) -> Reply:
        async with self._asking():
            return await self._transport.call(MEMBERS[name], path, body, ASKING_TIMEOUT, fds)

    async def ask(self, name: str, *body: Argument, path: str = MANAGER_PATH) -> Reply:
        """Any method, while the person at the terminal can be asked: for the modules beside this one."""
        return await self._ask(name, *body, path=path)

    async def create(self, capability: str, arguments: JsonObject, options: Options) -> Created:
        """A new task, durably stored."""
        reply = await self._ask("CreateTask", capability, dump(arguments), options)
        return values.Created(read(reply.body, 0, str), read(reply.body, 1, str))

    async def get(self, task_id: str, *, history: bool = False) -> JsonObject:
        """The whole task."""
        options: Options = {"include_history": Option("b", value=True)} if history else {}
        return read_json((await self._call("GetTask", task_id, options)).body, 0)

    async def list_tasks(self, wanted: ListFilter) -> TaskPage:
        """One page."""
        name = "ListHistory" if wanted.since or wanted.until else "ListTasks"
        call = self._ask if wanted.of_others else self._call
        body = (await call(name, wanted.options())).body
        found = tuple(values.task_row(row) for row in values.rows(body, 0))
        return values.TaskPage(found, read(body, 1, int), read(body, 2, bool))

    async def wait(self, task_id: str, *, timeout_ms: int = 0, until_waiting: bool = False) -> JsonObject:
        """The task once it is final. `timeout_ms` 0: for ever."""
        options: Options = {}
        if timeout_ms:
            options["timeout_ms"] = Option("t", timeout_ms)
        if until_waiting:
            options["until_waiting"] = Option("b", value=True)
        reply = await self._call("Wait", options, path=task_path(task_id), seconds=None)
        return read_json(reply.body, 1)

    async def cancel(self, task_id: str, reason: str, *, recursive: bool = True) -> None:
        """Stop it for good, and what is under it."""
        options: Options = {} if recursive else {"recursive": Option("b", value=False)}
        await self._ask("Cancel", reason, options, path=task_path(task_id))

    async def pause(self, task_id: str, *, recursive: bool = False) -> None:
        """Hold it where it is, and (`recursive`) what is under it."""
        await self._ask("Pause", _recursive(on=recursive), path=task_path(task_id))

    async def resume(self, task_id: str, *, recursive: bool = False) -> None:
        """Let it go on, and (`recursive`) what is under it."""
        await self._ask("Resume", _recursive(on=recursive), path=task_path(task_id))

    async def retry(self, task_id: str) -> Created:
        """Run a finished one again, as a new task."""
        reply = await self._ask("Retry", {}, path=task_path(task_id))
        return values.Created(read(reply.body, 0, str), read(reply.body, 1, str))

    async def set_priority(self, task_id: str, priority: str, *, recursive: bool = False) -> None:
        """low, normal, high or urgent; `recursive`: of what is under it, too."""
        await self._ask("SetPriority", priority, _recursive(on=recursive), path=task_path(task_id))

    async def tree(self, task_id: str, options: Options) -> JsonObject:
        """A page of the task and all under it. `options`: limit (u), cursor (s)."""
        return read_json((await self._call("GetTree", options, path=task_path(task_id))).body, 0)

    async def answer(self, task_id: str, given: JsonObject) -> None:
        """Answer its question."""
        await self._ask("ProvideInput", dump(given), {}, path=task_path(task_id))

    async def authenticate(self, task_id: str, secret: int) -> None:
        """Answer its authentication. `secret`: a descriptor of the JSON."""
        await self._ask("Authenticate", 0, {}, path=task_path(task_id), fds=(secret,))

    async def open_log(self, task_id: str, stream: str, attempt: int = 0) -> int:
        """A descriptor of what the program wrote; the caller closes it. `attempt` 0: the last."""
        options: Options = {"attempt": Option("u", attempt)} if attempt else {}
        return _descriptor(await self._call("OpenLog", stream, options, path=task_path(task_id)))

    async def artifacts(self, task_id: str) -> list[ArtifactRow]:
        """What a task produced."""
        reply = await self._call("ListArtifacts", task_id)
        return [values.artifact_row(row) for row in values.rows(reply.body, 0)]

    async def artifact(self, artifact_id: str) -> JsonObject:
        """One artifact's description."""
        return read_json((await self._call("GetArtifact", artifact_id)).body, 0)

    async def open_artifact(self, artifact_id: str, part: int) -> int:
        """A descriptor of one part's content; the caller closes it."""
        return _descriptor(await self._call("OpenArtifact", artifact_id, part))

    async def subscribe_webhook(
        self, task_id: str, url: str, events: list[str], *, authentication: int | None, max_retries: int,
        retry_delay_ms: int,
    ) -> str:  # fmt: skip
        """Have a task's events sent; the webhook's id. `authentication`: a descriptor of the JSON."""
        found: Options = {
            "max_retries": Option("u", max_retries), "retry_delay_ms": Option("t", retry_delay_ms)
        }  # fmt: skip
        if authentication is not None:
            found["authentication"] = Option("h", 0)
        fds = () if authentication is None else (authentication,)
        return read((await self._ask("SubscribeWebhook", task_id, url, events, found, fds=fds)).body, 0, str)

    async def unsubscribe_webhook(self, task_id: str, url: str) -> None:
        """Send no more there."""
        await self._ask("UnsubscribeWebhook", task_id, url, {})

    async def webhooks(self, task_id: str = "", *, all_users: bool = False) -> list[JsonObject]:
        """Webhooks, of a task or of all."""
        options: Options = {"all_users": Option("b", value=True)} if all_users else {}
        call = self._ask if all_users else self._call
        found = values.list_at(read_json((await call("ListWebhooks", task_id, options)).body, 0), "webhooks")
        return [hook for hook in found if isinstance(hook, dict)]

    async def resume_webhook(self, webhook_id: str) -> None:
        """Deliver again to a parked one."""
        await self._ask("ResumeWebhook", webhook_id, {})

    async def capabilities(self) -> list[CapabilityRow]:
        """Every installed capability."""
        reply = await self._call("ListCapabilities", {})
        return [values.capability_row(row) for row in values.rows(reply.body, 0)]

    async def capability(self, capability_id: str) -> JsonObject:
        """One capability's manifest."""
        return read_json((await self._call("GetCapability", capability_id)).body, 0)

    async def status(self) -> JsonObject:
        """What the daemon is doing."""
        return read_json((await self._call("GetStatus")).body, 0)

    async def reload(self) -> None:
        """Read configuration and manifests again."""
        await self._ask("Reload", {})

    async def drain(self, *, lift: bool) -> JsonObject:
        """Start nothing more, or start tasks again; `running` tells how many still run."""
        options: Options = {"lift": Option("b", value=True)} if lift else {}
        return read_json((await self._ask("Drain", options)).body, 0)

    def notices(self, names: tuple[str, ...], listener: Callable[[Notice], None]) -> AbstractAsyncContextManager[None]:
        """Signals of the main object while the context lasts: for the modules beside this one."""
        return self._transport.listen(names, listener)

    def changes(self, listener: Callable[[StateChange], None]) -> AbstractAsyncContextManager[None]:
        """Every task's changes of state, new and removed tasks included, while the context lasts."""

        def on_notice(notice: Notice) -> None:
            listener(_change(notice))

        return self._transport.listen(("TaskNew", "TaskRemoved", "StateChanged"), on_notice)

    @contextlib.asynccontextmanager
    async def events(
        self, task_id: str, kinds: Iterable[str], on_event: Callable[[TaskEvent], None]
    ) -> AsyncIterator[None]:
        """A task's events ("" for all of one's own) while the context lasts."""
        wanted = ""
        early: list[Notice] = []  # a signal can overtake the coroutine that waits for Subscribe's answer

        def on_notice(notice: Notice) -> None:
            if not wanted:
                early.append(notice)
            elif read(notice.body, 0, str) == wanted:
                event = values.TaskEvent(
                    read(notice.body, 1, str), read(notice.body, 2, str), read_json(notice.body, 3)
                )
                on_event(event)

        async with self._transport.listen(("Event",), on_notice):
            reply = await self._call("Subscribe", task_id, list(kinds), {})
            wanted = read(reply.body, 0, str)
            for notice in early:
                on_notice(notice)
            try:
                yield
            finally:
                await _quietly(self._call("Unsubscribe", wanted))


async def _quietly(call: Awaitable[Reply]) -> None:
    """A courtesy at the end: the daemon may be gone or the subscription over already."""
    from aiosd.cli.failure import Failure

    with contextlib.suppress(Failure):
        await call


def _recursive(*, on: bool) -> Options:
    return {"recursive": Option("b", value=True)} if on else {}


def _descriptor(reply: Reply) -> int:
    index = read(reply.body, 0, int)
    if 0 <= index < len(reply.fds):
        return reply.fds[index]
    return read((), 0, int)


def _change(notice: Notice) -> StateChange:
    body = notice.body
    task_id, uid = read(body, 0, str), read(body, 2, int)
    if notice.name == "TaskNew":
        return values.StateChange(task_id, uid, "", read(body, 3, str), "")
    if notice.name == "TaskRemoved":
        return values.StateChange(task_id, uid, "", "", "")
    return values.StateChange(task_id, uid, read(body, 3, str), read(body, 4, str), read(body, 5, str))
