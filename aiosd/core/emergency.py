"""The kill switch. First nothing more may start, then everything is killed, then it is written down, in that order.

None of the first two needs the store: the launcher knows every run and whose it is. What is written (tasks that are
canceled, grants that are revoked, the audit record) waits for the store, for ever if need be, while the caller has the
answer already.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING

from aiosd.core import changes, clock, run_states, steps, stops
from aiosd.core.durable import write_durably
from aiosd.core.outcome import Verdict
from aiosd.model.audit import AuditKind
from aiosd.model.later import dataclass
from aiosd.model.status import Reason, Status
from aiosd.run.client import LauncherError, LauncherErrorCode
from aiosd.store import approvals, candidates, grants, tasks
from aiosd.store.audit import append_audit

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from aiosd.core.settings import Settings
    from aiosd.core.supervision import Supervision
    from aiosd.model.jsontext import JsonObject
    from aiosd.run.client import LauncherClient, RunInfo
    from aiosd.store.database import Database, Transaction

AT_ONCE = 32
"""Scopes that are being killed at a time."""

STOP_WITHIN = 20.0
"""Seconds for all of them; D-Bus allows 25 until the answer."""

RECORDED_WITHIN = 2.0
"""Seconds that the answer waits for the store."""

LAUNCHER_RETRY = 0.5
"""Seconds between tries to reach a launcher that is away."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Outcome:
    """Runs that were killed, and those that could not be, with the reason."""

    stopped: set[str] = field(default_factory=set)
    failed: dict[str, str] = field(default_factory=dict)
    launcher: str = ""


