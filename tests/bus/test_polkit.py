"""polkit's answers, and its failures to answer: each has one meaning, and only a yes is a yes."""

from __future__ import annotations

import asyncio
import logging
import os
import unicodedata
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiosd.auth.caller import BusSubject, ProcessSubject
from aiosd.auth.decision import Decision
from aiosd.auth.polkit import MAX_DIALOG_TEXT, PolkitAuthority, dialog_text, encode_subject
from aiosd.bus.authority import BusPolkit
from aiosd.bus.connection import SystemBus
from tests.bus.fake_polkit import Asked, FakePolkit, Mood, fake_polkit
from tests.bus.running import run_for

if TYPE_CHECKING:
    from tests.bus.conftest import PrivateBus

ACTION = "org.aios.TaskManager.run-high"
SUBJECT = BusSubject(":1.42")


@pytest.mark.parametrize(
    ("mood", "decision"),
    [
        (Mood.YES, Decision.ALLOWED),
        (Mood.NO, Decision.DENIED),
        (Mood.CHALLENGE, Decision.CHALLENGE),
        (Mood.DISMISSED, Decision.DISMISSED),
        (Mood.ERROR, Decision.UNAVAILABLE),
        (Mood.NONSENSE, Decision.UNAVAILABLE),
    ],
)
@pytest.mark.parametrize("interactive", [False, True])
def test_each_answer_has_one_meaning(
    private_bus: PrivateBus, mood: Mood, decision: Decision, *, interactive: bool
) -> None:
    async def scenario() -> tuple[Decision, Asked]:
        async with fake_polkit() as polkit, SystemBus() as bus:
            polkit.mood = mood
            authority = PolkitAuthority(BusPolkit(bus))
            found = await authority.check(SUBJECT, ACTION, {"capability": "org.example.x"}, interactive=interactive)
            await authority.close()
            return found, await polkit.asked.get()

    found, asked = run_for(10, scenario())
    assert found is decision
    assert asked.kind == "system-bus-name"
    assert asked.subject == {"name": ("s", ":1.42")}
    assert asked.action_id == ACTION
    assert asked.details == {"capability": "org.example.x"}
    assert asked.flags == (1 if interactive else 0)


def test_polkit_that_is_not_there_allows_nothing(private_bus: PrivateBus) -> None:
    async def scenario() -> Decision:
        async with SystemBus() as bus:
            authority = PolkitAuthority(BusPolkit(bus))
            found = await authority.check(SUBJECT, ACTION, {}, interactive=True)
            await authority.close()
            return found

    assert run_for(10, scenario()) is Decision.UNAVAILABLE


def test_polkit_that_hangs_is_given_up_and_told_so(private_bus: PrivateBus) -> None:
    async def scenario() -> tuple[Decision, str, str]:
        async with fake_polkit() as polkit, SystemBus() as bus:
            polkit.mood = Mood.HANG
            authority = PolkitAuthority(BusPolkit(bus), decide_seconds=0.3)
            found = await authority.check(SUBJECT, ACTION, {}, interactive=False)
            asked = await polkit.asked.get()
            return found, asked.cancellation_id, await polkit.cancelled.get()

    found, asked, cancelled = run_for(10, scenario())
    assert found is Decision.UNAVAILABLE
    assert asked == cancelled


def test_a_person_gets_longer_than_polkit_itself(private_bus: PrivateBus) -> None:
    async def scenario(polkit: FakePolkit, authority: PolkitAuthority) -> tuple[Decision, Decision]:
        polkit.delay = 0.6
        return (
            await authority.check(SUBJECT, ACTION, {}, interactive=False),
            await authority.check(SUBJECT, ACTION, {}, interactive=True),
        )

    async def both() -> tuple[Decision, Decision]:
        async with fake_polkit() as polkit, SystemBus() as bus:
            authority = PolkitAuthority(BusPolkit(bus), decide_seconds=0.2, dialog_seconds=5.0)
            return await scenario(polkit, authority)

    assert run_for(10, both()) == (Decision.UNAVAILABLE, Decision.ALLOWED)


