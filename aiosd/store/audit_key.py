"""The keys that sign the audit trail: Ed25519 (RFC 8032), the newest first, old public keys kept for verifying.

The private key is a systemd credential named `aiosd-audit-key` (systemd.exec(5), CREDENTIALS) when there is one,
otherwise the file `audit-key` in the state directory, made at the first start. Either holds one key a line, 32 bytes in
base64, the newest first. A second line is the key before, there for one purpose: to endorse the newer one, so that who
trusts the old key can trust the new. Once that is stored, the old private key is removed from our own file: what it
signed can then not be signed anew by whoever takes the daemon over later.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aiosd.model.audit import AuditKind
from aiosd.store.audit import append_audit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from aiosd.store.database import Transaction
    from aiosd.store.tasks import Executor

CREDENTIAL = "aiosd-audit-key"
KEY_FILE = "audit-key"
KEY_BYTES = 32
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
        named = os.environ.get("CREDENTIALS_DIRECTORY")
        directory = credentials or (Path(named) if named else None)
        self._credential = None if directory is None else directory / CREDENTIAL
        self._path = state / KEY_FILE

    @property
    def is_credential(self) -> bool:
        """Whether the service manager gives us the key; then only the administrator can change it."""
        return self._credential is not None and self._credential.exists()

    def load(self) -> list[SigningKey]:
        """The keys, the newest first; one is made when there is none."""
        if self._credential is not None and self._credential.exists():
            return _parse(self._credential.read_bytes())
        try:
            return _parse(self._path.read_bytes())
        except FileNotFoundError:
            self._write([os.urandom(KEY_BYTES)])
            return _parse(self._path.read_bytes())

    def begin_rotation(self) -> list[SigningKey]:
        """Put a new key above the present one; both, the new one first."""
        if self.is_credential:
            raise AuditKeyError(f"the key is the credential {CREDENTIAL}: put a new line above the old one there")
        newest = _seeds(self._path.read_bytes())[0]
        self._write([os.urandom(KEY_BYTES), newest])
        return self.load()

    def forget_old(self) -> None:
        """Keep the newest private key only, in our own file; the administrator's credential is theirs."""
        if self.is_credential:
            return
        seeds = _seeds(self._path.read_bytes())
        if len(seeds) > 1:
            self._write(seeds[:1])

    def _write(self, seeds: Sequence[bytes]) -> None:
        """Whole or not at all."""
        fresh = self._path.with_name(self._path.name + ".new")
        fresh.unlink(missing_ok=True)
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, b"".join(base64.b64encode(seed) + b"\n" for seed in seeds))
            os.fsync(fd)
        finally:
            os.close(fd)
        fresh.rename(self._path)
        directory = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def _seeds(text: bytes) -> list[bytes]:
    try:
        found = [base64.b64decode(line, validate=True) for line in text.split()]
    except binascii.Error:
        raise AuditKeyError("the audit key is not base64") from None
    if not found:
        raise AuditKeyError("the audit key is empty")
    return found


def _parse(text: bytes) -> list[SigningKey]:
    return [SigningKey(seed) for seed in _seeds(text)]


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
