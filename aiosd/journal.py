"""Structured entries in the journal, by its native protocol (https://systemd.io/JOURNAL_NATIVE_PROTOCOL/).

For the audit trail: every committed record is an entry with a MESSAGE_ID, so `journalctl -x` explains it, and with its
hash, so the journal, which the daemon cannot change, is a witness of the trail. Never blocks: what a full journal does
not take is counted, and told with the next entry that it takes.
"""

from __future__ import annotations

import logging
import socket
import struct
from typing import TYPE_CHECKING

from aiosd.model.audit import MESSAGE_IDS, SENTENCES, AuditEntry

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SOCKET = "/run/systemd/journal/socket"
DETAILS_MAX = 8 * 1024
"""Bytes of a record's details in its entry; the trail has all of them."""

_NOTICE, _INFO = 5, 6
_LOUD = ("emergency.", "audit.", "policy.", "approval.", "permission.denied", "permission.revoked")
"""Kinds that an administrator wants to see at a glance."""

_log = logging.getLogger(__name__)


class Journal:
    """A socket to journald; silent where there is none."""

    def __init__(self, path: str = SOCKET) -> None:
        """Connects with the first entry, and again after a failure."""
        self._path = path
        self._socket: socket.socket | None = None
        self.lost = 0

    def send(self, fields: Mapping[str, str]) -> bool:
        """One entry; whether journald has it."""
        if self.lost:
            fields = {**fields, "AIOS_ENTRIES_LOST": str(self.lost)}
        data = _encoded(fields)
        for _ in range(2):
            try:
                self._connected().send(data)
            except BlockingIOError:
                break
            except OSError:
                self.close()  # journald was restarted: once more, with a new connection
            else:
                self.lost = 0
                return True
        self.lost += 1
        return False

    def _connected(self) -> socket.socket:
        if self._socket is None:
            made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
            try:
                made.connect(self._path)
            except OSError:
                made.close()
                raise
            self._socket = made
        return self._socket

    def close(self) -> None:
        """Close the socket."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _encoded(fields: Mapping[str, str]) -> bytes:
    lines = [f"{name}={value}\n" for name, value in fields.items() if "\n" not in value]
    data = "".join(lines).encode("utf-8", "replace")
    if len(lines) < len(fields):
        data += b"".join(_in_lines(name, value) for name, value in fields.items() if "\n" in value)
    return data


def _in_lines(name: str, value: str) -> bytes:
    data = value.encode("utf-8", "replace")
    return name.encode() + b"\n" + struct.pack("<Q", len(data)) + data + b"\n"


def _beginning(text: str) -> str:
    """As much of it as may be DETAILS_MAX bytes."""
    if len(text) * 4 <= DETAILS_MAX:
        return text
    return text.encode()[:DETAILS_MAX].decode("utf-8", "ignore")


def entry_fields(entry: AuditEntry) -> dict[str, str]:
    """A record as the fields of its journal entry (systemd.journal-fields(7); ours begin with AIOS_)."""
    loud = entry.kind.startswith(_LOUD)
    fields = {
        "MESSAGE": _sentence(entry),
        "PRIORITY": str(_NOTICE if loud else _INFO),
        "SYSLOG_IDENTIFIER": "aiosd",
        "AIOS_AUDIT_SEQ": str(entry.seq),
        "AIOS_AUDIT_KIND": entry.kind,
        "AIOS_AUDIT_HASH": entry.hash,
        "AIOS_AUDIT_DETAILS": _beginning(entry.text),
        "AIOS_ACTOR": entry.actor,
    }
    if entry.kind in MESSAGE_IDS:
        fields["MESSAGE_ID"] = MESSAGE_IDS[entry.kind]
    if entry.uid is not None:
        fields["AIOS_UID"] = str(entry.uid)
    if entry.task_id is not None:
        fields["AIOS_TASK_ID"] = entry.task_id
    for name in ("capability_id", "level", "old", "new", "reason", "status", "decision", "fingerprint", "scope"):
        value = entry.details.get(name)
        if isinstance(value, str):
            fields[f"AIOS_{name.upper()}"] = value[:256]
    return fields


def _sentence(entry: AuditEntry) -> str:
    """One line for people. What a caller chose comes without control characters."""
    values = {name: value for name, value in entry.details.items() if isinstance(value, str | int)}
    known = _Known({**values, "task": entry.task_id or "", "actor": entry.actor, "uid": entry.uid})
    text = SENTENCES.get(entry.kind, entry.kind + " by {actor}").format_map(known)
    text = text[:512]
    return text if text.isprintable() else "".join(char if char.isprintable() else " " for char in text)


class _Known(dict[str, object]):
    """What a sentence may name; what a record has not is a dash."""

    def __missing__(self, key: str) -> str:
        return "-"


class AuditJournal:
    """A `Database.on_commit` listener that copies the trail into the journal."""

    def __init__(self, journal: Journal) -> None:
        """`journal`: stays the caller's to close."""
        self._journal = journal
        self._told = False

    def committed(self, items: Sequence[object]) -> None:
        """Called after each commit with what it announced."""
        for item in items:
            if isinstance(item, AuditEntry) and not self._journal.send(entry_fields(item)) and not self._told:
                self._told = True
                _log.warning("The journal does not take audit records; the trail itself has them")
