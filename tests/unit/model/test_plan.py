"""A diff is right as a whole or not at all. The properties are seed 003's; the judge is a simple model."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiosd.model.plan import Diff, Known, New, Outcome, PlanProblem, propose, resolve
from aiosd.model.status import FINAL, Status

IDS = [f"task-{number}" for number in range(6)]
REFS = ["a", "b", "c"]
STATUSES = st.sampled_from(list(Status))


@st.composite
def sessions(draw: st.DrawFn) -> dict[str, Known]:
    """A session's tasks as they can be: parents and dependencies are older."""
    known = {}
    for index, name in enumerate(IDS[: draw(st.integers(0, len(IDS)))]):
        older = st.sampled_from(IDS[:index]) if index else st.nothing()
        known[name] = Known(
            status=draw(STATUSES),
            parent=draw(st.one_of(st.none(), older)) if index else None,
            depends_on=tuple(draw(st.sets(older, max_size=2))) if index else (),
            can_pause=draw(st.booleans()),
            can_cancel=draw(st.sampled_from([True, True, True, False])),
            in_session=draw(st.sampled_from([True, True, True, True, False])),
        )
    return known


names = st.sampled_from([*IDS, "task-gone"])
some = st.lists(names, max_size=3).map(tuple)
news = st.builds(
    New,
    st.sampled_from(REFS),
    st.lists(st.sampled_from([*IDS, *REFS]), max_size=2, unique=True).map(tuple),
    st.one_of(st.none(), st.sampled_from([*IDS, *REFS])),
)
diffs = st.builds(Diff, some, some, some, st.lists(news, max_size=3).map(tuple))


def attempt(known: dict[str, Known], diff: Diff) -> Outcome | None:
    try:
        return resolve(known, diff)
    except PlanProblem as problem:
        assert problem.reason in {
            "conflict", "unknown-task", "final", "not-pausable", "not-cancelable", "broken-dependency", "cycle",
        }  # fmt: skip
        assert str(problem)
        return None


@settings(max_examples=200, deadline=None)
@given(sessions(), diffs)
def test_what_is_done_is_consistent(known: dict[str, Known], diff: Diff) -> None:
    outcome = attempt(known, diff)
    if outcome is None:
        return
    touched = [*outcome.cancel, *outcome.pause, *outcome.resume]
    assert len(touched) == len(set(touched)), "no task is both canceled and continued, or touched twice"
    assert all(known[one].status not in FINAL for one in touched), "terminal tasks are untouched"
    assert all(known[one].in_session for one in (*diff.cancel, *diff.pause, *diff.resume))
    assert set(diff.cancel) <= set(outcome.cancel), "all of the diff is done"
    assert (outcome.pause, outcome.resume) == (diff.pause, diff.resume)
    assert sorted(outcome.create) == sorted(new.ref for new in diff.create)
    for one, task in known.items():
        ended = task.status in FINAL
        if task.parent in outcome.cancel and not ended:
            assert one in outcome.cancel, "what is under a canceled task ends"
            assert outcome.cancel.index(one) < outcome.cancel.index(str(task.parent)), "and ends first"
    assert all(known[one].can_pause for one in outcome.pause)
    assert all(known[one].can_cancel for one in outcome.cancel)


@settings(max_examples=200, deadline=None)
@given(sessions(), diffs)
def test_afterwards_dependencies_are_acyclic_and_can_complete(known: dict[str, Known], diff: Diff) -> None:
    outcome = attempt(known, diff)
    if outcome is None:
        return
    made: set[str] = set()
    by_ref = {new.ref: new for new in diff.create}
    for ref in outcome.create:
        new = by_ref[ref]
        needs = (*new.depends_on, *([new.parent] if new.parent else []))
        assert all(need in made or need in known for need in needs), "each comes after what it needs: no circle"
        assert not {*new.depends_on} & {*outcome.cancel}
        for need in new.depends_on:
            assert need in made or known[need].status not in (Status.FAILED, Status.CANCELED)
        if new.parent in known:
            assert known[str(new.parent)].status not in FINAL
            assert new.parent not in outcome.cancel
        made.add(ref)
    for one in outcome.resume:
        assert not {*known[one].depends_on} & {*outcome.cancel}


