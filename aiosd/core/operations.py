"""The one table of what can be asked: both doors, the authorisation test, the CLI's help and the reference use it.

An operation is named once here, with its parameters (model/wire.py), the access it needs (auth/policy.py) and where it
stands at each door. Its handler is the method of the same name in core/manager.py. What is not here does not exist.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

from aiosd.auth.policy import Access
from aiosd.model.following import PLAIN
from aiosd.model.later import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiosd.model.following import Subscribe
    from aiosd.model.jsontext import JsonObject
    from aiosd.model.wire import Wire

MANAGER = "org.aios.TaskManager1"
TASK = "org.aios.TaskManager1.Task"
APPROVAL = "org.aios.TaskManager1.Approval"
SESSION = "org.aios.TaskManager1.Session"
WORKER = "org.aios.TaskManager1.Worker"


@dataclass(frozen=True, slots=True)
class BusMember:
    """A D-Bus method that is this operation."""

    interface: str
    member: str


@dataclass(frozen=True, slots=True)
class Model:
    """The model of parameters, by its name: making all of them took a fifth of the daemon's start."""

    module: str
    name: str

    @property
    def is_loaded(self) -> bool:
        """Whether `load` takes no time (0.1 s for the first of all)."""
        return self.module in sys.modules

    def load(self) -> type[Wire]:
        """The model; its module is imported when it is first needed."""
        found: type[Wire] = getattr(import_module(self.module), self.name)
        return found

    def parse_plainly(self, given: JsonObject) -> Subscribe | None:
        """As `parse`, of parameters for which the model need not be asked; None when it must be."""
        plain = PLAIN.get(self.name)
        return None if plain is None else plain(given)

    def parse(self, given: JsonObject) -> Wire:
        """Parameters as they came, made into one. Raises AiosError."""
        from aiosd.core.parameters import parsed

        return parsed(self.load(), given)


class _Models:
    """The models of a module: `_Models("wire").TaskGet`."""

    def __init__(self, name: str) -> None:
        self._module = f"aiosd.model.{name}"

    def __getattr__(self, name: str) -> Model:
        return Model(self._module, name)


wire, wire_permissions, wire_service = _Models("wire"), _Models("wire_permissions"), _Models("wire_service")
sessions, worker = _Models("wire_sessions"), _Models("wire_workers")


@dataclass(frozen=True, slots=True)
class Operation:
    """One row of the table. `rpc`: the JSON-RPC method's name, None where only the bus has it (descriptors).

    `secret`: the parameter that is a secret. It is never parsed into strings by us: the handler gets a
    `model.secrettext.SecretText` as its third argument, None when it was not given, and it is wiped afterwards.
    """

    name: str
    model: Model
    access: Access
    bus: BusMember | None
    summary: str
    rpc: str | None = None
    secret: str | None = None

    @property
    def params(self) -> type[Wire]:
        """What its parameters are parsed into."""
        return self.model.load()


@dataclass(frozen=True, slots=True)
class Reply:
    """What an operation answers: a JSON object, and descriptors that the door sends on and closes."""

    body: JsonObject
    fds: tuple[int, ...] = ()


def _op(
    name: str,
    model: Model,
    access: Access,
    bus: tuple[str, str] | None,
    summary: str,
    *,
    rpc: bool = True,
    secret: str | None = None,
) -> Operation:
    member = BusMember(*bus) if bus else None
    return Operation(name, model, access, member, summary, f"aios/{name}" if rpc else None, secret)


