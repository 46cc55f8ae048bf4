"""`aiosctl auth` against a real OAuth 2 server library, with a program's own side of the flow (aiosd.worker.oauth)."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
import webbrowser
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from aiosd.cli.loopback import authorization
from aiosd.worker.oauth import OAuth2, OAuthError
from tests import prerequisites
from tests.unit.cli.daemon import ONE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from aiosd.model.jsontext import JsonObject
    from tests.unit.cli.conftest import Ran
    from tests.unit.cli.daemon import Daemon
    from tests.unit.cli.oauth_server import Provider

    Aiosctl = Callable[..., Ran]

try:
    from tests.unit.cli.oauth_server import CLIENT, providing
except ImportError:
    prerequisites.missing("oauthlib is not installed")


@pytest.fixture
def allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """oauthlib takes plain http, which is all that there is on loopback, only when it is told to."""
    monkeypatch.setenv("OAUTHLIB_INSECURE_TRANSPORT", "1")
    monkeypatch.delenv("DISPLAY", raising=False)


@pytest.fixture
def provider(allowed: None) -> Iterator[Provider]:
    with providing() as found:
        yield found


class Browser:
    """A person's: goes to the address and follows the provider back."""

    def __init__(self) -> None:
        self.pages: list[tuple[int, str]] = []
        self.before: Callable[[str], None] = lambda _: None
        self._threads: list[threading.Thread] = []

    def open(self, url: str) -> None:
        thread = threading.Thread(target=self._visit, args=(url,))
        self._threads.append(thread)
        thread.start()

    def _visit(self, url: str) -> None:
        self.before(url)
        self.pages.append(get(url))

    def join(self) -> None:
        for thread in self._threads:
            thread.join(10)


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as page:  # noqa: S310 - our own server
            return page.status, page.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.fixture
def browser(monkeypatch: pytest.MonkeyPatch) -> Iterator[Browser]:
    """Opened as on a desktop."""
    found = Browser()
    monkeypatch.setenv("DISPLAY", ":7")
    monkeypatch.setattr(webbrowser, "open", found.open)
    yield found
    found.join()


def flow_of(provider: Provider) -> OAuth2:
    return OAuth2(provider.authorize, provider.token, client_id=CLIENT)


def waiting(daemon: Daemon, flow: OAuth2) -> None:
    request = flow.request("Test", ["drive.readonly", "profile"], reason="to read your files", timeout_ms=10_000)
    daemon.add(ONE, "auth_required", auth_request=request)


def test_the_whole_flow_ends_with_a_token_that_only_the_program_has(
    aiosctl: Aiosctl, daemon: Daemon, provider: Provider, browser: Browser
) -> None:
    flow = flow_of(provider)
    waiting(daemon, flow)
    ran = aiosctl("auth", ONE)
    browser.join()
    assert ran.status == 0, ran.err
    assert "Test: to read your files" in ran.err
    assert browser.pages == [(200, "<!DOCTYPE html><title>aiosctl</title><p>Done. You can close this window.</p>\n")]
    (given,) = [json.loads(secret) for secret in daemon.secrets]
    assert given.keys() == {"type", "authorization_code", "state", "redirect_uri"}
    assert given["authorization_code"] not in ran.err + ran.out
    assert given["authorization_code"] not in str(daemon.calls)
    token = flow.exchange(given)
    assert token["access_token"] == provider.validator.tokens[0]["access_token"]
    assert str(token["scope"]).split() == ["drive.readonly", "profile"]
    with pytest.raises(OAuthError, match="invalid_grant"):
        flow.exchange(given)


def test_a_stolen_code_is_worth_nothing_without_the_verifier(
    aiosctl: Aiosctl, daemon: Daemon, provider: Provider, browser: Browser
) -> None:
    waiting(daemon, flow_of(provider))
    assert aiosctl("auth", ONE).status == 0
    (given,) = [json.loads(secret) for secret in daemon.secrets]
    thief = flow_of(provider)
    with pytest.raises(OAuthError, match="invalid_grant"):
        thief.exchange({**given, "state": thief.state})


