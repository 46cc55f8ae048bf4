"""Secrets at rest: sealed with AES-256-GCM (NIST SP 800-38D), bound to their owner and purpose.

The key is the credential `aiosd-key` or the file `key` (store/key_file.py): a new line above the old ones is a
rotation, and so is a credential where there was a file. What a key sealed carries the key's id, so older lines can go
once nothing names them.

What comes out is a `bytearray`, for its user to wipe; nothing here makes an immutable copy of a secret.
"""

from __future__ import annotations

import hashlib
import logging
import os
from typing import TYPE_CHECKING

from aiosd.model.later import dataclass
from aiosd.model.secrettext import wipe
from aiosd.store.key_file import KEY_BYTES, KeyFile, KeyFileError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

CREDENTIAL = "aiosd-key"
KEY_FILE = "key"
_KEY_ID_BYTES = 8
_NONCE_BYTES = 12
_TAG_BYTES = 16
_FORMAT = b"\x01"
_HEAD_BYTES = len(_FORMAT) + _KEY_ID_BYTES + _NONCE_BYTES

_log = logging.getLogger(__name__)


class SecretError(Exception):
    """A secret cannot be read, or there is no key; `str()` says why without a word of either."""


@dataclass(frozen=True, slots=True)
class Context:
    """What a secret belongs to. A sealed one opens only with the same: a row cannot be moved to somebody else."""

    owner: int
    purpose: str

    def encoded(self) -> bytes:
        """The associated data."""
        return f"aiosd\0{self.owner}\0{self.purpose}".encode()


class Vault:
    """Seals and opens. Cheap to make; cryptography is imported at the first use."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        """`keys`: of 32 bytes, the newest first. Raises SecretError when there is none or one is not."""
        if not keys or any(len(key) != KEY_BYTES for key in keys):
            raise SecretError(f"a key must have {KEY_BYTES} bytes, and there must be one")
        self._keys = {_key_id(key): key for key in keys}
        self._newest = _key_id(keys[0])

    def seal(self, context: Context, secret: bytearray) -> bytes:
        """Encrypt; the plain text stays the caller's to wipe."""
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        nonce = os.urandom(_NONCE_BYTES)
        encryptor = Cipher(algorithms.AES(self._keys[self._newest]), modes.GCM(nonce)).encryptor()
        encryptor.authenticate_additional_data(context.encoded())
        sealed = encryptor.update(secret) + encryptor.finalize()
        return _FORMAT + self._newest + nonce + sealed + encryptor.tag

    def unseal(self, context: Context, sealed: bytes) -> bytearray:
        """Decrypt. Raises SecretError: another key, another owner or purpose, or changed bytes."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        if len(sealed) < _HEAD_BYTES + _TAG_BYTES or sealed[:1] != _FORMAT:
            raise SecretError("a stored secret is not in a format that is known")
        key = self._keys.get(sealed[1 : 1 + _KEY_ID_BYTES])
        if key is None:
            raise SecretError("a stored secret was sealed with a key that is not there any more")
        nonce, tag = sealed[1 + _KEY_ID_BYTES : _HEAD_BYTES], sealed[-_TAG_BYTES:]
        body = memoryview(sealed)[_HEAD_BYTES:-_TAG_BYTES]
        decryptor = Cipher(algorithms.AES(key), modes.GCM(nonce, tag)).decryptor()
        decryptor.authenticate_additional_data(context.encoded())
        plain = bytearray(len(body) + 15)
        written = decryptor.update_into(body, plain)
        try:
            decryptor.finalize()
        except InvalidTag:
            wipe(plain)
            raise SecretError("a stored secret was changed, or belongs to somebody else") from None
        result = plain[:written]
        wipe(plain)
        return result


def load(state: Path, credentials: Path | None = None) -> Vault:
    """The vault with the key that the system gives us, or with our own. Blocks; raises SecretError, OSError.

    `state`: the state directory. `credentials`: $CREDENTIALS_DIRECTORY when not given.
    """
    file = KeyFile(state, KEY_FILE, CREDENTIAL, credentials)
    try:
        keys, made = file.read_or_make()
    except KeyFileError as error:
        raise SecretError(str(error)) from None
    if made:
        _log.info("Made a key for secrets, %s", file.path)
    return Vault(keys)


def _key_id(key: bytes) -> bytes:
    return hashlib.sha256(b"aiosd key id\0" + key).digest()[:_KEY_ID_BYTES]
