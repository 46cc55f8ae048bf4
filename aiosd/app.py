"""The daemon: `main` wires everything and holds it together. Read `Daemon.run` from top to bottom.

Order of start: configuration and manifests, store, launcher, bus; then recovery, then the door; ready. Order of stop:
the door, then everything else, within five seconds; running tasks are left alone, they do not need us."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import signal
import socket
import sys
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

from aiosd import __version__, config, logs
from aiosd.auth.polkit import PolkitAuthority
from aiosd.bus.authority import BusPolkit
from aiosd.bus.connection import SystemBus
from aiosd.bus.door import BusDoor, NameTakenError
from aiosd.core import clock, secrets, stops
from aiosd.core.approval_operations import ApprovalOperations
from aiosd.core.artifacts import BlobStore
from aiosd.core.audit_operations import AuditOperations
from aiosd.core.audit_trail import AuditTrail
from aiosd.core.authentication_operations import AuthenticationOperations, Handover
from aiosd.core.authorization import Authorizer
from aiosd.core.consent import Consents
from aiosd.core.content_operations import ContentOperations
from aiosd.core.control import Control
from aiosd.core.creation import Creation
from aiosd.core.deferred import Deferred
from aiosd.core.emergency import Emergency
from aiosd.core.emergency_operations import EmergencyOperations
from aiosd.core.events import EventHub
from aiosd.core.expiry import Expiry
from aiosd.core.holding import Holding
from aiosd.core.lapse import Lapse
from aiosd.core.manager import Manager
from aiosd.core.permission_operations import PermissionOperations
from aiosd.core.plan_operations import PlanOperations
from aiosd.core.policies import PolicyStore
from aiosd.core.protocol_operations import ProtocolOperations
from aiosd.core.recovery import Recoverer
from aiosd.core.registry import Registry
from aiosd.core.scheduler import Scheduler
from aiosd.core.service_operations import ServiceOperations
from aiosd.core.session_operations import SessionOperations
from aiosd.core.settings import Settings
from aiosd.core.subscription_operations import SubscriptionOperations
from aiosd.core.supervision import Supervision
from aiosd.core.task_operations import TaskOperations
from aiosd.core.webhook_operations import WebhookOperations
from aiosd.hooks.delivery import Deliverer
from aiosd.journal import AuditJournal, Journal
from aiosd.notify import ServiceManager
from aiosd.rpc.server import RpcDoor, Speech
from aiosd.rpc.subscriptions import Subscriptions
from aiosd.run.client import LauncherClient, LauncherError
from aiosd.run.layout import LAUNCHER_SOCKET, STATE_DIRECTORY
from aiosd.run.notify import passed
from aiosd.store.audit_key import AuditKeyError
from aiosd.store.database import Database, StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

STATE = Path("/var/lib/aiosd")
RECOVERY_RETRY = 1.0
"""Seconds between tries to recover while the launcher does not answer."""

_log = logging.getLogger(__name__)


class _Stop(Exception):
    """The daemon is to end; the exit status."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Daemon:
    """One run of the daemon."""

    def __init__(self, options: argparse.Namespace) -> None:
        """`options`: of the command line."""
        self._state: Path = options.state
        self._launcher_state: Path = options.launcher_state
        self._launcher_socket: Path = options.launcher_socket
        self._manager = ServiceManager()
        self._settings = Settings(config.Config())
        self._registry = Registry(options.capabilities) if options.capabilities else Registry()
        self._policies = PolicyStore()
        self._hub = EventHub()
        self._door: BusDoor | None = None
        self._scheduler: Scheduler | None = None
        self._reloads = asyncio.Lock()
        self._recovered = asyncio.Event()

    async def run(self) -> None:
        """Serve until told to stop. Raises what made it impossible."""
        await self._read_configuration()
        path = self._state / "aiosd.db"
        async with AsyncExitStack() as stack:
            database, trail = await self._open_store(stack, path)
            vault = await asyncio.to_thread(secrets.load, self._state)
            deliverer = Deliverer(database, vault, self._settings)
            self._hub.listen(deliverer.heard)
            launcher = await stack.enter_async_context(LauncherClient(self._launcher_socket))
            bus = await stack.enter_async_context(SystemBus())
            blobs = BlobStore(self._state / "blobs")
            boot_id = clock.boot_id()
            supervision = Supervision(database, launcher, self._registry, self._settings, blobs, self._launcher_state)
            scheduler = Scheduler(database, self._registry, self._settings, boot_id, supervision.launch)
            self._scheduler = scheduler
            self._hub.listen(scheduler.heard)
            handover, expiry = Handover(database, vault, supervision), Expiry(database, supervision)
            self._hub.listen(expiry.heard)
            authorizer = Authorizer(PolkitAuthority(BusPolkit(bus)), record=trail.answered)
            consents = Consents(database, authorizer, self._policies, self._settings)
            lapse = Lapse(database)
            self._hub.listen(lapse.heard)
            emergency = Emergency(database, launcher, supervision, self._settings, self._state / stops.FILE)
            await emergency.begin()
            creation = Creation(database, self._registry, authorizer, self._settings, consents)
            control = Control(database, supervision)
            holding = Holding(database, control)
            self._hub.listen(holding.heard)
            manager = Manager(
                self._hub,
                [
                    TaskOperations(database, self._hub, authorizer, creation, control, scheduler, holding),
                    SessionOperations(database, authorizer, self._settings, control),
                    PlanOperations(database, authorizer, self._registry, creation, control, holding),
                    PermissionOperations(database, self._registry, authorizer, consents, self._settings),
                    ApprovalOperations(database, self._registry, authorizer),
                    ContentOperations(database, authorizer, blobs, self._launcher_state),
                    SubscriptionOperations(database, authorizer),
                    ProtocolOperations(self._settings),
                    AuditOperations(database, authorizer, trail),
                    EmergencyOperations(authorizer, emergency, self._settings, scheduler),
                    AuthenticationOperations(
                        database, authorizer, vault, supervision, handover,
                        Deferred(database, self._registry, consents, self._settings),
                    ),
                    WebhookOperations(database, authorizer, self._settings, vault, deliverer.wake),
                    ServiceOperations(
                        database, self._registry, authorizer, self._settings, launcher, path, self._reload
                    ),
                ],
            )  # fmt: skip
            recoverer = Recoverer(database, launcher, self._registry, supervision, self._launcher_state, boot_id)
            self._door = await stack.enter_async_context(BusDoor(bus, manager, self._hub))
            rpc = await stack.enter_async_context(self._rpc_door(manager))
            group = await stack.enter_async_context(asyncio.TaskGroup())
            self._handle_signals(group)
            group.create_task(supervision.run())
            group.create_task(deliverer.run())
            group.create_task(handover.run())
            group.create_task(expiry.run())
            group.create_task(lapse.run())
            group.create_task(trail.run(self._settings))
            group.create_task(self._recover_and_schedule(recoverer, emergency, holding, scheduler))
            group.create_task(self._manager.feed_watchdog(database))
            group.create_task(self._end_with(bus))
            await self._first_recovery()
            await self._door.open()
            rpc.open()
            # What is there now stays for ever: the collector need not look at it again.
            gc.collect()
            gc.freeze()
            self._manager.ready(f"Serving, {len(self._registry.all())} capabilities")

    def _rpc_door(self, manager: Manager) -> RpcDoor:
        """The JSON-RPC door, on the sockets of aiosd.socket; without them it has nothing to do."""
        names = set(Speech)
        sockets = {Speech(one.name): socket.socket(fileno=one.fd) for one in passed() if one.name in names}
        limits = self._settings.current
        subscriptions = Subscriptions(per_user=limits.max_subscriptions_per_user)
        return RpcDoor(
            manager, self._hub, sockets, subscriptions=subscriptions,
            queue_size=lambda: self._settings.current.event_queue_size,
        )  # fmt: skip

    async def _open_store(self, stack: AsyncExitStack, path: Path) -> tuple[Database, AuditTrail]:
        """The database, its commits signed, its events heard, its audit records copied to the journal."""
        trail = await AuditTrail.open(self._state)
        database = await stack.enter_async_context(Database.open(path, seal=trail.seal))
        self._say(database)
        journal = stack.enter_context(closing(Journal()))
        database.on_commit(self._hub.publish)
        database.on_commit(AuditJournal(journal).committed)
        await trail.begin(database)
        return database, trail

    async def _first_recovery(self) -> None:
        """Callers should find recovered tasks; but a launcher that is away does not keep them out for ever."""
        try:
            async with asyncio.timeout(10):
                await self._recovered.wait()
        except TimeoutError:
            _log.warning("Serving before recovery is done: the launcher does not answer")

    async def _recover_and_schedule(
        self, recoverer: Recoverer, emergency: Emergency, holding: Holding, scheduler: Scheduler
    ) -> None:
        warned = False
        while True:
            try:
                await recoverer.run()
                break
            except (LauncherError, StoreError) as error:
                if not warned:
                    _log.warning("Recovery has to wait: %s", error)
                    warned = True
                await asyncio.sleep(RECOVERY_RETRY)
        self._recovered.set()
        await emergency.enforce()
        await holding.recover()
        await scheduler.run()

    def _handle_signals(self, group: asyncio.TaskGroup) -> None:
        loop = asyncio.get_running_loop()

        async def stop() -> None:
            self._manager.stopping()
            raise _Stop(0, "asked to")

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, lambda: group.create_task(stop()))
        loop.add_signal_handler(signal.SIGHUP, lambda: group.create_task(self._reload_on_signal()))

    async def _end_with(self, bus: SystemBus) -> None:
        await bus.closed.wait()
        raise _Stop(1, "the system bus is gone")

    async def _read_configuration(self) -> None:
        loaded = await asyncio.to_thread(config.load)
        for warning in loaded.warnings:
            _log.warning("%s", warning)
        self._settings.current = loaded.config
        await self._policies.load()
        await self._registry.load()

    async def _reload_on_signal(self) -> None:
        """SIGHUP, `systemctl reload`: what goes wrong is told and changes nothing, least of all that we serve."""
        try:
            await self._reload()
        except Exception:  # noqa: BLE001  a reload must not end the daemon
            _log.exception("The reload failed; what was in force still is")

    async def _reload(self) -> None:
        """Read everything again; one at a time, and the service manager hears of the end in any case."""
        async with self._reloads:
            self._manager.reloading()
            try:
                await self._read_configuration()
                self._tell_doors()
            finally:
                self._manager.ready(f"Serving, {len(self._registry.all())} capabilities")

    def _tell_doors(self) -> None:
        """Limits and capabilities may be others now: for callers, and for who waits to be started."""
        if self._scheduler is not None:
            self._scheduler.wake()
        if self._door is not None:
            current = self._settings.current
            self._door.capabilities_changed()
            self._door.limits_changed(
                concurrent=current.max_concurrent_tasks, per_tool=current.max_tasks_per_tool,
                queue=current.max_queue_size,
            )  # fmt: skip

    def _say(self, database: Database) -> None:
        """What opening the store met."""
        report = database.report
        if report.broken is not None:
            _log.error("The database was damaged (%s) and is kept as %s", report.broken_reason, report.broken)
        if report.read_only_reason:
            _log.error("Nothing can be changed: %s", report.read_only_reason)
        if report.migrated_from is not None:
            _log.info("The database was migrated from %s to %s", report.migrated_from, report.version)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="aiosd", description="The task manager of an AI-native operating system.")
    parser.add_argument("--version", action="version", version=f"aiosd {__version__}")
    parser.add_argument("--state", type=Path, default=STATE, help="state directory (default: %(default)s)")
    parser.add_argument("--launcher-state", type=Path, default=STATE_DIRECTORY, help="default: %(default)s")
    parser.add_argument("--launcher-socket", type=Path, default=LAUNCHER_SOCKET, help="default: %(default)s")
    parser.add_argument("--capabilities", type=Path, action="append", help="directory of manifests, weakest first")
    return parser.parse_args(arguments)


async def _run(options: argparse.Namespace) -> None:
    await Daemon(options).run()


def main() -> None:
    """The program `aiosd`. Exit status 0 when it was asked to stop."""
    options = _options(sys.argv[1:])
    logs.set_up()
    try:
        asyncio.run(_run(options))
    except* _Stop as stops:
        first = stops.exceptions[0]
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        status = first.status if isinstance(first, _Stop) else 1
        if status:
            _log.error("%s", first)
        sys.exit(status)
    except* (NameTakenError, AuditKeyError, StoreError, secrets.SecretError) as errors:
        _log.error("%s", errors.exceptions[0])
        sys.exit(1)
