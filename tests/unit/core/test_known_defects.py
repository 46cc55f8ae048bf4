"""What users of comparable programs live with, and the test that shows that we do not.

The rows are defects that were met in other schedulers, task runners and D-Bus libraries when they were tried (their
names are left out: it is the defect that counts). A few have their test here; the others are where their subject is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aiosd.config import settings
from aiosd.model.status import Status
from tests.unit import pointing
from tests.unit.core.rig import OPEN, PLAIN, Config, ErrorKind, core, manifest, play
from tests.unit.core.session_rig import rows

if TYPE_CHECKING:
    from pathlib import Path

    from aiosd.model.jsontext import JsonObject, JsonValue

HERE = "unit/core/test_known_defects"

SCHEDULERS = {
    "priority and first come, first served are ignored": (
        "unit/core/test_scheduling::test_priority_first_then_the_older",
        "system/test_control::test_priorities_and_first_come_first_served",
    ),
    "a limit of 0 tasks is taken and nothing ever starts": (
        f"{HERE}::test_a_limit_under_which_nothing_runs_is_refused",
    ),
    "a program that ends without a final chunk leaves its task working for ever": (
        "unit/core/test_life::test_a_task_that_exits_with_zero_completes",
        "unit/core/test_life::test_ends_that_are_failures",
    ),
    "a program that never says anything is waited for": (
        "unit/core/test_first_frame::test_one_that_says_nothing_is_stopped_and_the_task_says_why",
    ),
    "stopping leaves tasks working that nobody works on": (
        "system/test_faults::test_stopped_tasks_run_on_or_are_taken_along",
        "unit/core/test_recovery::test_a_run_that_lives_is_adopted_with_all_that_it_wrote",
    ),
    "stopping waits without bound": ("unit/core/test_settings_in_use::test_a_stop_is_bounded_whatever_hangs",),
    "time limits under ten minutes are refused": (
        "unit/core/test_life::test_a_time_limit_ends_it_with_the_data_of_seed_000",
        "system/test_control::test_timeout",
    ),
    "a completed task can be set to work again": ("unit/model/test_machine::test_nothing_leaves_a_final_state",),
    "a paused task, or one that asks something, cannot be canceled": (
        "unit/core/test_control::test_canceling_a_frozen_task_thaws_it_first_and_kills_it_when_that_fails",
        "unit/core/test_control::test_canceling_a_task_that_waits_for_an_answer",
    ),
    "children outlive their canceled parent": (
        "unit/core/test_task_tree::test_a_parents_cancel_ends_all_under_it",
        "unit/core/test_task_tree::test_running_children_are_told_to_end_with_their_parent",
    ),
    "filters of a list add up instead of narrowing it": (
        f"{HERE}::test_filters_narrow_each_other", "unit/store/test_pages::test_every_filter_chooses",
    ),
    "a circle of parents brings it down": (
        f"{HERE}::test_no_task_can_come_to_be_above_itself",
        "unit/model/test_tree::test_what_is_below_has_the_root_among_its_ancestors",
        "unit/model/test_tree::test_preorder_shows_each_row_once_after_its_parent",
    ),
    "the cost of a task grows with all tasks there are": (
        "unit/core/test_scheduling::test_a_hundred_waiting_tasks_cost_little",
        "unit/store/test_sessions_scale::test_it_costs_the_same_with_more_behind_it",
        "unit/core/test_plans::test_a_diff_costs_the_same_with_any_number_of_finished_tasks",
        "unit/core/test_task_tree::test_what_is_unfinished_below_is_found_past_any_number_of_finished_ones",
    ),
}  # fmt: skip
"""Of other schedulers with tasks, chunks and sessions."""

RUNNERS = {
    "what was queued is lost when the manager is killed": (
        "system/test_restart::test_the_queue_survives",
        "unit/store/test_database::test_what_was_answered_survives_a_kill",
    ),
    "what was running is an orphan, or has no result, or is marked killed while it goes on": (
        "system/test_restart::test_tasks_run_on",
        "system/test_restart::test_tasks_end_while_the_daemon_is_away",
        "system/test_faults::test_killed_at_random_under_load",
    ),
    "rows stay frozen after a crash": ("unit/reliability/test_crash::test_death_at_each_commit",),
    "a task runs twice after a crash": ("system/test_restart::test_a_task_that_was_promised_runs_once",),
    "waiting says success when the program was killed by a signal": (
        "unit/core/test_life::test_ends_that_are_failures", "unit/cli/test_verbs::test_exits_with_the_tasks_status",
    ),
    "what has ended well is gone before it can be asked about": (
        "unit/core/test_retention::test_a_task_past_its_age_goes_with_all_that_hangs_on_it",
    ),
}  # fmt: skip
"""Of task runners and job queues."""

BUS_LIBRARIES = {
    "odd signatures fill memory before any permission is checked": (
        "bus/test_strangers::test_odd_signatures_do_not_fill_memory",
    ),
    "callers are sent tracebacks": ("bus/test_door::test_an_unexpected_failure_is_logged_and_not_told",),
    "a full socket ends the connection to the bus": (
        "bus/test_writer::test_a_thousand_signals_and_large_replies_survive_a_stopped_bus",
    ),
    "descriptors of calls that nobody handles stay open": (
        "bus/test_door::test_descriptors_that_strangers_send_are_closed",
    ),
    "a name is queued for instead of refused": ("bus/test_door::test_the_name_is_owned_by_one_process_only",),
    "the end of the bus goes unnoticed": (
        "bus/test_door::test_the_end_of_the_bus_is_noticed", "system/test_faults::test_the_bus_goes_and_comes_back",
    ),
    "one caller can have any number of calls worked on": ("bus/test_door::test_one_connection_cannot_take_all_places",),
    "everybody can read what a signal tells": ("bus/test_signals::test_broadcasts_carry_ids_uid_and_state_only",),
}  # fmt: skip
"""Of D-Bus libraries, and of the bus itself."""


def test_every_defect_has_the_test_that_shows_its_absence() -> None:
    assert pointing.missing({**SCHEDULERS, **RUNNERS, **BUS_LIBRARIES}) == []


def test_a_limit_under_which_nothing_runs_is_refused() -> None:
    kinds = {row.name: row.kind for row in settings()}
    for name in ("max_concurrent_tasks", "max_tasks_per_tool", "max_queue_size"):
        with pytest.raises(ValueError, match="must be from 1 to"):
            kinds[name].parse("0")


def test_filters_narrow_each_other(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path, config=Config(schedule_interval=30.0)) as aios:
            await aios.install("test.other.run", manifest("test.other.run", OPEN))
            done = await aios.create(PLAIN, metadata={"tags": ["red"]})
            await aios.ended(done)
            other = await aios.create("test.other.run", metadata={"tags": ["red"]})
            await aios.ended(other)
            later = "2100-01-05T10:00:00Z"
            waits = await aios.create(PLAIN, not_before=later, metadata={"tags": ["red"]})

            async def found(**filters: JsonValue) -> set[str]:
                asked: JsonObject = {"filter": filters}
                return {str(row["task_id"]) for row in rows(await aios.invoke("task.list", asked), "tasks")}

            everything = {done, other, waits}
            assert await found() == everything
            assert await found(capability_id=PLAIN) == {done, waits}
            assert await found(status=["completed"]) == {done, other}
            assert await found(capability_id=PLAIN, status=["completed"]) == {done}
            assert await found(capability_id=PLAIN, status=["failed"]) == set()

    play(scenario())


def test_no_task_can_come_to_be_above_itself(tmp_path: Path) -> None:
    """A parent is there before its children and is never changed but upwards, when it is removed."""

    async def scenario() -> None:
        async with core(tmp_path, schedule=False) as aios:
            top = await aios.create()
            under = await aios.create(parent_task_id=top)
            itself: JsonObject = {"async": True, "parent_task_id": "task-u1000-me", "handle_token": "me"}
            circle: JsonObject = {"capability_id": PLAIN, "options": itself}
            refused = await aios.refused("task.create", circle)
            assert refused.kind in (ErrorKind.TASK_NOT_FOUND, ErrorKind.INVALID_PARAMS)
            shown = await aios.invoke("task.tree", {"task_id": top})
            assert [(row["task_id"], row["depth"]) for row in rows(shown, "tasks")] == [(top, 0), (under, 1)]
            await aios.invoke("task.cancel", {"task_id": top})
            assert (await aios.task(under)).status is Status.CANCELED

    play(scenario())
