"""What can be wrong with the store, told apart: disk full, read-only or failing, file broken, too much to do.

A `StoreError` is an `AiosError`, so both doors answer it without a translation of their own.
"""

from __future__ import annotations

import sqlite3
from enum import StrEnum

from aiosd.errors import AiosError, ErrorKind


class StoreFailure(StrEnum):
    """Why the store could not do what it was asked."""

    FULL = "full"
    READ_ONLY = "read-only"
    IO = "io"
    CORRUPT = "corrupt"
    BUSY = "busy"


_MESSAGES = {
    StoreFailure.FULL: "the disk is full",
    StoreFailure.READ_ONLY: "the store is read-only",
    StoreFailure.IO: "reading or writing the store failed",
    StoreFailure.CORRUPT: "the store is damaged",
    StoreFailure.BUSY: "the store has too much to do",
}

_CODES = {
    sqlite3.SQLITE_FULL: StoreFailure.FULL,
    sqlite3.SQLITE_READONLY: StoreFailure.READ_ONLY,
    sqlite3.SQLITE_PERM: StoreFailure.READ_ONLY,
    sqlite3.SQLITE_IOERR: StoreFailure.IO,
    sqlite3.SQLITE_CANTOPEN: StoreFailure.IO,
    sqlite3.SQLITE_NOMEM: StoreFailure.IO,
    sqlite3.SQLITE_CORRUPT: StoreFailure.CORRUPT,
    sqlite3.SQLITE_NOTADB: StoreFailure.CORRUPT,
    sqlite3.SQLITE_BUSY: StoreFailure.BUSY,
    sqlite3.SQLITE_LOCKED: StoreFailure.BUSY,
}
"""Primary result codes (https://sqlite.org/rescode.html); what is not here is a mistake of the caller's SQL or data."""


class StoreError(AiosError):
    """The store refused or failed; `failure` says how, `reason` on the wire is its value."""

    def __init__(self, failure: StoreFailure, detail: str = "") -> None:
        """`detail`: one sentence for people; the failure's own when not given."""
        kind = ErrorKind.BUSY if failure is StoreFailure.BUSY else ErrorKind.STORAGE
        super().__init__(kind, detail or _MESSAGES[failure], reason=f"store-{failure}")
        self.failure = failure


def failure_of(error: BaseException) -> StoreFailure | None:
    """The failure behind an exception of sqlite3, or None when the store itself is not to blame."""
    if isinstance(error, StoreError):
        return error.failure
    if not isinstance(error, sqlite3.Error):
        return None
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else _CODES.get(code & 0xFF)


def translated(error: BaseException) -> BaseException:
    """A `StoreError` when the store is to blame, else the exception itself."""
    failure = failure_of(error)
    if failure is None or isinstance(error, StoreError):
        return error
    told = StoreError(failure)
    told.__cause__ = error
    return told
