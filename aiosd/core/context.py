"""What a task may read of others: the context that its request names, and what those before it hand over.

`shared_context_refs` were checked when the task was made (`links`); here they are looked up when it starts, with the
summaries as they then are. A task that depends on one with `handoff_expected` starts with that one's summary, result
and artifacts, too. All of it goes to the shim before the gate opens, in pieces; a program reads it in `$AIOS_CONTEXT`.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING

from aiosd.core.artifacts import BlobError, content_of
from aiosd.core.durable import OWN, patiently
from aiosd.core.links import HANDOFF, SUMMARY
from aiosd.model.jsontext import dump
from aiosd.model.later import dataclass
from aiosd.run.versions import SHIM
from aiosd.store import artifacts, sessions, tasks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiosd.core.artifacts import BlobStore
    from aiosd.core.watch import Watch
    from aiosd.model.jsontext import JsonObject, JsonValue
    from aiosd.model.task import Task
    from aiosd.store.artifacts import Artifact
    from aiosd.store.database import Database
    from aiosd.store.tasks import Executor

MAX_FILES = 16 * 1024 * 1024
"""Bytes of artifact files that one task is handed; what is beyond is named, with the reason."""

PIECE = 64 * 1024
"""Bytes of content in one message."""

INDEX = "context.json"


@dataclass(slots=True)
class Context:
    """What is handed over: the index, and the content of files by name (digests of the store)."""

    index: dict[str, JsonValue] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    size: int = 0


def has_context(task: Task) -> bool:
    """Whether there is anything to hand over; most tasks have nothing, and start without a look at the store."""
    return bool(task.goal or task.constraints or task.shared_context or task.kind)


def context_of(db: Executor, task: Task) -> Context:
    """A task's context as it is now."""
    found = Context()
    session = None if task.session_id is None else sessions.get(db, task.session_id)
    about: dict[str, JsonValue] = {
        "task_id": task.id, "session_id": task.session_id, "execution_mode": task.execution_mode, "kind": task.kind,
        "goal": task.goal, "objective": None if session is None else session.active_objective,
    }  # fmt: skip
    found.index.update({name: value for name, value in about.items() if value is not None})
    found.index["constraints"] = list(task.constraints)
    given = [one for one in task.shared_context if not one.endswith(HANDOFF)]
    found.index["shared"] = [_shared(db, found, reference, task.uid) for reference in given]
    before = [tasks.get(db, one.removesuffix(HANDOFF)) for one in task.shared_context if one.endswith(HANDOFF)]
    found.index["handed_over"] = [_handed_over(db, found, one) for one in before if one is not None]
    return found


def _shared(db: Executor, found: Context, reference: str, uid: int) -> JsonValue:
    if reference.endswith(SUMMARY):
        task = tasks.get(db, reference.removesuffix(SUMMARY))
        gone = task is None or (task.uid != uid and uid != 0)
        return {"ref": reference, "gone": True} if gone or task is None else {"ref": reference, **_summary(task)}
    artifact = artifacts.get(db, reference)
    if artifact is None or (artifact.uid != uid and uid != 0):
        return {"ref": reference, "gone": True}
    return {"ref": reference, "artifact": _artifact(db, found, artifact)}


def _handed_over(db: Executor, found: Context, before: Task) -> JsonValue:
    return {**_summary(before), "artifacts": [_artifact(db, found, one) for one in artifacts.of_task(db, before.id)]}


def _summary(task: Task) -> dict[str, JsonValue]:
    shown: dict[str, JsonValue] = {"task_id": task.id, "title": task.title, "status": task.status.value}
    told: dict[str, JsonValue] = {"summary": task.summary, "result": task.result}
    return shown | {name: value for name, value in told.items() if value is not None}


def _artifact(db: Executor, found: Context, artifact: Artifact) -> JsonObject:
    """The artifact with its text and data; each file with the name that it has in the directory."""
    held = artifacts.held(db, artifact.id)
    parts: list[JsonValue] = []
    for number, part in enumerate(artifact.parts):
        try:
            content = content_of(part, held)
        except BlobError as error:
            parts.append(_with(part, left_out=str(error)))
            continue
        if content is None:
            parts.append(part)
            continue
        sha256, size = content
        if found.size + size > MAX_FILES:
            parts.append(_with(part, left_out=f"more than {MAX_FILES} bytes of files"))
            continue
        name = f"{artifact.id}-{number}"
        if name not in found.files:
            found.size += size
            found.files[name] = sha256
        parts.append(_with(part, path=name))
    return {
        "id": artifact.id, "name": artifact.name, "type": artifact.type, "mime_type": artifact.mime_type,
        "source_task": artifact.task_id, "version": artifact.version, "parts": parts,
    }  # fmt: skip


def _with(part: JsonValue, **more: str) -> JsonValue:
    return {**part, **more} if isinstance(part, Mapping) else part


class Gate:
    """Opens the gate of a run: its context first, then the word to go."""

    def __init__(self, database: Database, blobs: BlobStore) -> None:
        """`blobs`: where the content of artifacts is."""
        self._database = database
        self._blobs = blobs

    async def open(self, watch: Watch, task: Task) -> None:
        """Send it all. Repeated after a restart: each message has an id of its own, which the shim takes once."""
        if has_context(task):
            await patiently(partial(self._hand_over, watch, task))
        go: JsonObject = {
            "version": SHIM, "arguments": task.arguments, "task_id": task.id, "attempt": task.attempt,
            "metadata": task.metadata,
        }  # fmt: skip
        await watch.send("go", go, identifier="go")

    async def _hand_over(self, watch: Watch, task: Task) -> None:
        context = await self._database.read(lambda db: context_of(db, task))
        for name, content in self._contents(context):
            for number, piece in enumerate(_pieces(content)):
                fields: JsonObject = {
                    "name": name, "data": base64.b64encode(piece).decode(), "first": number == 0
                }  # fmt: skip
                await watch.send("context", fields, identifier=f"context-{name}-{number}")

    def _contents(self, context: Context) -> Iterator[tuple[str, bytes]]:
        """Every file. At most MAX_FILES altogether, from a local disk: read in the loop, a file at a time."""
        missing: list[JsonValue] = []
        for name, sha256 in context.files.items():
            try:
                with os.fdopen(self._blobs.open(sha256), "rb") as file:
                    yield name, file.read()
            except OSError as error:
                if error.errno in OWN:
                    raise
                missing.append(name)
        if missing:
            context.index["missing"] = missing
        yield INDEX, (json.dumps(json.loads(dump(context.index)), ensure_ascii=False, indent=1) + "\n").encode()


def _pieces(content: bytes) -> Iterator[bytes]:
    for begin in range(0, max(len(content), 1), PIECE):
        yield content[begin : begin + PIECE]
