"""May this caller do that? The only place where the core asks polkit; what is not a clear yes is a no."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiosd.auth.decision import Authority, Decision
from aiosd.auth.policy import Access, Action, required_action
from aiosd.errors import AiosError, ErrorKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiosd.auth.caller import Caller
    from aiosd.model.task import Task

_NO_TASK = "there is no such task, or it is another user's"


def task_not_found() -> AiosError:
    """The one answer for a task that is not there and for one that the caller may not see."""
    return AiosError(ErrorKind.TASK_NOT_FOUND, _NO_TASK, field="task_id")


class Authorizer:
    """Asks the authority, and says no in the error table's words."""

    def __init__(self, authority: Authority) -> None:
        """`authority`: polkit, or a stand-in of a test."""
        self._authority = authority

    async def decide(self, caller: Caller, action: Action, details: Mapping[str, str]) -> Decision:
        """What the authority says; root is not asked."""
        if caller.is_root:
            return Decision.ALLOWED
        return await self._authority.check(caller.subject, action.value, details, interactive=caller.interactive)

    async def require(self, caller: Caller, action: Action | None, details: Mapping[str, str]) -> None:
        """Return when allowed; otherwise raise the refusal."""
        if action is None:
            return
        decision = await self.decide(caller, action, details)
        if decision is Decision.ALLOWED:
            return
        data = {"permission_required": action.value}
        if decision is Decision.CHALLENGE:
            raise AiosError(
                ErrorKind.INTERACTIVE_AUTH_REQUIRED,
                f"{action.value} needs a person's consent and the request did not allow asking",
                reason="interaction-required",
                data=data,
            )
        reasons = {
            Decision.DISMISSED: ("dismissed", "the authentication dialog was dismissed"),
            Decision.UNAVAILABLE: ("authority-unavailable", "the authority did not answer, which means no"),
        }
        reason, text = reasons.get(decision, ("not-authorized", f"{action.value} was not granted"))
        raise AiosError(ErrorKind.PERMISSION_DENIED, text, reason=reason, data=data)

    async def require_task(self, caller: Caller, access: Access, task: Task | None) -> Task:
        """The task, when the caller may have that access to it; otherwise it does not exist for them."""
        if task is None:
            raise task_not_found()
        action = required_action(access, own=task.uid == caller.uid)
        if action is not None:
            details = {"task": task.id, "owner": str(task.uid)}
            if await self.decide(caller, action, details) is not Decision.ALLOWED:
                raise task_not_found()
        return task