class Emergency:
    """Stops, and lifts stops. Whether the caller may has been checked."""

    def __init__(
        self, database: Database, launcher: LauncherClient, supervision: Supervision, settings: Settings, path: Path
    ) -> None:
        """`path`: of the file that holds the stops over a restart."""
        self._database = database
        self._launcher = launcher
        self._supervision = supervision
        self._settings = settings
        self._path = path
        self._saving = asyncio.Lock()
        self._background: set[asyncio.Task[None]] = set()

    async def begin(self) -> None:
        """Take over the stops from before this start."""
        await asyncio.to_thread(stops.load, self._path, self._settings.stops)
        if self._settings.stops.any:
            _log.warning("An emergency stop is in force: %s", dict(self._settings.stops.view()))

    async def enforce(self) -> None:
        """After a restart: what lives on of a stopped user, because we died in the middle of it, is killed now."""
        if self._settings.stops.any:
            await self._kill(None, only_stopped=True)

    async def stop(self, uid: int | None, by: int, reason: str) -> JsonObject:
        """Stop a user, or the machine (None). Returns when the programs are dead, or could not be killed in time."""
        self._settings.stops.stop(uid, by)
        scope = "machine" if uid is None else f"user {uid}"
        _log.warning("EMERGENCY STOP of %s by uid %d: %s", scope, by, reason or "no reason given")
        outcome = Outcome()
        killed = asyncio.Event()
        written = self._in_background(self._write_down(uid, by, reason, outcome, killed))
        saved = self._in_background(self._save())
        # Queued first: a run that dies of this is then a canceled one, not a failed one to be tried again.
        await asyncio.sleep(0)
        try:
            await self._kill(uid, outcome=outcome)
        finally:
            killed.set()
        done, _ = await asyncio.wait({written, saved}, timeout=RECORDED_WITHIN)
        _log.warning("EMERGENCY STOP of %s: %d killed, %d not", scope, len(outcome.stopped), len(outcome.failed))
        body: dict[str, object] = {
            "scope": "machine" if uid is None else "user", "stopped": len(outcome.stopped),
            "failed": dict(sorted(outcome.failed.items())), "recorded": {written, saved} <= done,
        }  # fmt: skip
        if uid is not None:
            body["uid"] = uid
        if outcome.launcher:
            body["launcher"] = outcome.launcher
        return body  # type: ignore[return-value]  # numbers, texts and objects of texts

    async def lift(self, uid: int | None, by: int) -> bool:
        """End a stop; whether there was one. Raises OSError when it would be in force again after a restart."""
        if not self._settings.stops.lift(uid):
            return False
        await self._save_once()
        details: JsonObject = {"scope": "machine" if uid is None else f"user {uid}"}
        moment = clock.now()
        await write_durably(
            self._database,
            lambda tx: append_audit(
                tx, time=moment, uid=uid, actor=f"uid:{by}", kind=AuditKind.EMERGENCY_LIFTED, task_id=None,
                details=details,
            ),
        )  # fmt: skip
        return True

    # -- killing

    async def _kill(self, uid: int | None, *, only_stopped: bool = False, outcome: Outcome | None = None) -> None:
        """Kill what there is, and look again until nothing is left: a start may have been under way."""
        outcome = outcome or Outcome()
        try:
            async with asyncio.timeout(STOP_WITHIN):
                while found := await self._living(uid, outcome, only_stopped=only_stopped):
                    await self._kill_all(found, outcome)
        except TimeoutError:
            outcome.launcher = outcome.launcher or "not all scopes ended in time"

    async def _living(self, uid: int | None, outcome: Outcome, *, only_stopped: bool) -> list[str]:
        watched = {watch.run_id: watch.uid for watch in list(self._supervision.watches.values())}

        def meant(row: RunInfo) -> bool:
            owner = row.caller if row.caller >= 0 else watched.get(row.run)
            if only_stopped:
                return owner is None or self._settings.stops.covers(owner)
            return uid is None or owner == uid

        while True:
            try:
                rows = await self._launcher.list_runs(living=True)
            except LauncherError as error:
                outcome.launcher = str(error)
                await asyncio.sleep(LAUNCHER_RETRY)
                continue
            outcome.launcher = ""
            alive = [row.run for row in rows if (row.active or row.pid) and meant(row)]
            return [run for run in alive if run not in outcome.failed]

    async def _kill_all(self, found: list[str], outcome: Outcome) -> None:
        room = asyncio.Semaphore(AT_ONCE)

        async def one(run: str) -> None:
            async with room:
                try:
                    await self._launcher.stop(run)
                except LauncherError as error:
                    if error.code is not LauncherErrorCode.GONE:
                        outcome.failed[run] = str(error)
                        return
                outcome.stopped.add(run)

        async with asyncio.TaskGroup() as group:
            for run in found:
                group.create_task(one(run))

    # -- writing it down

    def _in_background(self, work: object) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.create_task(work)  # type: ignore[arg-type]  # coroutines of this class
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    async def _save(self) -> None:
        while True:
            try:
                await self._save_once()
            except OSError as error:
                _log.error("The emergency stop cannot be kept for the next start, trying again: %s", error)
                await asyncio.sleep(1)
            else:
                return

    async def _save_once(self) -> None:
        async with self._saving:
            await asyncio.to_thread(stops.save, self._path, self._settings.stops)

    async def _write_down(
        self, uid: int | None, by: int, reason: str, outcome: Outcome, killed: asyncio.Event
    ) -> None:  # fmt: skip
        why = f"emergency: {reason}" if reason else "emergency"
        done: set[str] = set()
        while True:
            some = await write_durably(self._database, partial(_cancel_some, uid=uid, why=why, done=done))
            done.update(some)
            if len(some) < steps.STEP:
                break
        await killed.wait()
        details: JsonObject = {
            "scope": "machine" if uid is None else f"user {uid}", "reason": reason, "stopped": len(outcome.stopped),
            "failed": [*sorted(outcome.failed)],
        }  # fmt: skip
        moment = clock.now()

        def finish(transaction: Transaction) -> None:
            revoked = grants.revoke_all(transaction, uid, moment)
            approvals.end_for_session(transaction, uid)
            append_audit(
                transaction, time=moment, uid=uid, actor=f"uid:{by}", kind=AuditKind.EMERGENCY_STOPPED, task_id=None,
                details={**details, "grants_revoked": revoked},
            )  # fmt: skip

        await write_durably(self._database, finish)


def _cancel_some(transaction: Transaction, uid: int | None, why: str, done: Collection[str]) -> list[str]:
    """Every unfinished task of the scope is to end: those without a program now, the others with their program.

    A step of it, those with a program in the first one: they are being killed. Who they were; with fewer than STEP it
    is done.
    """
    left = [one for one in tasks.open_ids(transaction, uid) if one not in done]
    if not done:
        alive = {task_id for task_id, _ in candidates.holding(transaction)}
        left.sort(key=lambda one: one not in alive)
    some = left[: steps.STEP]
    for task in [tasks.get(transaction, one) for one in some]:
        if task is None:
            continue
        if task.cancel_reason is None:
            tasks.update(transaction, task.id, {"cancel_reason": why})
            changes.audit(transaction, task, AuditKind.TASK_CANCEL, "system", {"reason": why})
        if not run_states.has_live_run(transaction, task.id):
            again = tasks.get(transaction, task.id)
            if again is not None:
                run_states.end(transaction, again, Verdict(Status.CANCELED, Reason.CANCELED))
    return some
