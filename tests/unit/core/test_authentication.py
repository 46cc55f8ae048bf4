"""auth_required from the program's question to its answer: seed 000's shapes, refusals, restarts, time limits."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from aiosd.auth.decision import Decision
from aiosd.core import clock, secrets
from aiosd.core.authentication import RequestError, request
from aiosd.core.authentication_operations import AuthenticationOperations, Handover
from aiosd.core.authorization import Authorizer
from aiosd.core.consent import Consents
from aiosd.core.deferred import Deferred
from aiosd.core.expiry import Expiry
from aiosd.core.manager import Manager
from aiosd.errors import ErrorKind
from aiosd.model.event import Kind
from aiosd.model.secrettext import SecretText
from tests.unit.core.fakelauncher import FakeLauncher
from tests.unit.core.rig import OTHER, Core, daemon, play, timed_out

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aiosd.core.watch import Watch
    from aiosd.model.jsontext import JsonObject
    from tests.unit.core.fakelauncher import FakeRun

SECRET = "4/0AX4XfWh-a-code-that-nobody-may-keep"  # noqa: S105  made up
SEED: JsonObject = {
    "type": "oauth2",
    "provider": "google",
    "authorization_url": "https://accounts.google.com/o/oauth2/v2/auth",
    "scopes": ["https://www.googleapis.com/auth/drive.readonly"],
    "reason": "访问Google Drive需要用户授权",
    "timeout_ms": 300000,
}
"""Seed 000's example."""


def asks(asked: JsonObject, *, interaction: int = 1) -> object:
    """A program that asks, and tells in its result what it was given."""

    async def program(run: FakeRun) -> None:
        await run.go()
        run.say("task_interaction", {"interaction": interaction, "kind": "auth", "auth_request": asked})
        message = await run.hear("authentication")
        given = message["input"]
        assert isinstance(given, dict)
        run.say("task_completion", {"result": {"interaction": message["interaction"], "keys": sorted(given)}})
        run.end(0)

    return program


@asynccontextmanager
async def authenticating(root: Path, launcher: FakeLauncher) -> AsyncIterator[tuple[Core, Handover]]:
    """One life of a daemon that can authenticate; leaving it is a crash."""
    async with daemon(root, launcher) as made:
        vault = await asyncio.to_thread(secrets.load, root)
        handover, expiry = Handover(made.database, vault, made.supervision), Expiry(made.database, made.supervision)
        authorizer = Authorizer(made.authority, made.places)
        consents = Consents(made.database, authorizer, made.policies, made.settings)
        deferred = Deferred(made.database, made.registry, consents, made.settings)
        group = AuthenticationOperations(made.database, authorizer, vault, made.supervision, handover, deferred)
        others = {name: one for name, one in made.manager._handlers.items() if name not in group.handlers()}

        class Others:
            def handlers(self) -> dict[str, object]:
                return others  # type: ignore[return-value]  # they are handlers

        made.manager = Manager(made.hub, [Others(), group])  # type: ignore[list-item]  # as above
        made.hub.listen(expiry.heard)
        running = asyncio.create_task(expiry.run())
        try:
            yield made, handover
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


def code(**fields: str) -> JsonObject:
    return {"type": "oauth2", "authorization_code": SECRET, **fields}


