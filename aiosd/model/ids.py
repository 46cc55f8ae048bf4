"""Identifiers: opaque to everyone, sortable by time of making, with a prefix that says what they name.

A new id is the prefix, a dash and a ULID (https://github.com/ulid/spec): 48 bits of milliseconds, 80 random bits, in
Crockford's base 32. Event ids are the exception: they carry the event log's own sequence number, because their order
*is* the log's order.
"""

from __future__ import annotations

import os
import re
import time
from enum import StrEnum

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_BODY = re.compile(r"[0-9a-hjkmnp-tv-z]{26}")


class Prefix(StrEnum):
    """What an id names (seed 000 and 003; `run-` and `delivery-` likewise)."""

    TASK = "task"
    RUN = "run"
    ARTIFACT = "art"
    EVENT = "evt"
    SUBSCRIPTION = "sub"
    SESSION = "ps"
    THREAD = "th"
    MESSAGE = "msg"
    APPROVAL = "apr"
    ASSIGNMENT = "wa"
    PLAN = "plan"
    DIFF = "diff"
    WEBHOOK = "hook"
    DELIVERY = "delivery"
    GRANT = "grant"
    WORKER = "worker"
    CLIENT = "client"
    """A client's session on the JSON-RPC door (`AIOS-Session-Id`), which is no session of a project."""


def encode(number: int, length: int) -> str:
    """`number` in Crockford's base 32, lower case, `length` digits."""
    return "".join([_ALPHABET[number >> place & 31] for place in range(5 * (length - 1), -1, -5)])


def new_id(prefix: Prefix, *, now_ms: int | None = None) -> str:
    """A new id. `now_ms`: milliseconds since the epoch; the present when not given."""
    moment = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    return f"{prefix}-{encode(moment, 10)}{encode(int.from_bytes(os.urandom(10), 'big'), 16)}"


def is_id(text: str, prefix: Prefix) -> bool:
    """Whether `text` has the form of an id with this prefix."""
    head, dash, body = text.partition("-")
    return dash == "-" and head == prefix and _BODY.fullmatch(body) is not None


def event_id(sequence: int) -> str:
    """The id of the event with this number in the log (1, 2, …)."""
    return f"{Prefix.EVENT}-{sequence:016d}"


def event_sequence(identifier: str) -> int | None:
    """The log number of an event id, or None when it is not one."""
    head, dash, body = identifier.partition("-")
    if head != Prefix.EVENT or dash != "-" or len(body) != 16 or not body.isascii() or not body.isdigit():
        return None
    return int(body)
