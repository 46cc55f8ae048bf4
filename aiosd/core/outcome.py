"""What a run's end means for its task: a pure function from everything that is known to one verdict.

The order of the rules is the point: what a person wanted comes first, then what the system did to the program, then
what the program itself said, and its exit status only where nothing else was said.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiosd.errors import ErrorKind
from aiosd.model.later import dataclass
from aiosd.model.status import RETRYABLE, Reason, Status

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonObject, JsonValue


@dataclass(frozen=True, slots=True)
class Ending:
    """What is known of a run that has ended. `lost`: why there is no exit record to trust. Times in milliseconds.

    `silent_for`: seconds without a first chunk after which it was stopped.
    """

    capability_id: str
    exit_status: int | None = None
    signal: str | None = None
    oom_kill: bool = False
    stopped: bool = False
    launch_error: str | None = None
    completion: JsonObject | None = None
    failure: JsonObject | None = None
    cancel_reason: str | None = None
    timed_out: bool = False
    silent_for: float | None = None
    timeout_ms: int | None = None
    elapsed_ms: int = 0
    lost: Reason | None = None
    lost_message: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The task's end if nothing is tried again. `retryable`: whether another attempt could help at all.

    `metadata`: what the program's last word had of its own.
    """

    status: Status
    reason: Reason
    result: JsonObject | None = None
    error: JsonObject | None = None
    retryable: bool = False
    detail: str = ""
    metadata: JsonObject | None = None


def failure(kind: ErrorKind, reason: Reason, message: str, data: JsonObject, *, retryable: bool = False) -> Verdict:
    """A failed task's verdict, its error as both doors show it."""
    details: dict[str, JsonValue] = {"error_id": kind.value.error_id, "reason": reason.value, **data}
    error: JsonObject = {"code": kind.value.code, "message": message, "data": details}
    return Verdict(Status.FAILED, reason, None, error, retryable, message)


def judge(end: Ending) -> Verdict:
    """The verdict."""
    if end.cancel_reason is not None and not _finished_by_itself(end):
        return Verdict(Status.CANCELED, Reason.CANCELED, detail=end.cancel_reason)
    if end.timed_out and end.completion is None:
        data: JsonObject = {
            "capability_id": end.capability_id, "timeout_ms": end.timeout_ms, "elapsed_ms": end.elapsed_ms
        }  # fmt: skip
        return failure(ErrorKind.TASK_TIMEOUT, Reason.TIMEOUT, "Timeout", data, retryable=False)
    if end.silent_for is not None and end.completion is None:
        data = {
            "capability_id": end.capability_id, "timeout_ms": round(end.silent_for * 1000),
            "elapsed_ms": end.elapsed_ms,
        }  # fmt: skip
        message = f"the program sent no chunk within {end.silent_for:g} s"
        return failure(ErrorKind.TASK_TIMEOUT, Reason.FIRST_FRAME_TIMEOUT, message, data, retryable=True)
    if end.completion is None and end.failure is None:
        system = _by_the_system(end)
        if system is not None:
            return system
    return _by_the_program(end)


def _finished_by_itself(end: Ending) -> bool:
    return end.completion is not None and not end.stopped


def _by_the_system(end: Ending) -> Verdict | None:
    capability: JsonObject = {"capability_id": end.capability_id}
    if end.lost is not None:
        message = end.lost_message or "the run was lost"
        return failure(ErrorKind.TASK_FAILED, end.lost, message, capability, retryable=end.lost in RETRYABLE)
    if end.launch_error is not None:
        message = f"the program could not be started: {end.launch_error}"
        return failure(ErrorKind.TASK_FAILED, Reason.LAUNCH, message, capability, retryable=True)
    if end.oom_kill:
        message = "killed: it used more memory than its limit"
        return failure(ErrorKind.TASK_FAILED, Reason.OOM_KILL, message, capability, retryable=True)
    return None


def _by_the_program(end: Ending) -> Verdict:
    if end.completion is not None:
        return Verdict(Status.COMPLETED, Reason.RESULT, end.completion)
    if end.failure is not None:
        message = str(end.failure.get("message") or "the program reported a failure")
        data: dict[str, JsonValue] = {"capability_id": end.capability_id}
        if end.failure.get("reason") is not None:
            data["program_reason"] = end.failure["reason"]
        if end.failure.get("data") is not None:
            data["program_data"] = end.failure["data"]
        retryable = end.failure.get("retryable") is not False
        return failure(ErrorKind.TASK_FAILED, Reason.REPORTED, message, data, retryable=retryable)
    if end.signal == "SIGSYS":
        said: JsonObject = {"capability_id": end.capability_id, "signal": end.signal}
        message = "killed by SIGSYS: it made a system call that no program may make here"
        return failure(ErrorKind.SANDBOX_VIOLATION, Reason.SANDBOX, message, said, retryable=False)
    if end.signal is not None:
        found: JsonObject = {"capability_id": end.capability_id, "signal": end.signal}
        return failure(ErrorKind.TASK_FAILED, Reason.SIGNAL, f"killed by {end.signal}", found, retryable=True)
    if end.exit_status:
        found = {"capability_id": end.capability_id, "exit_status": end.exit_status}
        return failure(
            ErrorKind.TASK_FAILED, Reason.EXIT_STATUS, f"exit status {end.exit_status}", found, retryable=True
        )
    return Verdict(Status.COMPLETED, Reason.RESULT, {"exit_status": 0})
