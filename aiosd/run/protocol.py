"""The launcher's protocol in words that both ends share: operations, refusals, and reading fields with suspicion."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonObject

LIST_PAGE = 500
"""Runs in one answer to `list`: a machine keeps the directories of more runs than fit into a packet."""

_TEXT_MAX = 32 * 1024


class Op(StrEnum):
    """What aiosd can ask for."""

    HELLO = "hello"
    START = "start"
    ATTACH = "attach"
    LIST = "list"
    SIGNAL = "signal"
    STOP = "stop"
    FREEZE = "freeze"
    THAW = "thaw"
    REMOVE = "remove"


class RefusalCode(StrEnum):
    """Why the launcher did not do it."""

    BAD_REQUEST = "bad-request"
    DENIED = "denied"
    CAPABILITY_MISSING = "capability-missing"
    LAUNCH = "launch"
    GONE = "gone"
    BUSY = "busy"
    SYSTEMD = "systemd"


class Refusal(Exception):
    """A request that is answered with an error."""

    def __init__(self, code: RefusalCode, message: str) -> None:
        """`message`: one sentence for people."""
        super().__init__(message)
        self.code = code


def text_of(body: JsonObject, key: str) -> str:
    """A string field without NUL. Raises Refusal."""
    value = body.get(key)
    if not isinstance(value, str) or "\0" in value or len(value) > _TEXT_MAX:
        raise Refusal(RefusalCode.BAD_REQUEST, f"{key}: must be a string")
    return value


def number_of(body: JsonObject, key: str, *, maximum: int, default: int | None = None) -> int:
    """A whole number from 0 to `maximum`. Raises Refusal."""
    value = body.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= maximum:
        raise Refusal(RefusalCode.BAD_REQUEST, f"{key}: must be a whole number from 0 to {maximum}")
    return value
