"""What follows a failed attempt: another one, the end, or a person's decision. Pure.

Source: seed 003, "failure handling": network, an absent worker, a reboot are tried again, each time with the reason;
permissions, conflicts and the user's own cancel are not; who fails again and again is escalated to `blocked`. And the
design's rule: nothing with side effects runs twice unless its manifest says it is idempotent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from aiosd.model.later import dataclass
from aiosd.model.manifest import OnFailure
from aiosd.model.status import RETRYABLE, Reason

if TYPE_CHECKING:
    from aiosd.model.manifest import RetryPolicy

NEVER_RAN = frozenset({Reason.LAUNCH})
"""Failures before the program's first instruction: trying again repeats nothing."""

TASKS_OWN = frozenset(
    {
        Reason.EXIT_STATUS,
        Reason.SIGNAL,
        Reason.OOM_KILL,
        Reason.REPORTED,
        Reason.INVALID_RESULT,
        Reason.FIRST_FRAME_TIMEOUT,
    }
)
"""Failures of the program: tried again where its policy gives more than one attempt, unless the program says not to.

All other reasons that are not in `RETRYABLE` are final: a time limit, a refusal, a cancel, a failed dependency.
"""


@dataclass(frozen=True, slots=True)
class Retry:
    """Try again at `at` (microseconds since the epoch) as attempt number `attempt`, because of `reason`."""

    at: int
    attempt: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class Fail:
    """The task has failed."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class Escalate:
    """No attempt is left, and the policy wants a person to decide (`input_required`/`blocked`)."""

    reason: Reason


Outcome: TypeAlias = Retry | Fail | Escalate


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed attempt: why, which one (from 1), and whether the program called it retryable (None: not said)."""

    reason: Reason
    attempt: int
    retryable: bool | None = None


def after_failure(
    failure: Failure,
    policy: RetryPolicy,
    on_failure: OnFailure,
    *,
    idempotent: bool,
    now: int,
    deadline: int | None = None,
) -> Outcome:
    """Decide. `now` and `deadline` (the end of the task's time limit): microseconds since the epoch."""
    if not _may_repeat(failure):
        return Fail(failure.reason)
    at = now + policy.delay_ms * 1000
    in_time = deadline is None or at < deadline
    safe = idempotent or failure.reason in NEVER_RAN or failure.retryable is True
    if failure.attempt < policy.max_attempts and in_time and safe:
        return Retry(at, failure.attempt + 1, failure.reason)
    return Escalate(failure.reason) if on_failure is OnFailure.ESCALATE else Fail(failure.reason)


def _may_repeat(failure: Failure) -> bool:
    """Whether another attempt could end otherwise."""
    if failure.reason in RETRYABLE:
        return True
    return failure.reason in TASKS_OWN and failure.retryable is not False
