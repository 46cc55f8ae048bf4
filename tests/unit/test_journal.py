"""Audit records as journal entries: the native protocol, and a journal that is away, full or restarted."""

from __future__ import annotations

import socket
import struct
from contextlib import closing
from typing import TYPE_CHECKING

from aiosd.journal import DETAILS_MAX, AuditJournal, Journal, entry_fields
from aiosd.model.audit import MESSAGE_IDS, AuditEntry, AuditKind
from aiosd.model.jsontext import dump

if TYPE_CHECKING:
    from pathlib import Path

    from aiosd.model.jsontext import JsonObject


def entry(kind: str = AuditKind.TASK_CREATED, **details: str) -> AuditEntry:
    shown: JsonObject = {**details}
    return AuditEntry(7, 1_780_000_000_000_000, 1000, "uid:1000", kind, "task-1", shown, "ab" * 32, dump(shown))


def journald(path: Path) -> socket.socket:
    """A socket as journald's."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.bind(str(path))
    made.settimeout(30)
    return made


def fields_of(data: bytes) -> dict[str, bytes]:
    """As https://systemd.io/JOURNAL_NATIVE_PROTOCOL/ says."""
    found = {}
    while data:
        line, _, data = data.partition(b"\n")
        name, equals, value = line.partition(b"=")
        if not equals:
            length = struct.unpack_from("<Q", data)[0]
            value, data = data[8 : 8 + length], data[8 + length + 1 :]
        found[name.decode()] = value
    return found


def test_an_entry_has_what_finds_and_explains_it(tmp_path: Path) -> None:
    with closing(journald(tmp_path / "socket")) as receiver, closing(Journal(str(tmp_path / "socket"))) as journal:
        AuditJournal(journal).committed([object(), entry(capability_id="files.checksum", level="low")])
        fields = fields_of(receiver.recv(1 << 16))
    assert fields["MESSAGE_ID"].decode() == MESSAGE_IDS[AuditKind.TASK_CREATED]
    assert fields["MESSAGE"] == b"task-1 was created by uid:1000: files.checksum (low)"
    assert (fields["AIOS_AUDIT_SEQ"], fields["AIOS_AUDIT_HASH"]) == (b"7", b"ab" * 32)
    assert (fields["AIOS_TASK_ID"], fields["AIOS_UID"], fields["PRIORITY"]) == (b"task-1", b"1000", b"6")


def test_what_a_caller_chose_cannot_make_fields_of_its_own(tmp_path: Path) -> None:
    with closing(journald(tmp_path / "socket")) as receiver, closing(Journal(str(tmp_path / "socket"))) as journal:
        assert journal.send(
            entry_fields(entry(AuditKind.TASK_CANCEL, reason="x\nMESSAGE_ID=0\nAIOS_AUDIT_SEQ=1 \x1b[31m"))
        )
        fields = fields_of(receiver.recv(1 << 16))
    assert fields["AIOS_AUDIT_SEQ"] == b"7"
    assert fields["MESSAGE_ID"].decode() == MESSAGE_IDS[AuditKind.TASK_CANCEL]
    assert b"\n" not in fields["MESSAGE"]
    assert b"\x1b" not in fields["MESSAGE"]
    assert fields["AIOS_REASON"].startswith(b"x\nMESSAGE_ID=0")


def test_large_details_are_cut(tmp_path: Path) -> None:
    assert len(entry_fields(entry(text="ä" * DETAILS_MAX))["AIOS_AUDIT_DETAILS"].encode()) <= DETAILS_MAX


def test_a_full_journal_is_not_waited_for_and_the_loss_is_told(tmp_path: Path) -> None:
    with closing(journald(tmp_path / "socket")) as receiver, closing(Journal(str(tmp_path / "socket"))) as journal:
        sent = 0
        while journal.send({"MESSAGE": "x" * 1000}):
            sent += 1
            assert sent < 100_000
        assert not journal.send({"MESSAGE": "y"})
        for _ in range(sent):
            receiver.recv(1 << 16)
        assert journal.send({"MESSAGE": "z"})
        assert fields_of(receiver.recv(1 << 16))["AIOS_ENTRIES_LOST"] == b"2"
        assert journal.send({"MESSAGE": "again"})
        assert "AIOS_ENTRIES_LOST" not in fields_of(receiver.recv(1 << 16))


def test_a_journal_that_is_away_or_restarted(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with closing(Journal(str(path))) as journal:
        assert not journal.send({"MESSAGE": "nobody"})
        with closing(journald(path)) as first:
            assert journal.send({"MESSAGE": "one"})
            first.recv(1 << 16)
        path.unlink()
        with closing(journald(path)) as second:
            assert journal.send({"MESSAGE": "two"})
            assert fields_of(second.recv(1 << 16))["MESSAGE"] == b"two"
