"""Who may register webhooks, what is refused, and that a token is never shown."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from aiosd.auth.decision import Decision
from aiosd.core import secrets
from aiosd.core.authorization import Authorizer
from aiosd.core.manager import Manager
from aiosd.core.webhook_operations import WebhookOperations
from aiosd.errors import ErrorKind
from aiosd.store import webhooks
from tests.unit.core.rig import OTHER, ROOT, USER, Config, Core, core, play

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aiosd.model.jsontext import JsonObject, JsonValue

TOKEN = "webhook-secret-token"  # noqa: S105  seed 000's
URL = "https://client.example.com/aios/webhook"


@asynccontextmanager
async def hooked(root: Path, *, limit: int = 32) -> AsyncIterator[tuple[Core, list[None]]]:
    """A core with webhooks, and the wake-ups of their delivery."""
    config = Config(schedule_interval=30.0, max_webhooks_per_user=limit)
    async with core(root, config=config, schedule=False) as made:
        woken: list[None] = []
        group = WebhookOperations(
            made.database, Authorizer(made.authority, made.places), made.settings,
            await asyncio.to_thread(secrets.load, root), lambda: woken.append(None),
        )  # fmt: skip
        others = {name: handler for name, handler in made.manager._handlers.items() if name not in group.handlers()}

        class Others:
            def handlers(self) -> dict[str, object]:
                return others  # type: ignore[return-value]  # they are handlers

        made.manager = Manager(made.hub, [Others(), group])  # type: ignore[list-item]  # as above
        yield made, woken


def seed(task_id: str, **more: JsonValue) -> JsonObject:
    """Seed 000's params."""
    return {
        "task_id": task_id,
        "webhook_url": URL,
        "events": ["status", "artifact", "completed", "failed"],
        "authentication": {"type": "bearer", "token": TOKEN},
        "retry_policy": {"max_retries": 3, "retry_delay_ms": 1000},
        **more,
    }


def test_seed_000s_request_registers_and_its_counterpart_removes(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with hooked(tmp_path) as (made, woken):
            task_id = await made.create()
            body = await made.invoke("task.subscribe_webhook", seed(task_id))
            assert body["webhook_url"] == URL
            assert body["events"] == ["status", "artifact", "completed", "failed"]
            assert body["retry_policy"] == {"max_retries": 3, "retry_delay_ms": 1000}
            assert (body["state"], body["authenticated"]) == ("active", True)
            assert TOKEN not in str(body)
            assert woken
            assert "subscribe-webhook" in made.authority.actions
            gone = await made.invoke("task.unsubscribe_webhook", {"task_id": task_id, "webhook_url": URL})
            assert gone == {"webhook_id": body["webhook_id"], "task_id": task_id, "webhook_url": URL}
            assert (await made.invoke("webhook.list", {}))["webhooks"] == []

    play(scenario())


def test_the_same_address_again_changes_the_webhook(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with hooked(tmp_path) as (made, _):
            task_id = await made.create()
            first = await made.invoke("task.subscribe_webhook", seed(task_id))
            again = await made.invoke("task.subscribe_webhook", seed(task_id, events=["log"], authentication=None))
            assert again["webhook_id"] == first["webhook_id"]
            assert (again["events"], again["authenticated"]) == (["log"], False)
            found = await made.database.read(lambda db: webhooks.get(db, str(first["webhook_id"])))
            assert found is not None
            assert found.secret is None

    play(scenario())


def test_only_the_owner_who_is_allowed_to_call_out_may(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with hooked(tmp_path) as (made, _):
            task_id = await made.create()
            made.authority.answers["subscribe-webhook"] = Decision.DENIED
            refused = await made.refused("task.subscribe_webhook", seed(task_id))
            assert refused.kind is ErrorKind.PERMISSION_DENIED
            made.authority.answers["control-others"] = Decision.DENIED
            refused = await made.refused("task.subscribe_webhook", seed(task_id), OTHER)
            assert refused.kind is ErrorKind.TASK_NOT_FOUND
            made.authority.asked.clear()
            await made.invoke("task.subscribe_webhook", seed(task_id), ROOT)
            assert made.authority.asked == []
            assert (await made.invoke("webhook.list", {}, USER))["webhooks"] == []
            made.authority.answers["view-others"] = Decision.DENIED
            refused = await made.refused("webhook.list", {"all_users": True}, OTHER)
            assert refused.kind is ErrorKind.PERMISSION_DENIED

    play(scenario())


def test_a_user_has_so_many_and_no_more(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with hooked(tmp_path, limit=1) as (made, _):
            task_id = await made.create()
            await made.invoke("task.subscribe_webhook", seed(task_id))
            refused = await made.refused("task.subscribe_webhook", seed(task_id, webhook_url=URL + "/2"))
            assert (refused.kind, refused.reason) == (ErrorKind.RATE_LIMITED, "max-webhooks")
            await made.invoke("task.cancel", {"task_id": task_id})
            await made.database.write(lambda tx: tx.execute("DELETE FROM outbox").rowcount)
            other = await made.create()
            await made.invoke("task.subscribe_webhook", seed(other))

    play(scenario())


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"webhook_url": "http://client.example.com/"}, "webhook_url"),
        ({"webhook_url": "https://user:pass@client.example.com/"}, "webhook_url"),
        ({"webhook_url": "https:///path"}, "webhook_url"),
        ({"webhook_url": "https://client.example.com:0/"}, "webhook_url"),
        ({"webhook_url": "https://client.example.com:99999/"}, "webhook_url"),
        ({"webhook_url": "https://client.example.com/#part"}, "webhook_url"),
        ({"webhook_url": "file:///etc/passwd"}, "webhook_url"),
        ({"webhook_url": "https://client.example.com/\r\nX: y"}, "webhook_url"),
        ({"events": ["everything"]}, "events[0]"),
        ({"authentication": {"type": "basic", "token": "x"}}, "authentication.type"),
        ({"authentication": {"type": "bearer"}}, "authentication.token"),
        ({"authentication": {"type": "bearer", "token": ""}}, "authentication.token"),
        ({"authentication": {"type": "bearer", "token": "a\r\nX-Evil: 1"}}, "authentication.token"),
        ({"authentication": {"type": "bearer", "token": "x", "secret": "a b"}}, "authentication.secret"),
        ({"authentication": {"type": "bearer", "token": 1}}, "authentication"),
        ({"authentication": {"type": "bearer", "token": "x", "extra": "y"}}, "authentication"),
        ({"authentication": "token"}, "authentication"),
        ({"retry_policy": {"max_retries": 21}}, "retry_policy.max_retries"),
        ({"retry_policy": {"retry_delay_ms": 0}}, "retry_policy.retry_delay_ms"),
    ],
)
def test_what_is_wrong_is_named_and_not_repeated(tmp_path: Path, change: JsonObject, field: str) -> None:
    async def scenario() -> None:
        async with hooked(tmp_path) as (made, _):
            task_id = await made.create()
            error = await made.refused("task.subscribe_webhook", seed(task_id, **change))
            assert (error.kind, error.field) == (ErrorKind.INVALID_PARAMS, field)
            assert "Evil" not in str(error.wire())
            assert await made.count("webhooks") == 0

    play(scenario())


