"""Signing the trail: the last row of each commit, and the head, a small file that says how far the trail has come.

One signature a commit is enough, because the chain carries it back over every row before: about 0.1 ms beside an fsync
of some milliseconds, however many rows and callers share the commit. A change between two signatures is then located
to the rows of one commit. Everything here runs in the writer thread.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from aiosd.model import jsontext
from aiosd.model.later import dataclass
from aiosd.store.audit_key import seal_message

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

    from aiosd.store.audit_key import SigningKey

HEAD_FILE = "audit-head"
_HEAD_BYTES = 512
"""One disk sector, written in one piece: it is the old head or the new one, not half of each."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Head:
    """How far the trail has come: the number and hash of its last row, signed."""

    seq: int
    hash: bytes
    key_id: str
    signature: bytes

    def encoded(self) -> bytes:
        """As it stands in the file: a line of JSON, padded."""
        text = jsontext.dump(
            {"seq": self.seq, "hash": self.hash.hex(), "key": self.key_id, "signature": self.signature.hex()}
        )
        return text.encode().ljust(_HEAD_BYTES - 1) + b"\n"


def parse_head(text: bytes) -> Head | None:
    """The head in that text, None when there is none. Whether it is genuine is for its signature to say."""
    try:
        fields = jsontext.parse_object(text.strip())
        return Head(
            int(str(fields["seq"])), bytes.fromhex(str(fields["hash"])), str(fields["key"]),
            bytes.fromhex(str(fields["signature"])),
        )  # fmt: skip
    except (ValueError, KeyError):
        return None


def read_head(path: Path) -> Head | None:
    """The head in that file, None when there is none. Raises OSError when it cannot be read."""
    try:
        return parse_head(path.read_bytes())
    except FileNotFoundError:
        return None


class AuditSeal:
    """What the writer calls around each commit. `key` may be replaced at any moment (rotation)."""

    def __init__(self, key: SigningKey, head: Path) -> None:
        """`head`: the head file, made when it is missing."""
        self.key = key
        self._path = head
        self._fd: int | None = None
        self._sealed = -1
        self._next: Head | None = None
        self._complained = False

    def before_commit(self, connection: sqlite3.Connection) -> None:
        """Sign the last row, when it is new. Raises sqlite3.Error, and then the commit must not happen."""
        self._next = None
        row = connection.execute("SELECT seq, hash, signature FROM audit ORDER BY seq DESC LIMIT 1").fetchone()
        if row is None or row[0] == self._sealed:
            return
        if row[2] is not None:
            self._sealed = row[0]
            return
        key = self.key  # once: it may be replaced at any moment
        head = Head(row[0], row[1], key.id, key.sign(seal_message(row[0], row[1])))
        connection.execute(
            "UPDATE audit SET signature = ?, key_id = ? WHERE seq = ?", (head.signature, head.key_id, head.seq)
        )
        self._next = head

    def after_commit(self) -> None:
        """Keep the head. Without an fsync: after a power cut it may be behind the trail, never before it."""
        head = self._next
        if head is None:
            return
        self._sealed = head.seq
        try:
            if self._fd is None:
                self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            os.pwrite(self._fd, head.encoded(), 0)
        except OSError as error:
            if not self._complained:
                _log.error("The head of the audit trail cannot be kept: %s", error)
            self._complained = True

    def close(self) -> None:
        """Close the head file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
