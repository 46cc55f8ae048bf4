"""Subscriptions that outlive the daemon: those made by a call over HTTP, which has no connection to end them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiosd.model import jsontext
from aiosd.model.subscription import KeptSubscription

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiosd.model.jsontext import JsonObject
    from aiosd.store.tasks import Executor


def keep(db: Executor, kept: KeptSubscription, now: int) -> None:
    """Store one. `now`: microseconds since the epoch."""
    db.execute(
        "INSERT INTO subscriptions (id, uid, session, scope, granted, after, created_at) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (kept.id, kept.uid, kept.session, jsontext.dump(kept.scope), jsontext.dump(kept.granted), kept.after, now),
    )


def forget(db: Executor, ids: Sequence[str]) -> None:
    """Remove some."""
    for one in ids:
        db.execute("DELETE FROM subscriptions WHERE id = ?", (one,))


def all_(db: Executor) -> list[KeptSubscription]:
    """All, in the order of their making. What cannot be read (of a database that was salvaged) is empty."""
    rows = db.execute("SELECT id, uid, session, scope, granted, after FROM subscriptions ORDER BY created_at, id")
    return [
        KeptSubscription(identifier, uid, session, _read(scope), _read(granted), after)
        for identifier, uid, session, scope, granted, after in rows
    ]


def _read(text: str) -> JsonObject:
    try:
        return jsontext.parse_object(text)
    except jsontext.JsonTextError:
        return {}
