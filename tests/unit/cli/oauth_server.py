"""An OAuth 2 provider: oauthlib's server endpoints behind http.server, PKCE required, one user who always agrees."""

# The names of a validator's arguments are free: the library passes them by position.
# mypy: disable-error-code="override"

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from oauthlib.oauth2 import RequestValidator, WebApplicationServer
from oauthlib.oauth2.rfc6749.errors import FatalClientError

if TYPE_CHECKING:
    from collections.abc import Iterator

CLIENT = "aios-test"


class Validator(RequestValidator):
    """What a provider knows."""

    def __init__(self) -> None:
        self.codes: dict[str, dict[str, Any]] = {}
        self.tokens: list[dict[str, Any]] = []

    def validate_client_id(self, client_id: str, *_: Any, **__: Any) -> bool:
        return client_id == CLIENT

    def validate_redirect_uri(self, client_id: str, uri: str, *_: Any, **__: Any) -> bool:
        return urlsplit(uri).hostname == "127.0.0.1"  # any port: RFC 8252, section 7.3

    def validate_response_type(self, client_id: str, kind: str, *_: Any, **__: Any) -> bool:
        return kind == "code"

    def validate_scopes(self, *_: Any, **__: Any) -> bool:
        return True

    def get_default_scopes(self, *_: Any, **__: Any) -> list[str]:
        return []

    def is_pkce_required(self, *_: Any, **__: Any) -> bool:
        return True

    def save_authorization_code(self, client_id: str, code: dict[str, str], request: Any, *_: Any, **__: Any) -> None:
        self.codes[code["code"]] = {
            "challenge": request.code_challenge,
            "method": request.code_challenge_method,
            "redirect_uri": request.redirect_uri,
            "scopes": request.scopes,
        }

    def client_authentication_required(self, *_: Any, **__: Any) -> bool:
        return False

    def authenticate_client_id(self, client_id: str, request: Any, *_: Any, **__: Any) -> bool:
        request.client = type("Client", (), {"client_id": client_id})()
        return client_id == CLIENT

    def validate_grant_type(self, client_id: str, kind: str, *_: Any, **__: Any) -> bool:
        return kind == "authorization_code"

    def validate_code(self, client_id: str, code: str, client: Any, request: Any, *_: Any, **__: Any) -> bool:
        known = self.codes.get(code)
        if known is None:
            return False
        request.scopes, request.user = known["scopes"], "the user"
        return True

    def get_code_challenge(self, code: str, request: Any) -> str:
        return str(self.codes[code]["challenge"])

    def get_code_challenge_method(self, code: str, request: Any) -> str:
        return str(self.codes[code]["method"])

    def confirm_redirect_uri(self, client_id: str, code: str, uri: str, *_: Any, **__: Any) -> bool:
        return bool(self.codes[code]["redirect_uri"] == uri)

    def save_bearer_token(self, token: dict[str, Any], request: Any, *_: Any, **__: Any) -> None:
        self.tokens.append(token)

    def invalidate_authorization_code(self, client_id: str, code: str, *_: Any, **__: Any) -> None:
        del self.codes[code]


@dataclass
class Provider:
    """Where it is, and what it has seen."""

    url: str
    validator: Validator
    agrees: bool = True
    asked: list[str] = field(default_factory=list)

    @property
    def authorize(self) -> str:
        return f"{self.url}/authorize"

    @property
    def token(self) -> str:
        return f"{self.url}/token"


@contextmanager
def providing() -> Iterator[Provider]:
    """Serve on loopback."""
    validator = Validator()
    endpoints = WebApplicationServer(validator)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            provider.asked.append(self.path)
            url = provider.url + self.path
            try:
                scopes, known = endpoints.validate_authorization_request(url)
            except FatalClientError as error:
                self._answer({}, str(error), 400)
                return
            if provider.agrees:
                found = endpoints.create_authorization_response(url, scopes=scopes, credentials=known)
                self._answer(*found)
            else:
                where = f"{known['redirect_uri']}?error=access_denied&state={known['state']}"
                self._answer({"Location": where}, None, 302)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            headers = {"Content-Type": "application/x-www-form-urlencoded"}
            self._answer(*endpoints.create_token_response(provider.url + self.path, "POST", body, headers))

        def _answer(self, headers: dict[str, str], body: str | None, status: int) -> None:
            self.send_response(status)
            for name, text in headers.items():
                self.send_header(name, text)
            self.end_headers()
            self.wfile.write((body or "").encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        provider = Provider(f"http://127.0.0.1:{server.server_port}", validator)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield provider
        finally:
            server.shutdown()
            thread.join()
