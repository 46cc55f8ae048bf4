"""As whom a run works: the manifest's word, the caller's number, and uids that belong to nobody else.

Dynamic uids come from the part of the number space that systemd's docs leave to nobody (UIDS-GIDS: 1879048192 to
2147483647 is unused), each for one run at a time.
"""

from __future__ import annotations

import os
import pwd
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from aiosd.model.later import dataclass
from aiosd.model.manifest import Capability, HomeView, Identity, Network
from aiosd.model.status import Level
from aiosd.run.context import DIRECTORY
from aiosd.run.protocol import Refusal, RefusalCode
from aiosd.run.spec import View
from aiosd.run.syscalls import Account

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DYNAMIC_FIRST = 1_879_113_728
DYNAMIC_COUNT = 4096
_HOMES = ("/home", "/root", "/run/user")
_OURS = ("/run/aios", "/var/lib/aiosd", "/var/lib/aios-launcher")
"""The daemon's sockets and state: its callers are people and services, and no task needs to see another's run."""

_SESSIONS = ("/run/screen", "/run/tmux")
"""Sockets of a user's terminals: who may write into one has left the task. Others are in /tmp and /run/user."""

_SERVICES = "/run"
"""Where services listen, D-Bus and all others (Unix sockets know no network namespace); what has no network does not
reach them either."""

_HARMLESS = ("/run/systemd/journal", "/run/systemd/userdb", "/run/log/journal", "/run/udev/data", "/run/media")
"""What is left of it: where logs go, who users are (nss-systemd(8)), logs of this boot, what devices are, and removable
disks. Each costs a start some 50 µs."""


class IdentityError(ValueError):
    """There is nobody as whom this could run; `str()` says why."""


@dataclass(frozen=True, slots=True)
class Identified:
    """An account with what its environment says. `dynamic`: the uid has to be given back."""

    account: Account
    name: str
    home: str | None
    shell: str
    dynamic: bool


class DynamicUids:
    """The block of uids, and which run has which of them."""

    def __init__(self, count: int = DYNAMIC_COUNT) -> None:
        """`count`: how many there are."""
        self._count = count
        self._taken: dict[int, str] = {}
        self._next = 0

    def adopt(self, taken: Mapping[str, int]) -> None:
        """Runs that live already, and their uids, dynamic or not."""
        for run, uid in taken.items():
            if is_dynamic(uid):
                self._taken[uid] = run

    def take(self, run: str) -> int:
        """A uid that no run has; the one given back last comes last. Raises IdentityError."""
        for step in range(self._count):
            uid = DYNAMIC_FIRST + (self._next + step) % self._count
            if uid not in self._taken:
                self._next = (self._next + step + 1) % self._count
                self._taken[uid] = run
                return uid
        raise IdentityError(f"all {self._count} dynamic users are in use")

    def give_back(self, uid: int, run: str) -> None:
        """Nothing of the run has this uid any more. What another run has by now, and what is not dynamic, stays."""
        if self._taken.get(uid) == run:
            del self._taken[uid]


def is_dynamic(uid: int) -> bool:
    """Whether the number is from the block."""
    return DYNAMIC_FIRST <= uid < DYNAMIC_FIRST + DYNAMIC_COUNT


def identify(capability: Capability, caller: int, run: str, uids: DynamicUids) -> Identified:
    """As whom `capability` runs for `caller` (a uid). Looks into the user database; may block. Raises IdentityError."""
    if capability.identity is Identity.DYNAMIC:
        uid = uids.take(run)
        return Identified(Account(uid, uid, ()), "aios-task", None, "/usr/sbin/nologin", dynamic=True)
    if capability.identity is Identity.NAMED:
        if capability.level < Level.HIGH or capability.user is None:
            raise IdentityError("a named user needs level high or critical")
        return _existing(lambda: pwd.getpwnam(capability.user or ""), f"user {capability.user}")
    return _existing(lambda: pwd.getpwuid(caller), f"the caller's uid {caller}")


