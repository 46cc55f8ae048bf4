"""aios-launcher: the root program. `main` starts the fork server, then serves the daemon's socket.

Kept small: who may ask is decided by the kernel (SO_PEERCRED), what may run by root-owned manifests, and everything
else by the daemon. See docs/architecture.md, "Launcher protocol".
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import pwd
import signal
import socket
from contextlib import closing
from pathlib import Path

from aiosd.run.forkclient import ForkError, spawn
from aiosd.run.layout import LAUNCHER_SOCKET, STATE_DIRECTORY

_log = logging.getLogger(__name__)


class _Ended(Exception):
    """Something that the launcher cannot be without is gone; the service manager starts it again."""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="aios-launcher", description="Start AIOS tasks in systemd scopes, for aiosd.")
    parser.add_argument("--user", default="aiosd", help="the user who may ask (default: %(default)s)")
    parser.add_argument(
        "--state", type=Path, default=STATE_DIRECTORY, help="where runs are kept (default: %(default)s)"
    )
    parser.add_argument(
        "--socket", type=Path, help=f"listen here when systemd passes no socket (e.g. {LAUNCHER_SOCKET})"
    )
    parser.add_argument("--capabilities", type=Path, action="append", help="directory of manifests, weakest first")
    return parser.parse_args()


def _listen(path: Path, uid: int) -> socket.socket:
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(path))
    os.chown(path, uid, 0)
    path.chmod(0o600)
    listener.listen(16)
    return listener


def main() -> None:
    """Run until SIGTERM. Exit status 1 when the bus, systemd or the fork server is gone."""
    arguments = _arguments()
    forks = spawn()  # before this process grows, and while it does
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        asyncio.run(_serve(arguments, forks.socket))
    except ExceptionGroup as group:
        expected, others = group.split((_Ended, ForkError))
        if others is not None or expected is None:
            raise
        raise SystemExit("; ".join(str(error) for error in expected.exceptions)) from None


async def _serve(arguments: argparse.Namespace, forks: socket.socket) -> None:
    from aiosd.auth.enforced import EnforcedCeiling
    from aiosd.bus.connection import SystemBus, Variant
    from aiosd.manifest.directories import DEFAULT
    from aiosd.run import landlock, notify
    from aiosd.run.broker import Broker
    from aiosd.run.forkclient import ForkServer
    from aiosd.run.identity import DynamicUids
    from aiosd.run.rundirs import RunDirectories
    from aiosd.run.starting import Manifests, Starter
    from aiosd.run.units import Units

    peer = pwd.getpwnam(arguments.user)
    if landlock.missing():
        _log.warning("This kernel's Landlock is off or too old: %s", landlock.missing())
    runs = RunDirectories(arguments.state, peer.pw_gid)
    runs.prepare()
    uids = DynamicUids()
    passed = notify.passed()
    controls = [item for item in passed if item.name.startswith("run-")]
    listeners = [socket.socket(fileno=item.fd) for item in passed if item not in controls]
    if not listeners:
        listeners = [_listen(arguments.socket or LAUNCHER_SOCKET, peer.pw_uid)]
    broker = Broker(peer.pw_uid, runs, uids)
    fork_server = ForkServer(forks)
    with closing(broker):
        async with SystemBus() as bus, asyncio.TaskGroup() as group:
            units = Units(bus, Variant, broker.scope_ended)
            await units.start()
            manifests = Manifests(tuple(arguments.capabilities or DEFAULT))
            starter = Starter(runs, manifests, EnforcedCeiling().why_not, uids, fork_server, units)
            broker.adopt(controls, await units.active(), units, starter)
            tasks = [group.create_task(fork_server.serve()), group.create_task(_until_closed(bus.closed))]
            tasks += [group.create_task(broker.accept(listener)) for listener in listeners]
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: [task.cancel() for task in tasks])
            notify.notify("READY=1")


async def _until_closed(closed: asyncio.Event) -> None:
    await closed.wait()
    raise _Ended("the connection to the system bus is closed")


if __name__ == "__main__":
    main()
