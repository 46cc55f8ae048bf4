"""Throw-away systemd-nspawn containers on the cached root file system.

A container has cgroups of its own (`/aiosd-rig-NAME` in each hierarchy), a tmpfs overlay for everything it writes, a
network namespace with nothing but loopback, and the capabilities that make IPAddressDeny=, SocketBindDeny= and
DevicePolicy= real. It is not registered with a machined. What is known about it lies in
`host.state_directory()/NAME`, so that any process can run things in it and stop it: `leader` (the process of its init),
`nspawn` (pid), `owner` (pid and start time of the process to which its life is bound, when it is), `holds` (see
`cache`), `log`.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from tests.rig import cache, host, rootfs
from tests.rig.commands import Box, Running, argv_inside, complete
from tests.rig.processes import Process

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import IO

#: Seconds a boot may take before it counts as failed; about one is usual.
BOOT_TIMEOUT = 180.0

#: Joins the cgroup directories before `--`, then becomes the command after it.
_ENTER = 'while [ "$1" != -- ]; do echo $$ >"$1/cgroup.procs" || exit 125; shift; done; shift; exec "$@"'

#: nspawn processes that this process started, so that it can also reap them
_children: dict[str, subprocess.Popen[bytes]] = {}


class Bus(Enum):
    """Which program is the system bus."""

    DAEMON = "dbus-daemon"
    BROKER = "dbus-broker"


def in_cgroups(directories: Sequence[Path], argv: Sequence[str]) -> list[str]:
    """A command that runs `argv` inside those cgroups."""
    return ["sh", "-c", _ENTER, "enter", *map(str, directories), "--", *argv]


class Container(Box):
    """A container that is up. Make one with `boot`, find one that another process booted with `attach`."""

    def __init__(self, name: str, leader: Process) -> None:
        """Use `boot` or `attach`."""
        self.name = name
        self.leader = leader

    @classmethod
    def attach(cls, name: str) -> Container:
        """The running container of that name; `host.Unavailable` when there is none."""
        leader = Process.load(host.state_directory() / name / "leader")
        if leader is None or not _belongs(leader, name):
            raise host.Unavailable(f"no container {name} is running")
        return cls(name, leader)

    @classmethod
    def boot(
        cls,
        name: str,
        *,
        bind: Mapping[Path, str] | None = None,
        bus: Bus = Bus.DAEMON,
        host_network: bool = False,
        owned: bool = False,
    ) -> Container:
        """Boot and wait until systemd has started everything.

        `bind`: host directory -> where it is seen, read-only. `owned`: `reap` may stop it once this process is gone.
        Raises `host.Unavailable` with what nspawn said.
        """
        host.require_root()
        host.require(host.TOOLS)
        root = rootfs.root_directory()
        if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,40}", name):
            raise ValueError(f"not a container name: {name}")
        state = host.state_directory() / name
        try:
            state.mkdir()
        except FileExistsError:
            raise host.Unavailable(f"a container {name} is already there; stop it first") from None
        cache.hold(state, root)
        if owned:
            Process.own().save(state / "owner")
        try:
            leader = _start(name, state, _nspawn(name, root, bind or {}, bus, host_network=host_network))
            leader.save(state / "leader")
            box = cls(name, leader)
            box.settle()
        except BaseException:
            remove(name)
            raise
        return box

    def settle(self) -> str:
        """Wait until the boot has ended; its state, "running" or "degraded" (a unit failed)."""
        done = self.run("systemctl", "is-system-running", "--wait", check=False, timeout=BOOT_TIMEOUT)
        state = done.stdout.strip()
        if state not in {"running", "degraded"}:
            raise host.Unavailable(f"the container's systemd ended up {state!r}: {done.stderr.strip()}")
        return state

    def _argv(self, argv: Sequence[str]) -> list[str]:
        if not self.leader.alive():
            raise host.Unavailable(f"container {self.name} is not running any more")
        own = []
        for directory in _cgroups(self.name):
            payload = directory / "payload"
            group = (payload if payload.is_dir() else directory) / "rig"
            group.mkdir(exist_ok=True)
            own.append(group)
        return in_cgroups(own, ["nsenter", "-t", str(self.leader.pid), "-a", "--wdns=/", "--", *argv])

    def run(
        self,
        *argv: str,
        user: str = "root",
        login: bool = False,
        seat: str | None = None,
        env: Mapping[str, str] | None = None,
        input: str | bytes = "",
        check: bool = True,
        timeout: float = 60,
    ) -> subprocess.CompletedProcess[str]:
        """See `Box.run`."""
        inside = self._argv(["setsid", *argv_inside(argv, user=user, login=login, seat=seat, env=env)])
        return complete(inside, shown=argv, input=input, check=check, timeout=timeout)

    def popen(
        self,
        *argv: str,
        user: str = "root",
        login: bool = False,
        seat: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: int | IO[bytes] | None = subprocess.DEVNULL,
        stdout: int | IO[bytes] | None = subprocess.PIPE,
        stderr: int | IO[bytes] | None = subprocess.PIPE,
    ) -> Running:
        """Start `argv` inside and go on; use it as a context manager, which ends it."""
        inside = self._argv(["setsid", *argv_inside(argv, user=user, login=login, seat=seat, env=env)])
        return Running(inside, stdin=stdin, stdout=stdout, stderr=stderr)

    def become(self, argv: Sequence[str], *, user: str, login: bool, seat: str | None) -> None:
        """Replace this process by `argv` inside, terminal and all. Does not return."""
        terminal = sys.stdin.isatty() and sys.stdout.isatty()
        inside = self._argv(argv_inside(argv, user=user, login=login, seat=seat, terminal=terminal))
        os.execvp(inside[0], inside)  # noqa: S606 - no shell is wanted

    def stop(self) -> None:
        """See `Box.stop`. Its init is killed, which takes every process of it along."""
        remove(self.name)


def names() -> list[str]:
    """Every container that has left a state directory."""
    return sorted(entry.name for entry in host.state_directory().iterdir() if (entry / "nspawn").exists())


def reap() -> list[str]:
    """Stop the containers whose owner is gone (a test run that was killed); their names."""
    gone = []
    for name in names():
        owner = Process.load(host.state_directory() / name / "owner")
        if owner is not None and not owner.alive():
            remove(name)
            gone.append(name)
    return gone


def remove(name: str) -> None:
    """Kill the container `name`, delete its cgroups and state. Only touches processes inside its own cgroups."""
    state = host.state_directory() / name
    if not state.is_dir():
        return
    leader, nspawn = Process.load(state / "leader"), Process.load(state / "nspawn")
    # nspawn cleans up and ends by itself once its init is dead
    for process in (leader, nspawn):
        if process is not None and _belongs(process, name):
            process.kill(signal.SIGKILL)
            _wait_gone(nspawn, name, seconds=5)
    _children.pop(name, None)
    for directory in _cgroups(name):
        _remove_cgroup(directory)
    shutil.rmtree(state, ignore_errors=True)


def _nspawn(name: str, root: Path, bind: Mapping[Path, str], bus: Bus, *, host_network: bool) -> list[str]:
    argv = [
        *(
            "systemd-nspawn",
            f"--directory={root}",
            "--volatile=overlay",
            "--boot",
            f"--machine={name}",
            "--hostname=box",
        ),
        *(
            "--register=no",
            "--keep-unit",
            # into the log: a terminal that nobody reads stops PID 1 when it has said enough, at some hundredth re-exec
            "--console=read-only",
            "--resolv-conf=off",
            "--timezone=off",
            "--notify-ready=yes",
        ),
        # what BPF-based settings of units need; NET_ADMIN only where the network is its own
        "--capability=CAP_BPF,CAP_PERFMON",
        # and what a real machine lets everyone do, and nspawn nobody
        "--system-call-filter=bpf landlock_create_ruleset landlock_add_rule landlock_restrict_self",
    ]
    if host_network:
        argv.append("--bind-ro=/etc/resolv.conf")
    else:
        argv += ["--private-network", "--capability=CAP_NET_ADMIN"]
    argv += [f"--bind-ro={source}:{target}" for source, target in bind.items()]
    if bus is Bus.BROKER:
        broker = root / "usr/lib/systemd/system/dbus-broker.service"
        argv.append(f"--bind-ro={broker}:/etc/systemd/system/dbus.service")
    return [*argv, "systemd.show_status=false"]


def _cgroups(name: str) -> list[Path]:
    return [hierarchy / f"aiosd-rig-{name}" for hierarchy in host.cgroup_hierarchies()]


def _start(name: str, state: Path, argv: Sequence[str]) -> Process:
    """Start nspawn and wait for READY=1 (sd_notify(3)) of the container's systemd; that systemd."""
    groups = _cgroups(name)
    for group in groups:
        group.mkdir(exist_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify, (state / "log").open("wb") as log:
        notify.bind(str(state / "notify"))
        environment = {
            **os.environ,
            "NOTIFY_SOCKET": str(state / "notify"),
            "SYSTEMD_NSPAWN_LOCK": "0",  # several containers share one root, which none of them writes
            "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1",
        }
        process = subprocess.Popen(
            in_cgroups(groups, argv),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
        _children[name] = process
        Process.of(process.pid).save(state / "nspawn")
        leader, deadline = None, time.monotonic() + BOOT_TIMEOUT
        notify.settimeout(0.1)
        while time.monotonic() < deadline and process.poll() is None:
            try:
                message = notify.recv(4096).decode()
            except TimeoutError:
                continue
            found = re.search(r"X_NSPAWN_LEADER_PID=(\d+)", message)
            leader = int(found[1]) if found else leader
            if "READY=1" in message.splitlines() and leader is not None:
                return Process.of(leader)
    raise host.Unavailable("systemd-nspawn: " + (state / "log").read_text(errors="replace")[-2000:])


def _belongs(process: Process | None, name: str) -> bool:
    """Whether it is alive and sits in the container's own cgroups."""
    if process is None or not process.alive():
        return False
    try:
        groups = Path(f"/proc/{process.pid}/cgroup").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return re.search(rf"[:/]aiosd-rig-{name}(/|$)", groups, re.MULTILINE) is not None


def _wait_gone(nspawn: Process | None, name: str, *, seconds: float) -> None:
    """Wait until the container's nspawn has ended, and reap it when it is our child."""
    deadline = time.monotonic() + seconds
    while nspawn is not None and time.monotonic() < deadline:
        child = _children.get(name)
        if child is not None:
            child.poll()
        if not nspawn.alive():
            return
        time.sleep(0.01)


def _remove_cgroup(directory: Path) -> None:
    """Delete a cgroup and those below it, innermost first."""
    if not directory.is_dir():
        return
    for below, _, _ in os.walk(directory, topdown=False):
        for _ in range(50):
            try:
                Path(below).rmdir()
            except OSError:  # its last process is still on its way out
                time.sleep(0.02)
                continue
            break