_ROWS = (
    _op("task.create", wire.TaskCreate, Access.RUN, (MANAGER, "CreateTask"), "Run a capability as a task"),
    _op("task.get", wire.TaskGet, Access.VIEW, (MANAGER, "GetTask"), "One task, whole"),
    _op("task.list", wire.TaskList, Access.VIEW, (MANAGER, "ListTasks"), "A page of tasks"),
    _op("task.history", wire.TaskList, Access.VIEW, (MANAGER, "ListHistory"), "Tasks by time, finished ones too"),
    _op("task.cancel", wire.TaskCancel, Access.CONTROL, (TASK, "Cancel"), "Stop a task for good"),
    _op("task.pause", wire.TaskHold, Access.CONTROL, (TASK, "Pause"), "Hold a task where it is"),
    _op("task.resume", wire.TaskHold, Access.CONTROL, (TASK, "Resume"), "Let a paused task go on"),
    _op("task.retry", wire.TaskRetry, Access.RUN, (TASK, "Retry"), "Run a finished task again, as a new one"),
    _op("task.set_priority", wire.TaskPriority, Access.CONTROL, (TASK, "SetPriority"), "Change a task's priority"),
    _op("task.input", wire.TaskInput, Access.CONTROL, (TASK, "ProvideInput"), "Answer a task's question"),
    _op("task.wait", wire.TaskWait, Access.VIEW, (TASK, "Wait"), "Answer when the task is final"),
    _op("task.state_history", wire.TaskRef, Access.VIEW, (TASK, "GetHistory"), "Every state a task was in", rpc=False),
    _op("task.logs", wire.TaskLog, Access.VIEW, None, "A piece of what the program wrote"),
    _op("task.open_log", wire.TaskLog, Access.VIEW, (TASK, "OpenLog"), "The log by descriptor", rpc=False),
    _op("task.subscribe", wire.TaskSubscribe, Access.VIEW, (MANAGER, "Subscribe"), "Follow a task's events"),
    _op("task.unsubscribe", wire.SubscriptionRef, Access.OWN, (MANAGER, "Unsubscribe"), "End a subscription"),
    _op(
        "task.resubscribe",
        wire.TaskResubscribe,
        Access.VIEW,
        (MANAGER, "Resubscribe"),
        "Follow again, with what was missed",
    ),
    _op("artifact.list", wire.TaskRef, Access.VIEW, (MANAGER, "ListArtifacts"), "What a task produced"),
    _op("artifact.get", wire.ArtifactRef, Access.VIEW, (MANAGER, "GetArtifact"), "One artifact"),
    _op(
        "artifact.open",
        wire.ArtifactOpen,
        Access.VIEW,
        (MANAGER, "OpenArtifact"),
        "An artifact's content by descriptor",
        rpc=False,
    ),
    _op(
        "capability.list",
        wire.CapabilityList,
        Access.PUBLIC,
        (MANAGER, "ListCapabilities"),
        "The installed capabilities",
    ),
    _op("capability.get", wire.CapabilityRef, Access.PUBLIC, (MANAGER, "GetCapability"), "One capability's manifest"),
    _op("service.status", wire.Empty, Access.PUBLIC, (MANAGER, "GetStatus"), "What the daemon is doing"),
    _op("service.reload", wire.Empty, Access.MANAGE, (MANAGER, "Reload"), "Read configuration and manifests again"),
    _op(
        "service.drain",
        wire_service.Drain,
        Access.MANAGE,
        (MANAGER, "Drain"),
        "Start no more tasks, or start them again; what runs runs on",
    ),
    _op("audit.query", wire.AuditQuery, Access.OWN_OR_MANAGE, (MANAGER, "QueryAudit"), "A page of the audit trail"),
    _op(
        "audit.rotate_key",
        wire.Empty,
        Access.MANAGE,
        (MANAGER, "RotateAuditKey"),
        "Sign the audit trail with a new key from here on",
    ),
    _op(
        "emergency.stop",
        wire_service.Emergency,
        Access.OWN_OR_MANAGE,
        (MANAGER, "Emergency"),
        "Stop everything of a user or of the machine, and start nothing more",
    ),
    _op(
        "emergency.lift",
        wire_service.EmergencyLift,
        Access.OWN_OR_MANAGE,
        (MANAGER, "LiftEmergency"),
        "Let tasks start again after an emergency stop",
    ),
    _op("initialize", wire.Initialize, Access.PUBLIC, None, "Agree on a version, and learn what the service can do"),
    _op("initialized", wire.Empty, Access.PUBLIC, None, "The client is ready (a notification)"),
    _op("shutdown", wire.Shutdown, Access.OWN, None, "End the client's session: its subscriptions; tasks run on"),
    _op(
        "task.subscribe_webhook",
        wire.SubscribeWebhook,
        Access.WEBHOOK,
        (MANAGER, "SubscribeWebhook"),
        "Have a task's events sent to a web address",
        secret="authentication",  # noqa: S106 - the name of a parameter
    ),
    _op(
        "task.unsubscribe_webhook",
        wire.UnsubscribeWebhook,
        Access.CONTROL,
        (MANAGER, "UnsubscribeWebhook"),
        "Send no more to a web address",
    ),
    _op(
        "task.authenticate",
        wire.TaskAuthenticate,
        Access.CONTROL,
        (TASK, "Authenticate"),
        "Give a task's program what it needs to authenticate",
        secret="auth_response",  # noqa: S106 - the name of a parameter
    ),
    _op("webhook.list", wire.WebhookList, Access.OWN, (MANAGER, "ListWebhooks"), "The caller's webhooks"),
    _op("webhook.resume", wire.WebhookRef, Access.OWN, (MANAGER, "ResumeWebhook"), "Deliver again to a parked webhook"),
)

