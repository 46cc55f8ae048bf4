"""Artifacts: what a program hands over becomes rows here and content in the daemon's own store.

A file's content was copied by the shim, with the task's identity, into the run's `blobs` file. `BlobStore.take` copies
that range on into the content-addressed store and checks its digest; `record` then writes the artifact in the
transaction that applies the event. A blob that no artifact came to refer to goes at once, or with the next round of
retention; one that is about to be referred to is pinned meanwhile.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections import Counter
from collections.abc import Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from aiosd.core import changes, clock
from aiosd.core.progress import clean_text
from aiosd.model import jsontext
from aiosd.model.event import Kind, Source
from aiosd.model.ids import Prefix, new_id
from aiosd.store import artifacts
from aiosd.store.artifacts import Artifact

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
    from pathlib import Path

    from aiosd.model.jsontext import JsonObject, JsonValue
    from aiosd.model.task import Task
    from aiosd.store.database import Transaction

MAX_PARTS = 256
MAX_INLINE = 1 << 20
"""Bytes of text and data in one artifact: they are answered in one piece. What is larger is a file."""
PART_TYPES = ("text", "data", "file", "image", "audio", "video")
"""Seed 000."""
_FILES = PART_TYPES[2:]
"""Of these, the ones whose content is a file: what is called a digest in text or data is a word like any other."""

_BLOCK = 1 << 20
_HEX = frozenset("0123456789abcdef")


class BlobError(Exception):
    """The range does not hold what the event says."""


class BlobStore:
    """Files named by the SHA-256 of their content, in `root`, two levels deep, read-only."""

    def __init__(self, root: Path) -> None:
        """`root` is made when it is first needed."""
        self._root = root
        self._pins: Counter[str] = Counter()
        self._removing: dict[str, asyncio.Event] = {}

    @asynccontextmanager
    async def pinned(self, digests: Collection[str]) -> AsyncIterator[None]:
        """While this lasts none of them is removed: from before their content is looked for until it is stored who
        refers to it."""
        while busy := [self._removing[one] for one in digests if one in self._removing]:
            await busy[0].wait()
        self._pins.update(digests)
        try:
            yield
        finally:
            self._pins.subtract(digests)
            self._pins = +self._pins

    async def remove(self, sha256: str, let_go: Callable[[], Awaitable[bool]]) -> None:
        """Remove content that nobody is about to refer to. `let_go`: whether the store does; asked while nobody can
        begin to."""
        if self._pins[sha256] or sha256 in self._removing:
            return
        over = self._removing[sha256] = asyncio.Event()
        try:
            if await let_go():
                await asyncio.to_thread(self.path(sha256).unlink, missing_ok=True)
        finally:
            del self._removing[sha256]
            over.set()

    def older(self, before: float) -> list[str]:
        """The digests of all content that was made before that moment (seconds since the epoch). Blocking. What was
        being copied when a daemon died is removed."""
        found: list[str] = []
        for path in self._root.glob("??/*"):
            with suppress(FileNotFoundError):
                if path.stat().st_mtime >= before:
                    continue
                if path.name.startswith("."):
                    path.unlink()
                else:
                    found.append(path.name)
        return found

    def path(self, sha256: str) -> Path:
        """Where the content with this digest is. Raises BlobError for what is no digest."""
        if len(sha256) != 64 or not set(sha256) <= _HEX:
            raise BlobError("not a digest")
        return self._root / sha256[:2] / sha256

    def open(self, sha256: str) -> int:
        """A read-only descriptor of the content; the caller closes it. Raises OSError."""
        return os.open(self.path(sha256), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)

    def take(self, source: Path, offset: int, size: int, sha256: str) -> None:
        """Copy a range of `source` into the store. Blocking: call it in a thread. Raises BlobError or OSError.

        The range is read also when there is such content already: who names a digest need not have what it is of.
        """
        target = self.path(sha256)
        if target.exists():
            for _ in _checked(source, offset, size, sha256):
                pass
            return
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = target.with_name(f".{sha256}.{os.getpid()}.{os.urandom(4).hex()}")
        try:
            with temporary.open("xb") as copy:
                for block in _checked(source, offset, size, sha256):
                    copy.write(block)
                copy.flush()
                os.fsync(copy.fileno())
            temporary.chmod(0o400)
            temporary.rename(target)
        finally:
            temporary.unlink(missing_ok=True)


def _checked(source: Path, offset: int, size: int, sha256: str) -> Iterator[bytes]:
    """The range in blocks; raises BlobError after the last one when it is not what the digest is of."""
    digest = hashlib.sha256()
    with source.open("rb") as content:
        content.seek(offset)
        left = size
        while left:
            block = content.read(min(_BLOCK, left))
            if not block:
                raise BlobError("the range is shorter than it says")
            digest.update(block)
            left -= len(block)
            yield block
    if digest.hexdigest() != sha256:
        raise BlobError("the digest does not match")


def content_of(part: JsonValue, held: frozenset[str]) -> tuple[str, int] | None:
    """Digest and size of a stored part's file; None when its content is in the part itself.

    `held`: what the artifact holds (`store.artifacts.held`). Only that is its own: the words of a part are its
    program's. Raises BlobError for a file that it does not hold.
    """
    kind = part.get("type") if isinstance(part, Mapping) else None
    holder = part.get(kind) if isinstance(part, Mapping) and isinstance(kind, str) and kind in _FILES else None
    sha256 = holder.get("sha256") if isinstance(holder, Mapping) else None
    if not isinstance(holder, Mapping) or not isinstance(sha256, str):
        return None
    size = holder.get("size")
    if sha256 not in held or not isinstance(size, int):
        raise BlobError("its content was not kept")
    return sha256, size


def blobs_of(payload: JsonObject) -> list[tuple[int, int, str]]:
    """The ranges that an artifact event names: (offset, size, sha256)."""
    found = []
    parts = payload.get("parts")
    for part in parts if isinstance(parts, list) else []:
        blob = _blob(part)
        if blob is not None:
            found.append(blob)
    return found


def _kind(part: JsonObject) -> str | None:
    """Which of seed 000's six part types this is: the key that it has."""
    return next((kind for kind in PART_TYPES if kind in part), None)


