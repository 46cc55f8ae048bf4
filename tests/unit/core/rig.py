"""The whole core on a real store, with an authority and a launcher that do what the test says."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aiosd.auth.caller import BusSubject, Caller
from aiosd.auth.decision import Decision
from aiosd.auth.places import PlaceError
from aiosd.config import Config
from aiosd.core.artifacts import BlobStore
from aiosd.core.audit_trail import AuditTrail
from aiosd.core.events import EventHub
from aiosd.core.operations import OPERATIONS
from aiosd.core.policies import PolicyStore
from aiosd.core.pressure import Pressure
from aiosd.core.registry import Registry
from aiosd.core.secrets import Vault
from aiosd.core.settings import Settings
from aiosd.errors import AiosError, ErrorKind
from aiosd.store import journal, runs, tasks
from aiosd.store.database import Database
from aiosd.store.key_file import KEY_BYTES
from aiosd.wiring import Ground, Services
from tests.unit.core.fakelauncher import FakeLauncher

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path
    from typing import TypeAlias

    from aiosd.auth.caller import Subject
    from aiosd.core.manager import Handlers, Manager
    from aiosd.core.operations import Reply
    from aiosd.core.recovery import Recoverer
    from aiosd.core.scheduler import Scheduler
    from aiosd.core.supervision import Supervision
    from aiosd.model.event import Event
    from aiosd.model.jsontext import JsonObject
    from aiosd.model.task import Run, Task
    from aiosd.model.wire import Wire
    from aiosd.store.writer import Seal

    Opening: TypeAlias = Callable[[Path, Seal], AbstractAsyncContextManager[Database]]

BOOT = "4f0c7f2e-0000-4000-8000-000000000001"
USER = Caller(1000, BusSubject(":1.7"), interactive=True)
OTHER = Caller(1001, BusSubject(":1.8"), interactive=True)
STRANGER = Caller(1001, BusSubject(":1.10"))
"""The other user, where nobody is there to be asked."""
ROOT = Caller(0, BusSubject(":1.9"))
PATIENCE = 30.0
"""Seconds that a test waits for what must come."""


def manifest(name: str, extra: str = "", *, level: str = "public") -> str:
    """A small manifest; `extra`: more lines."""
    user = 'user = "root"\n' if level == "critical" else ""
    return (
        f'id = "{name}"\ntitle = "Title of {name}"\ndescription = "For a test."\nlevel = "{level}"\n{user}'
        f'exec = ["/usr/bin/true"]\n{extra}'
    )


PLAIN = "test.plain.run"
OPEN = '[input]\ntype = "object"\nadditionalProperties = true\n'
"""Lines of a manifest that takes any arguments."""


def timed_out(task: Task, limit_ms: int) -> bool:
    """Whether its error is seed 000's of a time-out, with this limit."""
    error = task.error or {}
    data = error.get("data")
    assert isinstance(data, dict)
    elapsed = data["elapsed_ms"]
    assert isinstance(elapsed, int)
    said = (error["code"], data["error_id"], data["capability_id"], data["timeout_ms"])
    return said == (-32005, "AIOS-TIMEOUT", task.capability_id, limit_ms) and elapsed >= 0.9 * limit_ms


class Elsewhere:
    """Operations that have tests of their own, with what they need (a network, say)."""

    def __init__(self, groups: Sequence[Handlers]) -> None:
        here = {name for group in groups for name in group.handlers()}
        self.names = sorted(OPERATIONS.keys() - here)

    def handlers(self) -> Mapping[str, Callable[..., Awaitable[Reply]]]:
        async def absent(_caller: Caller, _params: Wire) -> Reply:
            raise AssertionError("not part of this rig")

        return dict.fromkeys(self.names, absent)


