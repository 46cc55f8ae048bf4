"""The JSON edge: the parameters of every operation as pydantic models, with their bounds. Both doors parse into these.

A model's field names are the wire's (seed 000, snake_case). Unknown fields are ignored, as seed 000's family says;
a wrong one is refused with its name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from aiosd.model.bounds import MAX_MILLISECONDS

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonValue
else:
    # The same type; ours is an alias that mypy understands and pydantic, which needs the real one, does not.
    from pydantic import JsonValue

Milliseconds = Annotated[int, Field(ge=1, le=MAX_MILLISECONDS)]
Delay = Annotated[int, Field(ge=0, le=MAX_MILLISECONDS)]
Identifier = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
CapabilityId = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*(\.[a-z0-9_]+)+$", max_length=128)]
CapabilityGlob = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_.*?]{1,128}$")]
Token = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_]{1,64}$")]
Key = Annotated[str, StringConstraints(pattern=r"^[\x21-\x7e]{1,128}$")]
Line = Annotated[
    str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]*$", max_length=200)
]
Text = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f]*$", max_length=4000)]
"""Several lines of text: an objective, a goal."""
ContextReference = Annotated[
    str, StringConstraints(pattern=r"^(art-[A-Za-z0-9-]{1,120}|task-[A-Za-z0-9_-]{1,110}\.summary)$")
]
"""An artifact, or a task's summary (seed 003: `artifact_001`, `task_202.summary`)."""
WorkerCapability = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,63}$")]
Capabilities = Annotated[list[WorkerCapability], Field(max_length=64)]
"""What a worker is capable of, or must be: words of seed 003 (git, terminal, playwright)."""
StatusName = Literal[
    "pending", "working", "paused", "input_required", "auth_required", "completed", "failed", "canceled"
]
PriorityName = Literal["low", "normal", "high", "urgent"]
EventName = Literal["status", "progress", "artifact", "input_required", "auth_required", "log", "result", "error"]
Free = dict[str, JsonValue]


class Wire(BaseModel):
    """Base of all parameters: strict types (no "1" for 1), immutable, unknown fields ignored.

    A model is made ready for use with its first use. So a default that is a model is a factory: an instance would make
    that model ready when this module is imported, and the daemon's start half again as long.
    """

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", defer_build=True)


class RetryOptions(Wire):
    """`options.retry` of seed 000."""

    max_attempts: Annotated[int, Field(ge=1, le=100)] = 1
    delay_ms: Delay = 1000


class LimitOptions(Wire):
    """cgroup limits, only tighter than the capability's. Bytes, percent of one CPU, counts."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", defer_build=True)

    memory_max: Annotated[int, Field(ge=1 << 20, le=1 << 50)] | None = None
    memory_high: Annotated[int, Field(ge=1 << 20, le=1 << 50)] | None = None
    cpu_quota_percent: Annotated[int, Field(ge=1, le=100_000)] | None = None
    tasks_max: Annotated[int, Field(ge=2, le=1_000_000)] | None = None
    io_weight: Annotated[int, Field(ge=1, le=10_000)] | None = None
    cpu_weight: Annotated[int, Field(ge=1, le=10_000)] | None = None


class CreateOptions(Wire):
    """`options` of `aios/task.create`; the names beyond seed 000 are the design's."""

    async_: Annotated[bool, Field(alias="async")] = False
    priority: PriorityName | None = None
    timeout_ms: Milliseconds | None = None
    retry: RetryOptions | None = None
    depends_on: Annotated[list[Identifier], Field(max_length=64)] = []
    not_before: Annotated[int, Field(ge=0, le=1 << 52)] | str | None = None
    limits: LimitOptions | None = None
    idempotency_key: Key | None = None
    parent_task_id: Identifier | None = None
    session_id: Identifier | None = None
    execution_mode: Literal["independent", "collaborative", "research_only"] | None = None
    risk_level: Literal["low", "medium", "high"] | None = None
    title: Line | None = None
    handle_token: Token | None = None
    kind: Line | None = None
    goal: Text | None = None
    constraints: Annotated[list[Line], Field(max_length=64)] = []
    shared_context_refs: Annotated[list[ContextReference], Field(max_length=32)] = []
    handoff_expected: bool = False
    defer: bool | None = None

    @property
    def may_defer(self) -> bool:
        """Whether a task whose person cannot be asked now is stored and waits. An asynchronous request may, unless it
        says otherwise; on D-Bus, where every request is asynchronous, only one that says so."""
        return self.async_ if self.defer is None else self.defer