@settings(max_examples=200, deadline=None)
@given(sessions(), diffs)
def test_the_order_in_which_tasks_are_found_decides_nothing(known: dict[str, Known], diff: Diff) -> None:
    one, other = attempt(known, diff), attempt(dict(reversed(known.items())), diff)
    assert (one is None) == (other is None)
    if one is not None and other is not None:
        assert sorted(one.cancel) == sorted(other.cancel)
        assert (one.pause, one.resume, one.create) == (other.pause, other.resume, other.create)


@settings(max_examples=200, deadline=None)
@given(sessions())
def test_a_cautious_proposal_can_be_applied_and_ends_nothing(known: dict[str, Known]) -> None:
    mine = {
        one: task for one, task in known.items()
        if task.in_session and not any(
            known[need].status in (Status.FAILED, Status.CANCELED) for need in task.depends_on
        )
    }  # fmt: skip
    diff = propose(mine)
    assert diff.cancel == ()
    assert diff.create == ()
    assert {*diff.pause, *diff.resume} == {one for one, task in mine.items() if task.status not in FINAL}
    resolve(known, diff)


WORKING = Known(Status.WORKING)


@pytest.mark.parametrize(
    ("diff", "field", "reason"),
    [
        (Diff(cancel=("t1",), resume=("t1",)), "continue_tasks[0]", "conflict"),
        (Diff(pause=("t1", "t1")), "pause_tasks[1]", "conflict"),
        (Diff(cancel=("done",)), "cancel_tasks[0]", "final"),
        (Diff(pause=("gone",)), "pause_tasks[0]", "unknown-task"),
        (Diff(cancel=("elsewhere",)), "cancel_tasks[0]", "unknown-task"),
        (Diff(cancel=("t1",), pause=("child",)), "pause_tasks[0]", "conflict"),
        (Diff(cancel=("t1",), resume=("child",)), "continue_tasks[0]", "conflict"),
        (Diff(cancel=("t1",), resume=("after",)), "continue_tasks[0]", "broken-dependency"),
        (Diff(pause=("stubborn",)), "pause_tasks[0]", "not-pausable"),
        (Diff(cancel=("stubborn",)), "cancel_tasks", "not-cancelable"),
        (Diff(create=(New("a"), New("a"))), "create_tasks[0].ref", "conflict"),
        (Diff(create=(New("t1"),)), "create_tasks[0].ref", "conflict"),
        (Diff(create=(New("a", ("b",)), New("b", ("a",)))), "create_tasks", "cycle"),
        (Diff(create=(New("a", (), "b"), New("b", (), "a"))), "create_tasks", "cycle"),
        (Diff(create=(New("a", ("gone",)),)), "create_tasks[0].depends_on[0]", "unknown-task"),
        (Diff(cancel=("t1",), create=(New("a", ("t1",)),)), "create_tasks[0].depends_on", "broken-dependency"),
        (Diff(cancel=("t1",), create=(New("a", (), "child"),)), "create_tasks[0].parent_task_id", "final"),
        (Diff(create=(New("a", (), "done"),)), "create_tasks[0].parent_task_id", "final"),
        (Diff(create=(New("a", ("elsewhere",)),)), "create_tasks[0].depends_on[0]", "unknown-task"),
        (Diff(create=(New("a", (), "elsewhere"),)), "create_tasks[0].parent_task_id", "unknown-task"),
    ],
)  # fmt: skip
def test_each_contradiction_is_named_by_its_place(diff: Diff, field: str, reason: str) -> None:
    known = {
        "t1": WORKING,
        "child": Known(Status.PENDING, parent="t1"),
        "after": Known(Status.PENDING, depends_on=("t1",)),
        "done": Known(Status.COMPLETED),
        "stubborn": Known(Status.WORKING, can_pause=False, can_cancel=False),
        "elsewhere": Known(Status.WORKING, in_session=False),
    }
    with pytest.raises(PlanProblem) as refused:
        resolve(known, diff)
    assert (refused.value.field, refused.value.reason) == (field, reason)


def test_seed_003s_own_diff() -> None:
    known = {"task_cache_001": Known(Status.PENDING), "task_ui_003": WORKING, "task_api_002": WORKING}
    diff = Diff(("task_cache_001",), ("task_ui_003",), ("task_api_002",), (New("#0"),))
    assert resolve(known, diff) == Outcome(("task_cache_001",), ("task_ui_003",), ("task_api_002",), ("#0",))
