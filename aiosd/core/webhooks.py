"""Webhooks, decided: what is sent, how it is signed, and what an answer means for the next try. Pure.

`aiosd.hooks` sends; `core/webhook_operations.py` registers; docs/webhooks.md is for those who receive.
"""

from __future__ import annotations

import hashlib
import hmac
from enum import Enum
from typing import TYPE_CHECKING

from aiosd.core import clock
from aiosd.model import jsontext
from aiosd.model.event import Kind
from aiosd.model.later import dataclass
from aiosd.model.status import Status

if TYPE_CHECKING:
    import random

    from aiosd.model.event import Event
    from aiosd.model.jsontext import JsonValue
    from aiosd.model.task import Task
    from aiosd.model.webhook import Delivery, WebhookRetry

MAX_PAUSE = 3600.0
"""Longest wait between two tries, in seconds; a receiver's Retry-After cannot ask for more."""

JITTER = 0.25
"""How far a wait is moved at random, so that many webhooks of one receiver do not come back together."""

USER_AGENT = "aiosd-webhook/1"


class Verdict(Enum):
    """What became of a try."""

    DELIVERED = "delivered"
    AGAIN = "again"
    GONE = "gone"
    """The receiver wants no more (410)."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One try. `error`: a sentence without anything of the request. `retry_after`: seconds that the receiver wants."""

    verdict: Verdict
    error: str = ""
    retry_after: float | None = None


def judge(status: int, retry_after: float | None = None) -> Outcome:
    """What an HTTP status means (RFC 9110, section 15). Redirections are never followed."""
    if 200 <= status < 300:
        return Outcome(Verdict.DELIVERED)
    if status == 410:
        return Outcome(Verdict.GONE, "the receiver answered 410: it wants no more")
    note = " (redirections are not followed)" if 300 <= status < 400 else ""
    return Outcome(Verdict.AGAIN, f"the receiver answered {status}{note}", retry_after)


def next_try(retry: WebhookRetry, attempts: int, asked: float | None, chance: random.Random) -> float | None:
    """Seconds until the next try after `attempts` failed ones; None when that was the last.

    The wait doubles with every try and is moved by JITTER; it is never shorter than what the receiver asked for.
    """
    if attempts > retry.max_retries:
        return None
    pause: float = min(MAX_PAUSE, retry.retry_delay_ms / 1000 * 2.0 ** min(attempts - 1, 30))
    pause *= chance.uniform(1 - JITTER, 1 + JITTER)
    return min(MAX_PAUSE, max(pause, asked or 0.0))


def body(event: Event, task: Task | None) -> bytes:
    """What is sent: seed 000's shape, the same bytes at every try.

    The event of a final state also has the task's result or error, which are settled by then.
    """
    data: dict[str, JsonValue] = dict(event.payload)
    if event.kind is Kind.STATUS and event.change is not None and task is not None:
        if event.change.new == Status.COMPLETED:
            data.setdefault("result", task.result)
        elif event.change.new == Status.FAILED:
            data.setdefault("error", task.error)
    whole: dict[str, JsonValue] = {
        "event": event.kind.value, "task_id": event.task_id, "timestamp": clock.rfc3339(event.time), "data": data
    }  # fmt: skip
    return jsontext.dump(whole).encode()


def signature(key: bytes | bytearray, sent: bytes) -> str:
    """HMAC-SHA256 (RFC 2104) over the exact bytes, as `X-AIOS-Signature` has it."""
    return "sha256=" + hmac.new(key, sent, hashlib.sha256).hexdigest()


def headers(delivery: Delivery) -> dict[str, str]:
    """What is known without the secret."""
    return {
        "Content-Type": "application/json",
        "User-Agent": USER_AGENT,
        "X-AIOS-Event": delivery.event.kind.value,
        "X-AIOS-Event-Id": delivery.event.id,
        "X-AIOS-Delivery-Id": delivery.id,
    }


def purpose(task_id: str, url: str) -> str:
    """What a webhook's secret is sealed for."""
    return f"webhook {task_id} {url}"