class FakeAuthority:
    """Answers as it was told, and remembers what it was asked."""

    def __init__(self) -> None:
        self.answers: dict[str, Decision] = {}
        self.otherwise = Decision.ALLOWED
        self.asked: list[tuple[Subject, str, dict[str, str], bool]] = []
        self.meanwhile: Callable[[], Awaitable[None]] | None = None
        self.challenged: set[str] = set()

    def challenge(self, *actions: str) -> None:
        """From now on a person has to be asked for these; `answers` are then theirs."""
        self.challenged.update(actions)

    async def check(
        self, subject: Subject, action_id: str, details: Mapping[str, str], *, interactive: bool
    ) -> Decision:
        self.asked.append((subject, action_id.removeprefix("org.aios.TaskManager."), dict(details), interactive))
        if self.meanwhile is not None:
            await self.meanwhile()
        action = action_id.removeprefix("org.aios.TaskManager.")
        if action in self.challenged and not interactive:
            return Decision.CHALLENGE
        return self.answers.get(action, self.otherwise)

    @property
    def actions(self) -> list[str]:
        """Which actions it was asked for."""
        return [row[1] for row in self.asked]


@dataclass
class FakePlaces:
    """Everybody is in a unit that is no task's, but who is named in `units`."""

    units: dict[Subject, str] = field(default_factory=dict)
    unknown: bool = False

    async def unit_of(self, subject: Subject) -> str:
        if self.unknown:
            raise PlaceError("systemd does not answer")
        return self.units.get(subject, "session-1.scope")


@dataclass
class Core:
    """Everything that a daemon has, doors excepted."""

    database: Database
    launcher: FakeLauncher
    authority: FakeAuthority
    registry: Registry
    settings: Settings
    hub: EventHub
    supervision: Supervision
    scheduler: Scheduler
    recoverer: Recoverer
    manager: Manager
    manifests: Path
    policies: PolicyStore
    services: Services
    places: FakePlaces
    events: list[Event] = field(default_factory=list)

    async def invoke(self, name: str, params: JsonObject, caller: Caller = USER) -> JsonObject:
        """What the operation answers."""
        return (await self.reply(name, params, caller)).body

    async def reply(self, name: str, params: JsonObject, caller: Caller = USER) -> Reply:
        """The answer with its descriptors."""
        reply = await asyncio.wait_for(self.manager.invoke(name, caller, params), PATIENCE * 2)
        await asyncio.sleep(0)  # who calls through a door hears it later than who listens to commits
        return reply

    async def create(
        self, capability: str = PLAIN, caller: Caller = USER, *, arguments: JsonObject | None = None,
        metadata: JsonObject | None = None, **options: object,
    ) -> str:  # fmt: skip
        """A new task; its id."""
        params: JsonObject = {
            "capability_id": capability, "arguments": arguments or {}, "metadata": metadata or {},
            "options": {"async": True, **options},  # type: ignore[dict-item]
        }  # fmt: skip
        return str((await self.invoke("task.create", params, caller))["task_id"])

    async def refused(self, name: str, params: JsonObject, caller: Caller = USER) -> AiosError:
        """The error of an operation that must not succeed."""
        try:
            await self.invoke(name, params, caller)
        except AiosError as error:
            return error
        raise AssertionError(f"{name} was not refused")

    async def task(self, task_id: str) -> Task:
        """The row."""
        found = await self.database.read(lambda db: tasks.get(db, task_id))
        assert found is not None
        return found

    async def runs(self, task_id: str) -> list[Run]:
        """Its attempts."""
        return await self.database.read(lambda db: runs.of_task(db, task_id))

    async def until(self, task_id: str, state: str) -> Task:
        """Wait until its status or its phase is `state`."""
        with self.hub.watch(task_id) as changed:
            async with asyncio.timeout(PATIENCE):
                while True:
                    changed.clear()
                    task = await self.task(task_id)
                    if state in (task.status, task.phase):
                        return task
                    assert not task.status.is_final, f"{task.status} ({task.reason}, {task.error})"
                    await changed.wait()

    async def ended(self, task_id: str) -> Task:
        """Wait until it is final."""
        await self.invoke("task.wait", {"task_id": task_id})
        return await self.task(task_id)

    async def history(self, task_id: str) -> list[str]:
        """The states it was in."""
        task = await self.task(task_id)
        return [row.state for row in await self.database.read(lambda db: journal.history(db, task.sequence))]

    async def log(self, task_id: str) -> list[Event]:
        """Its events in the store."""
        return await self.database.read(lambda db: journal.events_after(db, 0, task_id=task_id, limit=10_000)[0])

    async def count(self, table: str) -> int:
        """Rows of a table."""
        return int(await self.database.read(lambda db: db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]))  # noqa: S608

    async def install(self, name: str, text: str) -> None:
        """Install or replace a capability."""
        await asyncio.to_thread((self.manifests / f"{name}.toml").write_text, text)
        await self.registry.load()
        assert not self.registry.problems, self.registry.problems


