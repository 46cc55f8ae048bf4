"""The keys that sign the audit trail: Ed25519 (RFC 8032), the newest first, old public keys kept for verifying.

The private key is the credential `aiosd-audit-key` or the file `audit-key` (key_file.py). A second one is the key
before, there for one purpose: to endorse the newer one, so that who trusts the old key can trust the new. Once that is
stored, the old private key is removed from our own file, and that file where a credential has taken its place: what it
signed can then not be signed anew by whoever takes the daemon over later.
"""

from __future__ import annotations

import base64
import hashlib
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aiosd.model.audit import AuditKind
from aiosd.model.later import dataclass
from aiosd.store.audit import append_audit
from aiosd.store.key_file import KEY_BYTES, KeyFile, KeyFileError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from aiosd.store.database import Transaction
    from aiosd.store.tasks import Executor

CREDENTIAL = "aiosd-audit-key"
KEY_FILE = "audit-key"
_ENDORSEMENT = b"aiosd audit key 1\0"
_SEAL = b"aiosd audit seal 1\0"


class AuditKeyError(Exception):
    """There is no key that can be used; `str()` says why without a word of it."""


class SigningKey:
    """A private key, with the id by which rows name it."""

    __slots__ = ("_private", "id", "public")

    def __init__(self, seed: bytes) -> None:
        """`seed`: 32 bytes. Raises AuditKeyError."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        if len(seed) != KEY_BYTES:
            raise AuditKeyError(f"a key must have {KEY_BYTES} bytes")
        self._private: Ed25519PrivateKey = Ed25519PrivateKey.from_private_bytes(seed)
        self.public = self._private.public_key().public_bytes_raw()
        self.id = key_id(self.public)

    def sign(self, message: bytes) -> bytes:
        """The signature, 64 bytes."""
        return self._private.sign(message)


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A key as the trail keeps it. `endorser`: id of the key that signed it, None for the first or a foreign one."""

    id: str
    public: bytes
    created_at: int
    endorser: str | None = None
    endorsement: bytes | None = None

    def signed(self, signature: bytes, message: bytes) -> bool:
        """Whether this key made that signature."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            Ed25519PublicKey.from_public_bytes(self.public).verify(signature, message)
        except (InvalidSignature, ValueError):
            return False
        return True


def key_id(public: bytes) -> str:
    """The fingerprint by which people and rows name a key: 32 hexadecimal digits of SHA-256."""
    return hashlib.sha256(public).hexdigest()[:32]


def seal_message(seq: int, digest: bytes) -> bytes:
    """What a signature on a row covers: its number and its hash, and so all rows before it."""
    return _SEAL + seq.to_bytes(8, "big") + digest


def endorsement_message(public: bytes) -> bytes:
    """What the key before signs about a new one."""
    return _ENDORSEMENT + public


class KeyStore:
    """Where the private key is. Its methods block and raise AuditKeyError, OSError."""

    def __init__(self, state: Path, credentials: Path | None = None) -> None:
        """`state`: the state directory. `credentials`: $CREDENTIALS_DIRECTORY when not given."""
        self._file = KeyFile(state, KEY_FILE, CREDENTIAL, credentials)

    @property
    def is_credential(self) -> bool:
        """Whether the service manager gives us the key; then only the administrator can change it."""
        return self._file.is_credential

    def load(self) -> list[SigningKey]:
        """The keys, the newest first; one is made when there is none."""
        with _named():
            return [SigningKey(seed) for seed in self._file.read_or_make()[0]]

    def begin_rotation(self) -> list[SigningKey]:
        """Put a new key above the present one; both, the new one first.

        One that was begun and could not be recorded is gone on with: a second new key would push out the one that the
        trail knows, and nobody could endorse it.
        """
        if self.is_credential:
            raise AuditKeyError(f"the key is the credential {CREDENTIAL}: put a new line above the old one there")
        with _named():
            seeds = self._file.read()
            if len(seeds) == 1:
                self._file.write([os.urandom(KEY_BYTES), seeds[0]])
        return self.load()

    def forget_old(self) -> None:
        """Keep the newest private key only, of our own; the administrator's credential is theirs."""
        if self.is_credential:
            self._file.remove()
            return
        with _named():
            seeds = self._file.read()
            if len(seeds) > 1:
                self._file.write(seeds[:1])


@contextmanager
def _named() -> Iterator[None]:
    """What is wrong with the file is wrong with the audit key."""
    try:
        yield
    except KeyFileError as error:
        raise AuditKeyError(str(error)) from None


def public_keys(db: Executor) -> list[PublicKey]:
    """Every key that ever signed, the oldest first."""
    rows = db.execute("SELECT id, public, created_at, endorser, endorsement FROM audit_keys ORDER BY seq")
    return [PublicKey(*row) for row in rows]


def adopt(transaction: Transaction, keys: Sequence[SigningKey], *, now: int, actor: str = "system") -> bool:
    """Record that `keys[0]` signs from here on, endorsed by the key before when that is among `keys`.

    Whether anything had to be recorded.
    """
    known = public_keys(transaction)
    current = keys[0]
    if known and known[-1].id == current.id:
        return False
    before = known[-1].id if known else None
    endorser = next((key for key in keys[1:] if key.id == before), None)
    endorsement = None if endorser is None else endorser.sign(endorsement_message(current.public))
    transaction.execute(
        "INSERT INTO audit_keys (id, public, created_at, endorser, endorsement) VALUES (?, ?, ?, ?, ?)",
        (current.id, current.public, now, None if endorser is None else endorser.id, endorsement),
    )
    append_audit(
        transaction, time=now, uid=None, actor=actor, kind=AuditKind.AUDIT_KEY, task_id=None,
        details={
            "fingerprint": current.id, "public": base64.b64encode(current.public).decode(), "before": before,
            "endorsed": endorser is not None,
        },
    )  # fmt: skip
    return True
