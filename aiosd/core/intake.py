"""Taking in what a run writes: its event file, the content of its artifacts, the growth of its logs.

What was written a moment ago is in memory and is read at once; what the disk has to be waited for is read in a thread.
It is applied in one transaction a batch, and told to whoever asked the program a question. How far it has been read is
kept twice: `Watch.offset` is what has been looked at, `Watch.stored` what the store knows. A batch in which nothing
changes the store is not stored, and read again after a restart: to no effect.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from aiosd.core import run_events
from aiosd.core.approving import Waits
from aiosd.core.artifacts import BlobError, blobs_of
from aiosd.core.durable import OWN, patiently, write_durably
from aiosd.core.reading import log_growth, log_sizes
from aiosd.core.run_events import WITHOUT_EFFECT, Batch
from aiosd.run import records
from aiosd.run.eventfile import LINE_MAX
from aiosd.run.records import RunEventType
from aiosd.store import artifacts, runs, tasks
from aiosd.store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from aiosd.core.artifacts import BlobStore
    from aiosd.core.settings import Settings
    from aiosd.core.watch import Watch
    from aiosd.model.task import Run
    from aiosd.run.records import ExitRecord, RunEvent
    from aiosd.store.database import Database

BATCH_BYTES = 2 * LINE_MAX
"""Bytes of events applied in one transaction at most, about: others wait for the writer meanwhile."""

_ANSWERS = frozenset({RunEventType.PAUSED, RunEventType.CAN_PAUSE, RunEventType.CAN_CANCEL})

_SHIMS = frozenset({RunEventType.STARTED, RunEventType.PROTOCOL_ERROR})
"""What is in the event file of a program that has not said anything."""


class Intake:
    """Reads run directories into the store."""

    def __init__(self, database: Database, settings: Settings, blobs: BlobStore) -> None:
        """`blobs`: the daemon's own content store."""
        self._database = database
        self._settings = settings
        self._blobs = blobs

    async def recall(self, watch: Watch, run: Run) -> None:
        """Of a run from before: what its subscribers have been told already."""
        watch.told_sizes = await patiently(lambda: self._database.read(lambda db: runs.told_log_sizes(db, run)))
        watch.log_sizes = dict(watch.told_sizes)

    async def drain(self, watch: Watch) -> None:
        """Apply everything that the run has written so far. Raises OSError when it cannot be read."""
        more = True
        while more:
            path, begin = f"{watch.directory}/events", watch.offset
            try:
                found = records.read_events(path, begin, BATCH_BYTES, at_hand=True)
            except OSError:  # whatever it is, the thread meets it again
                found = await patiently(partial(asyncio.to_thread, records.read_events, path, begin, BATCH_BYTES))
            more = await self._take(watch, *found)
        await self.tell_log_growth(watch)

    async def drain_ended(self, watch: Watch) -> ExitRecord | None:
        """As `drain`, of a run that has ended; its exit record, None when there is none.

        Raises OSError, and RecordError when the record is damaged, after the rest was applied.
        """
        try:
            events, end, record = _rest(watch.directory, watch.offset, at_hand=True)
        except OSError:
            events, end, record = await patiently(
                partial(asyncio.to_thread, _rest, watch.directory, watch.offset, at_hand=False)
            )
        if await self._take(watch, events, end):
            await self.drain(watch)
        if isinstance(record, Exception):
            raise record
        if record is not None:
            watch.log_sizes = log_sizes(record)
        await self.tell_log_growth(watch)
        return record

    async def _take(self, watch: Watch, events: Sequence[RunEvent], end: int) -> bool:
        """Take in what was read from `watch.offset` to `end`; whether there may be more already."""
        begin = watch.offset
        if end == begin:
            return False
        await self._apply(watch, events, end)
        watch.offset = end
        watch.begun = watch.begun or any(event.type is not RunEventType.PROTOCOL_ERROR for event in events)
        watch.spoken = watch.spoken or any(event.type not in _SHIMS for event in events)
        for event in events:
            if event.type in _ANSWERS:
                watch.answered(event.payload)
        # Otherwise that was all: what is appended from now on is told by another poke.
        return end - begin >= BATCH_BYTES - LINE_MAX

    async def _apply(self, watch: Watch, events: Sequence[RunEvent], end: int) -> None:
        if all(event.type in WITHOUT_EFFECT for event in events):
            return
        wanted = [one for event in events if event.type is RunEventType.ARTIFACT for one in blobs_of(event.payload)]
        digests = {sha256 for _, _, sha256 in wanted}
        async with self._blobs.pinned(digests):
            batch = Batch(
                watch.stored, end, newest_progress(events), await self._take_blobs(watch, wanted),
                self._settings.current.artifact_quota_bytes, Waits.of(self._settings.current).approval,
            )  # fmt: skip
            await write_durably(self._database, partial(run_events.apply, run_id=watch.run_id, batch=batch))
            watch.stored = end
        if wanted:
            await self._remove_unwanted(digests)

    async def _remove_unwanted(self, digests: Collection[str]) -> None:
        """What was taken and then refused, or belonged to an earlier version, counts for nobody: it goes at once."""
        with suppress(BlobError, OSError, StoreError):  # retention comes for it
            for one in await self._database.read(lambda db: artifacts.unwanted(db, digests)):
                await self._blobs.remove(one, partial(self._database.write, partial(artifacts.forget, sha256=one)))

    async def tell_log_growth(self, watch: Watch) -> None:
        """Announce what the program has written to its output since that was last announced."""
        if all(size <= watch.told_sizes.get(stream, 0) for stream, size in watch.log_sizes.items()):
            return
        sizes = dict(watch.log_sizes)
        grown = await patiently(partial(asyncio.to_thread, log_growth, watch.directory, watch.told_sizes, sizes))
        watch.told_sizes = sizes
        if grown:
            await write_durably(self._database, lambda tx: run_events.log_grew(tx, watch.task_id, grown))

    async def _take_blobs(self, watch: Watch, wanted: Sequence[tuple[int, int, str]]) -> dict[str, str]:
        """Copy these artifact files into the daemon's own store; the ones refused, with the reason."""
        refused: dict[str, str] = {}
        if not wanted:
            return refused
        uid, used = await patiently(lambda: self._database.read(lambda db: _usage(db, watch.task_id)))
        config = self._settings.current
        for offset, size, sha256 in wanted:
            if size > config.artifact_max_bytes:
                refused[sha256] = "larger than artifact_max_bytes"
            elif used + size > config.artifact_quota_bytes:
                refused[sha256] = f"the artifacts of uid {uid} would exceed artifact_quota_bytes"
            else:
                try:
                    source = watch.directory / "blobs"
                    await patiently(partial(asyncio.to_thread, self._blobs.take, source, offset, size, sha256))
                    used += size
                except (OSError, BlobError) as error:
                    refused[sha256] = f"could not be kept: {error}"
        return refused


