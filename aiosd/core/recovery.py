"""What the daemon does before it serves: make the store and the machine agree again.

Looks at every run that the store thinks alive and at everything the launcher has, asks the pure `recovery_plan` what
each case means, and does it. After it the supervision follows what lives, and what cannot be known is said to be lost.
"""

from __future__ import annotations

import asyncio
import logging
import os
from functools import partial
from typing import TYPE_CHECKING

from aiosd.core import clock, run_states
from aiosd.core.durable import OWN, patiently
from aiosd.core.outcome import Verdict
from aiosd.core.recovery_plan import (
    Decision,
    ExitRecord,
    OrphanAction,
    RunPlan,
    Situation,
    plan_orphans,
    plan_run,
)
from aiosd.core.supervision import ABSENT
from aiosd.model.manifest import Recovery
from aiosd.model.status import Reason, Status
from aiosd.model.task import RunState
from aiosd.run import records
from aiosd.run.client import LauncherError, LauncherErrorCode
from aiosd.run.layout import RunPaths
from aiosd.store import runs, tasks
from aiosd.store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from aiosd.core.registry import Registry
    from aiosd.core.supervision import Supervision
    from aiosd.model.task import Run, Task
    from aiosd.run.client import AttachedRun, LauncherClient
    from aiosd.store.database import Database, Transaction

STEP = 1000
"""Runs looked up in one read."""
TOGETHER = 64
"""Runs that are asked for at a time; the launcher takes requests as they come."""

_log = logging.getLogger(__name__)

_MESSAGES = {
    Reason.REBOOT: "the machine was restarted while it ran",
    Reason.SUPERVISOR_DIED: "the run's supervisor died",
    Reason.LOST: "the run is gone and left no result",
}


