"""The administrator's policy files in force; a reload replaces them in one place."""

from __future__ import annotations

import asyncio
import logging
import pwd
from typing import TYPE_CHECKING

from aiosd.auth import ceiling
from aiosd.core import clock
from aiosd.model.audit import AuditKind
from aiosd.store.audit import append_audit

if TYPE_CHECKING:
    from pathlib import Path

    from aiosd.auth.ceiling import Policy
    from aiosd.manifest.problem import Problem
    from aiosd.model.jsontext import JsonObject
    from aiosd.store.database import Database

_log = logging.getLogger(__name__)


class PolicyStore:
    """Asked for a user's policy at each decision."""

    def __init__(self, main: Path = ceiling.MAIN, users: Path = ceiling.USERS, *, owner: int = 0) -> None:
        """Where the files are. Until `load` the strictest policy is in force. `owner`: of them, root but in tests."""
        self._main = main
        self._users = users
        self._owner = owner
        self._policies = ceiling.Policies(ceiling.STRICTEST)
        self._names: dict[int, str | None] = {}

    async def load(self) -> None:
        """Read the files; what is wrong with them is logged once and kept for `status`."""
        before = set(self._policies.problems)
        self._policies = await asyncio.to_thread(ceiling.load, self._main, self._users, owner=self._owner)
        self._names = {}
        for problem in self._policies.problems:
            if problem not in before:
                _log.error("%s", problem)

    async def load_again(self, database: Database) -> None:
        """As `load`; that something else holds from now on is recorded."""
        before = self._policies
        await self.load()
        after = self._policies
        if after != before:
            moment, details = clock.now(), _summary(after)
            await database.write(
                lambda tx: append_audit(
                    tx,
                    time=moment,
                    uid=None,
                    actor="system",
                    kind=AuditKind.POLICY_RELOADED,
                    task_id=None,
                    details=details,
                )
            )

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What was wrong with the files when they were last read."""
        return self._policies.problems

    async def of(self, uid: int) -> Policy:
        """The policy for a user. The name is looked up (in a thread) only where a file goes by one."""
        policies = self._policies
        if all(key.isdigit() for key in policies.users):
            return policies.of(uid, None)
        if uid not in self._names:
            self._names[uid] = await asyncio.to_thread(_name, uid)
        return policies.of(uid, self._names[uid])


def _summary(policies: ceiling.Policies) -> JsonObject:
    """What holds for everybody, and for whom something else does."""
    general = policies.general
    return {
        "max_permission_level": general.max_level.wire, "always_deny": list(general.always_deny),
        "auto_grant": list(general.auto_grant or ()), "require_audit": list(general.require_audit),
        "root_command_without_approval": general.root_command_without_approval,
        "users": [*sorted(policies.users)], "problems": [str(problem) for problem in policies.problems[:10]],
    }  # fmt: skip


def _name(uid: int) -> str | None:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return None