def _rest(
    directory: Path, offset: int, *, at_hand: bool
) -> tuple[list[RunEvent], int, ExitRecord | OSError | records.RecordError | None]:
    """Events and exit record of a run that has ended. Raises OSError when the events cannot be read; with `at_hand`
    when something is not in memory."""
    events, end = records.read_events(f"{directory}/events", offset, BATCH_BYTES, at_hand=at_hand)
    try:
        return events, end, records.read_exit(f"{directory}/exit", at_hand=at_hand)
    except records.RecordError as error:
        return events, end, error
    except OSError as error:
        if at_hand or error.errno in OWN:
            raise
        return events, end, error


def _usage(db: tasks.Executor, task_id: str) -> tuple[int, int]:
    task = tasks.get(db, task_id)
    return (0, 0) if task is None else (task.uid, artifacts.used_bytes(db, task.uid))


def newest_progress(events: Sequence[RunEvent]) -> list[RunEvent]:
    """Without each progress that the next event replaces: what a program says faster than it is read need not be
    kept, as long as its last word is."""
    following = [*events[1:], None]
    return [event for event, after in zip(events, following, strict=True) if not (_only(event) and _only(after))]


def _only(event: RunEvent | None) -> bool:
    """Whether it says nothing but how far the program has come."""
    return event is not None and event.type is RunEventType.PROCESSING and event.payload.keys() == {"progress"}
