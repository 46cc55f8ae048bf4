"""Handlers of what a task produced: its logs and its artifacts."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, ParamSpec

from aiosd.auth.policy import Access
from aiosd.core import views
from aiosd.core.artifacts import BlobError, content_of
from aiosd.core.operations import Reply
from aiosd.errors import AiosError, ErrorKind
from aiosd.run.layout import RunPaths
from aiosd.store import artifacts, runs, tasks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    from aiosd.auth.caller import Caller
    from aiosd.core.artifacts import BlobStore
    from aiosd.core.authorization import Authorizer
    from aiosd.core.supervision import Supervision
    from aiosd.model import wire
    from aiosd.model.jsontext import JsonValue
    from aiosd.model.task import Run
    from aiosd.store.artifacts import Artifact
    from aiosd.store.database import Database

P = ParamSpec("P")


class ContentOperations:
    """Logs and artifacts, by text and by descriptor."""

    def __init__(
        self, database: Database, authorizer: Authorizer, blobs: BlobStore, supervision: Supervision, state: Path
    ) -> None:
        """`supervision`: the live runs. `state`: the launcher's state directory."""
        self._database = database
        self._authorizer = authorizer
        self._blobs = blobs
        self._supervision = supervision
        self._state = state

    def handlers(self) -> Mapping[str, Callable[..., Awaitable[Reply]]]:
        """By operation name."""
        return {
            "task.logs": self.logs,
            "task.open_log": self.open_log,
            "artifact.list": self.list_artifacts,
            "artifact.get": self.get,
            "artifact.open": self.open,
        }

    async def open_log(self, caller: Caller, params: wire.TaskLog) -> Reply:
        """A read-only descriptor of a stream; it grows while the task runs."""
        path = await self._log_path(caller, params)
        fd, size = await _opened(_open, path)
        return Reply({"stream": params.stream, "size": size}, (fd,))

    async def logs(self, caller: Caller, params: wire.TaskLog) -> Reply:
        """A piece of a stream as text; bytes that are no UTF-8 are replaced."""
        path = await self._log_path(caller, params)
        data, size = await asyncio.to_thread(_read, path, params.offset, params.limit)
        following = params.offset + len(data)
        text = data.decode("utf-8", "replace")
        body: dict[str, JsonValue] = {
            "task_id": params.task_id, "stream": params.stream, "offset": params.offset, "next_offset": following,
            "eof": following >= size, "text": text, "encoding": "utf-8",
        }  # fmt: skip
        return Reply(body)

    async def _log_path(self, caller: Caller, params: wire.TaskLog) -> Path:
        task = await self._database.read(lambda db: tasks.get(db, params.task_id))
        await self._authorizer.require_task(caller, Access.VIEW, task)
        run = await self._attempt(params)
        if run.ended_at is None and self._supervision.of_task(run.task_id) is None:
            run = await self._attempt(params)  # it was stored at this moment: by now it is followed
        watch = self._supervision.of_task(run.task_id)
        if watch is not None and watch.run_id == run.id:
            await watch.connected()  # one that was just assigned has no files yet: the launcher is making them
        paths = RunPaths(run.id, self._state)
        return paths.stdout if params.stream == "stdout" else paths.stderr

    async def _attempt(self, params: wire.TaskLog) -> Run:
        """The attempt that is meant, or the last."""
        for run in reversed(await self._database.read(lambda db: runs.of_task(db, params.task_id))):
            if params.attempt in (None, run.attempt):
                return run
        raise AiosError(
            ErrorKind.INVALID_STATE, "there is no such attempt, so no log", field="attempt", reason="no-attempt"
        )

    async def list_artifacts(self, caller: Caller, params: wire.TaskRef) -> Reply:
        """The artifacts of a task."""
        task = await self._database.read(lambda db: tasks.get(db, params.task_id))
        await self._authorizer.require_task(caller, Access.VIEW, task)
        found = await self._database.read(lambda db: artifacts.of_task(db, params.task_id))
        return Reply({"artifacts": [views.artifact_view(one) for one in found]})

    async def get(self, caller: Caller, params: wire.ArtifactRef) -> Reply:
        """One artifact."""
        return Reply({"artifact": views.artifact_view(await self._artifact(caller, params.artifact_id))})

    async def open(self, caller: Caller, params: wire.ArtifactOpen) -> Reply:
        """One part's content: the stored file, or its text or data as bytes."""
        artifact = await self._artifact(caller, params.artifact_id)
        if params.part >= len(artifact.parts):
            raise AiosError(ErrorKind.INVALID_PARAMS, "the artifact has no such part", field="part")
        try:
            fd, size = await self._part(artifact, params.part)
        except AiosError:
            again = await self._database.read(lambda db: artifacts.get(db, artifact.id))
            if again is None or again.version == artifact.version or params.part >= len(again.parts):
                raise
            # The next version came between, and what the last one held went.
            fd, size = await self._part(again, params.part)
        return Reply({"artifact_id": artifact.id, "part": params.part, "size": size}, (fd,))

    async def _part(self, artifact: Artifact, part: int) -> tuple[int, int]:
        """Descriptor and size of one part's content."""
        held = await self._database.read(lambda db: artifacts.held(db, artifact.id))
        return await _opened(_open_part, self._blobs, artifact.parts[part], held)

    async def _artifact(self, caller: Caller, artifact_id: str) -> Artifact:
        found = await self._database.read(lambda db: artifacts.get(db, artifact_id))
        missing = AiosError(
            ErrorKind.ARTIFACT_NOT_FOUND, "there is no such artifact, or it is another user's", field="artifact_id"
        )
        if found is None:
            raise missing
        task = await self._database.read(lambda db: tasks.get(db, found.task_id))
        try:
            await self._authorizer.require_task(caller, Access.VIEW, task)
        except AiosError as error:
            raise missing from error
        return found


async def _opened(function: Callable[P, tuple[int, int]], *args: P.args, **kwargs: P.kwargs) -> tuple[int, int]:
    """Open in a thread; a caller that leaves meanwhile leaves no descriptor behind."""
    opening = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(_close_unwanted)
        raise


def _close_unwanted(opening: asyncio.Future[tuple[int, int]]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        os.close(opening.result()[0])


def _open(path: Path) -> tuple[int, int]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        raise AiosError(
            ErrorKind.INVALID_STATE, "the log is not there (any more)", field="task_id", reason="no-log"
        ) from None
    return fd, os.fstat(fd).st_size


def _read(path: Path, offset: int, limit: int) -> tuple[bytes, int]:
    fd, size = _open(path)
    try:
        return os.pread(fd, limit, offset), size
    finally:
        os.close(fd)


def _open_part(blobs: BlobStore, part: JsonValue, held: frozenset[str]) -> tuple[int, int]:
    try:
        content = content_of(part, held)
        if content is not None:
            fd = blobs.open(content[0])
            return fd, os.fstat(fd).st_size
    except (OSError, BlobError):
        raise AiosError(ErrorKind.ARTIFACT_NOT_FOUND, "its content is gone", field="artifact_id") from None
    shown = part if isinstance(part, dict) else {"type": "data", "data": part}
    holder = shown.get(str(shown.get("type")))
    text = holder if isinstance(holder, str) else views.pretty(holder)
    return _sealed(text.encode())


def _sealed(data: bytes) -> tuple[int, int]:
    """The data as a descriptor that its receiver can only read (memfd_create(2))."""
    fd = os.memfd_create("aios-artifact", os.MFD_CLOEXEC)
    try:
        os.write(fd, data)
        os.lseek(fd, 0, os.SEEK_SET)
        return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC), len(data)
    finally:
        os.close(fd)
