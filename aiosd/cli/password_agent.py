"""Asking for a password on the terminal when there is no graphical agent: pkttyagent(1), for the length of a call."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

READY_TIMEOUT = 5.0
"""Seconds that the agent has for its registration with polkit; then the call is made without it."""


@contextlib.asynccontextmanager
async def agent() -> AsyncIterator[None]:
    """pkttyagent for this process while the context lasts. `--fallback`: a graphical agent goes first."""
    program = shutil.which("pkttyagent")
    if program is None:
        yield
        return
    reading, writing = os.pipe()
    command = [program, "--process", str(os.getpid()), "--fallback", "--notify-fd", str(writing)]
    try:
        # Its own messages would mix with ours; what it asks goes to the terminal itself, not to these.
        child = subprocess.Popen(command, pass_fds=(writing,), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603, ASYNC220 - fork and exec only: what takes time is waited for below
    except OSError:
        os.close(reading)
        yield
        return
    finally:
        os.close(writing)
    try:
        await _until_closed(reading)
        yield
    finally:
        os.close(reading)
        _end(child)


async def _until_closed(descriptor: int) -> None:
    """The agent closes its end once it is registered (or has ended)."""
    import asyncio

    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ready.wait(), READY_TIMEOUT)
    finally:
        loop.remove_reader(descriptor)


def _end(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(timeout=2)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
