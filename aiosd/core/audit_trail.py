"""The trail's keeper: its key and its head at the start, its retention, and records that belong to no other change.

`AuditTrail.open` before the database, `begin` right after it, `run` for ever.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from aiosd.core import clock
from aiosd.model.audit import AuditKind
from aiosd.store import audit
from aiosd.store.audit_key import KeyStore, adopt
from aiosd.store.audit_seal import HEAD_FILE, AuditSeal, read_head
from aiosd.store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from aiosd.auth.caller import Caller
    from aiosd.auth.decision import Decision
    from aiosd.auth.policy import Action
    from aiosd.core.settings import Settings
    from aiosd.model.jsontext import JsonObject
    from aiosd.store.audit_key import SigningKey
    from aiosd.store.audit_seal import Head
    from aiosd.store.database import Database, Transaction

CUT_INTERVAL = 6 * 3600.0
"""Seconds between two looks at what is older than `audit_retention_days`."""

CUT_PAUSE = 0.05
"""Seconds between two steps of one cut: others come first."""

RECORD_WITHIN = 2.0
"""Seconds that a decision waits for its record; a store that is stuck must not hold up an emergency stop."""

_DAY = 86_400 * clock.MICROSECONDS
_log = logging.getLogger(__name__)


class AuditTrail:
    """One daemon's trail. `seal` goes to `Database.open`."""

    def __init__(self, keys: KeyStore, found: list[SigningKey], head: Head | None, path: Path) -> None:
        """Use `open`. `head`: as it was before this start; `path`: of the head file."""
        self._keys = keys
        self._found = found
        self._head = head
        self._path = path
        self.seal = AuditSeal(found[0], path)
        self._database: Database | None = None
        self._rotating = asyncio.Lock()

    @classmethod
    async def open(cls, state: Path) -> AuditTrail:
        """Load or make the key, and read how far the trail had come. Raises AuditKeyError, OSError."""
        keys = KeyStore(state)
        found = await asyncio.to_thread(keys.load)
        head = await asyncio.to_thread(read_head, state / HEAD_FILE)
        return cls(keys, found, head, state / HEAD_FILE)

    async def present_head(self) -> Head | None:
        """How far the trail has come, as the head file says; None when that cannot be read."""
        try:
            return await asyncio.to_thread(read_head, self._path)
        except OSError as error:
            _log.warning("The head of the audit trail cannot be read: %s", error)
            return None

    async def begin(self, database: Database) -> None:
        """Compare trail and head, and say in the trail who signs from here on. Raises StoreError."""
        self._database = database
        if database.read_only_reason is not None:
            return
        await database.write(self._compare)
        await database.write(lambda tx: adopt(tx, self._found, now=clock.now()))
        await asyncio.to_thread(self._keys.forget_old)

    def _compare(self, transaction: Transaction) -> None:
        """A trail that is shorter than its head, or another one, was changed while we were away, or put back."""
        head = self._head
        if head is None:
            return
        there, _ = audit.page(transaction, audit.AuditFilter(after=head.seq - 1), limit=1)
        if there and there[0].seq == head.seq and there[0].hash == head.hash:
            return
        reason = f"record {head.seq} was there before this start and is not, or is another one"
        _log.error("The audit trail may have been changed: %s", reason)
        details: JsonObject = {"reason": reason, "seq": head.seq, "hash": head.hash.hex(), "signer": head.key_id}
        self._append(transaction, AuditKind.AUDIT_DOUBT, None, "system", details)

    @staticmethod
    def _append(
        transaction: Transaction, kind: AuditKind, uid: int | None, actor: str, details: JsonObject
    ) -> None:  # fmt: skip
        audit.append_audit(
            transaction, time=clock.now(), uid=uid, actor=actor, kind=kind, task_id=None, details=details
        )

    async def rotate(self, caller: Caller) -> str:
        """Sign with a new key from here on; its fingerprint. Raises AuditKeyError, OSError, StoreError."""
        database = self._opened()
        async with self._rotating:
            keys = await asyncio.to_thread(self._keys.begin_rotation)
            # At once, so that the new key's first signature covers all that the old one signed. Should we die before
            # the next line is stored, the next start finds both keys and does it.
            before, self.seal.key = self.seal.key, keys[0]
            try:
                await database.write(lambda tx: adopt(tx, keys, now=clock.now(), actor=f"uid:{caller.uid}"))
            except StoreError:
                self.seal.key = before  # the trail does not know the new one
                raise
            await asyncio.to_thread(self._keys.forget_old)
        return keys[0].id

    async def run(self, settings: Settings) -> None:
        """Cut off what is older than the configuration keeps, now and again, for ever."""
        while True:
            days = settings.current.audit_retention_days
            if days is not None:
                try:
                    await self._cut(days)
                except StoreError as error:
                    _log.warning("Old audit records could not be removed: %s", error)
            await asyncio.sleep(CUT_INTERVAL)

    async def _cut(self, days: int) -> None:
        moment = clock.now()
        through = await self._opened().read(lambda db: audit.last_before(db, moment - days * _DAY))
        gone, some = 0, audit.CUT_STEP if through else 0
        while some == audit.CUT_STEP:
            some = await self._opened().write(partial(audit.cut, through=through, now=moment))
            gone += some
            await asyncio.sleep(CUT_PAUSE)
        if gone:
            _log.info("%d audit records older than %d days were removed", gone, days)

    async def answered(
        self, caller: Caller, action: Action, decision: Decision, details: Mapping[str, str]
    ) -> None:  # fmt: skip
        """Record what polkit said, before it is acted upon (an `Authorizer`'s recorder)."""
        told: JsonObject = {"action": action.value, "decision": decision.value, "about": details}
        actor = f"uid:{caller.uid}"
        write = asyncio.ensure_future(
            self._opened().write(lambda tx: self._append(tx, AuditKind.PERMISSION_ANSWERED, caller.uid, actor, told))
        )
        write.add_done_callback(_retrieve)
        try:
            await asyncio.wait_for(asyncio.shield(write), RECORD_WITHIN)
        except (StoreError, TimeoutError) as error:
            _log.error("The answer to %s for uid %d is not recorded yet: %s", action.value, caller.uid, error)

    def _opened(self) -> Database:
        if self._database is None:
            raise RuntimeError("the trail has not begun")
        return self._database


def _retrieve(write: asyncio.Future[None]) -> None:
    """So that a failure after the time limit is not reported as forgotten."""
    if not write.cancelled():
        write.exception()
