"""Supervision: from an admitted task to its ended run, one coroutine for each live run.

`launch` starts a new run, `adopt` takes up one that outlived the daemon; both end in `_follow`, which applies what the
run writes until its shim has gone, and then takes the result. The store is the truth and is written before anything is
told to the program (the gate opens after the commit of `running`), so at every point a crash leaves a state that
recovery knows."""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from aiosd.core import clock, run_events, run_states
from aiosd.core.artifacts import BlobError, blobs_of
from aiosd.core.outcome import Ending
from aiosd.core.reading import ending_of, log_growth, record_view
from aiosd.core.run_events import Batch
from aiosd.core.watch import STOP_MARGIN, Watch
from aiosd.manifest import argv
from aiosd.model.manifest import Limits
from aiosd.model.status import Reason
from aiosd.model.task import RunState
from aiosd.run import records
from aiosd.run.client import ControlChannel, LauncherError, LauncherErrorCode, StartRequest, wait_pidfd
from aiosd.run.layout import RunPaths
from aiosd.run.records import RunEventType
from aiosd.store import artifacts, tasks
from aiosd.store.database import StoreError

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
    from pathlib import Path

    from aiosd.core.artifacts import BlobStore
    from aiosd.core.registry import Registry
    from aiosd.core.run_states import Launch
    from aiosd.core.settings import Settings
    from aiosd.model.jsontext import JsonObject, JsonValue
    from aiosd.model.manifest import Capability
    from aiosd.model.task import Run, Task
    from aiosd.run.client import AttachedRun, LauncherClient
    from aiosd.run.records import RunEvent
    from aiosd.store.database import Database, Transaction

T = TypeVar("T")

STORE_RETRY = 1.0
"""Seconds between tries to store what a run has done while the store refuses."""

POLL = 1.0
"""Seconds between looks at a run without a control channel."""

PASSING = frozenset({LauncherErrorCode.UNREACHABLE, LauncherErrorCode.GONE_AWAY, LauncherErrorCode.SYSTEMD})
"""Refusals that say nothing about the task: it is queued again."""

RUNTIME_MARGIN_MS = 10_000
"""What PID 1's own time limit gives beyond ours: it acts only when the daemon does not."""

_log = logging.getLogger(__name__)


