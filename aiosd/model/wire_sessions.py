"""Parameters of the operations on sessions, messages, plans, task trees and feeds (seed 003). See `model.wire`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from aiosd.model.bounds import MAX_CONTENT
from aiosd.model.wire import (
    Capabilities,
    CapabilityId,
    ContextReference,
    Free,
    Identifier,
    LimitOptions,
    Line,
    Milliseconds,
    PriorityName,
    RetryOptions,
    TaskCreate,
    Text,
    Wire,
)

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonObject

Content = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$", min_length=1, max_length=MAX_CONTENT)]
RoleName = Literal["user", "assistant", "manager", "system", "worker"]
SessionStatusName = Literal["active", "closed", "archived"]
ExecutionModeName = Literal["independent", "collaborative", "research_only"]
RiskName = Literal["low", "medium", "high"]
FeedName = Literal["session_feed", "task_feed", "worker_feed"]
EventId = Annotated[str, Field(max_length=64)]
Cursor = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,18}$")]


_SHOWN: tuple[SessionStatusName, ...] = ("active", "closed")


class SessionCreate(Wire):
    """`aios/session.create`. `suppress_completion_signal`: as configured when absent."""

    title: Line = ""
    objective: Text | None = None
    metadata: Free = Field(default_factory=dict)
    suppress_completion_signal: bool | None = None


class SessionRef(Wire):
    """An operation on one session."""

    session_id: Identifier


class SessionList(Wire):
    """`aios/session.list`: one's own, newest first; archived ones when they are asked for."""

    status: Annotated[list[SessionStatusName], Field(max_length=3)] = Field(default_factory=lambda: [*_SHOWN])
    all_users: bool = False
    limit: Annotated[int, Field(ge=1, le=100)] = 50
    cursor: Cursor | None = None


class SessionUpdate(SessionRef):
    """`aios/session.update`."""

    title: Line | None = None
    suppress_completion_signal: bool | None = None


class SessionObjective(SessionRef):
    """`aios/session.update_objective`."""

    objective: Annotated[Text, Field(min_length=1)]
    reason: Line = ""


class SessionClose(SessionRef):
    """`aios/session.close`. `cancel_tasks`: end its unfinished tasks; without it they must have ended."""

    cancel_tasks: bool = False
    reason: Line = "session-closed"


class SessionTimeline(SessionRef):
    """`aios/session.timeline`: events after `last_event_id` (in `order`; from the beginning or the end without it)."""

    last_event_id: EventId | None = None
    order: Literal["asc", "desc"] = "asc"
    limit: Annotated[int, Field(ge=1, le=1000)] = 100


class ThreadCreate(SessionRef):
    """`aios/thread.create`."""

    title: Line = ""


class MessageList(SessionRef):
    """`aios/message.list`: oldest first."""

    thread_id: Identifier | None = None
    limit: Annotated[int, Field(ge=1, le=100)] = 50
    cursor: Cursor | None = None


class Workspace(Wire):
    """Where a worker is to work (seed 003)."""

    repo: Annotated[Line, Field(max_length=512)] = ""
    branch: Line = ""
    worktree_path: Annotated[Line, Field(max_length=1024)] = ""


class PlanTask(Wire):
    """A task to be made by a plan: without `capability_id` it stays in planning until a worker takes it, one that is
    capable of all that it `requires`; `workspace` tells the worker where.

    `ref`: a name for it in this request, by which the others of the request depend on it or are its children.
    """

    ref: Identifier | None = None
    title: Annotated[Line, Field(min_length=1)]
    kind: Line | None = None
    goal: Text | None = None
    constraints: Annotated[list[Line], Field(max_length=64)] = Field(default_factory=list)
    priority: PriorityName | None = None
    risk_level: RiskName | None = None
    capability_id: CapabilityId | None = None
    arguments: Free = Field(default_factory=dict)
    metadata: Free = Field(default_factory=dict)
    depends_on: Annotated[list[Identifier], Field(max_length=64)] = Field(default_factory=list)
    parent_task_id: Identifier | None = None
    execution_mode: ExecutionModeName | None = None
    shared_context_refs: Annotated[list[ContextReference], Field(max_length=32)] = Field(default_factory=list)
    handoff_expected: bool = False
    timeout_ms: Milliseconds | None = None
    retry: RetryOptions | None = None
    limits: LimitOptions | None = None
    requires: Capabilities = Field(default_factory=list)
    workspace: Workspace | None = None

    def request(self, session_id: str) -> TaskCreate:
        """As the request for a task that it is; one without a capability is none."""
        given = self.model_dump(exclude_none=True)
        chosen = {name: given[name] for name in _OPTIONS if name in given}
        return TaskCreate.model_validate(
            {
                "capability_id": self.capability_id, "arguments": self.arguments, "metadata": self.metadata,
                "options": {"async": True, "session_id": session_id, **chosen},
            }
        )  # fmt: skip


