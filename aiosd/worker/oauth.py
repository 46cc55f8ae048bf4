"""OAuth 2 for programs: the authorization-code flow with PKCE (RFC 6749, RFC 7636, RFC 8252).

    flow = OAuth2("https://provider.example/authorize", "https://provider.example/token", client_id="…")
    token = flow.exchange(task.authenticate(**flow.request("Drive", ["drive.readonly"], reason="to read your files")))

The code verifier and the tokens are in this process only: the system passes on an address and a code that is worth
nothing without the verifier. Standard library only.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aiosd.worker.task import Json

_MAX_ANSWER = 1024 * 1024


class OAuthError(Exception):
    """The provider refused, or the answer is not to the request; `str()` says why, without a secret."""


class OAuth2:
    """One authorization."""

    def __init__(self, authorization_url: str, token_url: str, *, client_id: str) -> None:
        """Makes a fresh verifier and state."""
        self.authorization_url = authorization_url
        self.token_url = token_url
        self.client_id = client_id
        self.state = secrets.token_urlsafe(24)
        self._verifier = secrets.token_urlsafe(48)

    @property
    def code_challenge(self) -> str:
        """RFC 7636, section 4.2, method S256."""
        digest = hashlib.sha256(self._verifier.encode("ascii")).digest()
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode("ascii")

    def request(
        self, provider: str, scopes: Sequence[str], *, reason: str = "", timeout_ms: int = 300_000
    ) -> dict[str, Json]:
        """What `Task.authenticate` takes. `timeout_ms`: how long the person has."""
        return {
            "type": "oauth2",
            "provider": provider,
            "authorization_url": self.authorization_url,
            "scopes": list(scopes),
            "reason": reason,
            "timeout_ms": timeout_ms,
            "client_id": self.client_id,
            "state": self.state,
            "code_challenge": self.code_challenge,
            "code_challenge_method": "S256",
        }

    def exchange(self, answer: Mapping[str, Json], *, timeout: float = 30.0) -> dict[str, Json]:
        """Turn the code into tokens (RFC 6749, section 5.1). `timeout` in seconds. Raises OAuthError."""
        if not hmac.compare_digest(str(answer.get("state", "")).encode(), self.state.encode()):
            raise OAuthError("the answer's state is not the request's")
        fields = {
            "grant_type": "authorization_code",
            "code": str(answer.get("authorization_code", "")),
            "client_id": self.client_id,
            "code_verifier": self._verifier,
        }
        if answer.get("redirect_uri"):
            fields["redirect_uri"] = str(answer["redirect_uri"])
        return self._post(fields, timeout)

    def _post(self, fields: Mapping[str, str], timeout: float) -> dict[str, Json]:
        from urllib import error, parse, request

        if not self.token_url.startswith(("https://", "http://127.0.0.1:", "http://localhost:", "http://[::1]:")):
            raise OAuthError("tokens are only fetched over https")
        body = parse.urlencode(fields).encode("ascii")
        call = request.Request(self.token_url, body, {"Accept": "application/json"})  # noqa: S310  checked above
        try:
            with request.urlopen(call, timeout=timeout) as answer:  # noqa: S310  checked above
                found = json.loads(answer.read(_MAX_ANSWER))
        except error.HTTPError as refusal:
            with refusal:
                raise OAuthError(f"the provider refused the code: {_reason(refusal.read(_MAX_ANSWER))}") from None
        except (OSError, ValueError) as problem:
            raise OAuthError(f"the provider cannot be reached: {type(problem).__name__}") from None
        if not isinstance(found, dict) or "access_token" not in found:
            raise OAuthError("the provider's answer has no access_token")
        return found


def _reason(body: bytes) -> str:
    """The error code of RFC 6749, section 5.2."""
    try:
        found = json.loads(body)
    except ValueError:
        return "no reason given"
    code = found.get("error") if isinstance(found, dict) else None
    return code[:64] if isinstance(code, str) and code.isascii() and code.isprintable() else "no reason given"