_SESSION_ROWS = (
    _op("session.create", sessions.SessionCreate, Access.OWN, (MANAGER, "CreateSession"), "Begin a session"),
    _op("session.get", sessions.SessionRef, Access.VIEW, (MANAGER, "GetSession"), "One session"),
    _op("session.list", sessions.SessionList, Access.VIEW, (MANAGER, "ListSessions"), "A page of sessions"),
    _op("session.update", sessions.SessionUpdate, Access.CONTROL, (SESSION, "Update"), "Change a session's settings"),
    _op(
        "session.update_objective",
        sessions.SessionObjective,
        Access.CONTROL,
        (SESSION, "UpdateObjective"),
        "Say what a session is to reach",
    ),
    _op("session.close", sessions.SessionClose, Access.CONTROL, (SESSION, "Close"), "End a session"),
    _op("session.archive", sessions.SessionRef, Access.CONTROL, (SESSION, "Archive"), "Put a closed session away"),
    _op("session.timeline", sessions.SessionTimeline, Access.VIEW, (SESSION, "GetTimeline"), "What happened, in order"),
    _op("thread.create", sessions.ThreadCreate, Access.CONTROL, (SESSION, "CreateThread"), "Begin a thread"),
    _op("thread.list", sessions.SessionRef, Access.VIEW, (SESSION, "ListThreads"), "A session's threads"),
    _op("message.list", sessions.MessageList, Access.VIEW, (SESSION, "ListMessages"), "A page of messages"),
    _op("message.add", sessions.MessageAdd, Access.CONTROL, (SESSION, "AddMessage"), "Put a message on the timeline"),
    _op("plan.create", sessions.PlanCreate, Access.CONTROL, (SESSION, "CreatePlan"), "A session's plan with its tasks"),
    _op("plan.get", sessions.PlanGet, Access.VIEW, (SESSION, "GetPlan"), "A session's plan"),
    _op("plan.propose_diff", sessions.PlanPropose, Access.CONTROL, (SESSION, "ProposeDiff"), "Check and keep a diff"),
    _op("plan.apply_diff", sessions.PlanApply, Access.CONTROL, (SESSION, "ApplyDiff"), "Change the plan, whole"),
    _op("task.tree", sessions.TaskTree, Access.VIEW, (TASK, "GetTree"), "A task and all under it"),
    _op("session.tree", sessions.SessionTree, Access.VIEW, (SESSION, "GetTaskTree"), "A session's tasks as trees"),
    _op("feed.subscribe", sessions.FeedSubscribe, Access.VIEW, (MANAGER, "SubscribeFeed"), "Follow one of the feeds"),
)

_PERMISSION_ROWS = (
    _op(
        "permission.request",
        wire_permissions.PermissionRequest,
        Access.RUN,
        (MANAGER, "RequestGrant"),
        "Consent ahead",
    ),
    _op("permission.list", wire_permissions.PermissionList, Access.VIEW, (MANAGER, "ListGrants"), "Grants"),
    _op("permission.revoke", wire_permissions.PermissionRevoke, Access.CONTROL, (MANAGER, "RevokeGrant"), "End one"),
    _op(
        "permission.explain",
        wire_permissions.PermissionExplain,
        Access.VIEW,
        (MANAGER, "ExplainPermission"),
        "What would happen to a request, and why",
    ),
    _op("approval.list", wire_permissions.ApprovalList, Access.VIEW, (MANAGER, "ListApprovals"), "Approvals"),
    _op("approval.get", wire_permissions.ApprovalRef, Access.VIEW, (APPROVAL, "Get"), "One, and what would run"),
    _op("approval.respond", wire_permissions.ApprovalRespond, Access.APPROVE, (APPROVAL, "Respond"), "Answer one"),
)

_WORKER_ROWS = (
    _op("worker.register", worker.WorkerRegister, Access.WORKER, (MANAGER, "RegisterWorker"), "Begin to take tasks"),
    _op("worker.list", worker.WorkerList, Access.VIEW, (MANAGER, "ListWorkers"), "A page of workers"),
    _op("worker.get", worker.WorkerRef, Access.VIEW, (MANAGER, "GetWorker"), "One worker, and what it has"),
    _op(
        "worker.heartbeat",
        worker.WorkerHeartbeat,
        Access.AS_WORKER,
        (WORKER, "Heartbeat"),
        "A worker is there; what it is to do",
    ),
    _op("worker.unregister", worker.WorkerRegistered, Access.AS_WORKER, (WORKER, "Unregister"), "Take no more tasks"),
    _op("worker.accept", worker.AssignmentRef, Access.AS_WORKER, (WORKER, "Accept"), "Take an assignment"),
    _op(
        "worker.reject", worker.AssignmentReject, Access.AS_WORKER, (WORKER, "Reject"), "Leave an assignment to others"
    ),
    _op(
        "worker.report",
        worker.WorkerReport,
        Access.AS_WORKER,
        (WORKER, "Report"),
        "How it goes, what came of it, a question",
    ),
    _op("worker.complete", worker.WorkerComplete, Access.AS_WORKER, (WORKER, "Complete"), "An assignment is done"),
    _op("worker.fail", worker.WorkerFail, Access.AS_WORKER, (WORKER, "Fail"), "An assignment could not be done"),
)

OPERATIONS: Mapping[str, Operation] = {
    row.name: row for row in (*_ROWS, *_SESSION_ROWS, *_PERMISSION_ROWS, *_WORKER_ROWS)
}
"""Every operation by name."""