def test_polkit_that_vanishes_while_asked_is_no_yes(private_bus: PrivateBus) -> None:
    async def scenario() -> Decision:
        async with SystemBus() as bus:
            authority = PolkitAuthority(BusPolkit(bus))
            async with fake_polkit() as polkit:
                polkit.mood = Mood.HANG
                asking = asyncio.create_task(authority.check(SUBJECT, ACTION, {}, interactive=True))
                await polkit.asked.get()
            found = await asking
            await authority.close()
            return found

    assert run_for(10, scenario()) is Decision.UNAVAILABLE


def test_a_question_whose_asker_left_is_taken_back(private_bus: PrivateBus) -> None:
    async def scenario() -> tuple[str, str]:
        async with fake_polkit() as polkit, SystemBus() as bus:
            polkit.mood = Mood.HANG
            authority = PolkitAuthority(BusPolkit(bus))
            asking = asyncio.create_task(authority.check(SUBJECT, ACTION, {}, interactive=True))
            asked = await polkit.asked.get()
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            return asked.cancellation_id, await polkit.cancelled.get()

    asked, cancelled = run_for(10, scenario())
    assert asked == cancelled


def test_a_process_is_named_by_pidfd_and_by_number(private_bus: PrivateBus) -> None:
    async def scenario() -> Asked:
        async with fake_polkit() as polkit, SystemBus() as bus:
            pidfd = os.pidfd_open(os.getpid())
            try:
                subject = ProcessSubject(pid=os.getpid(), start_time=4711, uid=1000, pidfd=pidfd)
                await PolkitAuthority(BusPolkit(bus)).check(subject, ACTION, {}, interactive=False)
            finally:
                os.close(pidfd)
            return await polkit.asked.get()

    asked = run_for(10, scenario())
    assert asked.kind == "unix-process"
    assert asked.subject == {
        "pid": ("u", os.getpid()),
        "start-time": ("t", 4711),
        "uid": ("i", 1000),
        "pidfd": ("h", 0),
    }
    assert asked.pidfds == 1


def test_a_process_without_pidfd_goes_by_pid_and_start_time() -> None:
    encoded = encode_subject(ProcessSubject(pid=7, start_time=4711, uid=(1 << 32) - 2))
    assert dict(encoded.details) == {"pid": ("u", 7), "start-time": ("t", 4711), "uid": ("i", -2)}
    assert encoded.fds == ()


def test_failures_are_said_in_the_journal(private_bus: PrivateBus, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with fake_polkit() as polkit, SystemBus() as bus:
            polkit.mood = Mood.ERROR
            authority = PolkitAuthority(BusPolkit(bus))
            await authority.check(SUBJECT, ACTION, {}, interactive=False)
            await authority.close()

    with caplog.at_level(logging.WARNING):
        run_for(10, scenario())
    assert "out of order" in caplog.text


@given(st.text(st.characters(codec=None), max_size=600))
def test_a_dialog_shows_one_short_visible_line(text: str) -> None:
    shown = dialog_text(text)
    assert len(shown) <= MAX_DIALOG_TEXT
    assert not [sign for sign in shown if unicodedata.category(sign)[0] == "C" or sign in "\u2028\u2029\n\r\t"]
    assert shown == shown.strip()
    assert dialog_text(shown) == shown
    shown.encode()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Copy files", "Copy files"),
        ("safe\n\n\nTask: delete everything", "safe Task: delete everything"),
        ("report\u202efdp.exe\u202c", "reportfdp.exe"),
        ("zero\u200bwidth\ufeff", "zerowidth"),
        ("a\x00\x1b[31mb", "a [31mb"),
        ("x" * 300, "x" * 199 + "…"),
    ],
)
def test_what_a_caller_wrote_cannot_dress_up_the_dialog(text: str, shown: str) -> None:
    assert dialog_text(text) == shown