class TaskCreate(Wire):
    """`aios/task.create`."""

    capability_id: CapabilityId
    arguments: Free = {}
    options: CreateOptions = Field(default_factory=CreateOptions)
    metadata: Free = {}


class TaskRef(Wire):
    """An operation on one task."""

    task_id: Identifier


class TaskGet(TaskRef):
    """`aios/task.get`."""

    include_history: bool = False


class ListFilter(Wire):
    """`filter` of `aios/task.list` and `.history`. Times: RFC 3339."""

    status: Annotated[list[StatusName], Field(max_length=8)] | None = None
    capability_id: CapabilityGlob | None = None
    start_time: Annotated[str, Field(max_length=40)] | None = None
    end_time: Annotated[str, Field(max_length=40)] | None = None
    parent_task_id: Identifier | None = None
    session_id: Identifier | None = None
    tag: Line | None = None
    uid: Annotated[int, Field(ge=0, le=(1 << 32) - 2)] | None = None
    all_users: bool = False


class Pagination(Wire):
    """A page: at most 100 rows."""

    limit: Annotated[int, Field(ge=1, le=100)] = 50
    offset: Annotated[int, Field(ge=0, le=1_000_000_000)] = 0
    cursor: Annotated[str, Field(max_length=128)] | None = None


class Sort(Wire):
    """Order of a list."""

    field: Literal["created_at", "updated_at", "priority"] = "created_at"
    order: Literal["asc", "desc"] = "desc"


class TaskList(Wire):
    """`aios/task.list` and `aios/task.history`."""

    filter: ListFilter = Field(default_factory=ListFilter)
    pagination: Pagination = Field(default_factory=Pagination)
    sort: Sort = Field(default_factory=Sort)


class TaskCancel(TaskRef):
    """`aios/task.cancel`. `recursive`: what is under it ends too."""

    reason: Line = "user_request"
    recursive: bool = True


class TaskHold(TaskRef):
    """`aios/task.pause` and `.resume`. `recursive`: what is unfinished under it, too."""

    recursive: bool = False


class TaskInput(TaskRef):
    """`aios/task.input`."""

    input: Free


class TaskPriority(TaskRef):
    """`aios/task.set_priority`. `recursive`: of what is under it, too."""

    priority: PriorityName
    recursive: bool = False


class TaskWait(TaskRef):
    """`aios/task.wait`: answer when final, or (`until_waiting`) when a person is needed."""

    timeout_ms: Milliseconds | None = None
    until_waiting: bool = False


class TaskRetry(TaskRef):
    """`aios/task.retry`."""

    handle_token: Token | None = None


class TaskLog(TaskRef):
    """`aios/task.logs` and `OpenLog`. `offset`, `limit` in bytes."""

    stream: Literal["stdout", "stderr"] = "stdout"
    attempt: Annotated[int, Field(ge=1, le=100)] | None = None
    offset: Annotated[int, Field(ge=0, le=1 << 50)] = 0
    limit: Annotated[int, Field(ge=1, le=128 * 1024)] = 64 * 1024


class TaskSubscribe(Wire):
    """`aios/task.subscribe`; `task_id` empty: all of the caller's own."""

    task_id: Annotated[str, StringConstraints(pattern=r"^$|^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")] = ""
    events: Annotated[list[EventName], Field(max_length=16)] = []
    all_users: bool = False


class TaskResubscribe(TaskSubscribe):
    """`aios/task.resubscribe`. `limit`: missed events that one answer holds at most."""

    last_event_id: Annotated[str, Field(max_length=64)]
    limit: Annotated[int, Field(ge=1, le=10_000)] = 10_000


class SubscriptionRef(Wire):
    """`aios/task.unsubscribe`."""

    subscription_id: Identifier


class ArtifactRef(Wire):
    """`aios/artifact.get`."""

    artifact_id: Identifier


class ArtifactOpen(ArtifactRef):
    """`OpenArtifact`: one part's content by descriptor."""

    part: Annotated[int, Field(ge=0, le=10_000)] = 0


