"""What a run's end means for its task: each rule, and which comes before which."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from aiosd.core.outcome import Ending, judge
from aiosd.errors import ErrorKind
from aiosd.model.status import RETRYABLE, Reason, Status

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeAlias

    from aiosd.model.jsontext import JsonObject

    Fact: TypeAlias = Mapping[str, object]

FINE = Ending("test.a", exit_status=0)
DONE: JsonObject = {"sum": 3}
CANCELED = {"cancel_reason": "enough"}
TIMED_OUT = {"timed_out": True, "timeout_ms": 3000, "elapsed_ms": 3100}
SILENT = {"silent_for": 30.0}
LOST = {"lost": Reason.REBOOT, "lost_message": "the machine was restarted while it ran"}
UNSTARTED = {"launch_error": "no such program"}
OUT_OF_MEMORY = {"oom_kill": True, "exit_status": None, "signal": "SIGKILL"}
REPORTED = {"failure": {"message": "the network is down"}}
COMPLETED = {"completion": DONE}
FORBIDDEN = {"exit_status": None, "signal": "SIGSYS"}
KILLED = {"exit_status": None, "signal": "SIGSEGV"}
EXITED = {"exit_status": 3}


def ending(*facts: Fact) -> Ending:
    """All of these at once."""
    found = FINE
    for fact in facts:
        found = replace(found, **fact)  # type: ignore[arg-type]  # its fields
    return found


@pytest.mark.parametrize(
    ("facts", "reason", "kind", "message", "retryable"),
    [
        ((TIMED_OUT,), Reason.TIMEOUT, ErrorKind.TASK_TIMEOUT, "Timeout", False),
        ((SILENT,), Reason.FIRST_FRAME_TIMEOUT, ErrorKind.TASK_TIMEOUT, "the program sent no chunk within 30 s", True),
        ((LOST,), Reason.REBOOT, ErrorKind.TASK_FAILED, "the machine was restarted while it ran", True),
        (({"lost": Reason.LOST},), Reason.LOST, ErrorKind.TASK_FAILED, "the run was lost", True),
        (({"lost": Reason.CAPABILITY_MISSING},), Reason.CAPABILITY_MISSING, ErrorKind.TASK_FAILED, "the run was lost",
         False),
        ((UNSTARTED,), Reason.LAUNCH, ErrorKind.TASK_FAILED,
         "the program could not be started: no such program", True),
        ((OUT_OF_MEMORY,), Reason.OOM_KILL, ErrorKind.TASK_FAILED, "killed: it used more memory than its limit", True),
        ((REPORTED,), Reason.REPORTED, ErrorKind.TASK_FAILED, "the network is down", True),
        (({"failure": {}},), Reason.REPORTED, ErrorKind.TASK_FAILED, "the program reported a failure", True),
        (({"failure": {"retryable": False}},), Reason.REPORTED, ErrorKind.TASK_FAILED,
         "the program reported a failure", False),
        ((FORBIDDEN,), Reason.SANDBOX, ErrorKind.SANDBOX_VIOLATION,
         "killed by SIGSYS: it made a system call that no program may make here", False),
        ((KILLED,), Reason.SIGNAL, ErrorKind.TASK_FAILED, "killed by SIGSEGV", True),
        ((EXITED,), Reason.EXIT_STATUS, ErrorKind.TASK_FAILED, "exit status 3", True),
    ],
)  # fmt: skip
def test_each_failure_by_its_name(
    facts: tuple[Fact, ...], reason: Reason, kind: ErrorKind, message: str, *, retryable: bool
) -> None:
    found = judge(ending(*facts))
    assert (found.status, found.reason, found.detail, found.retryable) == (Status.FAILED, reason, message, retryable)
    assert found.result is None
    assert found.error is not None
    data = found.error["data"]
    assert isinstance(data, dict)
    assert (found.error["code"], found.error["message"]) == (kind.value.code, message)
    assert (data["error_id"], data["reason"], data["capability_id"]) == (kind.value.error_id, reason.value, "test.a")


ORDER: tuple[tuple[Fact, Reason], ...] = (
    (CANCELED, Reason.CANCELED), (TIMED_OUT, Reason.TIMEOUT), (SILENT, Reason.FIRST_FRAME_TIMEOUT),
    (LOST, Reason.REBOOT), (UNSTARTED, Reason.LAUNCH), (OUT_OF_MEMORY, Reason.OOM_KILL), (FORBIDDEN, Reason.SANDBOX),
    (EXITED, Reason.EXIT_STATUS), ({}, Reason.RESULT),
)  # fmt: skip


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        (first, second, reason)
        for number, (first, reason) in enumerate(ORDER)
        for second, _ in ORDER[number + 1 :]
    ],
)  # fmt: skip
def test_what_a_person_wanted_comes_first_then_the_system_then_the_program(
    first: Fact, second: Fact, reason: Reason
) -> None:
    assert judge(ending(second, first)).reason is reason


@pytest.mark.parametrize("fact", [TIMED_OUT, SILENT, LOST, UNSTARTED, OUT_OF_MEMORY, KILLED, EXITED])
def test_what_a_program_completed_stands_whatever_came_after(fact: Fact) -> None:
    found = judge(ending(COMPLETED, fact))
    assert (found.status, found.reason, found.result, found.error) == (Status.COMPLETED, Reason.RESULT, DONE, None)


@pytest.mark.parametrize("fact", [LOST, UNSTARTED, OUT_OF_MEMORY, KILLED, EXITED])
def test_what_a_program_reported_stands_against_how_it_ended(fact: Fact) -> None:
    assert judge(ending(REPORTED, fact)).reason is Reason.REPORTED


def test_a_time_limit_is_not_what_the_program_makes_of_it() -> None:
    assert judge(ending(REPORTED, TIMED_OUT)).reason is Reason.TIMEOUT
    assert judge(ending(REPORTED, SILENT)).reason is Reason.FIRST_FRAME_TIMEOUT


def test_a_cancel_loses_against_a_result_that_was_there_before_it_was_heard() -> None:
    assert judge(ending(COMPLETED, CANCELED)).status is Status.COMPLETED
    stopped = judge(ending(COMPLETED, CANCELED, {"stopped": True}))
    assert (stopped.status, stopped.reason, stopped.detail) == (Status.CANCELED, Reason.CANCELED, "enough")


def test_what_else_an_error_tells() -> None:
    def data(*facts: Fact) -> JsonObject:
        error = judge(ending(*facts)).error
        assert error is not None
        found = error["data"]
        assert isinstance(found, dict)
        return {name: value for name, value in found.items() if name not in ("error_id", "reason", "capability_id")}

    assert data(TIMED_OUT) == {"timeout_ms": 3000, "elapsed_ms": 3100}
    assert data(SILENT) == {"timeout_ms": 30_000, "elapsed_ms": 0}
    assert data({"failure": {"reason": "dns", "data": {"host": "a"}}}) == {
        "program_reason": "dns", "program_data": {"host": "a"},
    }  # fmt: skip
    assert data({"failure": {"message": "no"}}) == {}
    assert data(KILLED) == {"signal": "SIGSEGV"}
    assert data(FORBIDDEN) == {"signal": "SIGSYS"}
    assert data(EXITED) == {"exit_status": 3}


def test_a_plain_program_that_ends_well_has_its_exit_status_as_result() -> None:
    found = judge(FINE)
    assert (found.status, found.reason, found.result) == (Status.COMPLETED, Reason.RESULT, {"exit_status": 0})


def test_losses_that_are_the_systems_can_be_tried_again() -> None:
    for reason in Reason:
        assert judge(ending({"lost": reason})).retryable is (reason in RETRYABLE)
