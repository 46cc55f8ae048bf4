"""Where a caller runs, asked of a bus and a systemd of every age, as they answer (org.freedesktop.systemd1(5))."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest

from aiosd.auth.caller import BusSubject, ProcessSubject
from aiosd.auth.places import PlaceError
from aiosd.bus.connection import Answer, BusCallError, Call, Variant
from aiosd.bus.places import SYSTEMD, BusPlaces

if TYPE_CHECKING:
    from aiosd.auth.caller import Subject

SCOPE = "aios-task-run-01jdxg3v7m9q2w4e6r8t0y1abc.scope"
PATH = "/org/freedesktop/systemd1/unit/aios_2dtask_2drun_2d01jdxg3v7m9q2w4e6r8t0y1abc_2escope"
UNKNOWN = BusCallError("org.freedesktop.DBus.Error.UnknownMethod", "Unknown method GetUnitByPIDFD")
NONE = BusCallError(f"{SYSTEMD}.NoUnitForPID", "PID 7 does not belong to any loaded unit.")
SENDER = BusSubject(":1.7")
PEER = ProcessSubject(7, 0, 1000, 3)


class FakeBus:
    """Answers by member; keeps what it was asked, and the descriptors that it gave."""

    def __init__(self, **answers: Answer | BusCallError) -> None:
        self.answers = answers
        self.calls: list[tuple[str, tuple[object, ...], tuple[int, ...]]] = []

    async def call(self, call: Call) -> Answer:
        self.calls.append((call.member, call.body, call.fds))
        answer = self.answers[call.member]
        if isinstance(answer, BusCallError):
            raise answer
        return answer


def credentials(*fds: int, **told: object) -> Answer:
    return Answer(
        "a{sv}", ({key: Variant("u" if key != "ProcessFD" else "h", value) for key, value in told.items()},), fds
    )


def asked(bus: FakeBus, subject: Subject) -> str:
    return asyncio.run(BusPlaces(bus).unit_of(subject))  # type: ignore[arg-type]  # all that it uses


def test_by_pidfd_where_both_know_it() -> None:
    here, there = os.pipe()
    os.close(there)
    bus = FakeBus(
        GetConnectionCredentials=credentials(here, ProcessID=7, ProcessFD=0),
        GetUnitByPIDFD=Answer("osay", (PATH, SCOPE, b"")),
    )
    assert asked(bus, SENDER) == SCOPE
    assert bus.calls == [("GetConnectionCredentials", (":1.7",), ()), ("GetUnitByPIDFD", (0,), (here,))]
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(here)  # it was ours to close


def test_by_number_where_one_does_not() -> None:
    bus = FakeBus(GetConnectionCredentials=credentials(ProcessID=7), GetUnitByPID=Answer("o", (PATH,)))
    assert asked(bus, SENDER) == SCOPE
    bus = FakeBus(GetUnitByPIDFD=UNKNOWN, GetUnitByPID=Answer("o", (PATH,)))
    assert asked(bus, PEER) == SCOPE
    assert [call[0] for call in bus.calls] == ["GetUnitByPIDFD", "GetUnitByPID"]


def test_in_no_unit_and_from_outside() -> None:
    assert asked(FakeBus(GetUnitByPIDFD=NONE), ProcessSubject(os.getpid(), 0, 1000, 3)) == ""
    assert asked(FakeBus(), ProcessSubject(0, 0, 1000, 3)) == ""


def test_who_has_ended_may_have_been_anywhere() -> None:
    """A program of a task connects, and lets a child go on with the connection: nothing says where that is."""
    pid = os.posix_spawn("/bin/true", ["true"], {})
    os.waitpid(pid, 0)
    with pytest.raises(PlaceError, match="has ended"):
        asked(FakeBus(GetConnectionCredentials=credentials(ProcessID=pid), GetUnitByPID=NONE), SENDER)


@pytest.mark.parametrize(
    "answers",
    [
        {"GetUnitByPIDFD": BusCallError("org.freedesktop.DBus.Error.NoReply", "no answer in 10 s")},
        {"GetUnitByPIDFD": BusCallError("org.freedesktop.DBus.Error.UnixProcessIdUnknown", "No such process")},
        {"GetUnitByPIDFD": UNKNOWN, "GetUnitByPID": BusCallError("org.freedesktop.DBus.Error.AccessDenied", "no")},
        {"GetUnitByPIDFD": Answer("", ())},
    ],
)
def test_what_is_not_told_is_no_answer(answers: dict[str, Answer | BusCallError]) -> None:
    with pytest.raises(PlaceError):
        asked(FakeBus(**answers), PEER)


def test_a_bus_that_does_not_say_who_it_is() -> None:
    with pytest.raises(PlaceError):
        asked(FakeBus(GetConnectionCredentials=Answer("a{sv}", ({},))), SENDER)