async def eventually(check: Callable[[], bool]) -> None:
    """Wait until it holds."""
    async with asyncio.timeout(PATIENCE):
        while not check():  # noqa: ASYNC110  what is waited for has no event of its own
            await asyncio.sleep(0.005)


@asynccontextmanager
async def daemon(
    root: Path, launcher: FakeLauncher, *, config: Config | None = None, boot: str = BOOT, recover: bool = True,
    schedule: bool = True, opening: Opening | None = None,
) -> AsyncIterator[Core]:  # fmt: skip
    """One life of the daemon on the store in `root`; leaving it is a crash as far as runs are concerned.

    `opening`: opens the store otherwise, one that dies on purpose for instance.
    """
    manifests = root / "capabilities.d"
    manifests.mkdir(exist_ok=True)
    if not (manifests / f"{PLAIN}.toml").exists():
        (manifests / f"{PLAIN}.toml").write_text(manifest(PLAIN, OPEN))
    path = root / "aiosd.db"
    trail = await AuditTrail.open(root)
    opened = Database.open(path, seal=trail.seal) if opening is None else opening(path, trail.seal)
    async with opened as database:
        await trail.begin(database)
        settings = Settings(config or Config(schedule_interval=30.0))
        registry = Registry((manifests,), owner=os.getuid())
        await registry.load()
        policies = PolicyStore(root / "permission-policy.toml", root / "permission-policy.d", owner=os.getuid())
        await policies.load()
        hub, authority, places = EventHub(), FakeAuthority(), FakePlaces()
        database.on_commit(hub.publish)
        services = Services(
            Ground(
                database=database, path=path, state=root, trail=trail, vault=Vault([bytes(KEY_BYTES)]),
                launcher=launcher, launcher_state=launcher.state,
                authority=authority, places=places, registry=registry, policies=policies, settings=settings, hub=hub,
                blobs=BlobStore(root / "blobs"), boot_id=boot,
                pressure=Pressure(root / "no-pressure"), reload=registry.load,
            )
        )  # fmt: skip
        await services.emergency.begin()
        supervision, scheduler = services.supervision, services.scheduler
        recoverer, holding, emergency, lapse = (
            services.recoverer, services.holding, services.emergency, services.lapse
        )  # fmt: skip
        core = Core(database, launcher, authority, registry, settings, hub, supervision, scheduler, recoverer,
                    services.manager, manifests, policies, services, places)  # fmt: skip
        hub.listen(core.events.extend)
        async with asyncio.TaskGroup() as group:
            await services.crew.recover()
            working = [
                group.create_task(one.run())
                for one in (supervision, lapse, services.approval_answers, services.crew, services.assigner)
            ]
            await asyncio.sleep(0)
            if recover:
                await recoverer.run()
                await recoverer.sweep()
                await holding.recover()
                await emergency.enforce()
            if schedule:
                working.append(group.create_task(scheduler.run()))
            try:
                yield core
            finally:
                for one in working:
                    one.cancel()


@asynccontextmanager
async def core(root: Path, *, config: Config | None = None, schedule: bool = True) -> AsyncIterator[Core]:
    """A daemon and its launcher, for one scenario."""
    launcher = FakeLauncher(root / "launcher")
    async with launcher.serving(), daemon(root, launcher, config=config, schedule=schedule) as made:
        yield made


def play(scenario: Awaitable[None]) -> None:
    """Run a scenario to its end."""

    async def bounded() -> None:
        async with asyncio.timeout(90):
            await scenario

    try:
        asyncio.run(bounded())
    except BaseExceptionGroup as group:
        leaf: BaseException = group
        while isinstance(leaf, BaseExceptionGroup):
            leaf = leaf.exceptions[0]
        raise leaf from None


def kinds(events: Sequence[Event]) -> list[str]:
    """The kinds of events, in order."""
    return [event.kind.value for event in events]


__all__ = ["AiosError", "Config", "Decision", "ErrorKind"]