def _blob(part: JsonValue) -> tuple[int, int, str] | None:
    """The range of the run's `blobs` that holds this part's content."""
    if not isinstance(part, Mapping):
        return None
    kind = _kind(part)
    holder = part[kind] if kind in _FILES else None
    blob = holder.get("blob") if isinstance(holder, Mapping) else None
    if not isinstance(blob, Mapping):
        return None
    offset, size, sha256 = blob.get("offset"), blob.get("size"), blob.get("sha256")
    if isinstance(offset, int) and isinstance(size, int) and isinstance(sha256, str) and offset >= 0 and size >= 0:
        return offset, size, sha256
    return None


def _stored_part(part: JsonValue, artifact_id: str, index: int) -> tuple[dict[str, JsonValue], int]:
    """A part as it is kept, and its size in bytes; its uri names the artifact, not a path of this machine."""
    kind = _kind(part) if isinstance(part, Mapping) else None
    if kind is None or not isinstance(part, Mapping):
        return {"type": "data", "data": {"value": part}}, len(jsontext.dump(part).encode())
    holder, blob = part[kind], _blob(part)
    if blob is None or not isinstance(holder, Mapping):
        content = holder if isinstance(holder, str) else jsontext.dump(holder)
        return {"type": kind, kind: holder}, len(content.encode())
    inner: dict[str, JsonValue] = {name: value for name, value in holder.items() if name not in ("blob", "path")}
    inner.update(uri=f"aios-artifact:{artifact_id}/{index}", size=blob[1], sha256=blob[2])
    return {"type": kind, kind: inner}, blob[1]


def _refer(
    transaction: Transaction, artifact: Artifact, parts: Sequence[JsonValue], refused: Mapping[str, str]
) -> None:  # fmt: skip
    """The artifact holds the content of these parts from now on."""
    for part in parts:
        blob = _blob(part)
        if blob is not None and blob[2] not in refused:
            artifacts.refer(transaction, artifact.id, blob[2], blob[1], artifact.created_at)


def record(
    transaction: Transaction, task: Task, run_id: str, payload: JsonObject, refused: Mapping[str, str], quota: int
) -> str | None:
    """Write the artifact of one event, or its next version, and announce it; or say why not.

    `refused`: blobs that were not taken. `quota`: bytes that all artifacts of the task's user may have.
    """
    key = clean_text(payload.get("key"), 128) or clean_text(payload.get("name"), 128) or "artifact"
    raw = payload.get("parts")
    given = (raw if isinstance(raw, list) else [])[: MAX_PARTS + 1]
    earlier = artifacts.by_key(transaction, task.id, key)
    artifact_id = earlier.id if earlier else new_id(Prefix.ARTIFACT)
    kept: list[JsonValue] = list(earlier.parts) if earlier and payload.get("append") is True else []
    begin = len(kept)
    size = earlier.size if kept and earlier else 0
    inline = len(json.dumps(kept)) if kept else 0
    for part in given:
        stored, weight = _stored_part(part, artifact_id, len(kept))
        blob = _blob(part)
        if blob is not None and blob[2] in refused:
            stored["error"] = refused[blob[2]]
            weight = 0
        kept.append(stored)
        size += weight
        inline += weight if blob is None else 0
    if len(kept) > MAX_PARTS or inline > MAX_INLINE:
        return f"artifact {key}: more than {MAX_PARTS} parts or {MAX_INLINE} bytes of text and data were refused"
    if artifacts.used_bytes(transaction, task.uid) - (earlier.size if earlier else 0) + size > quota:
        return f"artifact {key}: the artifacts of uid {task.uid} would exceed artifact_quota_bytes"
    fresh = Artifact(
        id=artifact_id, task_id=task.id, uid=task.uid, run_id=run_id, key=key,
        name=clean_text(payload.get("name"), 200) or key, type=clean_text(payload.get("type"), 64) or "data",
        mime_type=clean_text(payload.get("mime_type"), 128) or "application/octet-stream", created_at=clock.now(),
        version=1, parts=kept, metadata={}, size=size,
    )  # fmt: skip
    if earlier is not None:
        fresh = replace(fresh, version=earlier.version + 1, created_at=earlier.created_at)
    artifacts.save(transaction, fresh)
    if not begin:  # what an earlier version held is not to be had any more, nor counted
        artifacts.let_go(transaction, artifact_id)
    _refer(transaction, fresh, given, refused)
    shown: dict[str, JsonValue] = {
        "artifact": {"id": fresh.id, "name": fresh.name, "type": fresh.type, "version": fresh.version}
    }
    if payload.get("append") is True or payload.get("last_chunk") is False:
        # Streamed: which part this piece begins with, and whether more will come.
        shown.update(append=begin > 0, index=begin, last_chunk=payload.get("last_chunk") is not False)
    changes.emit(transaction, task, Kind.ARTIFACT, "task.progress", shown, source=Source.WORKER)
    return None
