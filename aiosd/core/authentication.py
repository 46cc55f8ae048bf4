"""What a program may ask a person to authenticate for, and what answers that: `auth_request` and `auth_response`. Pure.

Source: seed 000. Ours beyond it, for OAuth 2 with PKCE (RFC 7636): `state`, `client_id`, `code_challenge` in the
request and `redirect_uri` in the response. The code verifier stays with the program, so what passes here is worth
nothing alone.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from aiosd.core import clock
from aiosd.core.progress import clean_text
from aiosd.errors import AiosError, ErrorKind
from aiosd.model.bounds import MAX_MILLISECONDS
from aiosd.model.later import dataclass

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonObject, JsonValue
    from aiosd.model.secrettext import SecretText

OWN = frozenset({"interaction", "expires_at"})
"""Keys of a stored request that are not the program's."""

_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_URL = re.compile(r"[\x21-\x7e]{1,2048}")
_UNRESERVED = re.compile(r"[A-Za-z0-9._~+/=-]{1,512}")
_OAUTH2_WORDS = ("state", "client_id", "code_challenge", "code_challenge_method")
_MAX_SCOPES = 64


class AuthType(StrEnum):
    """Seed 000's types."""

    OAUTH2 = "oauth2"
    API_KEY = "api_key"
    PASSWORD = "password"  # noqa: S105  the name of a type
    CERTIFICATE = "certificate"


@dataclass(frozen=True, slots=True)
class ResponseFields:
    """Fields of an `auth_response`, besides `type`."""

    required: frozenset[str]
    optional: frozenset[str] = frozenset()


RESPONSES: Mapping[AuthType, ResponseFields] = {
    AuthType.OAUTH2: ResponseFields(frozenset({"authorization_code"}), frozenset({"state", "redirect_uri"})),
    AuthType.API_KEY: ResponseFields(frozenset({"api_key"})),
    AuthType.PASSWORD: ResponseFields(frozenset({"username", "password"})),
    AuthType.CERTIFICATE: ResponseFields(frozenset({"certificate"}), frozenset({"private_key"})),
}


class RequestError(ValueError):
    """A program asked for something that nobody can answer; `str()` says what."""


def request(payload: JsonObject) -> JsonObject:
    """A program's `auth_request` as it is kept and shown: bounded, known fields only. Raises RequestError."""
    given = payload.get("auth_request")
    if not isinstance(given, Mapping):
        raise RequestError("an authentication without auth_request was ignored")
    try:
        kind = AuthType(str(given.get("type")))
    except ValueError:
        raise RequestError("an authentication of an unknown type was ignored") from None
    kept: dict[str, JsonValue] = {
        "type": kind.value, "provider": clean_text(given.get("provider"), 200),
        "authorization_url": _url(given.get("authorization_url")), "scopes": _scopes(given.get("scopes")),
        "reason": clean_text(given.get("reason") or payload.get("prompt")),
        "timeout_ms": _milliseconds(given.get("timeout_ms") or payload.get("timeout_ms")),
    }  # fmt: skip
    if kind is AuthType.OAUTH2:
        kept.update({name: _word(given.get(name)) for name in _OAUTH2_WORDS})
    if kind is AuthType.OAUTH2 and kept["authorization_url"] is None:
        raise RequestError("an oauth2 authentication without a usable authorization_url was ignored")
    return {name: value for name, value in kept.items() if value not in (None, "", [])}


def with_expiry(question: JsonObject, now: int) -> JsonObject:
    """A question or request with the moment at which its `timeout_ms` is over, counted from `now` (microseconds)."""
    limit = _milliseconds(question.get("timeout_ms"))
    plain = {name: value for name, value in question.items() if name != "expires_at"}
    return plain if limit is None else {**plain, "expires_at": clock.rfc3339(now + limit * 1000)}


def public(kept: JsonObject) -> JsonObject:
    """Seed 000's `auth_request`."""
    return {name: value for name, value in kept.items() if name not in OWN}


def is_programs(kept: JsonObject | None) -> bool:
    """Whether the request came from a program (the service itself asks for polkit's consent and for approvals)."""
    return kept is not None and kept.get("type") in AuthType.__members__.values()


def check_response(kept: JsonObject, given: SecretText) -> None:
    """Raise INVALID_INPUT unless the response fits the request. No part of it is in the error."""
    kind = AuthType(str(kept["type"]))
    if given.word("type") != kind:
        raise _invalid("type", f"this task asks for {kind}")
    fields = RESPONSES[kind]
    wanted = fields.required | ({"state"} if "state" in kept else frozenset())
    for name in sorted(wanted - given.names):
        raise _invalid(name, "is missing")
    for name in sorted(given.names - wanted - fields.optional - {"type"}):
        raise _invalid(name, f"is no field of {kind}")
    for name in sorted(fields.required):
        with given.field(name) as text:
            if not len(text):
                raise _invalid(name, "is empty")
    if "state" in kept:
        with given.field("state") as text:
            same = hmac.compare_digest(text, str(kept["state"]).encode())
        if not same:
            raise AiosError(
                ErrorKind.INVALID_INPUT, "is not the one that the authorization began with",
                field="auth_response.state", reason="state-mismatch",
            )  # fmt: skip


def _invalid(name: str, detail: str) -> AiosError:
    return AiosError(ErrorKind.INVALID_INPUT, detail, field=f"auth_response.{name}")


def _url(given: JsonValue) -> str | None:
    """https, or http to this machine (a developer's server)."""
    if not isinstance(given, str) or _URL.fullmatch(given) is None:
        return None
    try:
        parts = urlsplit(given)
    except ValueError:
        return None
    secure = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)
    return given if secure and parts.hostname and parts.username is None else None


def _scopes(given: JsonValue) -> list[JsonValue]:
    if not isinstance(given, list):
        return []
    return [clean_text(scope, 256) for scope in given[:_MAX_SCOPES] if isinstance(scope, str)]


def _milliseconds(given: JsonValue) -> int | None:
    if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= MAX_MILLISECONDS:
        return None
    return given


def _word(given: JsonValue) -> str | None:
    return given if isinstance(given, str) and _UNRESERVED.fullmatch(given) else None
