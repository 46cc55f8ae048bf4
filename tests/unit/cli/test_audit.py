"""`aiosctl audit` and `kill-all`, with a daemon that says what the test says, and on files."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

import pytest

from aiosd.cli import audit_source
from aiosd.core.audit_operations import head_view, key_view, record_view
from aiosd.model.audit import AuditKind
from aiosd.store import audit
from aiosd.store.audit_key import KeyStore, adopt, public_keys
from aiosd.store.audit_seal import HEAD_FILE, AuditSeal, read_head
from aiosd.store.audit_verify import verify
from aiosd.store.database import Database

if TYPE_CHECKING:
    from pathlib import Path

    from aiosd.model.jsontext import JsonObject, JsonValue
    from aiosd.store.database import Transaction
    from tests.unit.cli.daemon import Daemon
    from tests.unit.cli.test_verbs import Aiosctl

NOW = 1_780_000_000_000_000


def record(transaction: Transaction, number: int) -> None:
    audit.append_audit(
        transaction, time=NOW + number, uid=1000, actor="uid:1000", kind=AuditKind.TASK_CREATED, task_id=f"t{number}",
        details={"number": number, "text": "ä\n\x1b[31m"},
    )  # fmt: skip


@pytest.fixture
def trail(tmp_path: Path) -> Path:
    """A folder with a database whose trail has five records."""
    folder = tmp_path / "state"
    folder.mkdir()

    async def write() -> None:
        keys = await asyncio.to_thread(KeyStore(folder).load)
        async with Database.open(folder / "aiosd.db", seal=AuditSeal(keys[0], folder / HEAD_FILE)) as database:
            await database.write(lambda tx: adopt(tx, keys, now=NOW))
            for number in range(4):
                await database.write(partial(record, number=number))

    asyncio.run(write())
    return folder


def exported(folder: Path) -> tuple[dict[str, JsonValue], list[JsonObject]]:
    """The trail as the daemon answers it."""
    with closing(sqlite3.connect(folder / "aiosd.db")) as db:
        rows = [record_view(row) for row in audit.all_rows(db)]
        keys: list[JsonValue] = [key_view(key) for key in public_keys(db)]
    head = read_head(folder / HEAD_FILE)
    assert head is not None
    return {"format": "aiosd-audit", "version": 1, "keys": keys, "issued": 5, "head": head_view(head)}, rows


def test_an_export_is_as_sound_as_its_trail(trail: Path, tmp_path: Path) -> None:
    head, rows = exported(trail)
    path = tmp_path / "export"
    path.write_text("\n".join(json.dumps(line) for line in (head, *rows)) + "\n")
    source, evidence = audit_source.from_file(path)
    report = verify(source, evidence)
    assert report.problems == ()
    assert (report.rows, report.signed) == (5, 5)


def test_a_line_that_was_left_out_of_an_export_is_named(trail: Path, tmp_path: Path) -> None:
    head, rows = exported(trail)
    path = tmp_path / "export"
    path.write_text("\n".join(json.dumps(line) for line in (head, *rows[:2], *rows[3:])) + "\n")
    source, evidence = audit_source.from_file(path)
    assert [(one.fault.value, one.first, one.last) for one in verify(source, evidence).problems] == [("removed", 3, 3)]


def test_a_database_file_is_read_without_the_daemon(trail: Path) -> None:
    source, evidence = audit_source.from_file(trail / "aiosd.db")
    assert verify(source, evidence).sound


def test_verify_asks_the_daemon_for_all_of_it(
    aiosctl: Aiosctl, daemon: Daemon, trail: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    daemon.proof, rows = exported(trail)
    daemon.audit.extend(rows)
    monkeypatch.setattr(audit_source, "PAGE", 2)
    ran = aiosctl("audit", "verify")
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.splitlines()[0] == "5 records (1 to 5), 5 signatures"
    assert ran.out.splitlines()[-1] == "nothing was changed"
    assert sum(name == "QueryAudit" for name, _ in daemon.calls) == 3


def test_verify_names_what_is_wrong_and_exits_with_1(aiosctl: Aiosctl, trail: Path) -> None:
    with closing(sqlite3.connect(trail / "aiosd.db")) as db, db:
        db.execute("UPDATE audit SET actor = 'uid:0' WHERE seq = 3")
    ran = aiosctl("audit", "verify", "--file", str(trail / "aiosd.db"))
    assert ran.status == 1
    assert ran.out.splitlines()[0] == "altered: record 3: the content is not what was hashed"
    assert ran.out.splitlines()[-1] == "THE TRAIL WAS CHANGED"
    ran = aiosctl("audit", "verify", "--json", "--file", str(trail / "aiosd.db"))
    assert ran.json["problems"] == [
        {"fault": "altered", "first": 3, "last": 3, "message": "the content is not what was hashed"}
    ]


def test_a_fingerprint_that_is_not_the_trails_is_not_trusted(aiosctl: Aiosctl, trail: Path) -> None:
    ran = aiosctl("audit", "verify", "--file", str(trail / "aiosd.db"), "--trust", "0" * 32)
    assert ran.status == 1
    assert "unknown-key" in ran.out


def test_what_is_exported_can_be_verified(aiosctl: Aiosctl, daemon: Daemon, trail: Path, tmp_path: Path) -> None:
    daemon.proof, rows = exported(trail)
    daemon.audit.extend(rows)
    (tmp_path / "export").write_text(aiosctl("audit", "export").out)
    assert aiosctl("audit", "verify", "--file", str(tmp_path / "export")).status == 0


@pytest.mark.parametrize("text", ["", "{}", "no json", '{"format": "aiosd-audit"}\n{"seq": 1}', "[1]\n[2]"])
def test_what_is_no_trail_is_said_so(aiosctl: Aiosctl, tmp_path: Path, text: str) -> None:
    (tmp_path / "file").write_text(text)
    ran = aiosctl("audit", "verify", "--file", str(tmp_path / "file"))
    assert ran.status == 65
    assert len(ran.err.splitlines()) <= 2


def test_query_shows_records_without_what_would_hurt_a_terminal(aiosctl: Aiosctl, daemon: Daemon, trail: Path) -> None:
    _, rows = exported(trail)
    daemon.audit.extend(rows)
    ran = aiosctl("audit", "query", "-n", "2", "--kind", "task.*", "--all")
    assert ran.status == 0
    assert "\x1b" not in ran.out
    assert "task.created" in ran.out
    assert "--after 2" in ran.err
    assert daemon.options("QueryAudit") == {"limit": 2, "after": 0, "kind": "task.*", "all_users": True}


def test_rotate_key_prints_the_fingerprint(aiosctl: Aiosctl) -> None:
    assert aiosctl("audit", "rotate-key").out == "0123456789abcdef0123456789abcdef\n"


@pytest.mark.parametrize(("words", "scope"), [(("--machine",), "machine"), (("--user", "12345"), "user")])
def test_kill_all_says_what_it_did(aiosctl: Aiosctl, daemon: Daemon, words: tuple[str, ...], scope: str) -> None:
    ran = aiosctl("kill-all", *words, "--reason", "it shops")
    which = " ".join(words)
    assert (ran.status, ran.out) == (0, f"2 stopped; nothing starts until aiosctl kill-all {which} --lift\n")
    name, body = daemon.calls[-1]
    assert (name, body[0]) == ("Emergency", scope)
    assert daemon.options("Emergency")["reason"] == "it shops"


def test_kill_all_names_what_would_not_die(aiosctl: Aiosctl, daemon: Daemon) -> None:
    daemon.unkillable["run-1"] = "systemd: no \x1b[31m"
    ran = aiosctl("kill-all", "--user", "12345")
    assert ran.status == 1
    assert ran.out.splitlines()[1].startswith("run-1 could not be killed: systemd: no")
    assert "\x1b" not in ran.out


def test_kill_all_lifts(aiosctl: Aiosctl, daemon: Daemon) -> None:
    assert aiosctl("kill-all", "--machine", "--lift").status == 0
    assert daemon.calls[-1] == ("LiftEmergency", ("machine", {}))
    assert aiosctl("kill-all", "--machine", "--user", "root").status == 64
    assert aiosctl("kill-all", "--user", "nobody-of-this-name").status == 66
