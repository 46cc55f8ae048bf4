"""The design's recovery table ("Architecture", Recovery), cell by cell, and what must hold for every situation."""

from __future__ import annotations

import itertools

import pytest

from aiosd.core.recovery_plan import (
    Aftermath,
    Decision,
    ExitRecord,
    OrphanAction,
    RunPlan,
    Situation,
    plan_orphans,
    plan_run,
)
from aiosd.model.manifest import Recovery
from aiosd.model.status import Reason, Status
from aiosd.model.task import RunState

YES = (True,)
ANY = (True, False)


def situations(
    *, boot: tuple[bool, ...], exit_: ExitRecord, scope: tuple[bool, ...], shim: tuple[bool, ...], state: RunState
) -> list[Situation]:
    return [
        Situation(state, Status.WORKING, *values[:1], exit_, *values[1:])
        for values in itertools.product(boot, scope, shim)
    ]


RUNNING, STARTING = RunState.RUNNING, RunState.STARTING
NONE = ExitRecord.NONE
TABLE = [
    # The design's rows, in its order; the capability's policy is the default, "fail".
    ("another boot", situations(boot=(False,), exit_=NONE, scope=ANY, shim=ANY, state=RUNNING),
     RunPlan(Decision.LOSE, Reason.REBOOT, Aftermath.FAIL)),
    ("exit record", situations(boot=YES, exit_=ExitRecord.ENDED, scope=ANY, shim=ANY, state=RUNNING),
     RunPlan(Decision.TAKE_RESULT)),
    ("exit record, starting", situations(boot=YES, exit_=ExitRecord.ENDED, scope=ANY, shim=ANY, state=STARTING),
     RunPlan(Decision.TAKE_RESULT)),
    ("active and answers", situations(boot=YES, exit_=NONE, scope=YES, shim=YES, state=RUNNING),
     RunPlan(Decision.ADOPT)),
    ("at its gate and answers", situations(boot=YES, exit_=NONE, scope=YES, shim=YES, state=STARTING),
     RunPlan(Decision.ADOPT)),
    ("active, no answer", situations(boot=YES, exit_=NONE, scope=YES, shim=(False,), state=RUNNING),
     RunPlan(Decision.STOP_AND_LOSE, Reason.SUPERVISOR_DIED, Aftermath.FAIL)),
    ("gone, starting", situations(boot=YES, exit_=NONE, scope=(False,), shim=ANY, state=STARTING),
     RunPlan(Decision.REQUEUE)),
    ("gone, running", situations(boot=YES, exit_=NONE, scope=(False,), shim=ANY, state=RUNNING),
     RunPlan(Decision.LOSE, Reason.LOST, Aftermath.FAIL)),
    # What the design leaves open.
    ("exit record of another boot", situations(boot=(False,), exit_=ExitRecord.ENDED, scope=ANY, shim=ANY,
     state=RUNNING),
     RunPlan(Decision.TAKE_RESULT)),
    ("another boot, starting", situations(boot=(False,), exit_=NONE, scope=ANY, shim=ANY, state=STARTING),
     RunPlan(Decision.REQUEUE)),
    ("shim died at its gate", situations(boot=YES, exit_=NONE, scope=YES, shim=(False,), state=STARTING),
     RunPlan(Decision.STOP_AND_REQUEUE)),
    ("gate shut by the launcher", situations(boot=YES, exit_=ExitRecord.NEVER_STARTED, scope=(False,), shim=ANY,
     state=STARTING), RunPlan(Decision.REQUEUE)),
    ("gate shut, its shim not yet gone", situations(boot=YES, exit_=ExitRecord.NEVER_STARTED, scope=YES, shim=ANY,
     state=STARTING), RunPlan(Decision.STOP_AND_REQUEUE)),
    ("gate shut although the row says running", situations(boot=ANY, exit_=ExitRecord.NEVER_STARTED, scope=(False,),
     shim=ANY, state=RUNNING), RunPlan(Decision.REQUEUE)),
    ("the same, its shim not yet gone", situations(boot=YES, exit_=ExitRecord.NEVER_STARTED, scope=YES, shim=ANY,
     state=RUNNING), RunPlan(Decision.STOP_AND_REQUEUE)),
]  # fmt: skip


@pytest.mark.parametrize(("found", "plan"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_the_table(found: list[Situation], plan: RunPlan) -> None:
    assert found
    for situation in found:
        assert plan_run(situation) == plan


@pytest.mark.parametrize(
    ("recovery", "idempotent", "aftermath"),
    [
        (Recovery.RETRY, True, Aftermath.RETRY),
        (Recovery.RETRY, False, Aftermath.ASK),
        (Recovery.FAIL, True, Aftermath.FAIL),
        (Recovery.FAIL, False, Aftermath.FAIL),
        (Recovery.ASK, True, Aftermath.ASK),
        (Recovery.ASK, False, Aftermath.ASK),
    ],
)
@pytest.mark.parametrize("same_boot", ANY)
def test_the_capability_says_what_becomes_of_a_lost_run(
    *, recovery: Recovery, idempotent: bool, aftermath: Aftermath, same_boot: bool
) -> None:
    found = Situation(RUNNING, Status.WORKING, same_boot, NONE, False, False, recovery, idempotent)
    assert plan_run(found).aftermath is aftermath


ALL = [
    Situation(*values)
    for values in itertools.product(RunState, Status, ANY, ExitRecord, ANY, ANY, Recovery, ANY)
]  # fmt: skip


def test_what_holds_for_every_situation() -> None:
    assert len(ALL) == 3 * 8 * 2 * 3 * 2 * 2 * 3 * 2
    for found in ALL:
        plan = plan_run(found)
        lost = plan.decision in (Decision.LOSE, Decision.STOP_AND_LOSE)
        assert (plan.reason is not None) == lost
        assert (plan.aftermath is not None) == lost
        # A scope that lives is adopted or stopped, never left to itself; its own exit record ends it.
        if found.scope_active and found.same_boot and found.exit_record is NONE:
            assert plan.decision is Decision.ADOPT or plan.decision.stops_scope
        # What may have run is not run again unless that does no harm.
        again = plan.decision in (Decision.REQUEUE, Decision.STOP_AND_REQUEUE) or plan.aftermath is Aftermath.RETRY
        if again and not found.idempotent:
            assert found.run_state is STARTING or found.exit_record is ExitRecord.NEVER_STARTED
        # A result that exists is never thrown away, and a task that has ended is left alone.
        if found.exit_record is ExitRecord.ENDED and not found.task_status.is_final and found.run_state != "ended":
            assert plan.decision is Decision.TAKE_RESULT
        if found.task_status.is_final or found.run_state is RunState.ENDED:
            assert plan.decision in (Decision.NOTHING, Decision.CLOSE, Decision.STOP_AND_CLOSE)


def test_a_scope_with_no_row_is_stopped() -> None:
    listed = {"stray": True, "leftover": False, "open": True, "ended": True, "kept": False, "old": False}
    known = {"open": RUNNING, "ended": RunState.ENDED, "kept": RunState.ENDED, "old": RunState.ENDED}
    assert plan_orphans(listed, known, keep={"kept"}) == {
        "stray": OrphanAction.STOP_AND_REMOVE,
        "leftover": OrphanAction.REMOVE,
        "ended": OrphanAction.STOP,
        "old": OrphanAction.REMOVE,
    }
