"""Supervision: from an admitted task to its ended run, one coroutine for each live run.

`launch` starts a new run, `adopt` takes up one that outlived the daemon; both end in `_follow`, which applies what the
run writes until its shim has gone, and then takes the result. The store is the truth and is written before anything is
told to the program (the gate opens after the commit of `running`), so at every point a crash leaves a state that
recovery knows."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from aiosd.core import clock, half_paused, run_states
from aiosd.core.context import Gate
from aiosd.core.durable import write_durably
from aiosd.core.intake import Intake
from aiosd.core.outcome import Ending
from aiosd.core.reading import ending_of, record_view, sizes_on_disk
from aiosd.core.recovery_plan import Aftermath, aftermath
from aiosd.core.start_request import start_request
from aiosd.core.watch import STOP_MARGIN, Watch, held
from aiosd.model.status import Reason, Status
from aiosd.model.task import RunState
from aiosd.run import records
from aiosd.run.client import LauncherError, LauncherErrorCode, on_death
from aiosd.run.layout import RunPaths

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from aiosd.core.artifacts import BlobStore
    from aiosd.core.registry import Registry
    from aiosd.core.run_states import Launch
    from aiosd.core.settings import Settings
    from aiosd.core.time_limits import TimeLimits
    from aiosd.model.jsontext import JsonObject
    from aiosd.model.manifest import Capability
    from aiosd.model.task import Run, Task
    from aiosd.run.client import AttachedRun, ControlChannel, LauncherClient
    from aiosd.store.database import Database, Transaction

T = TypeVar("T")

LAUNCHER_RETRY = 1.0
"""Seconds between tries to stop a scope while the launcher does not answer."""

POLL = 1.0
"""Seconds between looks at a run without a control channel."""

ABSENT = frozenset({LauncherErrorCode.UNREACHABLE, LauncherErrorCode.GONE_AWAY})
"""The launcher is not there, or went before it answered."""

PASSING = ABSENT | {LauncherErrorCode.SYSTEMD}
"""Refusals that say nothing about the task: it is queued again."""

_log = logging.getLogger(__name__)


class Supervision:
    """All live runs of this daemon."""

    def __init__(
        self, database: Database, launcher: LauncherClient, registry: Registry, settings: Settings, blobs: BlobStore,
        state: Path, limits: TimeLimits,
    ) -> None:  # fmt: skip
        """`state`: the launcher's state directory, whose run directories we may read."""
        self._limits = limits
        self._database = database
        self._launcher = launcher
        self._registry = registry
        self._settings = settings
        self._intake = Intake(database, settings, blobs)
        self._gate = Gate(database, blobs)
        self._state = state
        self._group: asyncio.TaskGroup | None = None
        self.watches: dict[str, Watch] = {}

    async def run(self) -> None:
        """Hold the coroutines of all runs, for ever; cancelled, it leaves the runs themselves alone."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                self._group = None

    def of_task(self, task_id: str) -> Watch | None:
        """The live run of a task."""
        return self.watches.get(task_id)

    def look_again(self) -> None:
        """The clock was set, or the machine has slept."""
        for watch in self.watches.values():
            watch.wake.set()

    def launch(self, launch: Launch) -> None:
        """Start an admitted task."""
        watch = self._watch(launch.run, self._registry.find(launch.task.capability_id))
        self._spawn(watch, lambda: self._start(watch, launch.task))

    def adopt(self, run: Run, task: Task, attached: AttachedRun) -> None:
        """Follow a run that is alive from before."""
        watch = self._watch(run, self._registry.find(task.capability_id))
        # Whether the scope is frozen was decided before the status was stored, by a cooperative program or for it.
        watch.frozen = task.status is Status.PAUSED
        watch.adopted = True
        self._spawn(watch, lambda: self._resume(watch, run, task, attached))

    def take_result(self, run: Run, task: Task) -> None:
        """Apply what an ended run left."""
        watch = self._watch(run, self._registry.find(task.capability_id))
        watch.gone = True
        watch.met.set()
        self._spawn(watch, lambda: self._taken(watch, run))

    def lose(self, run: Run, task: Task, reason: Reason, message: str) -> None:
        """A run of which there will be no exit record: stop what is left of it, take what it wrote, say why it ends."""
        watch = self._watch(run, self._registry.find(task.capability_id))
        watch.gone = True
        watch.met.set()
        self._spawn(watch, lambda: self._given_up(watch, run, reason, message))

    def _watch(self, run: Run, capability: Capability | None) -> Watch:
        watch = Watch(run.id, run.task_id, capability, RunPaths(run.id, self._state).directory, run.uid)
        watch.offset = watch.stored = run.events_offset
        watch.spoken = run.events_offset > 0
        self.watches[run.task_id] = watch
        return watch

    def _spawn(self, watch: Watch, work: Callable[[], Coroutine[None, None, None]]) -> None:
        """Begin `work`; not as the daemon ends: the row of the run is there, and the next daemon sees to it."""
        if self._group is not None:
            self._group.create_task(self._guarded(watch, work))

    async def _guarded(self, watch: Watch, work: Callable[[], Coroutine[None, None, None]]) -> None:
        """Whatever goes wrong with one run is that run's fault alone; it ends as lost, never silently."""
        try:
            try:
                await work()
            except MemoryError:  # the daemon's want and no fault of the run: the next daemon takes it up
                raise
            except Exception as error:  # noqa: BLE001  one run must not take the daemon down
                _log.exception("Supervising %s failed", watch.run_id)
                await self._lost(watch, Reason.LOST, f"the supervision failed: {type(error).__name__}")
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001  nor may its end; the row stays open, and the next start looks at it again
            _log.exception("The end of %s could not be stored", watch.run_id)
        finally:
            if self.watches.get(watch.task_id) is watch:
                del self.watches[watch.task_id]
            watch.met.set()
            watch.ended.set()

    async def _store(self, function: Callable[[Transaction], T]) -> T:
        return await write_durably(self._database, function)

    # -- a new run

    async def _start(self, watch: Watch, task: Task) -> None:
        try:
            left = self._limits.left(task.id, task.deadline)
            request = start_request(watch, task, left, self._settings.current.log_max_bytes)
        except ValueError as error:
            await self._finish(watch, Ending("", launch_error=str(error)))
            return
        try:
            started = await self._launcher.start(request)
        except LauncherError as error:
            await self._launch_failed(watch, error)
            return
        with held(started.control, started.pidfd) as control:
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
            await self._accompany(watch, running, control, started.pidfd, fresh=True)

    async def _open_gate(self, watch: Watch, task: Task, control: ControlChannel) -> None:
        watch.connect(control)
        if watch.stopping:
            return  # canceled since the commit: the program need not start
        if self._settings.stops.covers(watch.uid):
            await self.request_stop(watch, "emergency")
            return
        if not watch.begun:  # a run from before may be, and not show it: then it ignores what it knows already
            await self._gate.open(watch, task)

    async def _launch_failed(self, watch: Watch, error: LauncherError) -> None:
        """The program did not run. A launcher that is away is waited for; a refusal is the task's end."""
        _log.warning("%s could not be launched: %s", watch.run_id, error)
        if error.code is not LauncherErrorCode.UNREACHABLE:
            await self._stop_surely(watch)
        if error.code in PASSING:
            reason = Reason.WORKER_LOST if error.code is LauncherErrorCode.UNREACHABLE else Reason.LAUNCH
            await self._store(lambda tx: run_states.requeue(tx, watch.run_id, str(error), reason))
            return
        if error.code is LauncherErrorCode.DENIED:  # by the administrator's policy, stricter than when it was created
            await self._finish(watch, Ending("", lost=Reason.PERMISSION_DENIED, lost_message=error.message))
            return
        await self._finish(watch, Ending("", launch_error=str(error)))

    # -- a run from before

    async def _taken(self, watch: Watch, run: Run) -> None:
        await self._intake.recall(watch, run)
        await self._conclude(watch)

    async def _given_up(self, watch: Watch, run: Run, reason: Reason, message: str) -> None:
        await self._intake.recall(watch, run)
        await self._lost(watch, reason, message)

    async def _resume(self, watch: Watch, run: Run, task: Task, attached: AttachedRun) -> None:
        with held(attached.control, attached.pidfd) as control:
            await self._intake.recall(watch, run)
            watch.connect(control)
            if run.state is RunState.STARTING:
                placed: JsonObject = {"unit": attached.unit, "pid": attached.pid}
                running = await self._store(lambda tx: run_states.mark_running(tx, run.id, placed))
                if running is None:
                    await self._stop_scope(watch)
                    await self._finish(watch, Ending(task.capability_id, lost=Reason.LOST, lost_message="not wanted"))
                    return
                task = running
            else:
                await self._intake.drain(watch)  # first, since somebody may have been listening for it
            if not watch.frozen:
                await self._open_gate(watch, task, control)
            await self.deliver_answer(watch, task)
            if task.cancel_reason is not None:
                await self.request_stop(watch, task.cancel_reason)
            async with half_paused.let_go_later(self._database, watch, self.thaw):
                await self._accompany(watch, task, control, attached.pidfd, fresh=False)

    async def deliver_answer(self, watch: Watch, task: Task) -> None:
        """Hand over an accepted answer. It stays in the store until then, and the shim takes it once (by its id)."""
        answered = run_states.undelivered(task)
        if answered is None:
            return
        if await watch.send("input", answered.fields, identifier=answered.identifier):
            await self._store(lambda tx: run_states.delivered(tx, task.id, answered.identifier))

    # -- while it runs

    async def _accompany(self, watch: Watch, task: Task, control: ControlChannel, pidfd: int, *, fresh: bool) -> None:
        """Follow the run with its two sources of news: the control channel and the pidfd of the shim."""
        if (left := self._limits.left(task.id, task.deadline)) is not None:
            watch.deadline_at = clock.boottime() + left / clock.MICROSECONDS
        watch.expect_first_frame(clock.boottime(), self._settings.current.stream_first_frame_timeout)
        control.listen(watch.hear)
        with on_death(pidfd, watch.over):
            await self._follow(watch, fresh=fresh)
        await self._conclude(watch)

    async def _follow(self, watch: Watch, *, fresh: bool = False) -> None:
        """Apply what the run writes until it is over. `fresh`: it will tell when it writes."""
        while True:
            watch.wake.clear()
            if watch.gone:  # looked at before the files are: what came before the end is then read
                return
            if not fresh:
                await self._intake.drain(watch)
            fresh = False
            await self._act_on_time(watch)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._delay(watch)):
                    await watch.wake.wait()

    def _delay(self, watch: Watch) -> float | None:
        moment = watch.next_moment()
        delay = None if moment is None else max(0.0, moment - clock.boottime())
        if watch.control is None:
            return POLL if delay is None else min(POLL, delay)
        return delay

    async def _act_on_time(self, watch: Watch) -> None:
        now = clock.boottime()
        if (limit := watch.time_is_up(now)) is not None:
            await self.request_stop(watch, limit.value)
        if watch.kill_at is not None and now >= watch.kill_at:
            watch.kill_at = None if await self._stop_scope(watch) else now + LAUNCHER_RETRY

    async def request_stop(self, watch: Watch, reason: str) -> None:
        """Ask the program to end, with its grace; the scope is killed when that has passed."""
        if watch.adopted:  # its program runs already; not to be killed because we cannot speak to it yet
            await watch.connected()
        if watch.stopping:
            return
        watch.stopping = True
        watch.met.set()
        told = await self._thawed(watch) and await watch.send(
            "cancel", {"reason": reason, "grace_ms": watch.grace_ms}
        )  # fmt: skip
        watch.kill_at = clock.boottime() + (watch.grace_ms / 1000 + STOP_MARGIN if told else 0)
        watch.wake.set()

    async def _thawed(self, watch: Watch) -> bool:
        """Whether the program can hear us; a frozen one that cannot be thawed is only to be killed."""
        if not watch.frozen:
            return True
        try:
            await self.thaw(watch)
        except LauncherError as error:
            _log.warning("%s could not be thawed: %s", watch.run_id, error)
            return False
        return True

    async def freeze(self, watch: Watch) -> None:
        """Stop every process of the scope where it is. Raises LauncherError."""
        await self._launcher.freeze(watch.run_id)
        watch.frozen = True

    async def thaw(self, watch: Watch) -> None:
        """Let a frozen scope go on. Raises LauncherError."""
        await self._launcher.thaw(watch.run_id)
        watch.frozen = False

    async def _stop_scope(self, watch: Watch) -> bool:
        """Kill all of the run; whether there is nothing left to be killed."""
        try:
            await self._launcher.stop(watch.run_id)
        except LauncherError as error:
            if error.code is not LauncherErrorCode.GONE:
                _log.warning("%s could not be stopped: %s", watch.run_id, error)
                return error.code not in ABSENT
        return True

    async def _stop_surely(self, watch: Watch) -> None:
        """As `_stop_scope`, but wait for a launcher that is away: what may run on must not be run again."""
        while not await self._stop_scope(watch):  # noqa: ASYNC110  nothing tells that a launcher has come back
            await asyncio.sleep(LAUNCHER_RETRY)

    # -- the end

    async def _conclude(self, watch: Watch) -> None:
        try:
            record = await self._intake.drain_ended(watch)
        except (records.RecordError, OSError) as error:
            await self._lost(watch, Reason.LOST, f"what the run left cannot be read: {error}")
            return
        if record is None:
            await self._lost(watch, Reason.SUPERVISOR_DIED, "the run's supervisor died")
            return
        ending = ending_of(record, timed_out=watch.timed_out, silent_for=watch.silent_for)
        await self._finish(watch, ending, record_view(record))

    async def _lost(self, watch: Watch, reason: Reason, message: str) -> None:
        await self._stop_surely(watch)
        try:
            watch.log_sizes = await asyncio.to_thread(sizes_on_disk, watch.directory)
            await self._intake.drain(watch)
        except Exception:  # noqa: BLE001  it is lost already; what it wrote may be the cause
            _log.exception("What %s wrote cannot be applied", watch.run_id)
        ending = Ending("", lost=reason, lost_message=message, timed_out=watch.timed_out, stopped=watch.stopping,
                        silent_for=watch.silent_for)  # fmt: skip
        capability = watch.capability
        after = aftermath(capability.recovery, idempotent=capability.idempotent) if capability else Aftermath.FAIL
        await self._finish(watch, ending, {"lost": reason.value}, after)

    async def _finish(
        self,
        watch: Watch,
        ending: Ending,
        record: JsonObject | None = None,
        after: Aftermath = Aftermath.FAIL,
    ) -> None:
        finish = run_states.Finish(watch.run_id, ending, dict(record or {}), watch.capability, self._limits, after)
        await self._store(lambda tx: run_states.finish(tx, finish))