def test_a_finished_task_has_nothing_more_to_send(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with hooked(tmp_path) as (made, _):
            task_id = await made.create()
            await made.invoke("task.cancel", {"task_id": task_id})
            assert (await made.refused("task.subscribe_webhook", seed(task_id))).kind is ErrorKind.TASK_CANCELED

    play(scenario())


def test_only_a_parked_webhook_of_ones_own_can_be_resumed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with hooked(tmp_path) as (made, woken):
            task_id = await made.create()
            hook = str((await made.invoke("task.subscribe_webhook", seed(task_id)))["webhook_id"])
            assert (await made.refused("webhook.resume", {"webhook_id": hook})).kind is ErrorKind.INVALID_STATE
            await made.database.write(lambda tx: tx.execute("UPDATE webhooks SET state = 'parked'").rowcount)
            refused = await made.refused("webhook.resume", {"webhook_id": hook}, OTHER)
            assert refused.kind is ErrorKind.WEBHOOK_NOT_FOUND
            woken.clear()
            assert (await made.invoke("webhook.resume", {"webhook_id": hook}))["state"] == "active"
            assert woken
            refused = await made.refused("task.unsubscribe_webhook", {"task_id": task_id, "webhook_url": URL + "x"})
            assert refused.kind is ErrorKind.WEBHOOK_NOT_FOUND

    play(scenario())


def everything(root: Path) -> bytes:
    return b"".join(path.read_bytes() for path in root.rglob("*") if path.is_file())


def test_the_token_is_in_no_file_of_the_store(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with hooked(tmp_path) as (made, _):
            task_id = await made.create()
            await made.invoke("task.subscribe_webhook", seed(task_id))
            await made.invoke("task.cancel", {"task_id": task_id})
            text = await asyncio.to_thread(everything, tmp_path)
            assert URL.encode() in text
            assert TOKEN.encode() not in text
            assert all(TOKEN not in str(event) for event in made.events)

    play(scenario())