def test_seed_000s_exchange_with_nothing_left_behind(tmp_path: Path) -> None:
    async def scenario() -> None:
        launcher = FakeLauncher(tmp_path / "launcher")
        launcher.program = asks({**SEED, "state": "st-1"})  # type: ignore[assignment]  # a program
        async with launcher.serving(), authenticating(tmp_path, launcher) as (made, _):
            task_id = await made.create()
            await made.until(task_id, "auth_required")
            (event,) = [one for one in made.events if one.kind is Kind.AUTH_REQUIRED]
            assert event.data() == {
                "task_id": task_id, "status": "auth_required", "auth_request": {**SEED, "state": "st-1"},
            }  # fmt: skip
            shown = await made.invoke("task.get", {"task_id": task_id})
            assert shown["phase"] == "waiting_auth"
            asked = shown["auth_request"]
            assert isinstance(asked, dict)
            assert asked["provider"] == "google"
            body = await made.invoke("task.authenticate", {"task_id": task_id, "auth_response": code(state="st-1")})
            assert body == {"task_id": task_id, "status": "working"}
            task = await made.ended(task_id)
            assert task.result == {"interaction": 1, "keys": ["authorization_code", "state", "type"]}
            (message,) = [one for kind, one in launcher.made(task_id)[0].heard if kind == "authentication"]
            assert message["input"] == code(state="st-1")
            assert await made.count("secrets") == 0
            assert SECRET not in json.dumps([one.payload for one in await made.log(task_id)])
            assert SECRET not in str(await made.invoke("task.get", {"task_id": task_id, "include_history": True}))
        assert SECRET.encode() not in await asyncio.to_thread(everything, tmp_path)

    play(scenario())


def everything(root: Path) -> bytes:
    return b"".join(path.read_bytes() for path in root.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("asked", "response"),
    [
        ({"type": "api_key"}, {"type": "api_key", "api_key": 'k"\\\u00e9'}),
        ({"type": "password"}, {"type": "password", "username": "u", "password": "p"}),
        ({"type": "certificate"}, {"type": "certificate", "certificate": "-----BEGIN\n", "private_key": "k"}),
        (SEED, {"type": "oauth2", "authorization_code": "c", "redirect_uri": "http://127.0.0.1:1/callback"}),
    ],
)
def test_every_type_reaches_the_program_as_it_was_given(
    tmp_path: Path, asked: JsonObject, response: JsonObject
) -> None:
    async def scenario() -> None:
        launcher = FakeLauncher(tmp_path / "launcher")
        launcher.program = asks(asked)  # type: ignore[assignment]  # a program
        async with launcher.serving(), authenticating(tmp_path, launcher) as (made, _):
            task_id = await made.create()
            await made.until(task_id, "auth_required")
            await made.invoke("task.authenticate", {"task_id": task_id, "auth_response": response})
            await made.ended(task_id)
            (message,) = [one for kind, one in launcher.made(task_id)[0].heard if kind == "authentication"]
            assert message["input"] == response

    play(scenario())


@pytest.mark.parametrize(
    ("response", "field", "kind"),
    [
        (None, "auth_response", ErrorKind.INVALID_PARAMS),
        ("code", "auth_response", ErrorKind.INVALID_PARAMS),
        ({"type": "oauth2", "authorization_code": 7, "state": "st-1"}, "auth_response", ErrorKind.INVALID_PARAMS),
        ({"type": "api_key", "api_key": SECRET}, "auth_response.type", ErrorKind.INVALID_INPUT),
        ({"authorization_code": SECRET, "state": "st-1"}, "auth_response.type", ErrorKind.INVALID_INPUT),
        (code(), "auth_response.state", ErrorKind.INVALID_INPUT),
        (code(state="st-2"), "auth_response.state", ErrorKind.INVALID_INPUT),
        (code(state="st-1", more="x"), "auth_response.more", ErrorKind.INVALID_INPUT),
        ({"type": "oauth2", "authorization_code": "", "state": "st-1"}, "auth_response.authorization_code",
         ErrorKind.INVALID_INPUT),
    ],
)  # fmt: skip
def test_a_wrong_answer_changes_nothing_and_is_not_repeated(
    tmp_path: Path, response: JsonObject | str | None, field: str, kind: ErrorKind
) -> None:
    async def scenario() -> None:
        launcher = FakeLauncher(tmp_path / "launcher")
        launcher.program = asks({**SEED, "state": "st-1"})  # type: ignore[assignment]  # a program
        async with launcher.serving(), authenticating(tmp_path, launcher) as (made, _):
            task_id = await made.create()
            await made.until(task_id, "auth_required")
            error = await made.refused("task.authenticate", {"task_id": task_id, "auth_response": response})
            assert (error.kind, error.field) == (kind, field)
            assert SECRET not in str(error.wire())
            assert (await made.task(task_id)).status == "auth_required"
            assert await made.count("secrets") == 0

    play(scenario())


