"""Names and numbers of the documents that no other test types out: they are contracts, and final.

Seed 000 is the AIOS protocol, seed 002 the scheduler, seed 003 the control plane. States, errors, settings, levels,
polkit's actions, seed 003's event types and requests have tables of their own (test_machine, test_errors, test_config,
test_manifest_levels, test_policy_file, test_event_types, test_seed).
"""

from __future__ import annotations

import pytest

from aiosd.auth import ceiling
from aiosd.bus import paths, signals
from aiosd.core import artifacts, authentication, operations, timeline
from aiosd.errors import DBUS_PREFIX
from aiosd.model import wire, wire_sessions, wire_workers
from aiosd.model.approval import ApprovalAction
from aiosd.model.event import Kind, Source
from aiosd.model.grant import Scope
from aiosd.model.ids import Prefix
from aiosd.model.session import SessionStatus
from aiosd.model.status import Level, Priority
from aiosd.model.subscription import Feed
from aiosd.model.worker import WorkerStatus
from aiosd.rpc.methods import METHODS
from aiosd.run.chunks import ChunkType

SEED_000_METHODS = """
aios/task.create aios/task.get aios/task.list aios/task.cancel aios/task.pause aios/task.resume aios/task.input
aios/task.authenticate aios/task.subscribe aios/task.unsubscribe aios/task.resubscribe aios/task.subscribe_webhook
aios/task.unsubscribe_webhook aios/task.history aios/artifact.get aios/artifact.list
"""
DESIGN_METHODS = """
aios/initialize aios/initialized aios/shutdown aios/capability.list aios/capability.get
aios/session.create aios/session.get aios/session.list aios/session.close aios/session.update_objective
aios/message.add aios/message.list aios/plan.create aios/plan.get aios/plan.apply_diff
aios/approval.list aios/approval.get aios/approval.respond
aios/worker.register aios/worker.heartbeat aios/worker.list aios/worker.accept aios/worker.reject aios/worker.report
aios/feed.subscribe aios/task.retry aios/task.logs aios/task.tree aios/audit.query
aios/permission.request aios/permission.list aios/permission.revoke
"""


def test_the_methods() -> None:
    assert len(SEED_000_METHODS.split()) == 16
    assert set(SEED_000_METHODS.split()) <= METHODS.keys()
    assert set(DESIGN_METHODS.split()) <= METHODS.keys()


@pytest.mark.parametrize(
    ("found", "document"),
    [
        # Seed 000: events, priorities, kinds of authentication, parts of an artifact.
        ([kind.value.removeprefix("task.") for kind in Kind if kind is not Kind.TIMELINE],
         "status progress artifact input_required auth_required log result error"),
        ([priority.wire for priority in Priority], "low normal high urgent"),
        ([kind.value for kind in authentication.AuthType], "oauth2 api_key password certificate"),
        (artifacts.PART_TYPES, "text data file image audio video"),
        # Seed 003: sources, answers to an approval, feeds.
        ([source.value for source in Source], "user manager system worker"),
        ([action.value for action in ApprovalAction], "approve reject approve_once approve_for_session"),
        ([feed.value for feed in Feed if feed is not Feed.TASK], "session_feed task_feed worker_feed"),
        # The design's levels, and scopes of grants.
        ([level.wire for level in Level], "public low medium high critical"),
        ([scope.value for scope in Scope], "once task session timed persistent"),
    ],
    ids=["events", "priorities", "authentications", "parts", "sources", "answers", "feeds", "levels", "scopes"],
)  # fmt: skip
def test_the_words(found: list[str], document: str) -> None:
    assert list(found) == document.split()


def test_words_that_are_among_others() -> None:
    # Seed 002's payload types; the fifth is the session's.
    assert {"task_completion", "task_interaction", "task_failed", "processing"} <= {kind.value for kind in ChunkType}
    assert timeline.ALL_TASKS_PROCESSED == "all_tasks_processed"
    # Seed 003's session, worker and modes.
    assert "active" in [status.value for status in SessionStatus]
    assert "idle" in [status.value for status in WorkerStatus]
    for mode in ("independent", "collaborative", "research_only"):
        assert wire_sessions.PlanTask.model_validate({"title": "t", "execution_mode": mode}).execution_mode == mode
    # The design's prefixes of ids.
    prefixes = {"task", "art", "evt", "sub", "ps", "msg", "apr", "wa", "plan"}
    assert prefixes <= {prefix.value for prefix in Prefix}
    assert str(ceiling.MAIN) == "/etc/aios/permission-policy.toml"


def test_the_names_on_the_bus() -> None:
    assert (paths.BUS_NAME, paths.MANAGER_PATH) == ("org.aios.TaskManager", "/org/aios/TaskManager")
    assert paths.task_path("task-1") == "/org/aios/TaskManager/task/task_1"
    interfaces = {row.bus.interface for row in operations.OPERATIONS.values() if row.bus is not None}
    names = ("", ".Task", ".Session", ".Approval", ".Worker")
    assert interfaces == {f"org.aios.TaskManager1{name}" for name in names}
    assert DBUS_PREFIX == "org.aios.TaskManager.Error."


def test_the_numbers() -> None:
    # Seed 000's webhook and its request for history; the design's page; at most four progress signals a second.
    policy = wire.WebhookRetryPolicy()
    assert (policy.max_retries, policy.retry_delay_ms) == (3, 1000)
    assert wire.Pagination().limit == 50
    assert wire.Pagination(limit=100).limit == 100
    assert signals.PROGRESS_INTERVAL == 0.25


def test_the_control_planes_own_messages_are_taken_as_they_stand() -> None:
    """Seed 003's registration, heartbeat, diff of a plan, and what a worker says of its progress."""
    registered = wire_workers.WorkerRegister.model_validate({
        "worker_id": "worker_mac_001", "hostname": "mac-studio", "os": "macos", "shell": "zsh",
        "capabilities": ["git", "terminal", "playwright", "xcode"],
    })  # fmt: skip
    assert (registered.worker_id, len(registered.capabilities)) == ("worker_mac_001", 4)
    beat = {"worker_id": "worker_mac_001", "status": "idle", "current_task_id": None, "load": 0.25,
            "timestamp": "2026-03-23T12:15:00Z"}  # fmt: skip
    assert wire_workers.WorkerHeartbeat.model_validate({**beat, "registration": "r1"}).load == 0.25
    diff = wire_sessions.PlanDiff.model_validate({
        "session_id": "ps_001", "change_reason": "用户要求先修接口重试",
        "cancel_tasks": ["task_cache_001"], "pause_tasks": ["task_ui_003"], "continue_tasks": ["task_api_002"],
        "create_tasks": [{"title": "修复接口重试逻辑", "kind": "implementation", "priority": "high"}],
    })  # fmt: skip
    assert (diff.create_tasks[0].kind, diff.create_tasks[0].priority) == ("implementation", "high")
    said = {"task_id": "task_102", "summary": "已定位", "progress_percent": 60, "current_step": "analyze_retry_logic",
            "next_step": "补充最小修复方案并跑测试", "risk": "medium"}  # fmt: skip
    assert wire_workers.Summary.model_validate(said).current_step == "analyze_retry_logic"
    asked = wire_sessions.Workspace.model_validate({
        "repo": "git@github.com:org/repo.git", "branch": "boss/task-102", "worktree_path": "/workers/worktrees/task-102"
    })  # fmt: skip
    assert asked.branch == "boss/task-102"
