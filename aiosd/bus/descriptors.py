"""Secrets that come by descriptor: a pipe or a memfd holds the JSON, so that it never is in a message of the bus.

Read without blocking the loop, within a time and a size, into a buffer that can be wiped. Other files are refused: a
read of one could hang for as long as its owner likes.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import stat
from typing import TYPE_CHECKING

from aiosd.bus.values import invalid
from aiosd.model.secrettext import MAX_SECRET_BYTES, SecretText, SecretTextError, wipe

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

    from aiosd.bus.message import BusValue

READ_SECONDS = 10.0
"""How long a sender may take until it has written all and closed its end."""


class Received:
    """The descriptors of a call, owned. A context manager that closes them; so does its end of life."""

    def __init__(self, fds: Sequence[int]) -> None:
        """Take `fds` over."""
        self._files = [os.fdopen(fd, "rb", buffering=0) for fd in fds]

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        for file in self._files:
            file.close()

    async def secret(self, field: str, index: BusValue, *, within: float = READ_SECONDS) -> SecretText:
        """What the descriptor of that index holds. Raises AiosError (InvalidParams). The reader wipes it."""
        if not isinstance(index, int) or not 0 <= index < len(self._files):
            raise invalid(field, "no descriptor of that index came with the call")
        fd = self._files[index].fileno()
        buffer = bytearray(MAX_SECRET_BYTES + 1)
        try:
            size = await _filled(field, fd, buffer, within)
            # A copy of the right length: shrinking a bytearray may move it and leave the old place as it was.
            return SecretText(bytearray(memoryview(buffer)[:size]))
        except SecretTextError as error:
            raise invalid(field, str(error)) from None
        finally:
            wipe(buffer)


async def _filled(field: str, fd: int, buffer: bytearray, within: float) -> int:
    mode = os.fstat(fd).st_mode
    try:
        if stat.S_ISFIFO(mode):
            async with asyncio.timeout(within):
                return await _from_pipe(fd, buffer)
        if stat.S_ISREG(mode) and _is_in_memory(fd):
            return os.preadv(fd, [buffer], 0)
    except TimeoutError:
        raise invalid(field, f"the writer did not close the pipe within {within:g} s") from None
    except OSError as error:
        raise invalid(field, f"cannot be read: {error.strerror}") from None
    raise invalid(field, "must be a pipe or a memfd")


def _is_in_memory(fd: int) -> bool:
    """Whether it is of shared memory, where a read never waits: only such files have seals (fcntl(2))."""
    try:
        fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError as error:
        if error.errno == errno.EINVAL:
            return False
        raise
    return True


async def _from_pipe(fd: int, buffer: bytearray) -> int:
    os.set_blocking(fd, False)
    loop = asyncio.get_running_loop()
    size = 0
    with memoryview(buffer) as view:
        while size < len(buffer):
            try:
                count = os.readv(fd, [view[size:]])
            except BlockingIOError:
                await _readable(loop, fd)
                continue
            if count == 0:
                break
            size += count
    return size


async def _readable(loop: asyncio.AbstractEventLoop, fd: int) -> None:
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(fd, lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(fd)