class CapabilityRef(Wire):
    """`aios/capability.get`."""

    capability_id: CapabilityId


class CapabilityList(Wire):
    """`aios/capability.list`."""

    filter: CapabilityGlob | None = None


class Empty(Wire):
    """No parameters."""


Version = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,4}(\.[0-9]{1,4}){0,3}$")]


class ClientInfo(Wire):
    """Who the client says that it is; shown in logs, believed by nobody."""

    name: Line = ""
    version: Line = ""


class Initialize(Wire):
    """`aios/initialize`. `interactive`: on a connection that stays, whether its calls may ask the person behind it."""

    protocol_version: Version | None = None
    supported_versions: Annotated[list[Version], Field(max_length=32)] = []
    client_info: ClientInfo = Field(default_factory=ClientInfo)
    interactive: bool = False


class Shutdown(Wire):
    """`aios/shutdown`: the client takes its leave."""

    reason: Line = "client_exit"


WebhookEventName = Literal[
    "status", "progress", "artifact", "input_required", "auth_required", "log", "result", "error",
    "completed", "failed", "canceled",
]  # fmt: skip
WebhookUrl = Annotated[str, StringConstraints(pattern=r"^[\x21-\x7e]{1,2048}$")]


class WebhookRetryPolicy(Wire):
    """`retry_policy` of seed 000."""

    max_retries: Annotated[int, Field(ge=0, le=20)] = 3
    retry_delay_ms: Annotated[int, Field(ge=1, le=3_600_000)] = 1000


class WebhookAuthentication(Wire):
    """`authentication` of seed 000. `secret`: the key of the signatures, the token when there is none.

    For the reference only: a secret is read in place (`model.secrettext`).
    """

    type: Literal["bearer"] = "bearer"
    token: str = ""
    secret: str | None = None


class WebhookTarget(TaskRef):
    """A webhook by its task and address."""

    webhook_url: WebhookUrl


class SubscribeWebhook(WebhookTarget):
    """`aios/task.subscribe_webhook`. `events`: kinds, and final states; empty: everything."""

    events: Annotated[list[WebhookEventName], Field(max_length=16)] = []
    authentication: WebhookAuthentication | None = None
    retry_policy: WebhookRetryPolicy = Field(default_factory=WebhookRetryPolicy)


class UnsubscribeWebhook(WebhookTarget):
    """`aios/task.unsubscribe_webhook`."""


class WebhookList(Wire):
    """`aios/webhook.list`; `task_id` empty: of all tasks."""

    task_id: Annotated[str, StringConstraints(pattern=r"^$|^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")] = ""
    all_users: bool = False


class WebhookRef(Wire):
    """`aios/webhook.resume`."""

    webhook_id: Identifier


class AuditFilter(Wire):
    """Which records. Times: RFC 3339. `kind`: a glob such as `task.*`."""

    task_id: Identifier | None = None
    kind: Annotated[str, StringConstraints(pattern=r"^[a-z_.*?]{1,64}$")] | None = None
    start_time: Annotated[str, Field(max_length=40)] | None = None
    end_time: Annotated[str, Field(max_length=40)] | None = None
    uid: Annotated[int, Field(ge=0, le=(1 << 32) - 2)] | None = None
    all_users: bool = False


class AuditQuery(Wire):
    """`aios/audit.query`: records after number `after`. `proof`: with keys and head, for verifying the whole trail."""

    filter: AuditFilter = Field(default_factory=AuditFilter)
    after: Annotated[int, Field(ge=0, le=1 << 52)] = 0
    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    proof: bool = False


class AuthResponse(Wire):
    """`auth_response` of seed 000; which fields belong to which type: core/authentication.py.

    For the reference only: a secret is read in place (`model.secrettext`).
    """

    type: Literal["oauth2", "api_key", "password", "certificate", "polkit"] = "oauth2"
    authorization_code: str | None = None
    state: str | None = None
    redirect_uri: str | None = None
    api_key: str | None = None
    username: str | None = None
    password: str | None = None
    certificate: str | None = None
    private_key: str | None = None


class TaskAuthenticate(TaskRef):
    """`aios/task.authenticate`."""

    auth_response: AuthResponse | None = None
