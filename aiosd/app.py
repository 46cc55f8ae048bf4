"""The daemon: `main` wires everything and holds it together. Read `Daemon.run` from top to bottom.

Order of start: configuration and manifests, bus, store, launcher; then recovery, then the doors; ready; what can wait
is done once it is calm. Order of stop: callers, then everything that they stood on, last of all the streams, whose
listeners wait from then on; within five seconds. Running tasks are left alone, they do not need us.
"""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import gc
import logging
import signal
import socket
import sys
import threading
from contextlib import AsyncExitStack, closing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from aiosd import __version__, config, logs
from aiosd.auth.polkit import PolkitAuthority
from aiosd.bus.authority import BusPolkit
from aiosd.bus.connection import SystemBus
from aiosd.bus.door import BusDoor, NameTakenError
from aiosd.bus.peers import Limits
from aiosd.bus.places import BusPlaces
from aiosd.bus.shutdown import ShutdownDelay
from aiosd.core import clock, secrets
from aiosd.core.artifacts import BlobStore
from aiosd.core.audit_trail import AuditTrail
from aiosd.core.calm import CALM
from aiosd.core.events import EventHub
from aiosd.core.operations import OPERATIONS
from aiosd.core.policies import PolicyStore
from aiosd.core.registry import Registry
from aiosd.core.settings import Settings
from aiosd.ending import FAILED, at_rest, end_at_once, end_within, leave, stop_tasks
from aiosd.journal import AuditJournal, Journal
from aiosd.manifest import schema
from aiosd.notify import ServiceManager
from aiosd.rpc.limits import Allowance
from aiosd.rpc.server import RpcDoor, Speech
from aiosd.rpc.subscriptions import Subscriptions
from aiosd.run.client import LauncherClient, LauncherError
from aiosd.run.layout import LAUNCHER_SOCKET, STATE_DIRECTORY
from aiosd.run.notify import passed
from aiosd.store.audit_key import AuditKeyError
from aiosd.store.database import Database, StoreError, StoreFailure
from aiosd.wiring import Ground, Services

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiosd.core.kept_subscriptions import KeptSubscriptions
    from aiosd.core.manager import Manager