class Supervision:
    """All live runs of this daemon."""

    def __init__(
        self,
        database: Database,
        launcher: LauncherClient,
        registry: Registry,
        settings: Settings,
        blobs: BlobStore,
        state: Path,
    ) -> None:
        """`state`: the launcher's state directory, whose run directories we may read."""
        self._database = database
        self._launcher = launcher
        self._registry = registry
        self._settings = settings
        self._blobs = blobs
        self._state = state
        self._group: asyncio.TaskGroup | None = None
        self.watches: dict[str, Watch] = {}

    async def run(self) -> None:
        """Hold the coroutines of all runs, for ever; cancelled, it leaves the runs themselves alone."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            await asyncio.get_running_loop().create_future()

    def of_task(self, task_id: str) -> Watch | None:
        """The live run of a task."""
        return self.watches.get(task_id)

    def launch(self, launch: Launch) -> None:
        """Start an admitted task."""
        watch = self._watch(launch.run, self._registry.find(launch.task.capability_id))
        self._spawn(self._guarded(self._start(watch, launch.task), watch))

    def adopt(self, run: Run, task: Task, attached: AttachedRun) -> None:
        """Follow a run that is alive from before."""
        watch = self._watch(run, self._registry.find(task.capability_id))
        watch.frozen = task.status == "paused" and (
            watch.capability is None or watch.capability.pausable != "cooperative"
        )
        self._spawn(self._guarded(self._resume(watch, run, task, attached), watch))

    def take_result(self, run: Run, task: Task) -> None:
        """Apply what an ended run left."""
        watch = self._watch(run, self._registry.find(task.capability_id))
        watch.gone = True
        self._spawn(self._guarded(self._follow(watch), watch))

    def lose(self, run: Run, task: Task, reason: Reason, message: str) -> None:
        """A run of which there will be no result: stop what is left of it and say why."""
        watch = self._watch(run, self._registry.find(task.capability_id))
        watch.gone = True
        self._spawn(self._guarded(self._lost(watch, reason, message), watch))

    def _watch(self, run: Run, capability: Capability | None) -> Watch:
        watch = Watch(run.id, run.task_id, capability, RunPaths(run.id, self._state).directory)
        watch.offset = run.events_offset
        self.watches[run.task_id] = watch
        return watch

    def _spawn(self, coroutine: Coroutine[None, None, None]) -> None:
        if self._group is None:
            coroutine.close()
            raise RuntimeError("the supervision is not running")
        self._group.create_task(coroutine)

    async def _guarded(self, coroutine: Coroutine[None, None, None], watch: Watch) -> None:
        """Whatever goes wrong with one run is that run's fault alone; it ends as lost, never silently."""
        try:
            await coroutine
        except Exception as error:  # noqa: BLE001  one run must not take the daemon down
            _log.exception("Supervising %s failed", watch.run_id)
            await self._lost(watch, Reason.LOST, f"the supervision failed: {type(error).__name__}")
        finally:
            if self.watches.get(watch.task_id) is watch:
                del self.watches[watch.task_id]
            watch.ended.set()

    async def _store(self, function: Callable[[Transaction], T]) -> T:
        """Write, and keep trying while the store refuses: what a run did is not forgotten because a disk is full."""
        while True:
            try:
                return await self._database.write(function)
            except StoreError:
                _log.exception("The store refused what a run did; trying again")
                await asyncio.sleep(STORE_RETRY)

    # -- a new run

    async def _start(self, watch: Watch, task: Task) -> None:
        try:
            started = await self._launcher.start(self._request(watch, task))
        except LauncherError as error:
            await self._launch_failed(watch, error)
            return
        async with _held(started.control, started.pidfd) as control:
            placed: JsonObject = {
                "unit": started.unit, "control_group": started.control_group, "pid": started.pid,
                "limits": started.limits,
            }  # fmt: skip
            running = await self._store(lambda tx: run_states.mark_running(tx, watch.run_id, placed))
            if running is None:
                await self._stop_scope(watch)
                await self._finish(watch, Ending(task.capability_id, lost=Reason.LOST, lost_message="not wanted"))
                return
            await self._open_gate(watch, running, control)
            await self._accompany(watch, running, control, started.pidfd)

    async def _open_gate(self, watch: Watch, task: Task, control: ControlChannel) -> None:
        watch.control = control
        fields: JsonObject = {
            "arguments": task.arguments, "task_id": task.id, "attempt": task.attempt, "metadata": task.metadata
        }  # fmt: skip
        await watch.send("go", fields, identifier="go")

    def _request(self, watch: Watch, task: Task) -> StartRequest:
        capability = watch.capability
        values = {} if capability is None else argv.argv_values(capability, task.arguments)
        limit = task.timeout_ms
        if task.deadline is not None:
            limit = max(1, (task.deadline - clock.now()) // 1000)
        return StartRequest(
            run=watch.run_id, task=task.id, capability=task.capability_id, uid=task.uid, argv_values=values,
            limits=_tighter(task.limits), log_max_bytes=self._settings.current.log_max_bytes,
            runtime_max_usec=0 if limit is None else (limit + watch.grace_ms + RUNTIME_MARGIN_MS) * 1000,
        )  # fmt: skip

    async def _launch_failed(self, watch: Watch, error: LauncherError) -> None:
        """The program did not run. A launcher that is away is waited for; a refusal is the task's end."""
        _log.warning("%s could not be launched: %s", watch.run_id, error)
        await self._stop_scope(watch)
        if error.code in PASSING:
            await self._store(lambda tx: run_states.requeue(tx, watch.run_id, str(error)))
            return
        await self._finish(watch, Ending("", launch_error=str(error)))

    # -- a run from before

    async def _resume(self, watch: Watch, run: Run, task: Task, attached: AttachedRun) -> None:
        async with _held(attached.control, attached.pidfd) as control:
            watch.control = control
            if run.state is RunState.STARTING:
                placed: JsonObject = {"unit": attached.unit, "pid": attached.pid}
                running = await self._store(lambda tx: run_states.mark_running(tx, run.id, placed))
                if running is None:
                    await self._stop_scope(watch)
                    await self._finish(watch, Ending(task.capability_id, lost=Reason.LOST, lost_message="not wanted"))
                    return
                task = running
            if not watch.frozen:
                # A gate that is open already ignores it: whether the old daemon came to send it, nobody knows.
                await self._open_gate(watch, task, control)
            if task.cancel_reason is not None:
                await self.request_stop(watch, task.cancel_reason)
            await self._accompany(watch, task, control, attached.pidfd)

    # -- while it runs

    async def _accompany(self, watch: Watch, task: Task, control: ControlChannel, pidfd: int) -> None:
        """Follow the run with its two sources of news: the control channel and the pidfd of the shim."""
        if task.deadline is not None:
            watch.deadline_at = clock.boottime() + (task.deadline - clock.now()) / clock.MICROSECONDS
        async with asyncio.TaskGroup() as group:
            news = group.create_task(self._listen(watch, control))
            death = group.create_task(self._await_death(watch, pidfd))
            try:
                await self._follow(watch)
            finally:
                news.cancel()
                death.cancel()

    async def _listen(self, watch: Watch, control: ControlChannel) -> None:
        while (message := await control.receive()) is not None:
            kind = message.get("type")
            if kind == "log":
                watch.log_sizes = {
                    name: size for name in ("stdout", "stderr") if isinstance(size := message.get(name), int)
                }
            elif kind == "exited":
                watch.gone = True
            watch.wake.set()

    async def _await_death(self, watch: Watch, pidfd: int) -> None:
        await wait_pidfd(pidfd)
        watch.gone = True
        watch.wake.set()

    async def _follow(self, watch: Watch) -> None:
        """Apply what the run writes until it is over, then take its result."""
        while True:
            watch.wake.clear()
            over = watch.gone  # looked at before the files are: what came before the end is then read
            await self._drain(watch)
            if over:
                break
            await self._act_on_time(watch)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._delay(watch)):
                    await watch.wake.wait()
        await self._conclude(watch)

    def _delay(self, watch: Watch) -> float | None:
        moments = [moment for moment in (watch.kill_at, watch.deadline_at) if moment is not None]
        delay = max(0.0, min(moments) - clock.boottime()) if moments else None
        if watch.control is None:
            return POLL if delay is None else min(POLL, delay)
        return delay

    async def _act_on_time(self, watch: Watch) -> None:
        now = clock.boottime()
        if watch.deadline_at is not None and now >= watch.deadline_at:
            watch.deadline_at = None
            watch.timed_out = True
            await self.request_stop(watch, Reason.TIMEOUT.value)
        if watch.kill_at is not None and now >= watch.kill_at:
            watch.kill_at = None
            await self._stop_scope(watch)

    async def request_stop(self, watch: Watch, reason: str) -> None:
        """Ask the program to end, with its grace; the scope is killed when that has passed."""
        if watch.stopping:
            return
        watch.stopping = True
        if watch.frozen:
            await self.thaw(watch)
        told = await watch.send("cancel", {"reason": reason, "grace_ms": watch.grace_ms})
        watch.kill_at = clock.boottime() + (watch.grace_ms / 1000 + STOP_MARGIN if told else 0)
        watch.wake.set()

    async def freeze(self, watch: Watch) -> None:
        """Stop every process of the scope where it is. Raises LauncherError."""
        await self._launcher.freeze(watch.run_id)
        watch.frozen = True

    async def thaw(self, watch: Watch) -> None:
        """Let a frozen scope go on. Raises LauncherError."""
        await self._launcher.thaw(watch.run_id)
        watch.frozen = False

    async def _stop_scope(self, watch: Watch) -> None:
        try:
            await self._launcher.stop(watch.run_id)
        except LauncherError as error:
            if error.code is not LauncherErrorCode.GONE:
                _log.warning("%s could not be stopped: %s", watch.run_id, error)

    async def _drain(self, watch: Watch) -> None:
        """Apply everything that the run has written so far."""
        while True:
            begin = watch.offset
            events, end = await asyncio.to_thread(records.read_events, watch.directory / "events", begin)
            if end == begin:
                break
            refused = await self._take_blobs(watch, events)
            batch = Batch(begin, end, events, refused)
            await self._store(partial(run_events.apply, run_id=watch.run_id, batch=batch))
            watch.offset = end
            for event in events:
                if event.type in (RunEventType.PAUSED, RunEventType.CAN_PAUSE, RunEventType.CAN_CANCEL):
                    watch.answered(event.payload)
        await self._tell_log_growth(watch)

    async def _tell_log_growth(self, watch: Watch) -> None:
        if watch.log_sizes == watch.told_sizes:
            return
        grown = await asyncio.to_thread(log_growth, watch.directory, watch.told_sizes, watch.log_sizes)
        watch.told_sizes = dict(watch.log_sizes)
        await self._store(lambda tx: run_events.log_grew(tx, watch.task_id, grown))

    async def _take_blobs(self, watch: Watch, events: Sequence[RunEvent]) -> dict[str, str]:
        """Copy the artifact files of these events into the daemon's own store; the ones refused, with the reason."""
        refused: dict[str, str] = {}
        wanted = [blob for event in events if event.type is RunEventType.ARTIFACT for blob in blobs_of(event.payload)]
        if not wanted:
            return refused
        uid, used = await self._database.read(lambda db: _usage(db, watch.task_id))
        for offset, size, sha256 in wanted:
            if size > self._settings.current.artifact_max_bytes:
                refused[sha256] = "larger than artifact_max_bytes"
            elif used + size > self._settings.current.artifact_quota_bytes:
                refused[sha256] = f"the artifacts of uid {uid} would exceed artifact_quota_bytes"
            else:
                try:
                    await asyncio.to_thread(self._blobs.take, watch.directory / "blobs", offset, size, sha256)
                    used += size
                except (OSError, BlobError) as error:
                    refused[sha256] = f"could not be kept: {error}"
        return refused

    # -- the end

    async def _conclude(self, watch: Watch) -> None:
        try:
            record = await asyncio.to_thread(records.read_exit, watch.directory / "exit")
        except (records.RecordError, OSError) as error:
            await self._lost(watch, Reason.LOST, f"the exit record cannot be read: {error}")
            return
        if record is None:
            await self._lost(watch, Reason.SUPERVISOR_DIED, "the run's supervisor died")
            return
        await self._finish(watch, ending_of(record, timed_out=watch.timed_out), record_view(record))

    async def _lost(self, watch: Watch, reason: Reason, message: str) -> None:
        await self._stop_scope(watch)
        ending = Ending("", lost=reason, lost_message=message, timed_out=watch.timed_out, stopped=watch.stopping)
        await self._finish(watch, ending, {"lost": reason.value})

    async def _finish(self, watch: Watch, ending: Ending, record: JsonObject | None = None) -> None:
        capability = watch.capability
        kept: dict[str, JsonValue] = dict(record or {})
        await self._store(lambda tx: run_states.finish(tx, watch.run_id, ending, kept, capability))


@asynccontextmanager
async def _held(control: socket.socket, pidfd: int) -> AsyncIterator[ControlChannel]:
    """Own the two descriptors of a live run for as long as it is followed."""
    channel = ControlChannel(control)
    try:
        yield channel
    finally:
        channel.close()
        os.close(pidfd)


def _tighter(asked: JsonObject | None) -> Limits | None:
    if not asked:
        return None
    return Limits(**{name: value for name, value in asked.items() if isinstance(value, int)})


def _usage(db: tasks.Executor, task_id: str) -> tuple[int, int]:
    task = tasks.get(db, task_id)
    return (0, 0) if task is None else (task.uid, artifacts.used_bytes(db, task.uid))
