"""The redirection of an OAuth 2 authorization, caught on this machine (RFC 8252, section 7.3).

A listener on 127.0.0.1 and a port that the system chooses takes one request whose state is right; whatever else comes
is answered and changes nothing. The code is in memory until it is sent on.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import secrets
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from aiosd.cli.exit_status import ExitStatus
from aiosd.cli.failure import die
from aiosd.cli.values import list_at, string_at

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from aiosd.model.jsontext import JsonObject

PATH = "/callback"
_MAX_HEAD = 16 * 1024
_HEAD_SECONDS = 10.0

_PAGE = (
    "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nCache-Control: no-store\r\n"
    "Content-Security-Policy: default-src 'none'\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n\r\n"
    "<!DOCTYPE html><title>aiosctl</title><p>{text}</p>\n"
)


class Authorization(NamedTuple):
    """Where to send the person, and what must come back."""

    url: str
    state: str
    redirect_uri: str


class Answer(NamedTuple):
    """What the provider sent the browser back with: a code, or an error (RFC 6749, section 4.1.2)."""

    code: str
    error: str


def authorization(request: JsonObject, redirect_uri: str) -> Authorization:
    """The address to open for a task's `auth_request`. What its own query says, and what is empty, stays out."""
    parts = urlsplit(string_at(request, "authorization_url"))
    own = dict(parse_qsl(parts.query, keep_blank_values=True))
    state = string_at(request, "state") or own.get("state") or secrets.token_urlsafe(24)
    challenge = string_at(request, "code_challenge")
    more = {
        "response_type": "code",
        "client_id": string_at(request, "client_id"),
        "scope": " ".join(scope for scope in list_at(request, "scopes") if isinstance(scope, str)),
        "code_challenge": challenge,
        "code_challenge_method": (string_at(request, "code_challenge_method") or "S256") if challenge else "",
    }
    query = {**{name: text for name, text in more.items() if text}, **own, "state": state, "redirect_uri": redirect_uri}
    return Authorization(urlunsplit(parts._replace(query=urlencode(query), fragment="")), state, redirect_uri)


class Listener:
    """Waits for the browser. Made by `listening`."""

    def __init__(self) -> None:
        """Use `listening`."""
        self.state = ""
        self.redirect_uri = ""
        self._answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    async def answer(self, seconds: float | None) -> Answer:
        """What came back. `seconds`: how long to wait."""
        try:
            async with asyncio.timeout(seconds):
                return await self._answer
        except TimeoutError:
            die("Nobody came back from the provider in time", status=ExitStatus.TRY_AGAIN)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, one request."""
        with contextlib.suppress(TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_HEAD_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                status, text = self._take(head.split(b"\r\n", 1)[0].decode("ascii", "replace"))
                writer.write(_PAGE.format(status=status, text=text).encode())
                await writer.drain()
        writer.close()

    def _take(self, line: str) -> tuple[str, str]:
        method, _, rest = line.partition(" ")
        parts = urlsplit(rest.partition(" ")[0])
        if method != "GET" or parts.path != PATH:
            return "404 Not Found", "There is nothing here."
        given = _single(parts.query)
        if not hmac.compare_digest(given.get("state", "").encode(), self.state.encode()):
            return "400 Bad Request", "This is not the authorization that aiosctl waits for."
        found = Answer(given.get("code", ""), given.get("error", ""))
        if not (found.code or found.error):
            return "400 Bad Request", "There is neither a code nor an error."
        if not self._answer.done():
            self._answer.set_result(found)
        done = "The task was not authorized." if found.error else "Done. You can close this window."
        return "200 OK", done


def _single(query: str) -> Mapping[str, str]:
    """Parameters that are there once; one that comes twice counts as absent (RFC 6749, section 3.1)."""
    pairs = parse_qsl(query, max_num_fields=32) if len(query) < _MAX_HEAD else []
    names = [name for name, _ in pairs]
    return {name: text for name, text in pairs if names.count(name) == 1}


@contextlib.asynccontextmanager
async def listening() -> AsyncIterator[Listener]:
    """Listen until the context ends."""
    listener = Listener()
    server = await asyncio.start_server(listener.serve, "127.0.0.1", 0, limit=_MAX_HEAD)
    try:
        listener.redirect_uri = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{PATH}"
        yield listener
    finally:
        server.close()
        await server.wait_closed()