class Recoverer:
    """One pass of recovery."""

    def __init__(
        self,
        database: Database,
        launcher: LauncherClient,
        registry: Registry,
        supervision: Supervision,
        state: Path,
        boot_id: str,
    ) -> None:
        """`state`: the launcher's state directory."""
        self._database = database
        self._launcher = launcher
        self._registry = registry
        self._supervision = supervision
        self._state = state
        self._boot_id = boot_id

    async def run(self) -> None:
        """Recover everything. Raises LauncherError when the launcher cannot be asked, StoreError likewise."""
        listed = {one.run: one.active for one in await self._launcher.list_runs(living=True)}
        live = await self._database.read(runs.live)
        for begin in range(0, len(live), TOGETHER):
            await self._recover([run for run in live[begin : begin + TOGETHER] if not self._is_followed(run)], listed)
        await self._end_forgotten()
        await self._remove_orphans(listed, {run.id for run in live})

    async def sweep(self) -> None:
        """Remove the directories of ended runs of which the store knows nothing: for after a `run`, beside serving.

        There may be as many directories as finished tasks, and nobody is to wait for so many to be looked at.
        """
        try:
            ended = {one.run: False for one in await self._launcher.list_runs() if not (one.active or one.pid)}
            await self._remove_orphans(ended, set())
        except (LauncherError, StoreError) as error:
            _log.warning("Directories of forgotten runs are left to the next start: %s", error)

    def _is_followed(self, run: Run) -> bool:
        """An earlier pass, which did not come to its end, took it."""
        watch = self._supervision.of_task(run.task_id)
        return watch is not None and watch.run_id == run.id

    async def _recover(self, some: Sequence[Run], listed: Mapping[str, bool]) -> None:
        """Each of them. First who answers, then what is left of those that do not: in the other order one that ends in
        between would have neither. Their tasks last, so that nothing is decided of before a cancel that came meanwhile.
        """
        answers = await asyncio.gather(*(self._attach(run, listed) for run in some), return_exceptions=True)
        asked = [(run, one) for run, one in zip(some, answers, strict=True) if not isinstance(one, BaseException)]
        left = await patiently(partial(asyncio.to_thread, self._exit_records, [run for run, _ in asked]))
        found = await self._database.read(lambda db: {run.id: tasks.get(db, run.task_id) for run, _ in asked})
        others: list[tuple[Run, Task, RunPlan]] = []
        for run, attached in asked:
            task = found[run.id]
            plan = None if task is None else self._plan(run, task, listed, left[run.id], answers=attached is not None)
            if task is not None and plan is not None and plan.decision is Decision.ADOPT and attached is not None:
                self._supervision.adopt(run, task, attached)
                continue
            if attached is not None:
                attached.control.close()
                os.close(attached.pidfd)
            if task is not None and plan is not None:
                others.append((run, task, plan))
        for run, task, plan in others:
            await self._act(run, task, plan)
        for failed in answers:
            if isinstance(failed, BaseException):
                raise failed

    def _plan(
        self, run: Run, task: Task, listed: Mapping[str, bool], exit_record: ExitRecord, *, answers: bool
    ) -> RunPlan:
        capability = self._registry.find(task.capability_id)
        situation = Situation(
            run_state=run.state, task_status=task.status, same_boot=run.boot_id == self._boot_id,
            exit_record=exit_record, scope_active=bool(listed.get(run.id)), shim_answers=answers,
            recovery=capability.recovery if capability else Recovery.FAIL,
            idempotent=capability.idempotent if capability else False,
        )  # fmt: skip
        plan = plan_run(situation)
        _log.info("%s of %s: %s", run.id, task.id, plan.decision)
        return plan

    async def _act(self, run: Run, task: Task, plan: RunPlan) -> None:
        if plan.decision.stops_scope:
            await self._stop(run.id)
        if plan.decision is Decision.TAKE_RESULT:
            self._supervision.take_result(run, task)
        elif plan.decision in (Decision.REQUEUE, Decision.STOP_AND_REQUEUE):
            await self._database.write(
                lambda tx: run_states.requeue(tx, run.id, "the daemon was restarted", Reason.LAUNCH)
            )
        elif plan.decision in (Decision.LOSE, Decision.STOP_AND_LOSE) and plan.reason is not None:
            self._supervision.lose(run, task, plan.reason, _MESSAGES[plan.reason])
        elif plan.decision in (Decision.CLOSE, Decision.STOP_AND_CLOSE):
            closed = {"state": "ended", "ended_at": clock.now(), "reason": Reason.CANCELED.value}
            await self._database.write(lambda tx: runs.update(tx, run.id, closed))

    async def _attach(self, run: Run, listed: Mapping[str, bool]) -> AttachedRun | None:
        """The run's descriptors; None when its shim does not answer. Raises LauncherError when nobody can say that."""
        if not listed.get(run.id):
            return None
        try:
            return await self._launcher.attach(run.id)
        except LauncherError as error:
            if error.code in ABSENT:
                raise
            if error.code is not LauncherErrorCode.GONE:
                _log.warning("%s does not answer: %s", run.id, error)
            return None

    def _exit_records(self, some: Sequence[Run]) -> dict[str, ExitRecord]:
        """What each has left, by run. In a thread."""
        return {run.id: self._exit_record(run) for run in some}

    def _exit_record(self, run: Run) -> ExitRecord:
        try:
            record = records.read_exit(RunPaths(run.id, self._state).exit)
        except (records.RecordError, OSError) as error:
            if isinstance(error, OSError) and error.errno in OWN:
                raise  # it may be there
            _log.warning("The exit record of %s cannot be read: %s", run.id, error)
            return ExitRecord.NONE
        if record is None:
            return ExitRecord.NONE
        # While the row says `starting` nobody has opened the gate: whatever went wrong, the program did not run.
        never = not record.started and (record.launch_error is None or run.state is RunState.STARTING)
        return ExitRecord.NEVER_STARTED if never else ExitRecord.ENDED

    async def _stop(self, run_id: str) -> None:
        try:
            await self._launcher.stop(run_id)
        except LauncherError as error:
            if error.code in ABSENT:
                raise
            if error.code is not LauncherErrorCode.GONE:
                _log.warning("%s could not be stopped: %s", run_id, error)

    async def _end_forgotten(self) -> None:
        """Unfinished tasks that should have a run and have none: a cancel that was asked for and not carried out."""

        def settle(transaction: Transaction) -> None:
            for task in tasks.to_be_canceled(transaction):
                if not run_states.has_live_run(transaction, task.id):
                    run_states.end(transaction, task, Verdict(Status.CANCELED, Reason.CANCELED))

        await self._database.write(settle)

    async def _remove_orphans(self, listed: Mapping[str, bool], live: set[str]) -> None:
        others = {run_id: active for run_id, active in listed.items() if run_id not in live}
        states: dict[str, RunState] = {}
        for begin in range(0, len(others), STEP):
            some = [*others][begin : begin + STEP]
            states |= await self._database.read(partial(runs.states, run_ids=some))
        for run_id, action in plan_orphans(others, states, keep=frozenset(states)).items():
            _log.warning("%s belongs to no task that is known: %s", run_id, action)
            try:
                if action in (OrphanAction.STOP, OrphanAction.STOP_AND_REMOVE):
                    await self._launcher.stop(run_id)
                if action in (OrphanAction.REMOVE, OrphanAction.STOP_AND_REMOVE):
                    await self._launcher.remove(run_id)
            except LauncherError as error:
                _log.warning("%s: %s", run_id, error)
