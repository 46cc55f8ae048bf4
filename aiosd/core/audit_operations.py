"""Handlers of `audit.*`: reading the trail, and signing it with a new key."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from aiosd.auth.policy import Action
from aiosd.core import clock
from aiosd.core.operations import Reply
from aiosd.errors import AiosError, ErrorKind
from aiosd.store import audit
from aiosd.store.audit_key import AuditKeyError, public_keys

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Awaitable, Callable, Mapping

    from aiosd.auth.caller import Caller
    from aiosd.core.audit_trail import AuditTrail
    from aiosd.core.authorization import Authorizer
    from aiosd.model import wire
    from aiosd.model.jsontext import JsonObject, JsonValue
    from aiosd.store.audit import AuditRow
    from aiosd.store.audit_key import PublicKey
    from aiosd.store.audit_seal import Head
    from aiosd.store.database import Database


class AuditOperations:
    """The trail as callers see it: everyone their own records, who may manage all of them."""

    def __init__(self, database: Database, authorizer: Authorizer, trail: AuditTrail) -> None:
        """Keeps what it asks."""
        self._database = database
        self._authorizer = authorizer
        self._trail = trail

    def handlers(self) -> Mapping[str, Callable[..., Awaitable[Reply]]]:
        """By operation name."""
        return {"audit.query": self.query, "audit.rotate_key": self.rotate_key}

    async def query(self, caller: Caller, params: wire.AuditQuery) -> Reply:
        """A page of records, oldest first, and with `proof` what verifying them takes."""
        asked = params.filter
        uid: int | None = caller.uid
        if asked.all_users or params.proof or (asked.uid is not None and asked.uid != caller.uid):
            await self._authorizer.require(caller, Action.MANAGE, {"operation": "read the audit trail"})
            uid = asked.uid
        wanted = audit.AuditFilter(
            uid=uid, task_id=asked.task_id, kind_glob=asked.kind, after=params.after,
            since=_time(asked.start_time, "filter.start_time"), until=_time(asked.end_time, "filter.end_time"),
        )  # fmt: skip

        def read(db: sqlite3.Connection) -> dict[str, JsonValue]:
            rows, more = audit.page(db, wanted, limit=params.limit)
            body: dict[str, JsonValue] = {"records": [record_view(row) for row in rows], "has_more": more}
            if params.proof:
                body["keys"] = [key_view(key) for key in public_keys(db)]
                body["issued"] = audit.issued(db)
            return body

        # The head first: a trail that grows meanwhile is longer than its head, never shorter.
        head = await self._trail.present_head() if params.proof else None
        body = await self._database.read(read)
        if head is not None:
            body["head"] = head_view(head)
        return Reply(body)

    async def rotate_key(self, caller: Caller, _params: wire.Empty) -> Reply:
        """Sign with a new key from here on."""
        await self._authorizer.require(caller, Action.MANAGE, {"operation": "rotate the audit key"})
        try:
            return Reply({"fingerprint": await self._trail.rotate(caller)})
        except AuditKeyError as error:
            raise AiosError(ErrorKind.INVALID_STATE, str(error), reason="credential") from None
        except OSError as error:
            raise AiosError(ErrorKind.STORAGE, f"the key cannot be written: {error.strerror}") from None


def record_view(row: AuditRow) -> JsonObject:
    """A record, whole: what is hashed, and its place in the chain (bytes in hexadecimal)."""
    body: dict[str, JsonValue] = {
        "seq": row.seq, "time": clock.rfc3339(row.time), "time_usec": row.time, "uid": row.uid, "actor": row.actor,
        "kind": row.kind, "task_id": row.task_id, "details": json.loads(row.details), "previous": row.previous.hex(),
        "hash": row.hash.hex(),
    }  # fmt: skip
    if row.signature is not None:
        body |= {"key": row.key_id, "signature": row.signature.hex()}
    return body


def key_view(key: PublicKey) -> JsonObject:
    """A public key; `id` is its fingerprint."""
    body: dict[str, JsonValue] = {"id": key.id, "public": key.public.hex(), "created_usec": key.created_at}
    if key.endorser is not None and key.endorsement is not None:
        body |= {"endorser": key.endorser, "endorsement": key.endorsement.hex()}
    return body


def head_view(head: Head) -> JsonObject:
    """How far the trail has come."""
    return {"seq": head.seq, "hash": head.hash.hex(), "key": head.key_id, "signature": head.signature.hex()}


def _time(text: str | None, field: str) -> int | None:
    if text is None:
        return None
    try:
        return clock.parse_rfc3339(text)
    except (ValueError, OverflowError):
        raise AiosError(
            ErrorKind.INVALID_PARAMS, "is not a time in RFC 3339, as 2026-01-05T10:00:00Z", field=field
        ) from None
