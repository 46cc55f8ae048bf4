"""Deferred consent: a task that was stored before its person could be asked is moved on by `task.authenticate`.

The person behind the authenticating connection is asked what they would have been asked at first, with everything
looked at again: policy, polkit, grants, the capability as it is now. Only the task's own user can consent for it, or
root.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiosd.core import approving, changes
from aiosd.core.approving import POLKIT, Waits
from aiosd.core.authorization import task_not_found
from aiosd.core.consent import Wish, settle
from aiosd.core.refusals import illegal, refuse_final
from aiosd.errors import AiosError, ErrorKind
from aiosd.model.status import Phase, Status
from aiosd.store import tasks

if TYPE_CHECKING:
    from aiosd.auth.caller import Caller
    from aiosd.core.consent import Consent, Consents
    from aiosd.core.registry import Registry
    from aiosd.core.settings import Settings
    from aiosd.model.task import Task
    from aiosd.store.database import Database, Transaction


def waits_for_polkit(task: Task) -> bool:
    """Whether the task waits for its person to be asked."""
    asked = task.auth_request
    return task.status is Status.AUTH_REQUIRED and asked is not None and asked.get("type") == POLKIT


class Deferred:
    """Moves such tasks on."""

    def __init__(self, database: Database, registry: Registry, consents: Consents, settings: Settings) -> None:
        """Keeps what it asks."""
        self._database = database
        self._registry = registry
        self._consents = consents
        self._settings = settings

    async def authenticate(self, caller: Caller, task: Task) -> Task:
        """Have the person asked; the task queues up, or waits for its approval. On AiosError it waits on."""
        if caller.uid != task.uid and not caller.is_root:
            raise AiosError(
                ErrorKind.PERMISSION_DENIED, "only the task's own user can consent to it", reason="not-owner",
                field="task_id",
            )  # fmt: skip
        capability = self._registry.require(task.capability_id)
        if capability.level > task.level:
            raise self._stale()
        parents = tuple(one for one in (task.parent_id, task.retry_of) if one is not None)
        consent = await self._consents.obtain(
            caller, Wish(capability, task.arguments, task.session_id, (*parents, task.id))
        )
        if self._registry.find(capability.id) != capability:
            raise self._stale()
        waits = Waits.of(self._settings.current)
        return await self._database.write(lambda tx: _move_on(tx, task, consent, waits))

    @staticmethod
    def _stale() -> AiosError:
        return AiosError(
            ErrorKind.PERMISSION_DENIED, "the capability has changed since the task was stored",
            reason="stale-authorization", field="task_id",
        )  # fmt: skip


def _move_on(transaction: Transaction, task: Task, consent: Consent, waits: Waits) -> Task:
    found = tasks.get(transaction, task.id)
    if found is None:
        raise task_not_found()
    refuse_final(found)
    if found.auth_request != task.auth_request or not waits_for_polkit(found):
        raise illegal(found, "authenticated", "auth-request-changed")
    settle(transaction, consent, found)
    if consent.needs_approval:
        after = changes.set_phase(transaction, found, Phase.WAITING_APPROVAL, boss_type="task.blocked")
        return approving.request(transaction, after, consent, waits)
    creator = dict(found.creator)
    creator.update(approving.spared(consent))
    also = {"auth_request": None, "creator": creator}
    return changes.set_phase(transaction, found, found.phase, boss_type="task.authenticated", also=also)
