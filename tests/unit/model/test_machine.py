"""The transition table against seed 000's, typed out pair by pair."""

from __future__ import annotations

import itertools
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiosd.model.machine import IllegalTransition, default_phase, may, transition
from aiosd.model.status import A2A, FINAL, PHASES, Actor, Phase, Status

if TYPE_CHECKING:
    from collections.abc import Iterator

# Seed 000, "可转换到" (may become), row by row, as written there.
SEED = {
    "pending": "working, failed, canceled",
    "working": "completed, failed, paused, input_required, auth_required, canceled",
    "paused": "working, canceled",
    "input_required": "working, canceled",
    "auth_required": "working, canceled",
    "completed": "",
    "failed": "",
    "canceled": "",
}
# Design, decisions: for the system only.
SYSTEM_ONLY = {("paused", "failed"), ("input_required", "failed"), ("auth_required", "failed")}
# Seed 003's states by the status that holds them, and openJiuwen's retry (design: protocol, the table of phases).
PHASE_TABLE = {
    "pending": "planning waiting queued assigned",
    "working": "running retry_wait",
    "paused": "paused",
    "input_required": "waiting_input blocked",
    "auth_required": "waiting_auth waiting_approval",
    "completed": "completed",
    "failed": "failed",
    "canceled": "canceled",
}

# Seed 000, "A2A对应".
A2A_STATES = {
    "pending": "submitted",
    "working": "working",
    "paused": "",
    "input_required": "input-required",
    "auth_required": "auth-required",
    "completed": "completed",
    "failed": "failed",
    "canceled": "canceled",
}
PAGE = Path(__file__).parents[3] / "docs/protocol.md"

PAIRS = list(itertools.product(Status, Status))


def test_there_are_the_eight_states_of_the_seed() -> None:
    assert {status.value for status in Status} == set(SEED)
    assert len(PAIRS) == 64


def test_their_names_in_a2a_are_the_seeds() -> None:
    assert {status.value: name for status, name in A2A.items()} | {"paused": ""} == A2A_STATES


def test_the_page_has_the_same_tables() -> None:
    section = PAGE.read_text("utf-8").partition("\n## States\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| `")][1:]
    told = {cells[0].strip(" `"): [cell.strip(" `\u2013").replace("`", "") for cell in cells] for cells in rows}
    assert {status: cells[2] for status, cells in told.items()} == SEED
    assert {status: cells[3].replace(",", "") for status, cells in told.items()} == PHASE_TABLE
    assert {status: cells[4] for status, cells in told.items()} == A2A_STATES


@pytest.mark.parametrize(("old", "new"), PAIRS, ids=lambda status: str(status))
def test_a_user_may_what_the_seed_lists_and_nothing_else(old: Status, new: Status) -> None:
    legal = new.value in SEED[old.value].split(", ")
    assert may(old, new) is legal
    if legal:
        assert transition(old, new) == (new, default_phase(new))
    else:
        with pytest.raises(IllegalTransition, match=f"a task that is {old} cannot become {new}"):
            transition(old, new)


@pytest.mark.parametrize(("old", "new"), PAIRS, ids=lambda status: str(status))
def test_the_system_may_three_edges_more(old: Status, new: Status) -> None:
    legal = new.value in SEED[old.value].split(", ") or (old.value, new.value) in SYSTEM_ONLY
    assert may(old, new, Actor.SYSTEM) is legal


@pytest.mark.parametrize("old", sorted(FINAL))
@pytest.mark.parametrize("actor", list(Actor))
def test_nothing_leaves_a_final_state(old: Status, actor: Actor) -> None:
    assert not any(may(old, new, actor) for new in Status)


@pytest.mark.parametrize("status", list(Status))
def test_phases_are_those_of_the_design(status: Status) -> None:
    assert {phase.value for phase in PHASES[status]} == set(PHASE_TABLE[status.value].split())
    assert default_phase(status) in PHASES[status]


@pytest.mark.parametrize("phase", list(Phase))
def test_a_phase_belongs_to_one_status_only(phase: Phase) -> None:
    assert len([status for status in Status if phase in PHASES[status]]) == 1


@pytest.mark.parametrize("phase", list(Phase))
def test_a_transition_takes_only_phases_of_the_new_status(phase: Phase) -> None:
    if phase.value in PHASE_TABLE["input_required"].split():
        assert transition(Status.WORKING, Status.INPUT_REQUIRED, phase) == (Status.INPUT_REQUIRED, phase)
    else:
        with pytest.raises(ValueError, match="is not a phase of"):
            transition(Status.WORKING, Status.INPUT_REQUIRED, phase)


@given(st.lists(st.tuples(st.sampled_from(list(Status)), st.sampled_from(list(Actor))), max_size=30))
def test_whatever_is_tried_a_task_ends_once(attempts: list[tuple[Status, Actor]]) -> None:
    status, ends = Status.PENDING, 0
    for new, actor in attempts:
        if may(status, new, actor):
            assert not status.is_final
            status, _ = transition(status, new, actor=actor)
            ends += status.is_final
    assert ends <= 1


def test_the_refusal_passes_through_context_managers() -> None:
    @contextmanager
    def anything() -> Iterator[None]:
        yield

    # contextlib sets __traceback__ on what passes, which a frozen dataclass would answer with another exception.
    with pytest.raises(IllegalTransition), anything():
        transition(Status.COMPLETED, Status.WORKING)
