"""Handlers of subscriptions: the core says what a caller may hear and what it missed; the door that asked delivers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiosd.auth.policy import Access, Action
from aiosd.core.operations import Reply
from aiosd.errors import AiosError, ErrorKind
from aiosd.model.ids import Prefix, event_sequence, new_id
from aiosd.model.subscription import granted
from aiosd.store import journal, tasks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from aiosd.auth.caller import Caller
    from aiosd.core.authorization import Authorizer
    from aiosd.model import wire
    from aiosd.model.event import Event
    from aiosd.model.following import Resubscribe, Subscribe
    from aiosd.model.jsontext import JsonValue
    from aiosd.store.database import Database


class SubscriptionOperations:
    """`task.subscribe`, `.resubscribe`, `.unsubscribe`."""

    def __init__(self, database: Database, authorizer: Authorizer) -> None:
        """Keeps what it asks."""
        self._database = database
        self._authorizer = authorizer

    def handlers(self) -> Mapping[str, Callable[..., Awaitable[Reply]]]:
        """By operation name."""
        return {
            "task.subscribe": self.subscribe,
            "task.resubscribe": self.resubscribe,
            "task.unsubscribe": self.unsubscribe,
        }

    async def subscribe(self, caller: Caller, params: wire.TaskSubscribe | Subscribe) -> Reply:
        """Grant a subscription."""
        return Reply(await self._grant(caller, params))

    async def resubscribe(self, caller: Caller, params: wire.TaskResubscribe | Resubscribe) -> Reply:
        """Grant one, with the events since `last_event_id` that it would have delivered. With more than `limit` of
        them the answer says `more`, and the client asks again from the answer's own `last_event_id`."""
        last = event_sequence(params.last_event_id)
        if last is None:
            raise AiosError(ErrorKind.INVALID_PARAMS, "is not the id of an event", field="last_event_id")
        body = await self._grant(caller, params)
        subscription = granted(body, after=last)
        task_id = params.task_id or None
        newest, (missed, more) = await self._database.read(
            lambda db: (
                journal.last_sequence(db),
                journal.events_after(db, last, task_id=task_id, uid=subscription.uid, limit=params.limit),
            )
        )
        if last > newest:
            raise AiosError(ErrorKind.INVALID_PARAMS, "is newer than any event that there is", field="last_event_id")
        body["missed_events"] = [_shown(event) for event in missed if subscription.wants(event)]
        body["last_event_id"] = missed[-1].id if missed else params.last_event_id
        body["more"] = more
        return Reply(body)

    async def unsubscribe(self, _caller: Caller, params: wire.SubscriptionRef) -> Reply:
        """Nothing to do here: the door that delivers knows whose subscription it is, and ends it."""
        return Reply({"subscription_id": params.subscription_id})

    async def _grant(self, caller: Caller, params: wire.TaskSubscribe | Subscribe) -> dict[str, JsonValue]:
        uid: int | None = caller.uid
        if params.task_id:
            task = await self._database.read(lambda db: tasks.get(db, params.task_id))
            uid = (await self._authorizer.require_task(caller, Access.VIEW, task)).uid
        elif params.all_users:
            await self._authorizer.require(caller, Action.VIEW_OTHERS, {"events": "all"})
            uid = None
        return {
            "subscription_id": new_id(Prefix.SUBSCRIPTION),
            "task_id": params.task_id,
            "uid": uid,
            "events": list(params.events),
        }


def _shown(event: Event) -> JsonValue:
    return {"id": event.id, "event": event.kind.value, "data": event.data()}