def test_only_who_controls_the_task_and_only_while_it_asks(tmp_path: Path) -> None:
    async def scenario() -> None:
        launcher = FakeLauncher(tmp_path / "launcher")
        launcher.program = asks(SEED)  # type: ignore[assignment]  # a program
        async with launcher.serving(), authenticating(tmp_path, launcher) as (made, _):
            task_id = await made.create()
            await made.until(task_id, "auth_required")
            made.authority.answers["control-others"] = Decision.DENIED
            params: JsonObject = {"task_id": task_id, "auth_response": code()}
            assert (await made.refused("task.authenticate", params, OTHER)).kind is ErrorKind.TASK_NOT_FOUND
            await made.invoke("task.authenticate", params)
            await made.ended(task_id)
            assert (await made.refused("task.authenticate", params)).kind is ErrorKind.TASK_COMPLETED

    play(scenario())


def test_the_secret_is_wiped_whatever_becomes_of_the_call(tmp_path: Path) -> None:
    async def scenario() -> None:
        launcher = FakeLauncher(tmp_path / "launcher")
        launcher.program = asks(SEED)  # type: ignore[assignment]  # a program
        async with launcher.serving(), authenticating(tmp_path, launcher) as (made, _):
            task_id = await made.create()
            await made.until(task_id, "auth_required")
            from tests.unit.core.rig import USER

            for response in (code(unknown="x"), code()):
                buffer = bytearray(json.dumps(response).encode())
                try:
                    await made.manager.invoke("task.authenticate", USER, {"task_id": task_id}, SecretText(buffer))
                except Exception as error:  # noqa: BLE001  the first is refused
                    assert "unknown" in str(error.__dict__)
                assert not any(buffer)
            await made.ended(task_id)

    play(scenario())


def test_an_accepted_answer_outlives_a_crash_and_is_handed_over_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        launcher = FakeLauncher(tmp_path / "launcher")
        launcher.program = asks(SEED)  # type: ignore[assignment]  # a program
        async with launcher.serving():
            async with authenticating(tmp_path, launcher) as (made, handover):
                task_id = await made.create()
                await made.until(task_id, "auth_required")

                async def crash(watch: Watch) -> None:
                    await asyncio.sleep(0)

                handover.pass_on = crash  # type: ignore[method-assign]  # the daemon dies before it hands over
                await made.invoke("task.authenticate", {"task_id": task_id, "auth_response": code()})
                assert await made.count("secrets") == 1
            assert SECRET.encode() not in await asyncio.to_thread(everything, tmp_path)
            async with authenticating(tmp_path, launcher) as (made, handover):
                while await handover.sweep():  # noqa: ASYNC110  the shim has no event for it
                    await asyncio.sleep(0.01)
                await made.ended(task_id)
                assert [kind for kind, _ in launcher.made(task_id)[0].heard].count("authentication") == 1
                assert await made.count("secrets") == 0

    play(scenario())


def test_an_answer_for_a_task_that_has_ended_is_forgotten(tmp_path: Path) -> None:
    async def scenario() -> None:
        launcher = FakeLauncher(tmp_path / "launcher")
        launcher.program = asks(SEED)  # type: ignore[assignment]  # a program
        async with launcher.serving(), authenticating(tmp_path, launcher) as (made, handover):
            task_id = await made.create()
            await made.until(task_id, "auth_required")

            async def crash(watch: Watch) -> None:
                await asyncio.sleep(0)

            handover.pass_on = crash  # type: ignore[method-assign]  # not handed over
            await made.invoke("task.authenticate", {"task_id": task_id, "auth_response": code()})
            launcher.made(task_id)[0].end(1)
            await made.ended(task_id)
            assert await made.count("secrets") == 0

    play(scenario())


