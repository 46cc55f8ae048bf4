"""Webhooks and their outbox: who is registered, what waits for them, and what became of it.

Rows of the outbox are made by `journal.append_event`. The first row of a webhook (smallest event number) is the only
one that is ever tried, so its `due_at` and `attempts` are the webhook's own.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from aiosd.model import jsontext
from aiosd.model.ids import Prefix, new_id
from aiosd.model.status import FINAL
from aiosd.model.webhook import Delivery, Webhook, WebhookRetry, WebhookState
from aiosd.store import journal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiosd.store.tasks import Executor, Value

_FIRST = "(SELECT {} FROM outbox WHERE hook_id = webhooks.id ORDER BY event_seq LIMIT 1)"
_COLUMNS = (
    "id, task_id, uid, url, events, max_retries, retry_delay_ms, created_at, secret, state, waiting, delivered,"
    f" dropped, last_error, last_at, {_FIRST.format('due_at')}"
)
_FINALS = ", ".join(f"'{status}'" for status in sorted(FINAL))
_OVER = f"state = 'active' AND waiting = 0 AND (SELECT status FROM tasks WHERE id = webhooks.task_id) IN ({_FINALS})"  # noqa: S608  this module's own text
_OPEN = "INDEXED BY webhooks_once"
"""Which holds those that have not ended."""
MAX_LISTED = 1000


def _from_row(row: Sequence[Value]) -> Webhook:
    values = list(row)
    return Webhook(
        id=str(values[0]), task_id=str(values[1]), uid=_number(values[2]), url=str(values[3]),
        events=tuple(json.loads(str(values[4]))),
        retry=WebhookRetry(_number(values[5]), _number(values[6])), created_at=_number(values[7]),
        secret=values[8] if isinstance(values[8], bytes) else None, state=WebhookState(str(values[9])),
        waiting=_number(values[10]), delivered=_number(values[11]), dropped=_number(values[12]),
        last_error=None if values[13] is None else str(values[13]),
        last_at=None if values[14] is None else _number(values[14]),
        next_at=None if values[15] is None else _number(values[15]),
    )  # fmt: skip


def _number(value: Value) -> int:
    return value if isinstance(value, int) else 0


def _select(db: Executor, where: str, *values: Value) -> list[Webhook]:
    rows = db.execute(f"SELECT {_COLUMNS} FROM webhooks WHERE {where}", values)  # noqa: S608  this module's own text
    return [_from_row(row) for row in rows]


def get(db: Executor, hook_id: str) -> Webhook | None:
    """The webhook of that id."""
    found = _select(db, "id = ?", hook_id)
    return found[0] if found else None


def find(db: Executor, task_id: str, url: str, uid: int | None) -> Webhook | None:
    """The webhook of a task with that address that has not ended. `uid` None: whoever's."""
    found = _select(
        db, "task_id = ? AND url = ? AND state <> 'ended' AND uid = coalesce(?, uid) ORDER BY seq", task_id, url, uid
    )
    return found[0] if found else None


def of_user(db: Executor, uid: int | None, task_id: str | None) -> list[Webhook]:
    """Webhooks, oldest first; of one user, of one task. At most MAX_LISTED."""
    terms: list[str] = []
    values: list[Value] = []
    if task_id is not None:
        terms.append("task_id = ?")
        values.append(task_id)
    if uid is not None:
        terms.append("uid = ?" if task_id is None else "+uid = ?")
        values.append(uid)
    return _select(db, f"{' AND '.join(terms) or '1'} ORDER BY seq DESC LIMIT ?", *values, MAX_LISTED)[::-1]


def count_open(db: Executor, uid: int) -> int:
    """How many webhooks of this user have not ended."""
    counted = f"SELECT count(*) FROM webhooks {_OPEN} WHERE uid = ? AND state <> 'ended'"  # noqa: S608  own text
    row = db.execute(counted, (uid,)).fetchone()
    return int(row[0])


def insert(db: Executor, hook: Webhook) -> Webhook:
    """Store a new webhook; it gets its id. Its secret is stored by `set_secret`."""
    identifier = new_id(Prefix.WEBHOOK)
    db.execute(
        "INSERT INTO webhooks (id, task_id, uid, url, events, max_retries, retry_delay_ms, created_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (identifier, hook.task_id, hook.uid, hook.url, jsontext.dump(list(hook.events)), hook.retry.max_retries,
         hook.retry.retry_delay_ms, hook.created_at),
    )  # fmt: skip
    return _one(db, identifier)


def change(db: Executor, hook_id: str, events: Sequence[str], retry: WebhookRetry, now: int) -> Webhook:
    """What is asked of it anew; one that was parked is tried again."""
    db.execute(
        "UPDATE webhooks SET events = ?, max_retries = ?, retry_delay_ms = ? WHERE id = ?",
        (jsontext.dump(list(events)), retry.max_retries, retry.retry_delay_ms, hook_id),
    )
    return resume(db, hook_id, now)


