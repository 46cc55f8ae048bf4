"""Handlers of webhooks: register, remove, list, resume. Who may have the service call out is polkit's to say.

The token never gets further than the vault: it is sealed for its webhook in the transaction that stores that.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from aiosd.auth.policy import Access, Action
from aiosd.core import changes, clock
from aiosd.core.authorization import task_not_found
from aiosd.core.operations import Reply
from aiosd.core.refusals import refuse_final
from aiosd.core.secrets import Context
from aiosd.core.webhooks import purpose
from aiosd.errors import AiosError, ErrorKind
from aiosd.model.webhook import Webhook, WebhookRetry, WebhookState
from aiosd.store import tasks, webhooks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from aiosd.auth.caller import Caller
    from aiosd.core.authorization import Authorizer
    from aiosd.core.secrets import Vault
    from aiosd.core.settings import Settings
    from aiosd.model import wire
    from aiosd.model.jsontext import JsonObject, JsonValue
    from aiosd.model.secrettext import SecretText
    from aiosd.model.task import Task
    from aiosd.store.database import Database, Transaction

_TOKEN_BYTES = 4096
_AUTHENTICATION = frozenset({"type", "token", "secret"})


class WebhookOperations:
    """`task.subscribe_webhook`, `.unsubscribe_webhook`, `webhook.list`, `.resume`."""

    def __init__(
        self,
        database: Database,
        authorizer: Authorizer,
        settings: Settings,
        vault: Vault,
        changed: Callable[[], None],
    ) -> None:
        """`changed`: called when there may be something to deliver (`Deliverer.wake`)."""
        self._database = database
        self._authorizer = authorizer
        self._settings = settings
        self._vault = vault
        self._changed = changed

    def handlers(self) -> Mapping[str, Callable[..., Awaitable[Reply]]]:
        """By operation name."""
        return {
            "task.subscribe_webhook": self.subscribe,
            "task.unsubscribe_webhook": self.unsubscribe,
            "webhook.list": self.list_webhooks,
            "webhook.resume": self.resume,
        }

    async def subscribe(self, caller: Caller, params: wire.SubscribeWebhook, secret: SecretText | None) -> Reply:
        """Register a webhook, or change the caller's own of the same task and address."""
        check_url(params.webhook_url, private=self._settings.current.allow_private_addresses)
        _check_authentication(secret)
        task = await self._controlled(caller, params.task_id)
        refuse_final(task)
        details = {"task": task.id, "host": urlsplit(params.webhook_url).hostname or ""}
        await self._authorizer.require(caller, Action.SUBSCRIBE_WEBHOOK, details)
        # Sealed before it is stored: when the caller leaves meanwhile, what was given is wiped and the write goes on.
        own = Context(caller.uid, purpose(task.id, params.webhook_url))
        sealed = None if secret is None else self._vault.seal(own, secret.json)
        hook = await self._database.write(lambda tx: self._store(tx, caller, params, sealed))
        self._changed()
        return Reply(view(hook))

    def _store(
        self, transaction: Transaction, caller: Caller, params: wire.SubscribeWebhook, sealed: bytes | None
    ) -> Webhook:
        task = tasks.get(transaction, params.task_id)
        if task is None:
            raise task_not_found()
        refuse_final(task)
        events = tuple(dict.fromkeys(params.events))
        retry = WebhookRetry(params.retry_policy.max_retries, params.retry_policy.retry_delay_ms)
        moment = clock.now()
        hook = webhooks.find(transaction, task.id, params.webhook_url, caller.uid)
        if hook is None:
            self._check_room(transaction, caller)
            hook = webhooks.insert(
                transaction, Webhook("", task.id, caller.uid, params.webhook_url, events, retry, moment)
            )
        else:
            hook = webhooks.change(transaction, hook.id, events, retry, moment)
        webhooks.set_secret(transaction, hook.id, sealed)
        shown: JsonObject = {"webhook_id": hook.id, "url": hook.url, "events": list(events)}
        changes.audit(transaction, task, "webhook.registered", f"uid:{caller.uid}", shown)
        return replace(hook, secret=sealed)

    def _check_room(self, transaction: Transaction, caller: Caller) -> None:
        webhooks.end_finished(transaction)
        room = self._settings.current.max_webhooks_per_user
        if not caller.is_root and webhooks.count_open(transaction, caller.uid) >= room:
            raise AiosError(
                ErrorKind.RATE_LIMITED, f"{room} webhooks are registered already", reason="max-webhooks",
                data={"max_webhooks_per_user": room},
            )  # fmt: skip

    async def unsubscribe(self, caller: Caller, params: wire.UnsubscribeWebhook) -> Reply:
        """Forget a webhook and what waits for it. A delivery that is under way may still arrive."""
        await self._controlled(caller, params.task_id)

        def remove(transaction: Transaction) -> Webhook:
            own = webhooks.find(transaction, params.task_id, params.webhook_url, caller.uid)
            hook = own or (
                webhooks.find(transaction, params.task_id, params.webhook_url, None) if caller.is_root else None
            )
            if hook is None:
                raise AiosError(
                    ErrorKind.WEBHOOK_NOT_FOUND, "the task has no webhook of yours there", field="webhook_url"
                )
            webhooks.remove(transaction, hook.id)
            task = tasks.get(transaction, hook.task_id)
            if task is not None:
                shown: JsonObject = {"webhook_id": hook.id, "url": hook.url}
                changes.audit(transaction, task, "webhook.removed", f"uid:{caller.uid}", shown)
            return hook

        hook = await self._database.write(remove)
        return Reply({"webhook_id": hook.id, "task_id": hook.task_id, "webhook_url": hook.url})

    async def list_webhooks(self, caller: Caller, params: wire.WebhookList) -> Reply:
        """The caller's webhooks, everybody's with view-others."""
        uid: int | None = caller.uid
        if params.all_users:
            await self._authorizer.require(caller, Action.VIEW_OTHERS, {"list": "webhooks"})
            uid = None
        found = await self._database.read(lambda db: webhooks.of_user(db, uid, params.task_id or None))
        return Reply({"webhooks": [view(hook) for hook in found]})

    async def resume(self, caller: Caller, params: wire.WebhookRef) -> Reply:
        """Deliver again to a webhook that was parked, from where it stopped."""

        def again(transaction: Transaction) -> Webhook:
            hook = webhooks.get(transaction, params.webhook_id)
            if hook is None or (hook.uid != caller.uid and not caller.is_root):
                raise AiosError(ErrorKind.WEBHOOK_NOT_FOUND, "no webhook of yours has that id", field="webhook_id")
            if hook.state is not WebhookState.PARKED:
                raise AiosError(
                    ErrorKind.INVALID_STATE, f"only a parked webhook can be resumed; this one is {hook.state}",
                    field="webhook_id", reason="not-parked",
                )  # fmt: skip
            return webhooks.resume(transaction, hook.id, clock.now())

        hook = await self._database.write(again)
        self._changed()
        return Reply(view(hook))

    async def _controlled(self, caller: Caller, task_id: str) -> Task:
        found = await self._database.read(lambda db: tasks.get(db, task_id))
        return await self._authorizer.require_task(caller, Access.CONTROL, found)


