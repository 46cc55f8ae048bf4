"""Artifacts and the reference counts of the content store."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from aiosd.model import jsontext
from aiosd.model.later import dataclass

if TYPE_CHECKING:
    from collections.abc import Collection

    from aiosd.model.jsontext import JsonObject, JsonValue
    from aiosd.store.tasks import Executor


@dataclass(frozen=True, slots=True)
class Artifact:
    """One row of `artifacts`. `size`: bytes of all parts. `key`: the program's own name for it."""

    id: str
    task_id: str
    uid: int
    run_id: str
    key: str
    name: str
    type: str
    mime_type: str
    created_at: int
    version: int
    parts: list[JsonValue]
    metadata: JsonObject
    size: int


_COLUMNS = "id, task_id, uid, run_id, key, name, type, mime_type, created_at, version, parts, metadata, size"
_SELECT = f"SELECT {_COLUMNS} FROM artifacts"  # noqa: S608  the names are this module's own


def _from_row(row: tuple[str | int, ...]) -> Artifact:
    values = dict(zip(_COLUMNS.split(", "), row, strict=True))
    return Artifact(
        id=str(values["id"]), task_id=str(values["task_id"]), uid=int(values["uid"]), run_id=str(values["run_id"]),
        key=str(values["key"]), name=str(values["name"]), type=str(values["type"]), mime_type=str(values["mime_type"]),
        created_at=int(values["created_at"]), version=int(values["version"]), parts=json.loads(str(values["parts"])),
        metadata=jsontext.parse_object(str(values["metadata"]), limit=1 << 20), size=int(values["size"]),
    )  # fmt: skip


def save(db: Executor, artifact: Artifact) -> None:
    """Store an artifact, or its next version in its place."""
    parts = json.dumps(artifact.parts, ensure_ascii=False, separators=(",", ":"))
    db.execute(
        "INSERT INTO artifacts (id, task_id, uid, run_id, key, name, type, mime_type, created_at, version, parts,"
        " metadata, size) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (id) DO UPDATE SET version = excluded.version, parts = excluded.parts, name = excluded.name,"
        " type = excluded.type, mime_type = excluded.mime_type, size = excluded.size, run_id = excluded.run_id",
        (
            artifact.id, artifact.task_id, artifact.uid, artifact.run_id, artifact.key, artifact.name, artifact.type,
            artifact.mime_type, artifact.created_at, artifact.version, parts, jsontext.dump(artifact.metadata),
            artifact.size,
        ),
    )  # fmt: skip


def get(db: Executor, artifact_id: str) -> Artifact | None:
    """The artifact of that id."""
    row = db.execute(f"{_SELECT} WHERE id = ?", (artifact_id,)).fetchone()
    return None if row is None else _from_row(row)


def by_key(db: Executor, task_id: str, key: str) -> Artifact | None:
    """The artifact that this task's program calls `key`."""
    row = db.execute(f"{_SELECT} WHERE task_id = ? AND key = ?", (task_id, key)).fetchone()
    return None if row is None else _from_row(row)


def of_task(db: Executor, task_id: str) -> list[Artifact]:
    """All artifacts of a task, oldest first."""
    return [_from_row(row) for row in db.execute(f"{_SELECT} WHERE task_id = ? ORDER BY created_at, id", (task_id,))]


def refer(db: Executor, artifact_id: str, sha256: str, size: int, time: int) -> None:
    """Note that an artifact holds this blob (its reference count follows by trigger)."""
    db.execute("INSERT OR IGNORE INTO blobs (sha256, size, created_at) VALUES (?, ?, ?)", (sha256, size, time))
    db.execute(
        "INSERT OR IGNORE INTO artifact_blobs (artifact_seq, sha256) SELECT seq, ? FROM artifacts WHERE id = ?",
        (sha256, artifact_id),
    )


def let_go(db: Executor, artifact_id: str) -> None:
    """The artifact holds none of its blobs any more."""
    db.execute(
        "DELETE FROM artifact_blobs WHERE artifact_seq = (SELECT seq FROM artifacts WHERE id = ?)", (artifact_id,)
    )


def unwanted(db: Executor, digests: Collection[str]) -> list[str]:
    """Those of these blobs that no artifact holds, and others that have been let go, a few at a time."""
    rows = db.execute(
        "SELECT value FROM json_each(?) WHERE NOT EXISTS (SELECT 1 FROM blobs WHERE sha256 = value AND refs > 0)"
        " UNION SELECT * FROM (SELECT sha256 FROM blobs WHERE refs = 0 ORDER BY created_at LIMIT 64)",
        (json.dumps([*digests]),),
    )
    return [str(row[0]) for row in rows]


def without_row(db: Executor, digests: Collection[str]) -> list[str]:
    """Those of these of which nothing is stored."""
    rows = db.execute(
        "SELECT value FROM json_each(?) WHERE NOT EXISTS (SELECT 1 FROM blobs WHERE sha256 = value)",
        (json.dumps([*digests]),),
    )
    return [str(row[0]) for row in rows]


def forget(db: Executor, sha256: str) -> bool:
    """Delete a blob's row if nobody refers to it; whether there is none now."""
    db.execute("DELETE FROM blobs WHERE sha256 = ? AND refs = 0", (sha256,))
    return db.execute("SELECT 1 FROM blobs WHERE sha256 = ?", (sha256,)).fetchone() is None


def held(db: Executor, artifact_id: str) -> frozenset[str]:
    """The digests of all blobs that an artifact holds."""
    rows = db.execute(
        "SELECT sha256 FROM artifact_blobs WHERE artifact_seq = (SELECT seq FROM artifacts WHERE id = ?)",
        (artifact_id,),
    )
    return frozenset(str(row[0]) for row in rows)


def used_bytes(db: Executor, uid: int) -> int:
    """Bytes of all artifacts of one user (its quota)."""
    row = db.execute("SELECT size FROM artifact_usage WHERE uid = ?", (uid,)).fetchone()
    return 0 if row is None else int(row[0])
