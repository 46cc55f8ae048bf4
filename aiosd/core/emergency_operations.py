"""Handlers of `emergency.*`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiosd.auth.policy import Access, required_action
from aiosd.core.operations import Reply
from aiosd.errors import AiosError, ErrorKind

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from aiosd.auth.caller import Caller
    from aiosd.core.authorization import Authorizer
    from aiosd.core.emergency import Emergency
    from aiosd.core.scheduler import Scheduler
    from aiosd.core.settings import Settings
    from aiosd.model import wire_service


class EmergencyOperations:
    """The kill switch as callers use it: everyone for themselves, who may manage for all."""

    def __init__(
        self, authorizer: Authorizer, emergency: Emergency, settings: Settings, scheduler: Scheduler
    ) -> None:  # fmt: skip
        """Keeps what it asks."""
        self._authorizer = authorizer
        self._emergency = emergency
        self._settings = settings
        self._scheduler = scheduler

    def handlers(self) -> Mapping[str, Callable[..., Awaitable[Reply]]]:
        """By operation name."""
        return {"emergency.stop": self.stop, "emergency.lift": self.lift}

    async def stop(self, caller: Caller, params: wire_service.Emergency) -> Reply:
        """Kill everything of the scope, and let nothing start."""
        uid = _scope(caller, params)
        action = required_action(Access.OWN_OR_MANAGE, own=uid == caller.uid)
        await self._authorizer.require(caller, action, {"operation": "emergency stop", "scope": params.scope})
        return Reply(await self._emergency.stop(uid, caller.uid, params.reason))

    async def lift(self, caller: Caller, params: wire_service.EmergencyLift) -> Reply:
        """Let tasks of the scope start again. A stop that somebody else made is for an administrator to lift."""
        uid = _scope(caller, params)
        own = uid == caller.uid and self._settings.stops.stopped_by(uid) in (caller.uid, None)
        action = required_action(Access.OWN_OR_MANAGE, own=own)
        await self._authorizer.require(caller, action, {"operation": "lift an emergency stop", "scope": params.scope})
        try:
            lifted = await self._emergency.lift(uid, caller.uid)
        except OSError as error:
            raise AiosError(ErrorKind.STORAGE, f"it is lifted until the next start only: {error.strerror}") from None
        if not lifted:
            raise AiosError(ErrorKind.INVALID_STATE, "there is no such emergency stop", field="scope", reason="no-stop")
        self._scheduler.wake()
        return Reply({})


def _scope(caller: Caller, params: wire_service.Emergency | wire_service.EmergencyLift) -> int | None:
    """Whose tasks; None for everybody's."""
    if params.scope == "user":
        return caller.uid if params.uid is None else params.uid
    if params.uid is not None:
        raise AiosError(ErrorKind.INVALID_PARAMS, "only goes with the scope user", field="uid")
    return None
