"""What the broker tells the fork server about one run: everything that is fixed before the gate opens.

The broker makes it from the manifest and the peer's request, the shim carries it out. Standard library only, and of
that what every shim can afford (`forkserver.py`). On the wire it is one JSON object; both ends are root's own, so
reading it back checks no more than the shape.
"""

from __future__ import annotations

import json
from enum import IntEnum
from typing import NamedTuple

from aiosd.run.syscalls import Account

SPEC_MAX = 192 * 1024
"""Largest spec in bytes."""


class Descriptor(IntEnum):
    """The order of the descriptors that travel with a spec."""

    CONTROL = 0
    STDOUT = 1
    STDERR = 2
    EVENTS = 3
    BLOBS = 4
    EXIT = 5


class View(NamedTuple):
    """What the program sees of the system. Paths are absolute.

    `hidden` directories appear empty; shown in them are `home` (or in its own place) when it is not None, and
    what is in `shown`. `writable` are the exceptions to `read_only`. `confined`: behind the walls of `seccomp.py` and
    `landlock.py`, and at no terminal of others.
    `route_sockets_only`: the network may be looked at, not used. `private_devices`: /dev has only what holds nothing.
    `scratch_max`: bytes of the run's own file system, None for a plain directory.
    """

    confined: bool
    read_only: bool
    private_tmp: bool
    private_devices: bool
    private_ipc: bool
    private_network: bool
    route_sockets_only: bool
    hidden: tuple[str, ...]
    home: str | None
    home_writable: bool
    writable: tuple[str, ...]
    scratch: str
    scratch_max: int | None
    shown: tuple[str, ...] = ()


class ShimSpec(NamedTuple):
    """One run, as the shim needs it. Durations in milliseconds, sizes in bytes."""

    run: str
    task: str
    capability: str
    unit: str
    argv: tuple[str, ...]
    environment: dict[str, str]
    account: Account
    keep_capabilities: bool
    view: View
    open_files: int | None
    log_max_bytes: int
    blobs_max_bytes: int
    grace_ms: int

    def encode(self) -> bytes:
        """As one JSON object."""
        fields = {**self._asdict(), "account": self.account._asdict(), "view": self.view._asdict()}
        return json.dumps(fields, ensure_ascii=True, separators=(",", ":")).encode()


def decode(data: bytes) -> ShimSpec:
    """The spec in `data`; KeyError, TypeError or ValueError when the broker and the fork server do not match."""
    fields = json.loads(data)
    view, account = fields["view"], fields["account"]
    for name in ("hidden", "writable", "shown"):
        view[name] = tuple(view[name])
    fields["view"] = View(**view)
    fields["account"] = Account(account["uid"], account["gid"], tuple(account["groups"]))
    fields["argv"] = tuple(fields["argv"])
    return ShimSpec(**fields)
