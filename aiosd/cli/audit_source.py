"""Where `aiosctl audit verify` reads a trail from: the daemon, an export or a database file; and the journal beside it.

An export is lines of JSON: first `{"format": "aiosd-audit", …}` with what verifying takes, then a record a line, as
`audit.query` answers them.
"""

from __future__ import annotations

import json
import subprocess
from contextlib import closing
from typing import TYPE_CHECKING

from aiosd.cli import guard
from aiosd.cli.exit_status import ExitStatus
from aiosd.cli.failure import die
from aiosd.store.audit import AuditRow, all_rows, issued
from aiosd.store.audit_key import PublicKey, public_keys
from aiosd.store.audit_seal import HEAD_FILE, Head, read_head
from aiosd.store.audit_verify import Evidence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from aiosd.cli.client import TaskManagerClient
    from aiosd.model.jsontext import JsonObject, JsonValue

FORMAT = "aiosd-audit"
PAGE = 1000
_SQLITE = b"SQLite format 3\0"

Source = tuple["Callable[[], Iterator[AuditRow]]", Evidence]


async def fetched(client: TaskManagerClient) -> tuple[dict[str, JsonValue], list[JsonObject]]:
    """The whole trail of the daemon: an export's first line, and the records."""
    head: dict[str, JsonValue] = {"format": FORMAT, "version": 1}
    records: list[JsonObject] = []
    after = 0
    while True:
        query = guard.AuditQuery(after=after, limit=PAGE, proof=not after, all_users=True)
        page = await guard.query_audit(client, query)
        if not after:
            head |= {name: page[name] for name in ("keys", "issued", "head") if name in page}
        found = _objects(page.get("records"))
        records += found
        if page.get("has_more") is not True or not found:
            return head, records
        after = int(str(found[-1]["seq"]))


def from_json(head: JsonObject, records: list[JsonObject]) -> Source:
    """A trail that came as JSON."""
    try:
        evidence = Evidence(
            keys=tuple(_key(key) for key in _objects(head.get("keys"))), head=_head(head.get("head")),
            issued=int(str(head.get("issued", 0))),
        )  # fmt: skip
        rows = [_row(record) for record in records]
    except (KeyError, ValueError, TypeError) as error:
        die(f"the export cannot be read: {error}", status=ExitStatus.DATA)
    return lambda: iter(rows), evidence


def from_file(path: Path) -> Source:
    """A trail in a database file (with the head file beside it) or in an export."""
    with path.open("rb") as file:
        if file.read(len(_SQLITE)) == _SQLITE:
            return _from_database(path)
    lines = path.read_text("utf-8").splitlines()
    try:
        head, *records = (json.loads(line) for line in lines if line)
    except ValueError as error:
        die(f"{path} is neither a database nor an export: {error}", status=ExitStatus.DATA)
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        die(f"{path} is not an export of an audit trail", status=ExitStatus.DATA)
    return from_json(head, records)


def _from_database(path: Path) -> Source:
    import sqlite3

    # A daemon may be at work on it: nothing may be written, and what is still in its log is read, too.
    with closing(sqlite3.connect(f"file:{path.absolute()}?mode=ro", uri=True)) as db:
        try:
            rows = list(all_rows(db))
            found = Evidence(tuple(public_keys(db)), read_head(path.with_name(HEAD_FILE)), issued(db))
        except sqlite3.Error as error:
            die(f"{path} cannot be read: {error}", status=ExitStatus.DATA)
    return lambda: iter(rows), found


def from_journal() -> dict[int, bytes]:
    """What this machine's journal has of the trail: number to hash. Believed only where aiosd's own unit wrote it."""
    argv = ["journalctl", "--quiet", "--output=json", "--unit=aiosd.service",
            "--output-fields=AIOS_AUDIT_SEQ,AIOS_AUDIT_HASH,_SYSTEMD_UNIT", "--no-pager"]  # fmt: skip
    try:
        shown = subprocess.run(argv, capture_output=True, text=True, check=True).stdout  # noqa: S603  fixed words
    except (OSError, subprocess.CalledProcessError) as error:
        die(f"the journal cannot be read: {error}", status=ExitStatus.IO)
    found: dict[int, bytes] = {}
    for line in shown.splitlines():
        entry = json.loads(line)
        if entry.get("_SYSTEMD_UNIT") == "aiosd.service" and "AIOS_AUDIT_SEQ" in entry:
            # The first one counts: a record that was made anew was told anew.
            found.setdefault(int(entry["AIOS_AUDIT_SEQ"]), bytes.fromhex(entry["AIOS_AUDIT_HASH"]))
    return found


def _objects(value: JsonValue) -> list[JsonObject]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _row(record: JsonObject) -> AuditRow:
    uid, task, key, signature = (record.get(name) for name in ("uid", "task_id", "key", "signature"))
    return AuditRow(
        int(str(record["seq"])), int(str(record["time_usec"])), None if uid is None else int(str(uid)),
        str(record["actor"]), str(record["kind"]), None if task is None else str(task),
        json.dumps(record["details"]), bytes.fromhex(str(record["previous"])), bytes.fromhex(str(record["hash"])),
        None if key is None else str(key), None if signature is None else bytes.fromhex(str(signature)),
    )  # fmt: skip


def _key(key: JsonObject) -> PublicKey:
    endorser, endorsement = key.get("endorser"), key.get("endorsement")
    return PublicKey(
        str(key["id"]), bytes.fromhex(str(key["public"])), int(str(key["created_usec"])),
        None if endorser is None else str(endorser), None if endorsement is None else bytes.fromhex(str(endorsement)),
    )  # fmt: skip


def _head(value: JsonValue) -> Head | None:
    if not isinstance(value, dict):
        return None
    return Head(
        int(str(value["seq"])), bytes.fromhex(str(value["hash"])), str(value["key"]),
        bytes.fromhex(str(value["signature"])),
    )  # fmt: skip