STATE = Path("/var/lib/aiosd")
LAUNCHER_AWAY, LAUNCHER_SLOW = 10.0, 45.0
"""Seconds that the first recovery is waited for when the launcher refuses, and when it only takes its time; the unit's
TimeoutStartSec= is longer than both."""
RECOVERY_RETRY = 1.0
"""Seconds between tries to recover while the launcher does not answer."""
WIND_UP = 0.5
"""Seconds that what is being answered has when the daemon is told to end."""
SWITCH = 0.005
"""Seconds that a thread may keep the interpreter from the loop: Python's own; start.py has made it less."""

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
        self._database: Database | None = None
        self._hub = EventHub()
        self._door: BusDoor | None = None
        self._services: Services | None = None
        self._reloads = asyncio.Lock()
        self._recovered = asyncio.Event()
        self._recovery_failed = False
        self._read_only: str | None = None
        self._sockets = {Speech(one.name): socket.socket(fileno=one.fd) for one in passed() if one.name in set(Speech)}

    async def run(self) -> None:
        """Serve until told to stop. Raises what made it impossible."""
        await self._read_configuration()
        async with AsyncExitStack() as last, AsyncExitStack() as stack:
            bus = await stack.enter_async_context(SystemBus())
            services = Services(await self._ground(stack, bus))
            self._services = services
            await services.emergency.begin()
            self._door = await stack.enter_async_context(
                BusDoor(bus, services.manager, self._hub, limits=self._bus_limits)
            )
            rpc = await last.enter_async_context(self._rpc_door(services.manager, services.kept_subscriptions))
            group = await stack.enter_async_context(asyncio.TaskGroup())
            self._handle_signals(group, services, rpc)
            self._read_only = services.ground.database.read_only_reason
            if self._read_only is None:
                await services.crew.recover()
                for work in services.work():
                    group.create_task(work)
                group.create_task(self._recover_and_schedule(services))
            else:
                self._recovered.set()  # a newer program's tasks run on by themselves until it is back
            group.create_task(self._manager.feed_watchdog(services.ground.database))
            delay = ShutdownDelay(bus, services.scheduler.drain, partial(at_rest, services.supervision))
            group.create_task(delay.run())
            group.create_task(self._end_with(bus))
            group.create_task(self._end_with_damage(services.ground.database))
            await self._first_recovery()
            await self._door.open()
            rpc.open()
            self._manager.ready(self._status())
            await self._settle()

    async def _settle(self) -> None:
        """What nobody waits for, once those that have waited are served."""
        await asyncio.sleep(CALM / 3)
        await asyncio.to_thread(OPERATIONS["task.get"].model.load)  # the first call of most kinds needs it
        await asyncio.sleep(CALM)
        sys.setswitchinterval(SWITCH)
        for operation in OPERATIONS.values():
            if not operation.model.is_loaded:
                await asyncio.to_thread(operation.model.load)
        await asyncio.to_thread(schema.warm_up)
        # What is there now stays for ever: the collector need not look at it again.
        gc.collect()
        gc.freeze()
        gc.enable()

    def _status(self) -> str:
        """For `systemctl status`."""
        if self._read_only is not None:
            return f"Only reading: {self._read_only}"
        return f"Serving, {len(self._registry.all())} capabilities"

    async def _ground(self, stack: AsyncExitStack, bus: SystemBus) -> Ground:
        """Everything that the services stand on, open until the stack is left."""
        path = self._state / "aiosd.db"
        database, trail = await self._open_store(stack, path)
        self._database = database
        return Ground(
            database=database,
            path=path,
            state=self._state,
            trail=trail,
            vault=await asyncio.to_thread(secrets.load, self._state),
            launcher=await stack.enter_async_context(LauncherClient(self._launcher_socket)),
            launcher_state=self._launcher_state,
            authority=PolkitAuthority(BusPolkit(bus)),
            places=BusPlaces(bus),
            registry=self._registry,
            policies=self._policies,
            settings=self._settings,
            hub=self._hub,
            blobs=BlobStore(self._state / "blobs"),
            boot_id=clock.boot_id(),
            reload=self._reload,
        )

    def _rpc_door(self, manager: Manager, kept: KeptSubscriptions) -> RpcDoor:
        """The JSON-RPC door, on the sockets of aiosd.socket; without them it has nothing to do."""
        subscriptions = Subscriptions(per_user=lambda: self._settings.current.max_subscriptions_per_user, keeper=kept)
        return RpcDoor(manager, self._hub, self._sockets, subscriptions=subscriptions, allowance=self._allowance)

    def _allowance(self) -> Allowance:
        current = self._settings.current
        return Allowance(current.event_queue_size, current.event_timeout, current.max_calls_per_sender)

    def _bus_limits(self) -> Limits:
        current = self._settings.current
        return Limits(per_peer=current.max_calls_per_sender, subscriptions_per_peer=current.max_subscriptions_per_user)

    async def _open_store(self, stack: AsyncExitStack, path: Path) -> tuple[Database, AuditTrail]:
        """Damage that the opening itself did not meet is noted when it is met here; the second opening salvages."""
        try:
            return await self._open_store_once(stack, path)
        except StoreError as error:
            if error.failure is not StoreFailure.CORRUPT:
                raise
        return await self._open_store_once(stack, path)

    async def _open_store_once(self, outer: AsyncExitStack, path: Path) -> tuple[Database, AuditTrail]:
        """The database, its commits signed, its events heard, its audit records copied to the journal."""
        async with AsyncExitStack() as stack:
            trail = await AuditTrail.open(self._state)
            database = await stack.enter_async_context(Database.open(path, seal=trail.seal))
            self._say(database)
            journal = stack.enter_context(closing(Journal()))
            database.on_commit(self._hub.publish)
            database.on_commit(AuditJournal(journal).committed)
            await trail.begin(database)
            outer.push_async_exit(stack.pop_all())
            return database, trail

    async def _first_recovery(self) -> None:
        """Callers should find recovered tasks; but a launcher that is away does not keep them out for ever.

        One that is only slow, on a machine that is busy with its boot, is waited for longer.
        """
        for patience in (LAUNCHER_AWAY, LAUNCHER_SLOW - LAUNCHER_AWAY):
            with suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await self._recovered.wait()
                return
            if self._recovery_failed:
                break
        _log.warning("Serving before recovery is done: the launcher does not answer")

    async def _recover_and_schedule(self, services: Services) -> None:
        while True:
            try:
                await services.recoverer.run()
                break
            except (LauncherError, StoreError) as error:
                if not self._recovery_failed:
                    _log.warning("Recovery has to wait: %s", error)
                    self._recovery_failed = True
                await asyncio.sleep(RECOVERY_RETRY)
        self._recovered.set()
        await services.emergency.enforce()
        await services.holding.recover()
        async with asyncio.TaskGroup() as group:
            group.create_task(services.scheduler.run())
            await asyncio.sleep(CALM)
            group.create_task(services.recoverer.sweep())

    def _handle_signals(self, group: asyncio.TaskGroup, services: Services, rpc: RpcDoor) -> None:
        loop = asyncio.get_running_loop()

        async def stop() -> None:
            self._manager.stopping()
            current = self._settings.current
            end_within(current.stop_timeout)
            services.scheduler.draining = True
            if current.stop_tasks_on_stop:
                await stop_tasks(services.control, services.supervision, current.stop_timeout * 0.8)
            rpc.shut()
            await services.manager.wind_up(WIND_UP)
            await services.manager.close(WIND_UP)
            await rpc.subscriptions.settled()
            raise _Stop(0, "asked to")

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, lambda: group.create_task(stop()))
        loop.add_signal_handler(signal.SIGHUP, lambda: group.create_task(self._reload_on_signal()))

    async def _end_with(self, bus: SystemBus) -> None:
        await bus.closed.wait()
        raise _Stop(1, "the system bus is gone")

    async def _end_with_damage(self, database: Database) -> None:
        """The next start moves a damaged database aside and takes what can be read."""
        await database.damaged.wait()
        raise _Stop(1, "the database is damaged; starting anew with what can be salvaged")

    async def _read_configuration(self) -> None:
        loaded = await asyncio.to_thread(config.load)
        for warning in loaded.warnings:
            _log.warning("%s", warning)
        self._settings.current = loaded.config
        await self._registry.load()
        if self._database is None:
            await self._policies.load()
        else:
            await self._policies.load_again(self._database)

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
                self._manager.ready(self._status())

    def _tell_doors(self) -> None:
        """Limits and capabilities may be others now: for callers, and for who waits to be started."""
        if self._services is not None:
            self._services.scheduler.wake()
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
    try:
        await Daemon(options).run()
    except BaseExceptionGroup as group:
        stops, others = group.split(_Stop)
        if stops is not None and others is None:
            leave(_status_of(stops))
        raise


def _status_of(stops: BaseExceptionGroup[_Stop]) -> int:
    """The first one's, which is told when it is a failure."""
    first: BaseException = stops
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    status = first.status if isinstance(first, _Stop) else FAILED
    if status:
        _log.error("%s", first)
    return status


def main() -> None:
    """The program `aiosd`. Exit status 0 when it was asked to stop."""
    faulthandler.enable()  # the watchdog's SIGABRT then tells in the journal where every thread was
    threading.excepthook = lambda died: end_at_once(died.exc_value)
    try:
        _serve(_options(sys.argv[1:]))
    except Exception as error:  # noqa: BLE001  whatever it was, its end must not hang
        end_at_once(error)


def _serve(options: argparse.Namespace) -> None:
    logs.set_up()
    try:
        asyncio.run(_run(options))
    except* _Stop as stops:
        sys.exit(_status_of(stops))
    except* (NameTakenError, AuditKeyError, StoreError, secrets.SecretError) as errors:
        _log.error("%s", errors.exceptions[0])
        sys.exit(1)
