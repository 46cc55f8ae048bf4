"""A user's questions wait for that user's own, and are never more than the bus lets one connection have."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from aiosd.auth.decision import Decision
from aiosd.auth.policy import Action
from aiosd.core.authorization import LOOKS, LOOKS_EACH, Authorizer
from aiosd.core.fair import Fair
from aiosd.core.manager import LONG
from aiosd.core.operations import Reply
from tests.unit.core.rig import OTHER, USER, FakeAuthority, FakePlaces, core, play

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pytest

    from aiosd.auth.caller import Caller, Subject
    from aiosd.model.jsontext import JsonObject


class Slow(FakeAuthority):
    """Decides when it is told to; counts whose questions are before it."""

    def __init__(self) -> None:
        super().__init__()
        self.before: Counter[Subject] = Counter()
        self.most = 0
        self.gate = asyncio.Event()

    async def check(
        self, subject: Subject, action_id: str, details: Mapping[str, str], *, interactive: bool
    ) -> Decision:
        self.before[subject] += 1
        self.most = max(self.most, self.before.total())
        if subject == USER.subject:
            await self.gate.wait()
        self.before[subject] -= 1
        return Decision.ALLOWED


def test_who_asks_a_thousand_times_is_before_nobody_else() -> None:
    async def scenario() -> None:
        authority = Slow()
        authorizer = Authorizer(authority, FakePlaces())
        async with asyncio.TaskGroup() as group:
            flood = [group.create_task(authorizer.look(USER, Action.RUN_PUBLIC, {})) for _ in range(1000)]
            await asyncio.sleep(0)
            assert await authorizer.look(OTHER, Action.RUN_PUBLIC, {}) is Decision.ALLOWED
            assert authority.before[USER.subject] == LOOKS_EACH
            authority.gate.set()
        assert {one.result() for one in flood} == {Decision.ALLOWED}
        assert authority.most <= LOOKS_EACH + 1 <= LOOKS

    play(scenario())


def test_all_together_have_an_end_and_nobody_is_kept_in_mind() -> None:
    async def scenario() -> None:
        fair, gate, inside = Fair(2, 5), asyncio.Event(), 0

        async def come(uid: int) -> None:
            nonlocal inside
            async with fair.place(uid):
                inside += 1
                assert inside <= 5
                await gate.wait()
                inside -= 1

        async with asyncio.TaskGroup() as group:
            for uid in range(10):
                for _ in range(3):
                    group.create_task(come(uid))
            await asyncio.sleep(0.01)
            assert inside == 5
            gate.set()
        assert fair._users == {}

    play(scenario())


def test_a_user_who_reads_much_keeps_nobody_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of operations that answer with some MiB a user has two done at a time."""

    async def scenario() -> None:
        async with core(tmp_path) as aios:
            entered: asyncio.Queue[int] = asyncio.Queue()
            gate = asyncio.Event()

            async def slow(caller: Caller, _params: object) -> Reply:
                entered.put_nowait(caller.uid)
                await gate.wait()
                return Reply({})

            for name in LONG:
                monkeypatch.setitem(aios.manager._handlers, name, slow)
            calls: dict[str, JsonObject] = {
                "session.timeline": {"session_id": "ps-1"}, "message.list": {"session_id": "ps-1"}, "audit.query": {},
                "session.list": {}, "plan.get": {"session_id": "ps-1"}, "feed.subscribe": {"feed": "session_feed"},
                "task.resubscribe": {"last_event_id": "evt-1"},
            }  # fmt: skip
            assert calls.keys() == LONG
            begun = [asyncio.create_task(aios.invoke(*one)) for one in calls.items()]
            assert [await entered.get() for _ in range(2)] == [USER.uid] * 2
            begun.append(asyncio.create_task(aios.invoke("session.list", {}, OTHER)))
            assert await entered.get() == OTHER.uid
            assert entered.empty()
            gate.set()
            await asyncio.gather(*begun)

    play(scenario())
