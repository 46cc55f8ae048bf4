"""May this caller do that? The only place where the core asks polkit; what is not a clear yes is a no."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiosd.auth.decision import Authority, Decision
from aiosd.auth.places import PlaceError, run_of
from aiosd.auth.policy import Access, Action, required_action
from aiosd.core.fair import Fair
from aiosd.core.prompts import Prompts
from aiosd.errors import AiosError, ErrorKind
from aiosd.model.later import dataclass
from aiosd.store import runs

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from aiosd.auth.caller import Caller
    from aiosd.auth.places import Places
    from aiosd.model.task import Task
    from aiosd.store.database import Database

    Recorder = Callable[[Caller, Action, Decision, Mapping[str, str]], Awaitable[None]]

LOOKS_EACH, LOOKS = 8, 64
"""Questions to the authority at a time, of one user and of all, where nobody is asked. dbus-daemon lets one connection
wait for 128 answers (max_replies_per_connection); one more is an error at once, and would be a no for somebody else."""
PATIENCE = 30.0
"""Seconds that such a question may take, the wait for its turn included. What has no answer by then is a no."""

_NO_TASK = "there is no such task, or it is another user's"


def task_not_found() -> AiosError:
    """The one answer for a task that is not there and for one that the caller may not see."""
    return AiosError(ErrorKind.TASK_NOT_FOUND, _NO_TASK, field="task_id")


@dataclass(frozen=True, slots=True)
class Answer:
    """What the authority said. `person`: a person was asked for it, so a yes is that person's."""

    decision: Decision
    person: bool = False


class Authorizer:
    """Asks the authority, and says no in the error table's words."""

    def __init__(
        self, authority: Authority, places: Places, prompts: Prompts | None = None, *, record: Recorder | None = None
    ) -> None:
        """`authority`: polkit, or a stand-in of a test. `places`: where callers run. `record`: puts the authority's
        answers into the audit trail."""
        self._places = places
        self._authority = authority
        self._record = record
        self._prompts = prompts or Prompts()
        self._looks = Fair(LOOKS_EACH, LOOKS)

    async def look(self, caller: Caller, action: Action, details: Mapping[str, str]) -> Decision:
        """What the authority says when nobody may be asked; root is not asked about."""
        if caller.is_root:
            return Decision.ALLOWED
        try:
            async with asyncio.timeout(PATIENCE), self._looks.place(caller.uid):
                return await self._authority.check(caller.subject, action.value, details, interactive=False)
        except TimeoutError:
            return Decision.UNAVAILABLE

    async def ask_person(
        self,
        caller: Caller,
        action: Action,
        details: Mapping[str, str],
        *,
        unless: Callable[[], Awaitable[bool]] | None = None,
        then: Callable[[], Awaitable[None]] | None = None,
    ) -> Answer:
        """Have the person behind the caller asked, in their turn; `look` has said CHALLENGE.

        `unless`: looked at when the turn has come; true when the question has been answered by another one meanwhile,
        and then nobody is asked. `then`: done after a yes, before the next question of this person. Raises AiosError
        (RATE_LIMITED) when this person is asked too often.
        """
        async with self._prompts.turn(caller.uid):
            if unless is not None and await unless():
                return Answer(Decision.ALLOWED)
            self._prompts.spend(caller.uid)
            decision = await self._authority.check(caller.subject, action.value, details, interactive=True)
            if decision is Decision.ALLOWED:
                self._prompts.welcome(caller.uid)
                if then is not None:
                    await then()
            return Answer(decision, person=True)

    async def decide(self, caller: Caller, action: Action, details: Mapping[str, str]) -> Decision:
        """What the authority says; a person is asked only where it must be and may be."""
        answer = Answer(await self.look(caller, action, details))
        if answer.decision is Decision.CHALLENGE and caller.interactive:
            answer = await self.ask_person(caller, action, details)
        # Not each look at other people's tasks that nobody was asked about: a stranger could fill the trail with them.
        told = answer.person or (answer.decision is not Decision.CHALLENGE and action is not Action.VIEW_OTHERS)
        if self._record is not None and told and not caller.is_root:
            await self._record(caller, action, answer.decision, details)
        return answer.decision

    async def run_of(self, caller: Caller) -> str | None:
        """The run in whose scope the caller's process is; None for one that is in no task.

        Raises AiosError (PERMISSION_DENIED) when it cannot be told.
        """
        try:
            return run_of(await self._places.unit_of(caller.subject))
        except PlaceError as error:
            detail = f"it cannot be told where this caller runs, which means no: {error}"
            raise AiosError(ErrorKind.PERMISSION_DENIED, detail, reason="authority-unavailable") from None

    async def require_person(self, caller: Caller, action: Action | None = None) -> None:
        """Raise the refusal when the caller is a program that runs in a task: what it is asked for is a person's."""
        if await self.run_of(caller) is not None:
            data = {} if action is None else {"permission_required": action.value}
            detail = "a program that runs in a task cannot consent or approve: that is for a person outside of it"
            raise AiosError(ErrorKind.PERMISSION_DENIED, detail, reason="from-a-task", data=data)

    async def require(self, caller: Caller, action: Action | None, details: Mapping[str, str]) -> None:
        """Return when allowed; otherwise raise the refusal."""
        if action is None:
            return
        decision = await self.decide(caller, action, details)
        if decision is not Decision.ALLOWED:
            raise refusal(action, decision)

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


async def refuse_own(authorizer: Authorizer, database: Database, caller: Caller, task_id: str) -> None:
    """Raise PERMISSION_DENIED when the caller runs in that task itself: a program does not answer its own question."""
    run_id = await authorizer.run_of(caller)
    if run_id is None:
        return
    run = await database.read(lambda db: runs.get(db, run_id))
    if run is None or run.task_id == task_id:
        detail = "a program does not answer what it asked itself"
        raise AiosError(ErrorKind.PERMISSION_DENIED, detail, reason="from-a-task", field="task_id")


_REASONS = {
    Decision.DISMISSED: ("dismissed", "the authentication dialog was dismissed"),
    Decision.UNAVAILABLE: ("authority-unavailable", "the authority did not answer, which means no"),
}


def refusal(action: Action, decision: Decision) -> AiosError:
    """The error for what is not a yes."""
    data = {"permission_required": action.value}
    if decision is Decision.CHALLENGE:
        return AiosError(
            ErrorKind.INTERACTIVE_AUTH_REQUIRED,
            f"{action.value} needs a person's consent and the request did not allow asking",
            reason="interaction-required",
            data=data,
        )
    reason, text = _REASONS.get(decision, ("not-authorized", f"{action.value} was not granted"))
    return AiosError(ErrorKind.PERMISSION_DENIED, text, reason=reason, data=data)
