"""Deliveries as receivers see them: the seed's request, order, retries, parking, restarts, and what is not followed."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import socket
import threading
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from aiosd.hooks.sending import JudgingResolver, RefusedAddress, Sender, retry_after
from aiosd.model.event import Kind
from aiosd.model.status import Status
from aiosd.model.webhook import WebhookRetry, WebhookState
from aiosd.store import journal
from tests.unit.hooks.receiver import TASK, TOKEN, Outbox, Receiver, outbox, receiving

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path

    from tests.unit.hooks.receiver import Behave


def play(scenario: Coroutine[None, None, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(90):
            await scenario

    asyncio.run(bounded())


def answer(status: int, **headers: str) -> Behave:
    async def behave(_: web.Request) -> web.StreamResponse:
        return web.Response(status=status, headers={name.replace("_", "-"): text for name, text in headers.items()})

    return behave


async def drop(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def hang(_: web.Request) -> web.StreamResponse:
    await asyncio.sleep(60)
    return web.Response()


async def endless(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b"x" * 65536)


async def started(box: Outbox) -> None:
    await box.task()


def test_a_delivery_is_seed_000s_request_with_a_signature_over_the_exact_body(tmp_path: Path) -> None:
    async def scenario() -> None:
        receiver = Receiver()
        async with receiving(receiver), outbox(tmp_path) as box, box.delivering():
            await started(box)
            hook = await box.hook(receiver.url, events=["status"])
            payload = {"status": "completed", "phase": "completed", "timestamp": "2026-01-05T10:01:00.000Z"}
            event = await box.event(1, kind=Kind.STATUS, payload=payload, new=Status.COMPLETED)
            await box.until(hook, lambda one: one.delivered == 1)
        (request,) = receiver.requests
        sent = json.loads(request.body)
        assert list(sent) == ["event", "task_id", "timestamp", "data"]
        assert (sent["event"], sent["task_id"]) == ("task.status", TASK)
        assert sent["data"] == {**payload, "result": {"best": "taobao"}}
        assert request.headers["Content-Type"] == "application/json"
        assert request.headers["Authorization"] == f"Bearer {TOKEN}"
        assert request.headers["X-AIOS-Event"] == "task.status"
        assert request.headers["X-AIOS-Event-Id"] == event.id
        assert request.headers["X-AIOS-Delivery-Id"].startswith("delivery-")
        wanted = hmac.new(TOKEN.encode(), request.body, hashlib.sha256).hexdigest()
        assert request.headers["X-AIOS-Signature"] == f"sha256={wanted}"

    play(scenario())


def test_a_secret_of_its_own_signs_and_the_token_does_not(tmp_path: Path) -> None:
    async def scenario() -> None:
        receiver = Receiver()
        async with receiving(receiver), outbox(tmp_path) as box, box.delivering():
            await started(box)
            hook = await box.hook(receiver.url, sealed='{"type":"bearer","token":"t","secret":"k"}')
            await box.event(1)
            await box.until(hook, lambda one: one.delivered == 1)
        (request,) = receiver.requests
        wanted = hmac.new(b"k", request.body, hashlib.sha256).hexdigest()
        assert request.headers["X-AIOS-Signature"] == f"sha256={wanted}"

    play(scenario())


def test_only_what_was_asked_for_is_sent_and_the_last_delivery_ends_the_webhook(tmp_path: Path) -> None:
    async def scenario() -> None:
        receiver = Receiver()
        async with receiving(receiver), outbox(tmp_path) as box, box.delivering():
            await started(box)
            hook = await box.hook(receiver.url, events=["artifact", "completed"])
            await box.event(1)
            await box.event(2, kind=Kind.ARTIFACT)
            await box.event(3, kind=Kind.TIMELINE)
            await box.event(4, kind=Kind.STATUS, payload={"number": 4}, new=Status.COMPLETED)
            ended = await box.until(hook, lambda one: one.state is WebhookState.ENDED)
            assert ended.secret is None
            assert await box.database.read(lambda db: db.execute("SELECT count(*) FROM outbox").fetchone()[0]) == 0
        assert [one.number for one in receiver.accepted] == [2, 4]

    play(scenario())


def test_failures_of_every_kind_are_tried_again_in_order_and_one_at_a_time(tmp_path: Path) -> None:
    async def scenario() -> None:
        bad: list[Behave] = [answer(500), drop, answer(404), hang, answer(302, Location="http://127.0.0.1:1/"),
                             answer(503), endless]  # fmt: skip
        receiver = Receiver(script=list(bad))
        async with receiving(receiver), outbox(tmp_path, delivery_timeout=2.0) as box, box.delivering():
            await started(box)
            hook = await box.hook(receiver.url, retry=WebhookRetry(20, 10))
            for number in range(1, 41):
                await box.event(number)
            await box.until(hook, lambda one: one.delivered == 40)
        # `endless` answered 200 and only its body was not waited for: event 1 has arrived with it.
        assert [one.number for one in receiver.accepted] == list(range(2, 41))
        assert [one.number for one in receiver.requests[:7]] == [1] * 7
        assert len({one.headers["X-AIOS-Delivery-Id"] for one in receiver.requests[:7]}) == 1
        assert len({one.body for one in receiver.requests[:7]}) == 1
        assert receiver.most_busy == 1

    play(scenario())


def test_a_redirection_is_not_followed(tmp_path: Path) -> None:
    async def scenario() -> None:
        inner, receiver = Receiver(), Receiver()
        async with receiving(inner), receiving(receiver), outbox(tmp_path) as box, box.delivering():
            receiver.script += [answer(307, Location=inner.url)]
            await started(box)
            hook = await box.hook(receiver.url, retry=WebhookRetry(0, 10))
            await box.event(1)
            parked = await box.until(hook, lambda one: one.state is WebhookState.PARKED)
            assert parked.last_error == "the receiver answered 307 (redirections are not followed)"
        assert len(receiver.requests) == 1
        assert inner.requests == []

    play(scenario())


def test_a_receiver_that_stays_away_is_parked_and_gets_everything_once_it_is_resumed(tmp_path: Path) -> None:
    async def scenario() -> None:
        receiver = Receiver()
        async with outbox(tmp_path) as box:
            await started(box)
            with socket.socket() as placeholder:
                placeholder.bind(("127.0.0.1", 0))
                port = placeholder.getsockname()[1]
            hook = await box.hook(f"http://127.0.0.1:{port}/aios/webhook", retry=WebhookRetry(2, 10))
            async with box.delivering() as deliverer:
                for number in (1, 2):
                    await box.event(number)
                parked = await box.until(hook, lambda one: one.state is WebhookState.PARKED)
                assert parked.last_error == "no connection: Connection refused"
                await box.event(3)
                assert (await box.look(hook)).waiting == 3
                async with receiving(receiver, port):
                    from aiosd.core import clock
                    from aiosd.store import webhooks

                    await box.database.write(lambda tx: webhooks.resume(tx, hook.id, clock.now()))
                    deliverer.wake()
                    await box.until(hook, lambda one: one.delivered == 3)
        assert [one.number for one in receiver.accepted] == [1, 2, 3]

    play(scenario())


def test_a_restart_in_the_middle_loses_nothing_and_repeats_at_most_the_one_under_way(tmp_path: Path) -> None:
    async def scenario() -> None:
        arrived = asyncio.Event()

        async def taken_but_not_answered(_: web.Request) -> web.StreamResponse:
            arrived.set()
            await asyncio.sleep(60)
            return web.Response()

        receiver = Receiver(script=[answer(200), answer(200), taken_but_not_answered])
        async with receiving(receiver):
            async with outbox(tmp_path) as box:
                await started(box)
                hook = await box.hook(receiver.url)
                for number in range(1, 8):
                    await box.event(number)
                async with box.delivering():
                    await arrived.wait()
            async with outbox(tmp_path) as box, box.delivering():
                await box.until(hook, lambda one: one.delivered == 7)
        assert [one.number for one in receiver.requests] == [1, 2, 3, 3, 4, 5, 6, 7]
        twice = receiver.requests[2:4]
        assert twice[0].headers["X-AIOS-Delivery-Id"] == twice[1].headers["X-AIOS-Delivery-Id"]
        assert twice[0].body == twice[1].body

    play(scenario())


def test_retry_after_is_waited_for(tmp_path: Path) -> None:
    async def scenario() -> None:
        receiver = Receiver(script=[answer(429, Retry_After="1")])
        async with receiving(receiver), outbox(tmp_path) as box, box.delivering():
            await started(box)
            hook = await box.hook(receiver.url)
            await box.event(1)
            await box.until(hook, lambda one: one.delivered == 1)
        first, second = receiver.requests
        assert second.at - first.at >= 0.99

    play(scenario())


def test_gone_ends_the_webhook(tmp_path: Path) -> None:
    async def scenario() -> None:
        receiver = Receiver(script=[answer(410)])
        async with receiving(receiver), outbox(tmp_path) as box, box.delivering():
            await started(box)
            hook = await box.hook(receiver.url)
            await box.event(1)
            ended = await box.until(hook, lambda one: one.state is WebhookState.ENDED)
            await box.event(2)
            assert (ended.secret, ended.waiting) == (None, 0)
            assert (await box.look(hook)).waiting == 0
        assert len(receiver.requests) == 1

    play(scenario())


def test_a_slow_receiver_does_not_hold_up_the_others(tmp_path: Path) -> None:
    async def scenario() -> None:
        slow, quick = Receiver(script=[hang]), Receiver()
        async with receiving(slow), receiving(quick), outbox(tmp_path, delivery_timeout=60.0) as box, box.delivering():
            await started(box)
            await box.hook(slow.url)
            hook = await box.hook(quick.url)
            for number in range(1, 6):
                await box.event(number)
            await box.until(hook, lambda one: one.delivered == 5)
            assert len(slow.requests) == 1

    play(scenario())


def test_what_there_is_no_room_for_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with outbox(tmp_path) as box:
            await started(box)
            hook = await box.hook("http://127.0.0.1:9/")
            limit = journal.MAX_WAITING
            await box.database.write(lambda tx: tx.execute("UPDATE webhooks SET waiting = ?", (limit - 1,)).rowcount)
            for number in range(3):
                await box.event(number)
            found = await box.look(hook)
            assert (found.waiting, found.dropped) == (limit, 2)

    play(scenario())


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "127.1", "2130706433", "[::1]", "[::ffff:127.0.0.1]", "0x7f000001"]
)
def test_nothing_is_connected_to_on_this_machine(tmp_path: Path, host: str) -> None:
    async def scenario() -> None:
        receiver = Receiver()
        async with (
            receiving(receiver) as port,
            outbox(tmp_path, allow_private_addresses=False) as box,
            box.delivering(),
        ):
            await started(box)
            hook = await box.hook(f"https://{host}:{port}/", retry=WebhookRetry(0, 10))
            await box.event(1)
            parked = await box.until(hook, lambda one: one.state is WebhookState.PARKED)
            assert "not allowed: " in (parked.last_error or "")
        assert receiver.requests == []

    play(scenario())


def test_of_a_names_addresses_only_those_that_were_judged_good_remain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with outbox(tmp_path, allow_private_addresses=False) as box:
            resolver = JudgingResolver(box.settings)
            answers = ["127.0.0.1", "8.8.8.8", "10.0.0.1"]

            def infos(*_: object, **__: object) -> list[object]:
                return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 443)) for address in answers]

            monkeypatch.setattr(socket, "getaddrinfo", infos)
            assert [one["host"] for one in await resolver.resolve("rebind.example", 443)] == ["8.8.8.8"]
            answers.remove("8.8.8.8")
            with pytest.raises(RefusedAddress, match="private"):
                await resolver.resolve("rebind.example", 443)
            await resolver.close()

    play(scenario())


def test_a_name_server_that_does_not_answer_takes_no_thread_of_the_daemons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = threading.Event()

    def infos(*_: object, **__: object) -> list[object]:
        silent.wait(60)
        return []

    async def scenario() -> None:
        async with outbox(tmp_path, allow_private_addresses=False) as box:
            monkeypatch.setattr(socket, "getaddrinfo", infos)
            resolver = JudgingResolver(box.settings)
            # More than the loop has threads, however many processors there are (concurrent.futures: at most 32).
            waiting = [asyncio.create_task(resolver.resolve("silent.example", 443)) for _ in range(40)]
            await asyncio.sleep(0)
            try:
                async with asyncio.timeout(30):
                    assert await asyncio.to_thread(lambda: "served") == "served"
            finally:
                silent.set()
                await asyncio.gather(*waiting, return_exceptions=True)
                await resolver.close()

    play(scenario())


def test_plain_http_needs_the_administrator(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with outbox(tmp_path, allow_private_addresses=False) as box, Sender.opened(box.settings) as sender:
            outcome = await sender.send("http://example.com/", None, b"{}", None)  # type: ignore[arg-type]  # not looked at
            assert "must begin with https://" in outcome.error

    play(scenario())


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("120", 120.0), (" 3 ", 3.0), ("Mon, 05 Jan 2026 10:00:00 GMT", 0.0), ("soon", None), (None, None)],
)
def test_retry_after_in_both_its_forms(text: str | None, seconds: float | None) -> None:
    assert retry_after(text) == seconds
