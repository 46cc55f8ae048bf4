"""JSON-RPC 2.0 (https://www.jsonrpc.org/specification) as text and as values. Pure.

`parse` reads one message: a call or a batch of them, each of which may be malformed by itself. Parameters are taken by
name. `result`, `failure` and `batch` make the texts of answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from aiosd.core.protocol_operations import MAX_BATCH
from aiosd.errors import AiosError, ErrorKind
from aiosd.model.jsontext import JsonTextError, dump, parse_value
from aiosd.model.later import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiosd.model.jsontext import JsonObject, JsonValue

Identifier: TypeAlias = "str | int | float | None"

VERSION = "2.0"


@dataclass(frozen=True, slots=True)
class Request:
    """One call. A notification wants no answer, not even an error."""

    method: str
    params: JsonObject
    id: Identifier = None
    is_notification: bool = False


@dataclass(frozen=True, slots=True)
class Malformed:
    """What stands where a call should; `id` as far as it could be told."""

    error: AiosError
    id: Identifier = None
    is_notification: bool = False


@dataclass(frozen=True, slots=True)
class Message:
    """What one text holds."""

    calls: tuple[Request | Malformed, ...]
    is_batch: bool = False


def parse(text: bytes) -> Message:
    """Text to calls. What is wrong with all of it makes one malformed call."""
    try:
        value = parse_value(text)
    except JsonTextError as error:
        return Message((Malformed(AiosError(ErrorKind.PARSE, str(error))),))
    if not isinstance(value, list):
        return Message((_call(value),))
    if not value:
        return Message((_invalid("a batch holds at least one call"),))
    if len(value) > MAX_BATCH:
        return Message((_invalid(f"a batch holds at most {MAX_BATCH} calls"),))
    return Message(tuple(_call(item) for item in value), is_batch=True)


def _call(value: JsonValue) -> Request | Malformed:
    if not isinstance(value, Mapping):
        return _invalid("a call is an object")
    identifier = value.get("id")
    if isinstance(identifier, bool) or not isinstance(identifier, str | int | float | None):
        return _invalid("is a text, a number or null", "id")
    if value.get("jsonrpc") != VERSION:
        return _invalid(f'is "{VERSION}"', "jsonrpc", identifier)
    method = value.get("method")
    if not isinstance(method, str):
        return _invalid("is a text", "method", identifier)
    params = value.get("params", {})
    if isinstance(params, list):
        error = AiosError(ErrorKind.INVALID_PARAMS, "are given by name, as an object", field="params")
        return Malformed(error, identifier, is_notification="id" not in value)
    if not isinstance(params, Mapping):
        return _invalid("is an object", "params", identifier)
    return Request(method, params, identifier, is_notification="id" not in value)


def _invalid(detail: str, field: str | None = None, identifier: Identifier = None) -> Malformed:
    return Malformed(AiosError(ErrorKind.INVALID_REQUEST, detail, field=field), identifier)


def result(identifier: Identifier, body: JsonObject) -> str:
    """The answer to a call that worked, as text: an object that was sent before has its text already."""
    return f'{{"jsonrpc":"{VERSION}","id":{dump(identifier)},"result":{dump(body)}}}'


def failure(identifier: Identifier, error: AiosError) -> str:
    """The answer to one that did not."""
    return dump({"jsonrpc": VERSION, "id": identifier, "error": error.wire()})


def batch(answers: Sequence[str]) -> str:
    """Several answers as one text."""
    return f"[{','.join(answers)}]"
