"""Handlers about the service itself: its capabilities, what it is doing, reading configuration again."""

from __future__ import annotations

import asyncio
import fnmatch
from contextlib import suppress
from typing import TYPE_CHECKING

from aiosd import __version__
from aiosd.auth.policy import Action
from aiosd.core import views
from aiosd.core.operations import Reply
from aiosd.model.status import Status
from aiosd.run.client import LauncherError
from aiosd.store import candidates, tasks

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    from aiosd.auth.caller import Caller
    from aiosd.core.authorization import Authorizer
    from aiosd.core.policies import PolicyStore
    from aiosd.core.registry import Registry
    from aiosd.core.scheduler import Scheduler
    from aiosd.core.settings import Settings
    from aiosd.model import wire, wire_service
    from aiosd.model.jsontext import JsonObject, JsonValue
    from aiosd.run.client import LauncherClient
    from aiosd.store.database import Database

PROTOCOL_VERSION = "2.0.0"
"""The version of seed 000 that is spoken."""

LAUNCHER_ANSWER = 2.0
"""Seconds that `status` waits for the launcher."""


class ServiceOperations:
    """`capability.*` and `service.*`."""

    def __init__(
        self,
        database: Database,
        registry: Registry,
        authorizer: Authorizer,
        settings: Settings,
        launcher: LauncherClient,
        path: Path,
        reload: Callable[[], Awaitable[None]],
        scheduler: Scheduler,
        policies: PolicyStore,
    ) -> None:
        """`path`: of the database file. `reload`: reads everything again. `scheduler`: what is drained."""
        self._database = database
        self._registry = registry
        self._authorizer = authorizer
        self._settings = settings
        self._launcher = launcher
        self._path = path
        self._reload = reload
        self._scheduler = scheduler
        self._policies = policies

    def handlers(self) -> Mapping[str, Callable[..., Awaitable[Reply]]]:
        """By operation name."""
        return {
            "capability.list": self.list_capabilities,
            "capability.get": self.get,
            "service.status": self.status,
            "service.reload": self.reload,
            "service.drain": self.drain,
        }

    async def list_capabilities(self, _caller: Caller, params: wire.CapabilityList) -> Reply:
        """The installed capabilities."""
        chosen: list[JsonValue] = [
            views.capability_row(capability)
            for capability in self._registry.all()
            if params.filter is None or fnmatch.fnmatchcase(capability.id, params.filter)
        ]
        return Reply({"capabilities": chosen, "problems": [str(problem) for problem in self._registry.problems]})

    async def get(self, _caller: Caller, params: wire.CapabilityRef) -> Reply:
        """One manifest, its defaults filled in."""
        return Reply(views.capability_view(self._registry.require(params.capability_id)))

    async def status(self, _caller: Caller, _params: wire.Empty) -> Reply:
        """What the daemon is doing; nothing of anybody's tasks but their number."""
        counts = await self._database.read(_counts)
        config = self._settings.current
        body: JsonObject = {
            "version": __version__,
            "protocol_version": PROTOCOL_VERSION,
            "state": self._state(),
            "tasks": counts,
            "limits": {
                "max_concurrent_tasks": config.max_concurrent_tasks,
                "max_tasks_per_tool": config.max_tasks_per_tool,
                "max_queue_size": config.max_queue_size,
            },
            "emergency": self._settings.stops.view(),
            "capabilities": len(self._registry.all()),
            "problems": self._problems(),
            "store": await self._store(),
            "launcher": await self._launcher_state(),
        }  # fmt: skip
        return Reply(body)

    def _state(self) -> str:
        if self._database.read_only_reason is not None:
            return "read-only"
        return "draining" if self._scheduler.draining else "running"

    async def drain(self, caller: Caller, params: wire_service.Drain) -> Reply:
        """Start nothing more: new tasks are stored and wait, what runs runs on. It ends with `lift` or a restart."""
        await self._authorizer.require(caller, Action.MANAGE, {"operation": "drain"})
        self._scheduler.drain(not params.lift)
        running = await self._database.read(candidates.holding)
        return Reply({"draining": self._scheduler.draining, "running": len(running)})

    async def reload(self, caller: Caller, _params: wire.Empty) -> Reply:
        """Read configuration and manifests again."""
        await self._authorizer.require(caller, Action.MANAGE, {"operation": "reload"})
        await self._reload()
        return Reply({"problems": self._problems()})

    async def _launcher_state(self) -> JsonObject:
        try:
            async with asyncio.timeout(LAUNCHER_ANSWER):
                hello = await self._launcher.hello()
        except (LauncherError, TimeoutError) as error:
            return {"connected": False, "error": str(error)}
        return {"connected": True, "systemd_version": hello.systemd_version}

    def _problems(self) -> list[JsonValue]:
        """What is wrong with manifests and policy files."""
        return [str(problem) for problem in (*self._policies.problems, *self._registry.problems)]

    async def _store(self) -> JsonObject:
        report = self._database.report
        bytes_ = await asyncio.to_thread(_size, self._path)
        return {
            "path": str(self._path),
            "level": report.version.level,
            "sublevel": report.version.sublevel,
            "bytes": bytes_,
            "read_only": self._database.read_only_reason or "",
        }


def _size(path: Path) -> int:
    """Bytes of the database with what is still in its write-ahead log."""
    size = 0
    for part in (path, path.with_name(f"{path.name}-wal")):
        with suppress(OSError):
            size += part.stat().st_size
    return size


def _counts(db: sqlite3.Connection) -> JsonObject:
    by_status: dict[str, JsonValue] = {status.value: tasks.count_in_status(db, status) for status in Status}
    return {
        **by_status,
        "running": len(candidates.holding(db)),
        "queued": by_status[Status.PENDING.value],
        "waiting": sum(tasks.count_in_status(db, status) for status in (Status.INPUT_REQUIRED, Status.AUTH_REQUIRED)),
        "total": sum(value for value in by_status.values() if isinstance(value, int)),
    }
