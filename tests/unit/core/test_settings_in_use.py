"""Every setting of aiosd.conf(5) makes a difference: something reads it, and a test shows what it does.

A row of `EFFECTS` names the test. Those that have no better place are here.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING

import pytest

from aiosd.app import Daemon
from aiosd.config import Config, settings
from aiosd.config.kinds import AlwaysYes
from aiosd.core import clock
from aiosd.ending import LATE
from tests.unit import pointing
from tests.unit.core.rig import PLAIN, core, play

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCES = pointing.ROOT / "aiosd"
HOLDERS = {"current", "config"}
"""What the configuration in force is called where it is used."""

HERE = "unit/core/test_settings_in_use"
EFFECTS = {
    "max_concurrent_tasks": ("unit/core/test_scheduling::test_limits_of_the_machine_of_a_tool_and_of_a_manifest",),
    "max_tasks_per_tool": ("unit/core/test_scheduling::test_limits_of_the_machine_of_a_tool_and_of_a_manifest",),
    "max_queue_size": ("unit/core/test_creation::test_the_queue_has_an_end",),
    "schedule_interval": ("unit/core/test_scheduler_contract::test_the_safety_scan_finds_what_nobody_woke_it_for",),
    "task_timeout": (f"{HERE}::test_a_task_that_says_nothing_has_what_is_configured",),
    "memory_pressure": ("unit/core/test_pressure::test_memory_comes_before_cpu_and_no_limit_is_none",),
    "cpu_pressure": ("unit/core/test_pressure::test_memory_comes_before_cpu_and_no_limit_is_none",),
    "default_task_priority": (f"{HERE}::test_a_task_that_says_nothing_has_what_is_configured",),
    "suppress_completion_signal": ("unit/core/test_sessions::test_a_suppressed_signal_comes_when_that_is_taken_back",),
    "event_queue_size": (
        f"{HERE}::test_the_doors_allow_what_is_configured_now",
        "rpc/test_lines::test_a_client_that_does_not_read_is_told_of_the_gap_or_left",
    ),
    "event_timeout": (
        f"{HERE}::test_the_doors_allow_what_is_configured_now",
        "rpc/test_lines::test_a_client_that_does_not_read_is_told_of_the_gap_or_left",
        "rpc/test_streams::test_nobody_waits_for_a_reader_that_reads_nothing",
    ),
    "stream_first_frame_timeout": (
        "unit/core/test_first_frame::test_one_that_says_nothing_is_stopped_and_the_task_says_why",
    ),
    "stop_timeout": (f"{HERE}::test_a_stop_is_bounded_whatever_hangs",),
    "stop_tasks_on_stop": ("system/test_faults::test_stopped_tasks_run_on_or_are_taken_along",),
    "enable_task_persistence": (f"{HERE}::test_what_cannot_be_turned_off_is_refused",),
    "retention_days": ("unit/core/test_retention::test_a_task_past_its_age_goes_with_all_that_hangs_on_it",),
    "retention_tasks": ("unit/core/test_retention::test_beyond_the_number_kept_the_ones_that_ended_first_go",),
    "audit_retention_days": (f"{HERE}::test_audit_records_are_kept_as_long_as_configured",),
    "log_max_bytes": (f"{HERE}::test_a_run_is_started_with_the_log_that_it_may_have",),
    "artifact_max_bytes": (
        "unit/core/test_artifact_intake::test_what_is_too_much_is_refused_and_said_and_the_task_runs_on",
    ),
    "artifact_quota_bytes": (
        "unit/core/test_artifact_intake::test_what_is_too_much_is_refused_and_said_and_the_task_runs_on",
    ),
    "session_quota_bytes": ("unit/core/test_session_quota::test_whatever_fills_it_meets_an_end",),
    "calls_per_second": ("unit/core/test_rates::test_a_burst_then_so_many_a_second",),
    "calls_burst": ("unit/core/test_rates::test_a_burst_then_so_many_a_second",),
    "creates_per_second": ("unit/core/test_rates::test_creations_have_a_limit_of_their_own_and_root_none",),
    "creates_burst": ("unit/core/test_rates::test_creations_have_a_limit_of_their_own_and_root_none",),
    "max_calls_per_sender": (
        f"{HERE}::test_the_doors_allow_what_is_configured_now",
        "bus/test_door::test_one_connection_cannot_take_all_places",
        "rpc/test_lines::test_no_more_is_read_than_is_worked_on",
    ),
    "max_queued_per_user": ("unit/core/test_creation::test_the_queue_has_an_end",),
    "max_subscriptions_per_user": (
        f"{HERE}::test_the_doors_allow_what_is_configured_now",
        "rpc/test_streams::test_a_user_has_so_many_subscriptions",
    ),
    "max_webhooks_per_user": ("unit/core/test_webhook_operations::test_a_user_has_so_many_and_no_more",),
    "allow_private_addresses": ("unit/hooks/test_delivery::test_nothing_is_connected_to_on_this_machine",),
    "delivery_timeout": (
        "unit/hooks/test_delivery::test_failures_of_every_kind_are_tried_again_in_order_and_one_at_a_time",
    ),
    "first_use_low": ("unit/core/test_consent::test_how_long_a_first_consent_is_kept_is_configured",),
    "first_use_medium": ("unit/core/test_consent::test_how_long_a_first_consent_is_kept_is_configured",),
    "grant_medium_ahead": ("unit/core/test_consent::test_medium_ahead_where_it_is_configured",),
    "approval_timeout": ("unit/core/test_approval::test_an_approval_ends_with_its_time_and_its_task",),
    "auth_timeout": ("unit/core/test_consent::test_a_deferred_task_ends_at_its_time_limit",),
    "worker_lease": (
        "unit/core/test_workers::test_a_silent_worker_loses_its_task_and_its_late_reports_are_refused",
    ),
    "max_workers_per_user": (
        "unit/core/test_workers::test_registering_needs_its_action_and_a_user_may_have_so_many",
    ),
    "max_unauthorized_per_user": ("unit/core/test_consent::test_a_user_s_waiting_tasks_are_bounded",),
}  # fmt: skip


def _read() -> Iterator[str]:
    """Names that the source reads from the configuration in force."""
    for path in SOURCES.rglob("*.py"):
        if path.parent.name == "config":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Load):
                continue
            of = node.value
            if (isinstance(of, ast.Attribute) and of.attr in HOLDERS) or (
                isinstance(of, ast.Name) and of.id in HOLDERS
            ):
                yield node.attr


def test_every_setting_is_read_by_somebody() -> None:
    read = set(_read())
    for name, made in vars(Config).items():  # what the configuration makes of several settings
        if name in read and isinstance(made, property) and isinstance(made.fget, FunctionType):
            read |= set(made.fget.__code__.co_names)
    idle = {row.name for row in settings() if not isinstance(row.kind, AlwaysYes)} - read
    assert not idle, "settings that nobody reads"


def test_every_setting_has_a_test_of_what_it_does() -> None:
    assert {row.name for row in settings()} == EFFECTS.keys()
    assert pointing.missing(EFFECTS) == []


def test_what_cannot_be_turned_off_is_refused() -> None:
    (row,) = [row for row in settings() if row.name == "enable_task_persistence"]
    assert row.kind.parse("yes") is True
    with pytest.raises(ValueError, match="every task is stored"):
        row.kind.parse("no")


def test_a_task_that_says_nothing_has_what_is_configured(tmp_path: Path) -> None:
    async def scenario() -> None:
        config = Config(schedule_interval=30.0, task_timeout=90.0, default_task_priority=2)
        async with core(tmp_path, config=config, schedule=False) as aios:
            task = await aios.task(await aios.create())
            assert (task.timeout_ms, task.priority.wire) == (90_000, "high")
            asked = await aios.task(await aios.create(timeout_ms=1000, priority="low"))
            assert (asked.timeout_ms, asked.priority.wire) == (1000, "low")

    play(scenario())


def test_a_run_is_started_with_the_log_that_it_may_have(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path, config=Config(schedule_interval=30.0, log_max_bytes=5000)) as aios:
            task = await aios.create(PLAIN)
            await aios.ended(task)
            assert aios.launcher.made(task)[0].request.log_max_bytes == 5000

    play(scenario())


def test_audit_records_are_kept_as_long_as_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with core(tmp_path, config=Config(schedule_interval=30.0, audit_retention_days=7)) as aios:
            await aios.ended(await aios.create())
            before = await aios.count("audit")
            assert before > 1
            trail = aios.services.ground.trail
            late = clock.now() + 8 * 86_400 * clock.MICROSECONDS
            monkeypatch.setattr("aiosd.core.clock.now", lambda: late)
            looking = asyncio.create_task(trail.run(aios.settings))
            async with asyncio.timeout(30):
                while await aios.count("audit") >= before:  # noqa: ASYNC110  nothing tells that it was cut
                    await asyncio.sleep(0.01)
            looking.cancel()

    play(scenario())


def _daemon(config: Config) -> Daemon:
    nowhere = Path("/nonexistent")
    made = Daemon(argparse.Namespace(state=nowhere, launcher_state=nowhere, launcher_socket=nowhere, capabilities=None))
    made._settings.current = config
    return made


def test_the_doors_allow_what_is_configured_now() -> None:
    made = _daemon(
        Config(event_queue_size=200, event_timeout=120.0, max_calls_per_sender=7, max_subscriptions_per_user=9)
    )
    allowed, limits = made._allowance(), made._bus_limits()
    assert (allowed.events, allowed.event_timeout, allowed.calls_per_connection) == (200, 120.0, 7)
    assert (limits.per_peer, limits.subscriptions_per_peer) == (7, 9)
    made._settings.current = replace(made._settings.current, max_calls_per_sender=8)
    assert (made._allowance().calls_per_connection, made._bus_limits().per_peer) == (8, 8), "a reload counts"


def test_a_stop_is_bounded_whatever_hangs() -> None:
    hangs = "from aiosd.ending import end_within; end_within(0.1)\nwhile True: pass"
    done = subprocess.run(
        [sys.executable, "-c", hangs], cwd=pointing.ROOT, timeout=60, capture_output=True, check=False
    )
    assert done.returncode == LATE
    assert b"took longer than 0.1 s" in done.stderr
