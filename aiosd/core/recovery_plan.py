"""What becomes of a run that a restarted daemon finds in its store: the design's recovery table as a function. Pure.

| same boot? | exit record | scope | shim answers | then |
|---|---|---|---|---|
| any | yes | any | any | take the result, once |
| no | no | - | - | `starting`: never ran, queue again; `running`: lost ("reboot") |
| yes | no | active | yes | adopt it |
| yes | no | active | no | the shim died: stop the scope, run lost ("supervisor died") |
| yes | no | gone | - | `starting`: never ran, queue again; `running`: lost |

Two cells say more than the design's: an exit record is on disk and tells the truth after a reboot too; and a row that
is still `starting` had its gate shut (the gate opens after the row says `running`), so its program never ran.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from aiosd.model.later import dataclass
from aiosd.model.manifest import Recovery
from aiosd.model.status import Reason, Status
from aiosd.model.task import RunState

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet


class ExitRecord(StrEnum):
    """What the run's exit record says. `NEVER_STARTED`: the shim ended at its gate, the program did not run."""

    NONE = "none"
    ENDED = "ended"
    NEVER_STARTED = "never-started"


class Decision(StrEnum):
    """What to do with the run."""

    NOTHING = "nothing"
    TAKE_RESULT = "take-result"
    ADOPT = "adopt"
    REQUEUE = "requeue"
    STOP_AND_REQUEUE = "stop-and-requeue"
    LOSE = "lose"
    STOP_AND_LOSE = "stop-and-lose"
    CLOSE = "close"
    STOP_AND_CLOSE = "stop-and-close"

    @property
    def stops_scope(self) -> bool:
        """Whether the scope is stopped first."""
        return self in (Decision.STOP_AND_REQUEUE, Decision.STOP_AND_LOSE, Decision.STOP_AND_CLOSE)


class Aftermath(StrEnum):
    """What becomes of the task of a lost run."""

    RETRY = "retry"
    FAIL = "fail"
    ASK = "ask"


@dataclass(frozen=True, slots=True)
class Situation:
    """All that the decision depends on. `recovery` and `idempotent` are the capability's, defaults when it is gone."""

    run_state: RunState
    task_status: Status
    same_boot: bool
    exit_record: ExitRecord
    scope_active: bool
    shim_answers: bool
    recovery: Recovery = Recovery.FAIL
    idempotent: bool = False


@dataclass(frozen=True, slots=True)
class RunPlan:
    """The decision; `reason` and `aftermath` where the run is lost."""

    decision: Decision
    reason: Reason | None = None
    aftermath: Aftermath | None = None


def plan_run(found: Situation) -> RunPlan:
    """The line of the table for this run."""
    # A scope does not outlive its boot, whatever a stale answer says.
    active = found.scope_active and found.same_boot
    if found.run_state is RunState.ENDED:
        return RunPlan(Decision.STOP_AND_CLOSE if active else Decision.NOTHING)
    if found.task_status.is_final:
        # Canceled, for instance, and the daemon died before the run was: the task has its end, the run gets its own.
        return RunPlan(Decision.STOP_AND_CLOSE if active else Decision.CLOSE)
    if found.exit_record is ExitRecord.ENDED:
        return RunPlan(Decision.TAKE_RESULT)
    if active and found.shim_answers and found.exit_record is ExitRecord.NONE:
        return RunPlan(Decision.ADOPT)
    if found.run_state is RunState.STARTING or found.exit_record is ExitRecord.NEVER_STARTED:
        return RunPlan(Decision.STOP_AND_REQUEUE if active else Decision.REQUEUE)
    if not found.same_boot:
        return RunPlan(Decision.LOSE, Reason.REBOOT, _aftermath_of(found))
    if active:
        return RunPlan(Decision.STOP_AND_LOSE, Reason.SUPERVISOR_DIED, _aftermath_of(found))
    return RunPlan(Decision.LOSE, Reason.LOST, _aftermath_of(found))


def _aftermath_of(found: Situation) -> Aftermath:
    return aftermath(found.recovery, idempotent=found.idempotent)


def aftermath(recovery: Recovery, *, idempotent: bool) -> Aftermath:
    """The capability's policy; what may have done its work is not run again unless that does no harm."""
    if recovery is Recovery.RETRY:
        return Aftermath.RETRY if idempotent else Aftermath.ASK
    return Aftermath.ASK if recovery is Recovery.ASK else Aftermath.FAIL


class OrphanAction(StrEnum):
    """What to do with what the launcher knows and the store does not have as an open run."""

    STOP_AND_REMOVE = "stop-and-remove"
    STOP = "stop"
    REMOVE = "remove"


def plan_orphans(
    listed: Mapping[str, bool], known: Mapping[str, RunState], keep: AbstractSet[str] = frozenset()
) -> Mapping[str, OrphanAction]:
    """What to do with runs of the launcher's list (run id → scope active) that no open row owns.

    `known`: the rows the store has for them. `keep`: ended runs whose directory is still wanted (logs).
    """
    actions: dict[str, OrphanAction] = {}
    for run, active in listed.items():
        state = known.get(run)
        if state is None:
            actions[run] = OrphanAction.STOP_AND_REMOVE if active else OrphanAction.REMOVE
        elif state is RunState.ENDED and active:
            actions[run] = OrphanAction.STOP
        elif state is RunState.ENDED and run not in keep:
            actions[run] = OrphanAction.REMOVE
    return actions
