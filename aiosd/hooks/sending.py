"""One delivery over HTTP. This module imports aiohttp, so it is imported only when there is something to deliver.

Names are resolved here and every address is judged before anything is connected to it (`addresses.refusal`); what was
judged is what is connected to, so a name that answers differently the second time (DNS rebinding) gains nothing. No
redirections, no cookies, no proxies, no decompression; the answer's body is not read beyond a bound and not kept.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import TYPE_CHECKING

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from aiosd.core.webhook_operations import check_url
from aiosd.core.webhooks import Outcome, Verdict, headers, judge, signature
from aiosd.errors import AiosError
from aiosd.hooks.addresses import refusal
from aiosd.model.secrettext import SecretText

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aiosd.core.settings import Settings
    from aiosd.model.webhook import Delivery

MAX_ANSWER = 64 * 1024
"""Bytes of a receiver's answer that are read; what is beyond is not waited for."""


RESOLVERS = 16
"""Names that are resolved at a time, in threads of their own: a name server that does not answer holds one for half a
minute, and those of the loop (asyncio.to_thread) are the whole daemon's."""


class RefusedAddress(OSError):
    """The name leads only to addresses to which nothing may be sent; `str()` says which kind."""


class JudgingResolver(AbstractResolver):
    """Resolves names with the system's resolver and keeps only the addresses that may be connected to."""

    def __init__(self, settings: Settings) -> None:
        """`settings`: for `allow_private_addresses`."""
        self._settings = settings
        self._threads = ThreadPoolExecutor(RESOLVERS, thread_name_prefix="resolver")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The addresses of `host`. Raises RefusedAddress when all are refused, OSError when there are none."""
        loop = asyncio.get_running_loop()
        infos = await loop.run_in_executor(
            self._threads, partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM, family=family)
        )
        found: list[ResolveResult] = []
        reason = "no address"
        for kind, _, proto, _, where in infos:
            address = str(where[0])
            why = None if self._settings.current.allow_private_addresses else refusal(address)
            if why is not None:
                reason = why
                continue
            flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
            found.append(
                ResolveResult(hostname=host, host=address, port=port, family=int(kind), proto=proto, flags=int(flags))
            )
        if not found:
            raise RefusedAddress(f"the name leads to an address that is not allowed: {reason}")
        return found

    async def close(self) -> None:
        """Let the threads end, when they have their answers."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class Sender:
    """The HTTP client. Made by `opened`."""

    def __init__(self, session: aiohttp.ClientSession, settings: Settings) -> None:
        """Use `opened`."""
        self._session = session
        self._settings = settings

    @classmethod
    @asynccontextmanager
    async def opened(cls, settings: Settings) -> AsyncIterator[Sender]:
        """A client for as long as there is something to send. Certificates are the system's ($SSL_CERT_FILE)."""
        tls = await asyncio.to_thread(ssl.create_default_context)
        resolver = JudgingResolver(settings)
        connector = aiohttp.TCPConnector(resolver=resolver, use_dns_cache=False, ssl=tls, force_close=True, limit=0)
        try:
            async with aiohttp.ClientSession(
                connector=connector, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False, auto_decompress=False,
                skip_auto_headers=("Accept-Encoding",),
            ) as session:  # fmt: skip
                yield cls(session, settings)
        finally:
            await resolver.close()

    async def send(self, url: str, delivery: Delivery, body: bytes, secret: bytearray | None) -> Outcome:
        """Send once. Never raises for what a receiver or the network does; `secret` is wiped."""
        refused = self._refused(url)
        if refused is not None:
            return refused
        whole = {**headers(delivery), **_authenticated(secret, body)}
        limit = self._settings.current.delivery_timeout
        try:
            async with (
                asyncio.timeout(limit),
                self._session.post(
                    URL(url, encoded=True), data=body, headers=whole, allow_redirects=False,
                    timeout=aiohttp.ClientTimeout(total=None),
                ) as answer,
            ):  # fmt: skip
                await _skim(answer)
                return judge(answer.status, retry_after(answer.headers.get("Retry-After")))
        except TimeoutError:
            return Outcome(Verdict.AGAIN, f"no answer within {limit:g} s")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return Outcome(Verdict.AGAIN, _said(error))

    def _refused(self, url: str) -> Outcome | None:
        """Rules may have become stricter since it was registered; and an address that is no name is not resolved."""
        private = self._settings.current.allow_private_addresses
        try:
            check_url(url, private=private)
            host = URL(url, encoded=True).host or ""
        except (AiosError, ValueError) as error:
            return Outcome(Verdict.AGAIN, f"the address is not allowed: {error}")
        why = None if private else refusal(host)
        if why is None or (why == "no address" and not _passes_the_resolver_by(host)):
            return None
        return Outcome(Verdict.AGAIN, f"the address is not allowed: {why}")


def _passes_the_resolver_by(host: str) -> bool:
    """Whether aiohttp takes it for an address and hands it to the system unjudged, where 127.1 is 127.0.0.1."""
    return ":" in host or host.replace(".", "").isdigit()


def _authenticated(secret: bytearray | None, body: bytes) -> dict[str, str]:
    """The two headers that prove who sends. HTTP needs the token as a string, so here copies of it are made."""
    if secret is None:
        return {}
    with SecretText(secret) as given:
        token, key = bytes(given.field("token")), bytes(given.field("secret"))
    return {"Authorization": f"Bearer {token.decode('ascii')}", "X-AIOS-Signature": signature(key or token, body)}


async def _skim(answer: aiohttp.ClientResponse) -> None:
    """Read the answer's body, which says nothing to us, so that its sender is not cut off; within the bound."""
    read = 0
    async for piece in answer.content.iter_any():
        read += len(piece)
        if read > MAX_ANSWER:
            return


def retry_after(text: str | None) -> float | None:
    """Retry-After (RFC 9110, section 10.2.3), in seconds from now; None when there is none or it is not one."""
    if text is None or len(text) > 64:
        return None
    text = text.strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())


def _said(error: Exception) -> str:
    """What went wrong, without what was sent and without the peer's own words."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, RefusedAddress):
            return str(cause)
        cause = cause.__cause__
    if isinstance(error, aiohttp.InvalidURL):
        return "the address is not allowed: its host is no name"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return "the receiver's certificate is not valid for its name, or nobody that we trust signed it"
    if isinstance(error, aiohttp.ClientConnectorSSLError):
        return "TLS with the receiver failed"
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno
        return f"no connection: {os.strerror(number) if number and number > 0 else 'the name is not known'}"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "the receiver closed the connection without an answer"
    return f"the exchange failed: {type(error).__name__}"
