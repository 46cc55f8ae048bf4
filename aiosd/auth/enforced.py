"""The administrator's ceiling as the root launcher holds it, at each start, whatever the daemon says.

The daemon looks at the same files when something is asked for (`core/policies.py`). Here they count once more when it
starts: for what was queued before they became stricter, and for a daemon that somebody has taken over. Nothing is read
again that has not changed on disk.
"""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING

from aiosd.auth import ceiling
from aiosd.auth.ruling import forbidden

if TYPE_CHECKING:
    from pathlib import Path

    from aiosd.auth.ceiling import Policy
    from aiosd.model.manifest import Capability

    Facts = tuple[int, ...] | None


class EnforcedCeiling:
    """Asked before each start."""

    def __init__(self, main: Path = ceiling.MAIN, users: Path = ceiling.USERS, *, owner: int = 0) -> None:
        """Where the files are. `owner`: of them, root but in tests."""
        self._main = main
        self._users = users
        self._owner = owner
        self._known: dict[Path, tuple[Facts, Policy | None]] = {}
        self._listed: tuple[Facts, frozenset[str]] = (None, frozenset())

    def why_not(self, capability: Capability, uid: int) -> str:
        """Which rule forbids it to that user, as a sentence; "" when none does. Blocks on the disk."""
        return forbidden(capability.id, capability.level, self._of(uid))

    def _of(self, uid: int) -> Policy:
        general = self._file(self._main, personal=False) or ceiling.Policy()
        facts = _facts(self._users)
        if facts is None:
            return general
        try:
            return self._tightened(general, facts, uid)
        except OSError:
            return ceiling.tighten(general, ceiling.STRICTEST)

    def _tightened(self, general: Policy, facts: Facts, uid: int) -> Policy:
        if not ceiling.is_roots_own(self._users, self._owner):
            general = ceiling.tighten(general, ceiling.STRICTEST)
        if facts != self._listed[0]:
            self._listed = (facts, frozenset(ceiling.names(self._users)))
        names = self._listed[1]
        for name in (str(uid), *([] if all(name.isdigit() for name in names) else _name(uid))):
            if name in names:
                own = self._file(self._users / f"{name}{ceiling.SUFFIX}", personal=True)
                general = ceiling.tighten(general, own)
        return general

    def _file(self, path: Path, *, personal: bool) -> Policy | None:
        facts = _facts(path)
        known = self._known.get(path)
        if known is None or known[0] != facts:
            known = self._known[path] = (facts, ceiling.read(path, self._owner, [], personal=personal))
        return known[1]


def _facts(path: Path) -> Facts:
    try:
        info = os.lstat(path)
    except FileNotFoundError:
        return None
    except OSError as error:  # what cannot be looked at counts as a file that cannot be read
        return (error.errno or 0,)
    return (info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_uid, info.st_mode)


def _name(uid: int) -> list[str]:
    try:
        return [pwd.getpwuid(uid).pw_name]
    except (KeyError, OverflowError):
        return []