def test_another_state_does_not_end_the_wait(
    aiosctl: Aiosctl, daemon: Daemon, provider: Provider, browser: Browser
) -> None:
    tried: list[tuple[int, str]] = []

    def attack(url: str) -> None:
        where = parse_qs(urlsplit(url).query)["redirect_uri"][0]
        tried.extend(get(f"{where}?{query}") for query in ("code=evil&state=guessed", "code=evil", "state=a&state=b"))
        tried.append(get(where.replace("/callback", "/other")))

    browser.before = attack
    waiting(daemon, flow_of(provider))
    ran = aiosctl("auth", ONE)
    browser.join()
    assert ran.status == 0
    assert [status for status, _ in tried] == [400, 400, 400, 404]
    assert all(b"evil" not in secret for secret in daemon.secrets)


def test_a_refusal_is_said_and_nothing_is_sent(
    aiosctl: Aiosctl, daemon: Daemon, provider: Provider, browser: Browser
) -> None:
    provider.agrees = False
    waiting(daemon, flow_of(provider))
    ran = aiosctl("auth", ONE)
    assert ran.status == 77
    assert "access_denied" in ran.err
    assert daemon.secrets == []


def test_nobody_coming_back_has_an_end(aiosctl: Aiosctl, daemon: Daemon, allowed: None) -> None:
    address = "https://provider.example/authorize"
    request: JsonObject = {"type": "oauth2", "authorization_url": address, "timeout_ms": 100}
    daemon.add(ONE, "auth_required", auth_request=request)
    assert aiosctl("auth", ONE).status == 75


def test_seed_000s_bare_address_gets_what_the_flow_needs() -> None:
    request: JsonObject = {
        "type": "oauth2",
        "authorization_url": "https://accounts.google.com/o/oauth2/v2/auth?prompt=consent",
        "scopes": ["https://www.googleapis.com/auth/drive.readonly"],
    }
    wanted = authorization(request, "http://127.0.0.1:5/callback")
    query = parse_qs(urlsplit(wanted.url).query)
    assert query == {
        "response_type": ["code"], "scope": ["https://www.googleapis.com/auth/drive.readonly"], "prompt": ["consent"],
        "state": [wanted.state], "redirect_uri": ["http://127.0.0.1:5/callback"],
    }  # fmt: skip
    assert len(wanted.state) >= 32
    again = authorization({**request, "state": "own"}, "http://127.0.0.1:5/callback")
    assert again.state == "own"
    assert urlencode({"state": "own"}) in again.url


@pytest.mark.parametrize(
    ("kind", "words", "sent"),
    [
        ("api_key", ["--secret-file", "{file}"], {"type": "api_key", "api_key": "content"}),
        ("password", ["--username", "u", "--secret-file", "{file}"],
         {"type": "password", "username": "u", "password": "content"}),
        ("certificate", ["--certificate", "{file}", "--private-key", "{file}"],
         {"type": "certificate", "certificate": "content", "private_key": "content"}),
    ],
)  # fmt: skip
def test_the_other_types_come_from_files(
    aiosctl: Aiosctl, daemon: Daemon, tmp_path: Path, kind: str, words: list[str], sent: dict[str, str]
) -> None:
    file = tmp_path / "file"
    file.write_text("content\n")
    daemon.add(ONE, "auth_required", auth_request={"type": kind})
    ran = aiosctl("auth", ONE, *(word.format(file=file) for word in words))
    assert ran.status == 0, ran.err
    assert [json.loads(secret) for secret in daemon.secrets] == [sent]
    assert "content" not in ran.out + ran.err + str(daemon.calls)


def test_a_task_that_asks_for_nothing_gets_nothing(aiosctl: Aiosctl, daemon: Daemon) -> None:
    daemon.add(ONE)
    ran = aiosctl("auth", ONE)
    assert ran.status == 65
    assert "does not wait for an authentication" in ran.err
