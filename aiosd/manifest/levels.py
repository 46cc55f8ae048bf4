"""What a manifest may ask for at its level: below critical it may tighten the level's defaults and never loosen them.

`too_loose` is the whole rule. Two allowances are looser than a default and still no more than what the level means:

* `network = "netlink"` at every level: reading the host's interfaces is not being connected (see `Network`).
* a named `user` and `read_write_paths` at level high, as the design's table has it ("plus what the manifest names").
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from aiosd.manifest import keys
from aiosd.model.later import dataclass
from aiosd.model.manifest import LEVEL_DEFAULTS, HomeView, Identity, Limits, Network
from aiosd.model.status import Level

if TYPE_CHECKING:
    from collections.abc import Iterator

_IDENTITIES = tuple(Identity)
_NETWORKS = tuple(Network)
_HOMES = tuple(HomeView)
_WEIGHT = 100
"""The kernel's default weight, which is what a scope without the setting has (cgroup-v2, "Weights")."""

LIMIT_KEYS = {
    "memory_max": keys.MEMORY_MAX,
    "memory_high": keys.MEMORY_HIGH,
    "cpu_quota_percent": keys.CPU_QUOTA,
    "tasks_max": keys.TASKS_MAX,
    "io_weight": keys.IO_WEIGHT,
    "cpu_weight": keys.CPU_WEIGHT,
    "open_files": keys.OPEN_FILES,
    "scratch_max": keys.SCRATCH_MAX,
    "log_max": keys.LOG_MAX,
}
"""Field of `Limits` → its key."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What bounds the process, as the manifest has it with the level's defaults filled in."""

    level: Level
    identity: Identity
    network: Network
    home: HomeView
    read_write_paths: tuple[str, ...]
    limits: Limits


def too_loose(wish: Wish) -> Iterator[tuple[keys.Key[object], str]]:
    """Every key that goes beyond its level, with the reason in words."""
    if wish.level is Level.CRITICAL:
        return
    allowed = LEVEL_DEFAULTS[wish.level]
    name = wish.level.wire
    highest = Identity.NAMED if wish.level is Level.HIGH else allowed.identity
    if _IDENTITIES.index(wish.identity) > _IDENTITIES.index(highest):
        yield keys.USER, f'level {name} may not run as "{wish.identity}": at most "{highest}"'
    network = max(allowed.network, Network.NETLINK, key=_NETWORKS.index)
    if _NETWORKS.index(wish.network) > _NETWORKS.index(network):
        yield keys.NETWORK, f'level {name} may not have the network "{wish.network}": at most "{network}"'
    if _HOMES.index(wish.home) > _HOMES.index(allowed.home):
        yield keys.HOME, f'level {name} may not see home directories "{wish.home}": at most "{allowed.home}"'
    if wish.read_write_paths and wish.level is not Level.HIGH:
        yield keys.READ_WRITE_PATHS, f"level {name} may not name writable paths: only high and critical may"
    elif "/" in wish.read_write_paths:
        yield keys.READ_WRITE_PATHS, "the whole system may be writable only at level critical"
    yield from _loose_limits(wish.limits, allowed.limits, name)


def _loose_limits(wished: Limits, allowed: Limits, name: str) -> Iterator[tuple[keys.Key[object], str]]:
    for field in fields(Limits):
        value: int | None = getattr(wished, field.name)
        highest: int | None = getattr(allowed, field.name)
        if field.name.endswith("_weight"):
            highest = _WEIGHT
        if value is not None and highest is not None and value > highest:
            yield LIMIT_KEYS[field.name], f"level {name} allows at most {in_words(field.name, highest)}"


def in_words(field: str, value: int) -> str:
    """A limit as an author writes it."""
    if field.endswith("percent"):
        return f"{value}%"
    if field.startswith("memory") or field in ("scratch_max", "log_max"):
        for unit, bytes_ in (("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)):
            if value % bytes_ == 0:
                return f"{value // bytes_}{unit}"
    return str(value)
