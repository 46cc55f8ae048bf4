"""What is taken out of a bug report, and what stays."""

from __future__ import annotations

import pytest

from aiosd.cli.redact import redact

# The tokens are those of the RFCs' examples (6750, 7519, 7617), else of the issuers' documents.
SECRETS = {
    "header": ("Authorization: Bearer mF_9.B5f-4.1JqM", "mF_9.B5f-4.1JqM"),
    "basic": ("sent authorization=Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ== to it", "QWxhZGRpbjpvcGVuIHNlc2FtZQ=="),
    "dict": ("headers {'Authorization': 'Bearer mF_9.B5f-4.1JqM'}", "mF_9.B5f-4.1JqM"),
    "digest": ('Authorization: Digest username="Mufasa", response="753927fa0e85d155564e2e272a28d1802"', "753927fa0e85"),
    "cookie": ("Set-Cookie: SID=31d4d96e407aad42; Path=/; Secure", "31d4d96e407aad42"),
    "scheme": ("it said bearer vF9dft4qmT and went", "vF9dft4qmT"),
    "json": ('{"type": "bearer", "token": "webhook \\"quoted\\" tail"}', "tail"),
    "nested": ('"auth_response": {"code": "4711-0815"}', "4711-0815"),
    "nested in a string": ('"{\\"api_key\\": \\"s3cr3t-word\\"}"', "s3cr3t-word"),
    "setting": ("smtp_password = correct horse", "horse"),
    "passphrase": ("the passphrase: correct horse battery staple", "staple"),
    "option": ("aiosctl webhook add --token=tok-en-1 --verbose", "tok-en-1"),
    "option and word": ("program --api-key k-1-2-3 --verbose", "k-1-2-3"),
    "userinfo": ("postgresql://user:hunter2@db.example.com/x", "hunter2"),
    "web address": ("POST https://hooks.example.com/services/T000/B000/XXXX?sig=abc failed", "B000"),
    "query": ("https://client.example.com/aios?sig=abcdef", "abcdef"),
    "forge": ("cloned with ghp_16C7e42F292c6912E7710c838347Ae178B4a", "16C7e42F"),
    "cloud": ("key AKIAIOSFODNN7EXAMPLE denied", "IOSFODNN7"),
    "web token": ("got eyJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJqb2UifQ.dBjftJeZ4CVP", "dBjftJeZ4CVP"),
    "key": (
        "a\n-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\n-----END OPENSSH PRIVATE KEY-----\nb",
        "b3BlbnNza",
    ),
    "cut key": ("-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIIYx", "MHcCAQ"),
    "long word": ("wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEYwJalr", "FEMI"),
}


@pytest.mark.parametrize(("text", "secret"), SECRETS.values(), ids=SECRETS)
def test_is_taken_out(text: str, secret: str) -> None:
    assert secret in text
    shown = redact(text)
    assert secret not in shown
    assert "[removed]" in shown


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-30T14:00:00+0000 box aiosd[64]: Ready: 3 tasks, bus name org.aios.TaskManager",
        "task-01m8p87j5a3q8t1h8c0sqqxx8g  files.checksum  working (running)",
        "aios-task-run-01m8p87j6mz74nytwm43kkxgx4.scope: A process of this unit has been killed by the OOM killer.",
        "max_concurrent_tasks = 8",
        "/etc/aios/capabilities.d/a.b.toml:3: unknown key 'exce'",
        "sha256 d42b0b09c99d57efe5435145967a7ab2550dcb79fb02d90b481b800e588d949a",
        "Docs: man:aiosd(8)",
        "secrets 0\nwebhooks 2",
    ],
)
def test_stays(text: str) -> None:
    assert redact(text) == text


def test_what_stands_around_it_stays() -> None:
    assert redact("a https://u:p@host.example:8443/x/y b") == "a https://host.example:8443/[removed] b"
    assert redact('{"token": "x", "tasks": 3}') == '{"token": [removed], "tasks": 3}'
