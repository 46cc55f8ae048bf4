"""The kernel's word that the wall clock was set, or that the machine has slept: a timer that is never due.

timerfd_create(2): a timer for a moment of CLOCK_REALTIME that is marked TFD_TIMER_CANCEL_ON_SET becomes readable, and
read(2) fails with ECANCELED, at each discontinuous change of that clock. Waking up is one, because this clock has gone
on while the timers' own stood still. Until then it costs nothing. systemd's `OnClockChange=` (systemd.timer(5)) is the
same.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_NEVER = 9_223_372_036
"""Seconds since the epoch: the year 2262, the last that the kernel's nanoseconds can name."""
_COUNT = 8
"""Bytes that a timer which has expired tells."""

if sys.version_info >= (3, 13):

    def _timer() -> int:
        fd = os.timerfd_create(time.CLOCK_REALTIME, flags=os.TFD_NONBLOCK | os.TFD_CLOEXEC)
        try:
            os.timerfd_settime(fd, flags=os.TFD_TIMER_ABSTIME | os.TFD_TIMER_CANCEL_ON_SET, initial=_NEVER)
        except OSError:
            os.close(fd)
            raise
        return fd

else:

    def _timer() -> int:
        """A descriptor of such a timer. Raises OSError."""
        import ctypes
        import struct

        libc = ctypes.CDLL(None, use_errno=True)
        fd = int(libc.timerfd_create(ctypes.c_int(time.CLOCK_REALTIME), ctypes.c_int(os.O_NONBLOCK | os.O_CLOEXEC)))
        if fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        absolute, cancel_on_set = 1, 2
        when = struct.pack("@4l", 0, 0, _NEVER, 0)  # struct itimerspec
        if libc.timerfd_settime(ctypes.c_int(fd), ctypes.c_int(absolute | cancel_on_set), when, None) < 0:
            number = ctypes.get_errno()
            os.close(fd)
            raise OSError(number, "timerfd_settime")
        return fd


@contextmanager
def heard(listener: Callable[[], None]) -> Iterator[None]:
    """Have `listener` called on the running loop at each step of the clock.

    Raises OSError when the kernel has no such timer.
    """
    loop = asyncio.get_running_loop()
    fd = _timer()

    def on_readable() -> None:
        with suppress(OSError):  # ECANCELED, as it is meant
            os.read(fd, _COUNT)
        listener()

    loop.add_reader(fd, on_readable)
    try:
        yield
    finally:
        loop.remove_reader(fd)
        os.close(fd)
