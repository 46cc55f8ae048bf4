"""The one error table: D-Bus name, JSON-RPC code and CLI exit status of everything that can be refused.

Both doors and the CLI answer from here, so an error is the same wherever it is met. `error_id` is the stable key
(JSON-RPC codes are overloaded in the AIOS family); the codes are seed 000's where it names one.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from aiosd.model.later import dataclass

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonObject, JsonValue

DBUS_PREFIX = "org.aios.TaskManager.Error."


@dataclass(frozen=True, slots=True)
class ErrorSpec:
    """One row: its D-Bus name (after the prefix), JSON-RPC code, id, short message and CLI exit status."""

    dbus: str
    code: int
    error_id: str
    message: str
    exit_status: int


class ErrorKind(Enum):
    """Every error a caller can meet."""

    PARSE = ErrorSpec("ParseError", -32700, "AIOS-PARSE", "Parse error", 65)
    INVALID_REQUEST = ErrorSpec("InvalidRequest", -32600, "AIOS-INVALID-REQUEST", "Invalid request", 65)
    UNKNOWN_METHOD = ErrorSpec("UnknownMethod", -32601, "AIOS-UNKNOWN-METHOD", "Method not found", 64)
    INVALID_PARAMS = ErrorSpec("InvalidParams", -32602, "AIOS-INVALID-PARAMS", "Invalid params", 64)
    INTERNAL = ErrorSpec("Internal", -32603, "AIOS-INTERNAL", "Internal error", 70)
    PERMISSION_DENIED = ErrorSpec("PermissionDenied", -32001, "AIOS-PERM-DENIED", "Permission denied", 77)
    INTERACTIVE_AUTH_REQUIRED = ErrorSpec(
        "InteractiveAuthorizationRequired", -32001, "AIOS-PERM-INTERACTION", "A person has to be asked", 77
    )
    INPUT_REQUIRED = ErrorSpec("InputRequired", -32002, "AIOS-INPUT-REQUIRED", "Input required", 75)
    AUTH_REQUIRED = ErrorSpec("AuthRequired", -32002, "AIOS-AUTH-REQUIRED", "Authentication required", 75)
    CAPABILITY_NOT_FOUND = ErrorSpec("CapabilityNotFound", -32003, "AIOS-CAP-NOT-FOUND", "Capability not found", 66)
    TASK_TIMEOUT = ErrorSpec("TaskTimeout", -32005, "AIOS-TIMEOUT", "Task timeout", 124)
    QUEUE_FULL = ErrorSpec("QueueFull", -32006, "AIOS-QUEUE-FULL", "Task queue full", 75)
    RATE_LIMITED = ErrorSpec("RateLimited", -32006, "AIOS-RATE-LIMITED", "Too many requests", 75)
    BUSY = ErrorSpec("ResourceBusy", -32007, "AIOS-RESOURCE-BUSY", "Resource busy", 75)
    VERSION_MISMATCH = ErrorSpec("VersionMismatch", -32009, "AIOS-VERSION-MISMATCH", "No common version", 76)
    SANDBOX_VIOLATION = ErrorSpec("SandboxViolation", -32010, "AIOS-SANDBOX-VIOLATION", "Sandbox violation", 77)
    APPROVAL_REJECTED = ErrorSpec("ApprovalRejected", -32011, "AIOS-APPROVAL-REJECTED", "Approval rejected", 77)
    STORAGE = ErrorSpec("StorageError", -32012, "AIOS-STORAGE", "The store cannot be written", 74)
    TASK_FAILED = ErrorSpec("TaskFailed", -32013, "AIOS-TASK-FAILED", "Task failed", 1)
    SESSION_NOT_FOUND = ErrorSpec("SessionNotFound", -32105, "AIOS-SESSION-NOT-FOUND", "Session not found", 66)
    TASK_NOT_FOUND = ErrorSpec("TaskNotFound", -32106, "AIOS-TASK-NOT-FOUND", "Task not found", 66)
    TASK_COMPLETED = ErrorSpec("TaskAlreadyCompleted", -32107, "AIOS-TASK-COMPLETED", "Task already completed", 65)
    TASK_CANCELED = ErrorSpec("TaskAlreadyCanceled", -32107, "AIOS-TASK-CANCELED", "Task already canceled", 65)
    INVALID_STATE = ErrorSpec("InvalidTaskState", -32108, "AIOS-INVALID-STATE", "Invalid task state", 65)
    INVALID_INPUT = ErrorSpec("InvalidInput", -32108, "AIOS-INVALID-INPUT", "Invalid input", 65)
    ARTIFACT_NOT_FOUND = ErrorSpec("ArtifactNotFound", -32109, "AIOS-ARTIFACT-NOT-FOUND", "Artifact not found", 66)
    SUBSCRIPTION_NOT_FOUND = ErrorSpec(
        "SubscriptionNotFound", -32110, "AIOS-SUBSCRIPTION-NOT-FOUND", "Subscription not found", 66
    )
    WORKER_NOT_FOUND = ErrorSpec("WorkerNotFound", -32111, "AIOS-WORKER-NOT-FOUND", "Worker not found", 66)
    APPROVAL_NOT_FOUND = ErrorSpec("ApprovalNotFound", -32112, "AIOS-APPROVAL-NOT-FOUND", "Approval not found", 66)
    PLAN_NOT_FOUND = ErrorSpec("PlanNotFound", -32113, "AIOS-PLAN-NOT-FOUND", "Plan not found", 66)
    WEBHOOK_NOT_FOUND = ErrorSpec("WebhookNotFound", -32114, "AIOS-WEBHOOK-NOT-FOUND", "Webhook not found", 66)
    GRANT_NOT_FOUND = ErrorSpec("GrantNotFound", -32115, "AIOS-GRANT-NOT-FOUND", "Grant not found", 66)
    ASSIGNMENT_NOT_FOUND = ErrorSpec(
        "AssignmentNotFound", -32116, "AIOS-ASSIGNMENT-NOT-FOUND", "Assignment not found", 66
    )
    EXECUTOR_NOT_FOUND = ErrorSpec("ExecutorNotFound", -32117, "AIOS-EXECUTOR-NOT-FOUND", "Executor not found", 69)
    SHUTTING_DOWN = ErrorSpec("ShuttingDown", -32007, "AIOS-SHUTTING-DOWN", "The service is stopping", 75)

    @property
    def dbus_name(self) -> str:
        """The full D-Bus error name."""
        return DBUS_PREFIX + self.value.dbus


class AiosError(Exception):
    """A refusal with its row of the table and, in `data`, what the caller can act on."""

    def __init__(
        self,
        kind: ErrorKind,
        detail: str = "",
        *,
        field: str | None = None,
        reason: str | None = None,
        data: JsonObject | None = None,
    ) -> None:
        """`detail`: one sentence for people. `field`: the parameter at fault. `reason`: machine-readable."""
        super().__init__(detail or kind.value.message)
        self.kind = kind
        self.detail = detail
        self.field = field
        self.reason = reason
        self.extra: JsonObject = data or {}

    @property
    def text(self) -> str:
        """Message for people: the row's own, with the field and the detail when there are any."""
        head = self.kind.value.message
        if self.field:
            head = f"{head}: {self.field}"
        return f"{head}: {self.detail}" if self.detail else head

    def data(self) -> dict[str, JsonValue]:
        """JSON-RPC `error.data`, the same on every door."""
        result: dict[str, JsonValue] = {"error_id": self.kind.value.error_id}
        if self.detail:
            result["details"] = self.detail
        if self.field:
            result["field"] = self.field
        if self.reason:
            result["reason"] = self.reason
        result.update(self.extra)
        return result

    def wire(self) -> dict[str, JsonValue]:
        """The JSON-RPC error object."""
        return {"code": self.kind.value.code, "message": self.text, "data": self.data()}


def too_large(size: int) -> AiosError:
    """An answer of `size` bytes is for no message."""
    detail = f"the answer would have {size} bytes; ask for less of it, or open the content by descriptor"
    return AiosError(ErrorKind.BUSY, detail, reason="too-large", data={"size": size})


def by_dbus_name(name: str) -> ErrorKind | None:
    """The row of a D-Bus error name, for clients that met one."""
    return _BY_NAME.get(name)


_BY_NAME = {kind.dbus_name: kind for kind in ErrorKind}
