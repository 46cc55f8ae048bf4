"""Where a key of the daemon's is: a systemd credential (systemd.exec(5), CREDENTIALS) when there is one, otherwise a
file in the state directory, made at the first start.

Either holds one key a line, in base64, the newest first. Where both are there, the administrator gave a credential to a
daemon that had made keys: those are the older ones. Everything here blocks.
"""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

KEY_BYTES = 32


class KeyFileError(Exception):
    """There is no key that can be used; `str()` says why without a word of it."""


class KeyFile:
    """One of them."""

    def __init__(self, state: Path, file: str, credential: str, credentials: Path | None = None) -> None:
        """`state`: the state directory. `credentials`: $CREDENTIALS_DIRECTORY when not given."""
        named = os.environ.get("CREDENTIALS_DIRECTORY")
        directory = credentials or (Path(named) if named else None)
        self._credential = None if directory is None else directory / credential
        self.path = state / file
        self.credential = credential

    @property
    def is_credential(self) -> bool:
        """Whether the service manager gives us the key; then only the administrator can change it."""
        return self._credential is not None and self._credential.exists()

    def read(self) -> list[bytes]:
        """The keys, the newest first. Raises FileNotFoundError, OSError, KeyFileError."""
        if self._credential is None or not self._credential.exists():
            return self._keys(self.path)
        given = self._keys(self._credential)
        try:
            return [*given, *self._keys(self.path)]
        except (OSError, KeyFileError):  # none of our own, as a rule; what is given is enough
            return given

    @staticmethod
    def _keys(path: Path) -> list[bytes]:
        try:
            found = [base64.b64decode(line, validate=True) for line in path.read_bytes().split()]
        except binascii.Error:
            raise KeyFileError(f"the key in {path.name} is not base64") from None
        if not found or any(len(key) != KEY_BYTES for key in found):
            raise KeyFileError(f"{path.name} has to hold keys of {KEY_BYTES} bytes, a line each, and at least one")
        return found

    def read_or_make(self) -> tuple[list[bytes], bool]:
        """The keys, and whether one had to be made. Raises OSError, KeyFileError."""
        try:
            return self.read(), False
        except FileNotFoundError:
            self.write([os.urandom(KEY_BYTES)])
            return self.read(), True

    def remove(self) -> None:
        """Remove our own file, for ever; not an error when there is none. Raises OSError."""
        self.path.unlink(missing_ok=True)

    def write(self, keys: Sequence[bytes]) -> None:
        """Replace our own file, whole or not at all: a key that is half written would be lost with what it has done."""
        fresh = self.path.with_name(self.path.name + ".new")
        fresh.unlink(missing_ok=True)
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, b"".join(base64.b64encode(key) + b"\n" for key in keys))
            os.fsync(fd)
        finally:
            os.close(fd)
        fresh.rename(self.path)
        directory = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
