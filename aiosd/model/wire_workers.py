"""Parameters of the operations of workers (seed 003). See `model.wire`; every text and list has its bound here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from aiosd.model.wire import Capabilities, Free, Identifier, Line, Milliseconds, Text, Wire

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonValue
else:
    from pydantic import JsonValue

MAX_WAIT_MS = 20_000
"""Longest that a heartbeat waits for news; a D-Bus call has 25 seconds."""

WorkerStatusName = Literal["idle", "busy", "draining"]
RiskWord = Literal["low", "medium", "high", "critical"]
StepStatus = Literal["started", "finished", "failed"]
Uid = Annotated[int, Field(ge=0, le=(1 << 32) - 2)]
Percent = Annotated[float, Field(ge=0, le=100)]
Steps = Annotated[int, Field(ge=0, le=1_000_000_000)]
Interaction = Annotated[int, Field(ge=0, le=1 << 31)]


class WorkerRegister(Wire):
    """`aios/worker.register`. `registration`: of before, when the same worker comes back and keeps what it has.

    `liveness`: `descriptor`, the worker is gone when the descriptor that it is given (on JSON-RPC: its connection)
    closes; `heartbeat`: only when it stays silent. `capacity`: assignments at a time.
    """

    worker_id: Identifier
    hostname: Line = ""
    os: Line = ""
    shell: Line = ""
    capabilities: Capabilities = Field(default_factory=list)
    capacity: Annotated[int, Field(ge=1, le=64)] = 1
    serves: Literal["own", "all"] = "own"
    liveness: Literal["descriptor", "heartbeat"] = "heartbeat"
    registration: Identifier | None = None
    metadata: Free = Field(default_factory=dict)


class WorkerRef(Wire):
    """One worker; `uid`: whose, the caller's own when absent."""

    worker_id: Identifier
    uid: Uid | None = None


class WorkerRegistered(WorkerRef):
    """An operation of the worker itself. `registration`: what its registration was answered with."""

    registration: Identifier


class WorkerHeartbeat(WorkerRegistered):
    """`aios/worker.heartbeat`. `known`: the tag of the last answer; with `wait_ms` the answer waits until it is another
    one. `received`: answers to questions that the worker has. `whole`: tell each assignment with its request.

    `timestamp` is taken (seed 003) and not gone by: when it came is what counts.
    """

    status: WorkerStatusName = "idle"
    current_task_id: Identifier | None = None
    load: Annotated[float, Field(ge=0, le=1_000_000)] = 0.0
    timestamp: Annotated[str, Field(max_length=40)] | None = None
    capabilities: Capabilities | None = None
    known: Annotated[str, Field(max_length=64)] | None = None
    wait_ms: Annotated[int, Field(ge=0, le=MAX_WAIT_MS)] = 0
    received: Annotated[list[Identifier], Field(max_length=64)] = Field(default_factory=list)
    whole: bool = False


class WorkerList(Wire):
    """`aios/worker.list`: one's own, oldest first. `ended`: those that are gone, too."""

    all_users: bool = False
    ended: bool = False
    limit: Annotated[int, Field(ge=1, le=100)] = 50
    cursor: Annotated[str, StringConstraints(pattern=r"^[0-9]{1,18}$")] | None = None


class AssignmentRef(WorkerRef):
    """A worker's word about one of its assignments."""

    assignment_id: Identifier


class AssignmentReject(AssignmentRef):
    """`aios/worker.reject`."""

    reason: Annotated[Line, Field(min_length=1)]


class Progress(Wire):
    """Seed 000's `progress`."""

    percent: Percent | None = None
    message: Line = ""
    current_step: Steps | None = None
    total_steps: Steps | None = None


class Step(Wire):
    """`task.step.*`."""

    name: Annotated[Line, Field(min_length=1)]
    status: StepStatus
    summary: Text = ""


class ToolCall(Wire):
    """`tool.call.*`."""

    name: Annotated[Line, Field(min_length=1)]
    status: Literal["requested", "finished"]
    summary: Text = ""


class Summary(Wire):
    """Seed 003's structured summary."""

    summary: Text = ""
    progress_percent: Percent | None = None
    current_step: Line = ""
    next_step: Line = ""
    risk: Line = ""


class LogLine(Wire):
    """A line for people."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    message: Annotated[str, StringConstraints(max_length=4000)]


class ArtifactPart(Wire):
    """Text or data, one of them: a worker elsewhere has no file of ours."""

    text: Annotated[str, StringConstraints(max_length=64 * 1024)] | None = None
    data: dict[str, JsonValue] | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.text is None) == (self.data is None):
            raise ValueError("give either text or data")
        return self


class Artifact(Wire):
    """What the task produced. `key`: the same one makes the next version, or with `append` adds to it."""

    key: Identifier
    name: Line = ""
    type: Line = "data"
    mime_type: Line = "application/octet-stream"
    parts: Annotated[list[ArtifactPart], Field(max_length=256)] = Field(default_factory=list)
    append: bool = False
    last_chunk: bool = True


class Question(Wire):
    """A question to a person. `answer_schema`: JSON Schema of the answer."""

    interaction: Interaction = 0
    prompt: Annotated[Text, Field(min_length=1)]
    options: Annotated[list[Line], Field(max_length=64)] | None = None
    answer_schema: Free | None = None
    timeout_ms: Milliseconds | None = None


class ApprovalWish(Wire):
    """What the worker is about to do, for which it wants a person's yes."""

    interaction: Interaction = 0
    kind: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_.-]{0,63}$")]
    summary: Annotated[Text, Field(min_length=1, max_length=2000)]
    risk_level: RiskWord = "medium"
    timeout_ms: Milliseconds | None = None


class WorkerReport(AssignmentRef):
    """`aios/worker.report`: any of these, and one at least; taken in this order, all or none."""

    progress: Progress | None = None
    step: Step | None = None
    tool_call: ToolCall | None = None
    summary: Summary | None = None
    log: LogLine | None = None
    artifact: Artifact | None = None
    question: Question | None = None
    approval: ApprovalWish | None = None

    @model_validator(mode="after")
    def _something(self) -> Self:
        told = (self.progress, self.step, self.tool_call, self.summary, self.log, self.artifact, self.question)
        if all(one is None for one in (*told, self.approval)):
            raise ValueError("nothing is reported")
        if self.question is not None and self.approval is not None:
            raise ValueError("ask one thing at a time")
        return self


class WorkerComplete(AssignmentRef):
    """`aios/worker.complete`."""

    result: Free = Field(default_factory=dict)
    summary: Summary | None = None

    def last_report(self) -> WorkerReport | None:
        """What it says beside its result, as a report."""
        if self.summary is None:
            return None
        return WorkerReport(worker_id=self.worker_id, assignment_id=self.assignment_id, summary=self.summary)


class WorkerFail(AssignmentRef):
    """`aios/worker.fail`. `retryable`: whether another attempt could end otherwise."""

    message: Annotated[Text, Field(min_length=1)]
    reason: Line | None = None
    retryable: bool = True
    data: Free | None = None