def _existing(look_up: Callable[[], pwd.struct_passwd], what: str) -> Identified:
    try:
        entry = look_up()
    except (KeyError, OverflowError):
        raise IdentityError(f"{what} is not in the user database") from None
    groups = tuple(sorted(set(os.getgrouplist(entry.pw_name, entry.pw_gid))))
    account = Account(entry.pw_uid, entry.pw_gid, groups)
    return Identified(account, entry.pw_name, entry.pw_dir, entry.pw_shell or "/bin/sh", dynamic=False)


def view_for(capability: Capability, who: Identified, scratch: Path, *, research: bool = False) -> View:
    """What the program sees: below critical a read-only system with the home that the manifest allows.

    `research`: also no services, which would do for it what it may not (`for_research` has the rest).
    """
    bounded = capability.level < Level.CRITICAL
    home = _own_home(who)
    shown = home if capability.home is not HomeView.NONE else None
    whole = not bounded and capability.home is HomeView.READ_WRITE  # /home as it is
    hidden: tuple[str, ...] = () if whole else _HOMES
    if bounded:
        hidden += _OURS + _SESSIONS
    alone = research or capability.level <= Level.LOW
    if alone:
        hidden = (*(path for path in hidden if not path.startswith(f"{_SERVICES}/")), _SERVICES)
    return View(
        confined=bounded,
        read_only=bounded,
        private_tmp=bounded,
        # uid 0 owns every device, and needs no capability to use what it owns.
        private_devices=bounded and (capability.level <= Level.LOW or who.account.uid == 0),
        private_ipc=bounded,
        private_network=capability.network is Network.NONE,
        route_sockets_only=capability.network is Network.NETLINK,
        hidden=hidden,
        home=None if whole else shown,
        home_writable=capability.home is HomeView.READ_WRITE,
        writable=capability.read_write_paths,
        scratch=str(scratch),
        scratch_max=capability.limits.scratch_max,
        shown=_HARMLESS if alone else (),
    )


def for_research(capability: Capability) -> Capability:
    """The same with nothing that it could change but its scratch directory, and nobody whom it could reach.

    Raises Refusal at level critical, where the program sees the system as it is.
    """
    if capability.level is Level.CRITICAL:
        raise Refusal(RefusalCode.BAD_REQUEST, "a critical capability cannot be kept to research")
    home = HomeView.NONE if capability.home is HomeView.NONE else HomeView.READ_ONLY
    network = Network.NONE if capability.network is Network.HOST else capability.network
    return replace(capability, home=home, network=network, read_write_paths=())


def _own_home(who: Identified) -> str | None:
    """The account's home, when it is a directory that it owns: / or another's is not made writable by an entry."""
    if who.home is None or who.home == "/" or not who.home.startswith("/"):
        return None
    path = Path(who.home)
    try:
        if path.is_symlink() or path.stat().st_uid != who.account.uid or not path.is_dir():
            return None
    except OSError:
        return None
    return who.home


def keeps_capabilities(capability: Capability, who: Identified) -> bool:
    """Only level critical, and only as root (nobody else has any)."""
    return capability.level is Level.CRITICAL and who.account.uid == 0


def environment(who: Identified, run: str, task: str, capability: str, scratch: Path) -> dict[str, str]:
    """The program's environment, all of it but AIOS_TASK_FD and AIOS_ATTEMPT (docs/architecture.md)."""
    return {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG": "C.UTF-8",
        "HOME": who.home or str(scratch),
        "USER": who.name,
        "LOGNAME": who.name,
        "SHELL": who.shell,
        "TMPDIR": str(scratch),
        "AIOS_TASK_ID": task,
        "AIOS_RUN_ID": run,
        "AIOS_CAPABILITY": capability,
        "AIOS_ARGUMENTS": str(scratch / ".aios-arguments.json"),
        "AIOS_CONTEXT": str(scratch / DIRECTORY),
        "AIOS_SCRATCH": str(scratch),
    }