def set_secret(db: Executor, hook_id: str, sealed: bytes | None) -> None:
    """Keep its sealed secret."""
    db.execute("UPDATE webhooks SET secret = ? WHERE id = ?", (sealed, hook_id))


def remove(db: Executor, hook_id: str) -> None:
    """Forget it and what waits for it."""
    db.execute("DELETE FROM webhooks WHERE id = ?", (hook_id,))


def resume(db: Executor, hook_id: str, now: int) -> Webhook:
    """Try it again, at once and as often as at first."""
    db.execute("UPDATE webhooks SET state = 'active', last_error = NULL WHERE id = ? AND state = 'parked'", (hook_id,))
    db.execute("UPDATE outbox SET attempts = 0, due_at = ? WHERE hook_id = ? AND attempts > 0", (now, hook_id))
    return _one(db, hook_id)


def _one(db: Executor, hook_id: str) -> Webhook:
    found = get(db, hook_id)
    if found is None:
        raise LookupError(hook_id)
    return found


def with_work(db: Executor) -> list[Webhook]:
    """Active webhooks for which something waits, the one that is due first at the head."""
    return sorted(_select(db, "state = 'active' AND waiting > 0"), key=lambda hook: hook.next_at or 0)


def first(db: Executor, hook_id: str) -> Delivery | None:
    """The delivery that is next for a webhook, when that is active."""
    row = db.execute(
        "SELECT outbox.id, event_seq, attempts, due_at FROM outbox JOIN webhooks ON webhooks.id = hook_id"
        " WHERE hook_id = ? AND state = 'active' ORDER BY event_seq LIMIT 1",
        (hook_id,),
    ).fetchone()
    if row is None:
        return None
    event = journal.event(db, int(row[1]))
    if event is None:
        return None
    return Delivery(str(row[0]), event, int(row[2]), int(row[3]))


def skip_pruned(db: Executor, hook_id: str) -> bool:
    """Give up the deliveries whose events are not kept any more; whether there were any."""
    cursor = db.execute(
        "DELETE FROM outbox WHERE hook_id = ? AND NOT EXISTS (SELECT 1 FROM events WHERE seq = event_seq)", (hook_id,)
    )
    db.execute(
        "UPDATE webhooks SET dropped = dropped + ?, waiting = (SELECT count(*) FROM outbox WHERE hook_id = webhooks.id)"
        " WHERE id = ?",
        (max(0, cursor.rowcount), hook_id),
    )
    return cursor.rowcount > 0


def delivered(db: Executor, hook_id: str, delivery_id: str, now: int) -> None:
    """It has arrived; once. A webhook whose task has ended has ended with its last delivery."""
    if db.execute("DELETE FROM outbox WHERE id = ?", (delivery_id,)).rowcount > 0:
        db.execute(
            "UPDATE webhooks SET delivered = delivered + 1, last_error = NULL, last_at = ? WHERE id = ?",
            (now, hook_id),
        )
    end_finished(db, hook_id)


def failed(db: Executor, hook_id: str, delivery_id: str, error: str, now: int, again_at: int | None) -> None:
    """It has not arrived: it is due again at `again_at`, or the webhook is parked."""
    db.execute(
        "UPDATE outbox SET attempts = attempts + 1, due_at = ? WHERE id = ?", (again_at or now, delivery_id)
    )  # fmt: skip
    state = WebhookState.PARKED if again_at is None else WebhookState.ACTIVE
    db.execute(
        "UPDATE webhooks SET state = ?, last_error = ?, last_at = ? WHERE id = ? AND state = 'active'",
        (state, error, now, hook_id),
    )


def end(db: Executor, hook_id: str, error: str | None, now: int) -> None:
    """Nothing more is sent to it; it stays in the list, without its secret."""
    db.execute("DELETE FROM outbox WHERE hook_id = ?", (hook_id,))
    db.execute(
        "UPDATE webhooks SET state = 'ended', secret = NULL, last_error = ?, last_at = ? WHERE id = ?",
        (error, now, hook_id),
    )


def end_finished(db: Executor, hook_id: str | None = None) -> None:
    """End the webhooks (or the one) whose task has ended and for which nothing waits."""
    where, values = ("", ()) if hook_id is None else (" AND id = ?", (hook_id,))
    db.execute(
        "UPDATE webhooks SET state = 'ended', secret = NULL WHERE seq IN ("  # noqa: S608  this module's own text
        f"SELECT seq FROM webhooks {_OPEN if hook_id is None else ''} WHERE state <> 'ended' AND {_OVER}{where})",
        values,
    )