def check_url(url: str, *, private: bool) -> None:
    """Raise INVALID_PARAMS for a URL that nothing can be sent to. Where it leads is looked at at every delivery."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise _bad_url("is not a URL") from None
    if parts.scheme not in (("https", "http") if private else ("https",)):
        raise _bad_url("must begin with https://")
    if not parts.hostname or port == 0:
        raise _bad_url("names no host")
    if parts.username is not None or parts.password is not None:
        raise _bad_url("must not hold a user or password: give a token")
    if parts.fragment:
        raise _bad_url("must not have a fragment")


def _bad_url(detail: str) -> AiosError:
    return AiosError(ErrorKind.INVALID_PARAMS, detail, field="webhook_url")


def _check_authentication(secret: SecretText | None) -> None:
    """Raise INVALID_PARAMS unless it is a bearer token that a header can hold, and perhaps a key for signatures."""
    if secret is None:
        return
    unknown = secret.names - _AUTHENTICATION
    if unknown:
        raise AiosError(ErrorKind.INVALID_PARAMS, f"unknown field {min(unknown)}", field="authentication")
    if secret.word("type") != "bearer":
        raise AiosError(ErrorKind.INVALID_PARAMS, "only bearer is known", field="authentication.type")
    for name in ("token", "secret"):
        with secret.field(name) as text:
            given = len(text)
            plain = all(33 <= sign <= 126 and sign != 0x5C for sign in text)
        if (name == "token" or name in secret.names) and not 0 < given <= _TOKEN_BYTES:
            raise AiosError(
                ErrorKind.INVALID_PARAMS, f"must have 1 to {_TOKEN_BYTES} characters", field=f"authentication.{name}"
            )
        if not plain:
            raise AiosError(
                ErrorKind.INVALID_PARAMS, "must be printable ASCII without spaces and backslashes",
                field=f"authentication.{name}",
            )  # fmt: skip


def view(hook: Webhook) -> JsonObject:
    """A webhook as it is shown; what it is authenticated with is not."""
    shown: dict[str, JsonValue] = {
        "webhook_id": hook.id, "task_id": hook.task_id, "uid": hook.uid, "webhook_url": hook.url,
        "events": list(hook.events), "authenticated": hook.secret is not None, "state": hook.state.value,
        "retry_policy": {"max_retries": hook.retry.max_retries, "retry_delay_ms": hook.retry.retry_delay_ms},
        "waiting": hook.waiting, "delivered": hook.delivered, "dropped": hook.dropped, "last_error": hook.last_error,
        "created_at": clock.rfc3339(hook.created_at),
        "last_attempt_at": None if hook.last_at is None else clock.rfc3339(hook.last_at),
        "next_attempt_at": (
            clock.rfc3339(hook.next_at) if hook.next_at is not None and hook.state is WebhookState.ACTIVE else None
        ),
    }  # fmt: skip
    return {name: value for name, value in shown.items() if value is not None}