_OPTIONS = (
    "title", "kind", "goal", "constraints", "priority", "risk_level", "execution_mode", "shared_context_refs",
    "handoff_expected", "timeout_ms", "retry", "limits",
)  # fmt: skip


class PlanDiff(Wire):
    """Seed 003's `plan diff`."""

    change_reason: Line = ""
    cancel_tasks: Annotated[list[Identifier], Field(max_length=1000)] = Field(default_factory=list)
    pause_tasks: Annotated[list[Identifier], Field(max_length=1000)] = Field(default_factory=list)
    continue_tasks: Annotated[list[Identifier], Field(max_length=1000)] = Field(default_factory=list)
    create_tasks: Annotated[list[PlanTask], Field(max_length=256)] = Field(default_factory=list)


class MessageAdd(SessionRef):
    """`aios/message.add`. `objective_change`: the message says what is wanted from now on (`objective`, its content
    when absent); a diff of the plan is proposed with it: `diff`, or a cautious one."""

    thread_id: Identifier | None = None
    role: RoleName = "user"
    channel: Line = ""
    content: Content
    metadata: Free = Field(default_factory=dict)
    objective_change: bool = False
    objective: Annotated[Text, Field(min_length=1)] | None = None
    diff: PlanDiff | None = None

    @model_validator(mode="after")
    def _belongs(self) -> Self:
        if not self.objective_change and (self.objective is not None or self.diff is not None):
            raise ValueError("objective and diff belong to an objective_change")
        return self


class PlanCreate(SessionRef):
    """`aios/plan.create`."""

    objective: Text | None = None
    tasks: Annotated[list[PlanTask], Field(max_length=256)] = Field(default_factory=list)

    def as_diff(self) -> PlanDiff:
        """The diff that makes these tasks."""
        return PlanDiff(create_tasks=self.tasks)


class PlanGet(SessionRef):
    """`aios/plan.get`: the session's plan, a page of its tasks. `diffs`: also what was proposed and applied."""

    diffs: bool = False
    limit: Annotated[int, Field(ge=1, le=1000)] = 1000
    cursor: Cursor | None = None


class PlanPropose(SessionRef):
    """`aios/plan.propose_diff`. `version`: of the plan that it was made for."""

    version: Annotated[int, Field(ge=1)]
    diff: PlanDiff


class PlanApply(SessionRef):
    """`aios/plan.apply_diff`: a diff, or one proposed before, by its id."""

    version: Annotated[int, Field(ge=1)]
    diff: PlanDiff | None = None
    diff_id: Identifier | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.diff is None) == (self.diff_id is None):
            raise ValueError("give either diff or diff_id")
        return self

    @staticmethod
    def diff_of(body: JsonObject) -> PlanDiff:
        """A diff as it is stored."""
        return PlanDiff.model_validate(body)


class TaskTree(Wire):
    """`aios/task.tree`: a page of a task and all under it; `cursor`: of the page before."""

    task_id: Identifier
    limit: Annotated[int, Field(ge=1, le=1000)] = 1000
    cursor: Cursor | None = None


class SessionTree(SessionRef):
    """`aios/session.tree`: a page of a session's tasks as trees; `cursor`: of the page before."""

    limit: Annotated[int, Field(ge=1, le=1000)] = 1000
    cursor: Cursor | None = None


class FeedSubscribe(Wire):
    """`aios/feed.subscribe`. One id at most, that of the feed's own kind; `last_event_id`: first what was missed."""

    feed: FeedName
    id: Annotated[str, StringConstraints(pattern=r"^$|^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")] = ""
    all_users: bool = False
    last_event_id: EventId | None = None
    limit: Annotated[int, Field(ge=1, le=10_000)] = 10_000
