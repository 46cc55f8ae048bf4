"""How a connection to the database is set up; the one place that knows the pragmas.

Durability: write-ahead log with `synchronous=FULL`, so a commit that was answered survives a power cut
(https://sqlite.org/wal.html, https://sqlite.org/pragma.html#pragma_synchronous). No memory mapping: an I/O error must
be an error and not a SIGBUS.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from pathlib import Path

APPLICATION_ID = 0x41494F53
"""`AIOS`, in the header of every database of ours (file(1) shows it)."""

BUSY_TIMEOUT_MS = 5000
CHECKPOINT_PAGES = 1000
JOURNAL_SIZE_LIMIT = 64 * 1024 * 1024
_COMMON = (
    f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}",
    "PRAGMA foreign_keys = ON",
    "PRAGMA temp_store = MEMORY",
    "PRAGMA mmap_size = 0",
    "PRAGMA trusted_schema = OFF",
    "PRAGMA cell_size_check = ON",
)
_WRITER = (
    "PRAGMA synchronous = FULL",
    f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}",
    f"PRAGMA journal_size_limit = {JOURNAL_SIZE_LIMIT}",
    "PRAGMA secure_delete = FAST",
)


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    address = f"file:{quote(str(path.absolute()))}?mode={mode}"
    # A connection is made in one thread and then owned by another, never by two at a time.
    connection = sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False)
    try:
        connection.row_factory = sqlite3.Row
        for pragma in _COMMON:
            connection.execute(pragma)
    except BaseException:
        connection.close()
        raise
    return connection


def connect_writer(path: Path) -> sqlite3.Connection:
    """The connection that writes. The file must exist (its mode is set by whoever makes it). Raises sqlite3.Error."""
    connection = _connect(path, "rw")
    try:
        if connection.execute("PRAGMA page_count").fetchone()[0] == 0:
            # Both only take effect before the first page is written.
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("PRAGMA journal_mode = WAL")
        for pragma in _WRITER:
            connection.execute(pragma)
    except BaseException:
        connection.close()
        raise
    return connection


def connect_reader(path: Path) -> sqlite3.Connection:
    """A connection that can only read. Raises sqlite3.Error."""
    connection = _connect(path, "ro")
    try:
        connection.execute("PRAGMA query_only = ON")
    except BaseException:
        connection.close()
        raise
    return connection