@pytest.mark.parametrize("kind", ["auth", "input"])
def test_nobody_in_time_ends_the_task_and_its_program(tmp_path: Path, kind: str) -> None:
    async def program(run: FakeRun) -> None:
        await run.go()
        asked: JsonObject = {"interaction": 1, "kind": kind, "prompt": "?", "timeout_ms": 100,
                             "auth_request": {**SEED, "timeout_ms": 100}}  # fmt: skip
        run.say("task_interaction", asked)
        await run.hear("cancel")
        run.end(1, stopped_by="cancel")

    async def scenario() -> None:
        launcher = FakeLauncher(tmp_path / "launcher")
        launcher.program = program
        async with launcher.serving(), authenticating(tmp_path, launcher) as (made, _):
            task_id = await made.create()
            task = await made.ended(task_id)
            assert (task.status, task.reason) == ("failed", f"{kind}-timeout")
            assert timed_out(task, 100)
            async with asyncio.timeout(30):
                while launcher.made(task_id)[0].active:  # noqa: ASYNC110  the run has no event of its own
                    await asyncio.sleep(0.01)

    play(scenario())


def test_the_time_limit_holds_across_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour asked, and a second less without a daemon: one that began anew would outlast this test."""

    async def scenario() -> None:
        launcher = FakeLauncher(tmp_path / "launcher")
        launcher.program = asks({**SEED, "timeout_ms": 3_600_000})  # type: ignore[assignment]  # a program
        async with launcher.serving():
            async with authenticating(tmp_path, launcher) as (made, _):
                task_id = await made.create()
                await made.until(task_id, "auth_required")
            now, boottime = clock.now, clock.boottime
            monkeypatch.setattr(clock, "now", lambda: now() + 3_599 * clock.MICROSECONDS)
            monkeypatch.setattr(clock, "boottime", lambda: boottime() + 3_599)
            async with authenticating(tmp_path, launcher) as (made, _):
                task = await made.ended(task_id)
                assert task.reason == "auth-timeout"

    play(scenario())


def test_one_that_was_answered_does_not_expire(tmp_path: Path) -> None:
    async def program(run: FakeRun) -> None:
        await run.go()
        run.say(
            "task_interaction",
            {"interaction": 1, "kind": "auth", "auth_request": {"type": "api_key", "timeout_ms": 200}},
        )
        await run.hear("authentication")
        await asyncio.sleep(0.5)
        run.end(0)

    async def scenario() -> None:
        launcher = FakeLauncher(tmp_path / "launcher")
        launcher.program = program
        async with launcher.serving(), authenticating(tmp_path, launcher) as (made, _):
            task_id = await made.create()
            await made.until(task_id, "auth_required")
            response: JsonObject = {"type": "api_key", "api_key": "k"}
            await made.invoke("task.authenticate", {"task_id": task_id, "auth_response": response})
            assert (await made.ended(task_id)).status == "completed"

    play(scenario())


@pytest.mark.parametrize(
    "asked",
    [None, {}, {"type": "magic"}, {"type": "oauth2"}, {**SEED, "authorization_url": "http://example.com/"},
     {**SEED, "authorization_url": "javascript:alert(1)"}, {**SEED, "authorization_url": "https://u:p@example.com/"},
     {**SEED, "authorization_url": "https://example.com/\x1b[2J"}],
)  # fmt: skip
def test_what_nobody_can_answer_is_not_asked(asked: object) -> None:
    with pytest.raises(RequestError):
        request({"auth_request": asked})  # type: ignore[dict-item]  # also what is no JSON object


def test_a_request_keeps_what_is_known_and_bounded() -> None:
    kept = request({"auth_request": {**SEED, "evil": "x", "timeout_ms": -1, "scopes": ["a"] * 100, "state": "a b"}})
    assert "evil" not in kept
    assert "timeout_ms" not in kept
    assert "state" not in kept
    assert kept["scopes"] == ["a"] * 64
