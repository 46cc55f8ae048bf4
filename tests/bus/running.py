"""Run a coroutine from a plain test, with an end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


def run_for(seconds: float, work: Coroutine[object, object, T]) -> T:
    """Run `work` to its end; a test that hangs fails instead. Warnings of asyncio's debug mode are not wanted here."""

    async def bounded() -> T:
        async with asyncio.timeout(seconds):
            return await work

    return asyncio.run(bounded())
