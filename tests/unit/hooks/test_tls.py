"""TLS: only a certificate that somebody trusted has signed for that very name is sent anything."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from aiosd.model.webhook import WebhookRetry, WebhookState
from tests.unit.hooks.receiver import Receiver, outbox

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


def certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """A self-signed one, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    where, secret = folder / "certificate.pem", folder / "key.pem"
    where.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    secret.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return where, secret


@asynccontextmanager
async def receiving(receiver: Receiver, files: tuple[Path, Path]) -> AsyncIterator[int]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*files)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", receiver.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("name", "trusted", "taken"),
    [("localhost", True, True), ("localhost", False, False), ("another.example", True, False)],
)
def test_only_a_trusted_certificate_for_the_name_is_sent_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, name: str, trusted: bool, taken: bool
) -> None:
    files = certificate(tmp_path, name)
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(files[0]))

    async def scenario() -> None:
        receiver = Receiver()
        async with receiving(receiver, files) as port, outbox(tmp_path) as box, box.delivering():
            await box.task()
            hook = await box.hook(f"https://localhost:{port}/", retry=WebhookRetry(0, 10))
            await box.event(1)
            found = await box.until(hook, lambda one: one.delivered == 1 or one.state is WebhookState.PARKED)
        assert len(receiver.requests) == (1 if taken else 0)
        assert (found.last_error is None) is taken
        assert taken or "certificate is not valid" in (found.last_error or "")

    async def bounded() -> None:
        async with asyncio.timeout(60):
            await scenario()

    asyncio.run(bounded())
