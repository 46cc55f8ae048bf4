"""In which unit a caller runs, by the bus and the service manager (org.freedesktop.systemd1(5)), for auth/places.py.

By pidfd where both ends know it, so that the answer is about the process that called and not about a later one of its
number; before systemd 253, and where the bus tells no pidfd, by number.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aiosd.auth.caller import BusSubject
from aiosd.auth.places import PlaceError
from aiosd.bus.connection import DBUS, DBUS_PATH, BusCallError, Call, Variant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiosd.auth.caller import Subject
    from aiosd.bus.connection import Answer, SystemBus

SYSTEMD = "org.freedesktop.systemd1"
PATH = "/org/freedesktop/systemd1"
MANAGER = "org.freedesktop.systemd1.Manager"
OUTSIDE = 0
"""The number of a process outside of our namespace of them (pid_namespaces(7)): none of ours, so in no task."""
SECONDS = 10.0
"""Longest wait for either."""
_NO_UNIT = frozenset({f"{SYSTEMD}.NoUnitForPID", f"{SYSTEMD}.NoUnitForInvocationID"})
_UNKNOWN_METHOD = "org.freedesktop.DBus.Error.UnknownMethod"


class BusPlaces:
    """`Places` on one connection."""

    def __init__(self, bus: SystemBus) -> None:
        """`bus` is connected."""
        self._bus = bus

    async def unit_of(self, subject: Subject) -> str:
        """The unit that the caller's process is in, "" for none. Raises PlaceError."""
        try:
            if not isinstance(subject, BusSubject):
                if subject.pid == OUTSIDE:
                    return ""
                return await self._unit(subject.pid, subject.pidfd)
            call = Call(DBUS, DBUS_PATH, DBUS, "GetConnectionCredentials", "s", (subject.name,), (), SECONDS)
            with _closing(await self._bus.call(call)) as answer:
                pid, pidfd = _process(answer)
                return await self._unit(pid, pidfd)
        except BusCallError as error:
            raise PlaceError(str(error)) from error

    async def _unit(self, pid: int, pidfd: int | None) -> str:
        try:
            if pidfd is not None:
                try:
                    answer = await self._bus.call(
                        Call(SYSTEMD, PATH, MANAGER, "GetUnitByPIDFD", "h", (0,), (pidfd,), SECONDS)
                    )
                    return answer.text(1)
                except BusCallError as error:
                    if error.name != _UNKNOWN_METHOD:
                        raise
            answer = await self._bus.call(Call(SYSTEMD, PATH, MANAGER, "GetUnitByPID", "u", (pid,), (), SECONDS))
            return _name(answer.text())
        except BusCallError as error:
            if error.name not in _NO_UNIT:
                raise
            if not _is_there(pid):
                raise PlaceError("the process that connected has ended") from error
            return ""


def _is_there(pid: int) -> bool:
    """Whether there is a process of that number: one that has ended is in no unit either, wherever it was."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


@contextmanager
def _closing(answer: Answer) -> Iterator[Answer]:
    try:
        yield answer
    finally:
        for fd in answer.fds:
            os.close(fd)


def _process(answer: Answer) -> tuple[int, int | None]:
    """Number and pidfd of GetConnectionCredentials. Raises PlaceError."""
    told = answer.body[0] if answer.body else None
    found = {}
    for key, value in told.items() if isinstance(told, Mapping) else ():
        found[key] = value.value if isinstance(value, Variant) else value
    pid, place = found.get("ProcessID"), found.get("ProcessFD")
    if not isinstance(pid, int):
        raise PlaceError("the bus does not say which process it is")
    return pid, answer.fds[place] if isinstance(place, int) and place < len(answer.fds) else None


def _name(path: str) -> str:
    """A unit's name of its object path, where what is neither letter nor digit is `_` and two hexadecimal digits."""
    first, *rest = path.rpartition("/")[2].split("_")
    return first + "".join(chr(int(part[:2], 16)) + part[2:] for part in rest)
