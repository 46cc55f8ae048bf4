"""What follows a failed attempt: seed 003's lists of what is tried again and what is not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiosd.core.retry import Escalate, Fail, Failure, Outcome, Retry, after_failure
from aiosd.model.manifest import OnFailure, RetryPolicy
from aiosd.model.status import Reason

NOW = 1_767_607_200_000_000
# Seed 000's example: "retry": {"max_attempts": 3, "delay_ms": 1000}.
SEED = RetryPolicy(max_attempts=3, delay_ms=1000)


def after(
    reason: Reason, attempt: int = 1, *, retryable: bool | None = None, on: OnFailure = OnFailure.FAIL,
    idempotent: bool = True, policy: RetryPolicy = SEED, deadline: int | None = None,
) -> Outcome:  # fmt: skip
    failure = Failure(reason, attempt, retryable)
    return after_failure(failure, policy, on, idempotent=idempotent, now=NOW, deadline=deadline)


# Seed 003: network flaps, worker briefly offline, tool call timed out (reported by the program); and the system's own.
@pytest.mark.parametrize(
    "reason",
    [Reason.WORKER_LOST, Reason.REBOOT, Reason.LOST, Reason.SUPERVISOR_DIED, Reason.LAUNCH, Reason.FIRST_FRAME_TIMEOUT,
     Reason.REPORTED, Reason.EXIT_STATUS, Reason.SIGNAL, Reason.OOM_KILL, Reason.INVALID_RESULT],
)  # fmt: skip
def test_these_are_tried_again_while_attempts_remain(reason: Reason) -> None:
    assert after(reason, 1) == Retry(NOW + 1_000_000, 2, reason)
    assert after(reason, 2) == Retry(NOW + 1_000_000, 3, reason)
    assert after(reason, 3) == Fail(reason)
    assert after(reason, 3, on=OnFailure.ESCALATE) == Escalate(reason)


# Seed 003: no permission, conflicting objective, canceled by the user; design: invalid arguments, a time limit.
@pytest.mark.parametrize(
    "reason",
    [Reason.PERMISSION_DENIED, Reason.CANCELED, Reason.USER_REQUEST, Reason.PARENT_CANCELED, Reason.DEPENDENCY_FAILED,
     Reason.CAPABILITY_MISSING, Reason.TIMEOUT, Reason.AUTH_TIMEOUT, Reason.INPUT_TIMEOUT, Reason.SANDBOX],
)  # fmt: skip
@pytest.mark.parametrize("on", list(OnFailure))
def test_these_are_final_whatever_the_policy_says(reason: Reason, on: OnFailure) -> None:
    assert after(reason, 1, on=on) == Fail(reason)
    assert after(reason, 1, on=on, retryable=True) == Fail(reason)


def test_the_program_may_say_that_it_makes_no_sense() -> None:
    assert after(Reason.REPORTED, retryable=False) == Fail(Reason.REPORTED)
    assert after(Reason.REPORTED, retryable=False, on=OnFailure.ESCALATE) == Fail(Reason.REPORTED)


def test_nothing_with_side_effects_is_run_twice() -> None:
    assert after(Reason.EXIT_STATUS, idempotent=False) == Fail(Reason.EXIT_STATUS)
    assert after(Reason.REBOOT, idempotent=False) == Fail(Reason.REBOOT)
    assert after(Reason.REBOOT, idempotent=False, on=OnFailure.ESCALATE) == Escalate(Reason.REBOOT)
    assert isinstance(after(Reason.LAUNCH, idempotent=False), Retry), "it never ran"
    assert isinstance(after(Reason.REPORTED, idempotent=False, retryable=True), Retry), "the program knows"


def test_without_a_policy_there_is_one_attempt() -> None:
    assert after(Reason.EXIT_STATUS, policy=RetryPolicy()) == Fail(Reason.EXIT_STATUS)


def test_no_attempt_starts_after_the_tasks_time_limit() -> None:
    assert isinstance(after(Reason.EXIT_STATUS, deadline=NOW + 1_000_001), Retry)
    assert after(Reason.EXIT_STATUS, deadline=NOW + 1_000_000) == Fail(Reason.EXIT_STATUS)


@given(
    reason=st.sampled_from(list(Reason)), attempt=st.integers(1, 20), retryable=st.none() | st.booleans(),
    idempotent=st.booleans(), on=st.sampled_from(list(OnFailure)), most=st.integers(1, 10),
    delay=st.integers(0, 10**6), deadline=st.none() | st.integers(NOW, NOW + 10**10),
)  # fmt: skip
def test_it_always_ends(
    *, reason: Reason, attempt: int, retryable: bool | None, idempotent: bool, on: OnFailure, most: int, delay: int,
    deadline: int | None,
) -> None:  # fmt: skip
    for number in range(attempt, attempt + most + 1):
        answer = after(
            reason, number, retryable=retryable, idempotent=idempotent, on=on, policy=RetryPolicy(most, delay),
            deadline=deadline,
        )  # fmt: skip
        assert answer.reason is reason
        if not isinstance(answer, Retry):
            break
        assert answer.attempt == number + 1 <= most
        assert answer.at == NOW + delay * 1000
    assert not isinstance(answer, Retry)
